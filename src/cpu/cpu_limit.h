// SPDX-License-Identifier: Apache-2.0
//
// How many CPUs a process may use at once: its affinity mask and the quota of its control groups,
// version 1 and 2. A container with a quota of two CPUs on a machine of 64 should run two threads.

#ifndef BOLIDE_CPU_LIMIT_H
#define BOLIDE_CPU_LIMIT_H

/* CPUs in the affinity mask; at least 1. */
int bolide__affinity_cpus(void);

/* Quota of the control groups, from this one up to the root, rounded up to whole CPUs; 0 if there
 * is none. root is put before every path that is read: "" in use, a folder in tests. */
int bolide__cgroup_cpus(const char *root);

#endif

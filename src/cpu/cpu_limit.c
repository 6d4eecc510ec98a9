// SPDX-License-Identifier: Apache-2.0
//
// Reads the affinity mask and the control-group quota. /proc/self/cgroup names the group,
// /proc/self/mountinfo where its hierarchy is mounted and which part of it: inside a container the
// group's path may start above the mount, so the mount's root is cut off first. Quotas nest: the
// smallest from the group up to the mount point holds.

#include "cpu/cpu_limit.h"

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 1024, LINE_BYTES = 4096 };

int bolide__affinity_cpus(void) {
    /* The kernel refuses a mask smaller than its own, so it grows until it fits. */
    for (int cpus = CPU_SETSIZE; cpus <= 1 << 18; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC(cpus);
        if (!set)
            break;
        const size_t bytes = CPU_ALLOC_SIZE(cpus);
        const int ok = sched_getaffinity(0, bytes, set) == 0;
        const int count = ok ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (ok)
            return count > 0 ? count : 1;
    }
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 && online < INT32_MAX ? (int)online : 1;
}

/* First line of root + folder + "/" + name; 0 if it cannot be read. */
static int read_line(const char *root, const char *folder, const char *name, char *line,
                     int bytes) {
    char path[2 * PATH_BYTES];
    const int length = snprintf(path, sizeof path, "%s%s/%s", root, folder, name);
    if (length < 0 || length >= (int)sizeof path)
        return 0;
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    const int ok = fgets(line, bytes, f) != NULL;
    fclose(f);
    return ok;
}

/* CPUs that one group allows, rounded up; 0: no limit. */
static int group_quota(const char *root, const char *folder, int version) {
    char line[128];
    long long quota = -1, period = 0;
    if (version == 2) {
        /* "max 100000" or "200000 100000" */
        if (!read_line(root, folder, "cpu.max", line, sizeof line) ||
            sscanf(line, "%lld %lld", &quota, &period) != 2)
            return 0;
    } else {
        if (!read_line(root, folder, "cpu.cfs_quota_us", line, sizeof line) ||
            sscanf(line, "%lld", &quota) != 1 ||
            !read_line(root, folder, "cpu.cfs_period_us", line, sizeof line) ||
            sscanf(line, "%lld", &period) != 1)
            return 0;
    }
    if (quota <= 0 || period <= 0)
        return 0;
    const long long cpus = (quota - 1) / period + 1;
    return cpus > INT32_MAX ? 0 : (int)cpus;
}

/* Whether a list such as "cpu,cpuacct" or "rw,cpu" has the word cpu. */
static int lists_cpu(const char *list) {
    for (const char *p = list; *p;) {
        const size_t length = strcspn(p, ",\n");
        if (length == 3 && memcmp(p, "cpu", 3) == 0)
            return 1;
        p += length + (p[length] != '\0');
    }
    return 0;
}

/* The path of this process in the hierarchy of the version, from "id:controllers:path". */
static int group_path(const char *root, int version, char *path) {
    char name[2 * PATH_BYTES], line[LINE_BYTES];
    int found = 0;
    snprintf(name, sizeof name, "%s/proc/self/cgroup", root);
    FILE *f = fopen(name, "re");
    while (f && !found && fgets(line, sizeof line, f)) {
        char *controllers = strchr(line, ':');
        char *where = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!where)
            continue;
        *controllers++ = '\0';
        *where++ = '\0';
        where[strcspn(where, "\n")] = '\0';
        const int match =
            version == 2 ? strcmp(line, "0") == 0 && !*controllers : lists_cpu(controllers);
        if (match && strlen(where) < PATH_BYTES) {
            memcpy(path, where, strlen(where) + 1);
            found = 1;
        }
    }
    if (f)
        fclose(f);
    return found;
}

/* Where the hierarchy is mounted (point) and which folder of it (top). A line of mountinfo is
 *     36 35 98:0 /top /point rw,noatime shared:1 - cgroup2 source options */
static int group_mount(const char *root, int version, char *top, char *point) {
    char name[2 * PATH_BYTES], line[LINE_BYTES];
    int found = 0;
    snprintf(name, sizeof name, "%s/proc/self/mountinfo", root);
    FILE *f = fopen(name, "re");
    while (f && !found && fgets(line, sizeof line, f)) {
        char type[32], options[1024];
        const char *tail = strstr(line, " - ");
        if (!tail || sscanf(line, "%*s %*s %*s %1023s %1023s", top, point) != 2 ||
            sscanf(tail, " - %31s %*s %1023s", type, options) != 2)
            continue;
        found = version == 2 ? strcmp(type, "cgroup2") == 0
                             : strcmp(type, "cgroup") == 0 && lists_cpu(options);
    }
    if (f)
        fclose(f);
    return found;
}

static int hierarchy_quota(const char *root, int version) {
    char path[PATH_BYTES], top[PATH_BYTES], point[PATH_BYTES], folder[2 * PATH_BYTES];
    if (!group_path(root, version, path) || !group_mount(root, version, top, point))
        return 0;
    const size_t cut = strcmp(top, "/") == 0 ? 0 : strlen(top);
    const char *below =
        strncmp(path, top, cut) == 0 && (path[cut] == '/' || !path[cut] || !cut) ? path + cut : "";
    snprintf(folder, sizeof folder, "%s%s", point, below);
    int least = 0;
    for (;;) {
        const int cpus = group_quota(root, folder, version);
        if (cpus > 0 && (least == 0 || cpus < least))
            least = cpus;
        char *slash = strrchr(folder, '/');
        if (!slash || strlen(folder) <= strlen(point))
            return least;
        *slash = '\0';
    }
}

int bolide__cgroup_cpus(const char *root) {
    const int v2 = hierarchy_quota(root, 2);
    const int v1 = hierarchy_quota(root, 1);
    return v1 == 0 || (v2 != 0 && v2 < v1) ? v2 : v1;
}

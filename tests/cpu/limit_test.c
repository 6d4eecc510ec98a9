// SPDX-License-Identifier: Apache-2.0
//
// The control-group quota, read from folders that look like those of the usual systems.

#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cpu/cpu_limit.h"
#include "cpu_test.h"

static char root[64];

/* Writes root/path, making the folders on the way. */
static void put(const char *path, const char *text) {
    char full[256];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *slash = strchr(full + strlen(root) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
    FILE *f = fopen(full, "w");
    if (f) {
        fputs(text, f);
        fclose(f);
    }
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where) {
    (void)info, (void)kind, (void)where;
    return remove(path);
}

static void begin(void) {
    snprintf(root, sizeof root, "/tmp/bolide-limit-XXXXXX");
    expect(mkdtemp(root) != NULL, "a folder for the quota test");
}

static void end(int want, const char *what) {
    const int got = bolide__cgroup_cpus(root);
    expect(got == want, "quota of %s: expected %d; got %d", what, want, got);
    nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static const char v2_mount[] = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";

static void test_version2(void) {
    begin();
    end(0, "nothing at all");

    begin();
    put("proc/self/cgroup", "0::/a/b\n");
    put("proc/self/mountinfo", v2_mount);
    put("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    end(0, "version 2 without a limit");

    begin();
    put("proc/self/cgroup", "0::/a/b\n");
    put("proc/self/mountinfo", v2_mount);
    put("sys/fs/cgroup/a/b/cpu.max", "250000 100000\n");
    end(3, "version 2 of 2.5 CPUs");

    begin();
    put("proc/self/cgroup", "0::/a/b\n");
    put("proc/self/mountinfo", v2_mount);
    put("sys/fs/cgroup/a/b/cpu.max", "800000 100000\n");
    put("sys/fs/cgroup/a/cpu.max", "150000 100000\n");
    end(2, "version 2 where the parent's holds");

    /* The group's path is that of the host, and the mount begins inside it. */
    begin();
    put("proc/self/cgroup", "0::/docker/123\n");
    put("proc/self/mountinfo", "30 23 0:26 /docker/123 /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
    put("sys/fs/cgroup/cpu.max", "100000 100000\n");
    end(1, "version 2 in a container");

    begin();
    put("proc/self/cgroup", "0::/docker/1234\n");
    put("proc/self/mountinfo", "30 23 0:26 /docker/123 /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
    put("sys/fs/cgroup/cpu.max", "1 100000\n");
    end(1, "version 2 with a path beside the mount");

    begin();
    put("proc/self/cgroup", "0::/a\n");
    put("proc/self/mountinfo", v2_mount);
    put("sys/fs/cgroup/a/cpu.max", "-5 0\n");
    end(0, "version 2 with nonsense");
}

static void test_version1(void) {
    const char *mount =
        "31 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "32 24 0:28 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n";
    begin();
    put("proc/self/cgroup", "5:cpuset:/x\n4:cpu,cpuacct:/job\n");
    put("proc/self/mountinfo", mount);
    put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "400000\n");
    put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
    end(4, "version 1");

    begin();
    put("proc/self/cgroup", "5:cpuset:/x\n4:cpu,cpuacct:/job\n");
    put("proc/self/mountinfo", mount);
    put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
    end(0, "version 1 without a limit");

    begin();
    put("proc/self/cgroup", "4:cpuacct:/job\n");
    put("proc/self/mountinfo", mount);
    put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "400000\n");
    put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
    end(0, "version 1 without the controller");
}

void test_limit(void) {
    test_version2();
    test_version1();
    const int cpus = bolide__affinity_cpus();
    expect(cpus >= 1 && cpus <= 1 << 18, "the affinity mask has %d CPUs", cpus);
    expect(bolide__cpu_threads(NULL) >= 1 && bolide__cpu_threads(NULL) <= cpus,
           "default threads lie between 1 and the affinity mask");
}

#include "train/base/cgroup.h"

#include "support/catch.h"
#include "train/temp_folder.h"

namespace tril::test {

TEST_CASE("cgroup: a quota limits processors, version 2") {
  const TempFolder root;
  CHECK_FALSE(cgroup_processors(root.path()).has_value());
  root.put("proc/self/cgroup", "0::/\n");
  CHECK_FALSE(cgroup_processors(root.path()).has_value());
  const auto with = [&](std::string_view limit) {
    root.put("sys/fs/cgroup/cpu.max", limit);
    return cgroup_processors(root.path());
  };
  CHECK_FALSE(with("max 100000\n").has_value());
  CHECK(with("200000 100000\n") == 2);
  CHECK(with("350000 100000\n") == 3);
  CHECK(with("50000 100000\n") == 1);
  CHECK(with("400000 50000\n") == 8);
  for (const char* nonsense : {"", "\n", "x y\n", "100000", "100000 0\n", "0 100000\n", "-1 100000\n"})
    CHECK_FALSE(with(nonsense).has_value());
}

TEST_CASE("cgroup: the tightest group on the way up counts") {
  const TempFolder root;
  root.put("proc/self/cgroup", "0::/outer/inner\n");
  root.put("sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n");
  root.put("sys/fs/cgroup/outer/cpu.max", "300000 100000\n");
  CHECK(cgroup_processors(root.path()) == 3);
  root.put("sys/fs/cgroup/outer/inner/cpu.max", "600000 100000\n");
  CHECK(cgroup_processors(root.path()) == 3);
  root.put("sys/fs/cgroup/outer/inner/cpu.max", "100000 100000\n");
  CHECK(cgroup_processors(root.path()) == 1);
}

TEST_CASE("cgroup: a quota limits processors, version 1") {
  const TempFolder root;
  root.put("proc/self/cgroup", "12:memory:/a\n4:cpu,cpuacct:/a/b\n1:name=systemd:/\n");
  root.put("sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_period_us", "100000\n");
  root.put("sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us", "-1\n");
  CHECK_FALSE(cgroup_processors(root.path()).has_value());
  root.put("sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us", "250000\n");
  CHECK(cgroup_processors(root.path()) == 2);
  const TempFolder other;
  other.put("proc/self/cgroup", "4:cpuset:/\n3:cpu:/\n");
  other.put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  other.put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n");
  CHECK(cgroup_processors(other.path()) == 1);
}

TEST_CASE("cgroup: the tightest limit of memory counts, version 2") {
  const TempFolder root;
  CHECK_FALSE(cgroup_memory(root.path()).has_value());
  root.put("proc/self/cgroup", "0::/outer/inner\n");
  root.put("sys/fs/cgroup/outer/inner/memory.max", "max\n");
  CHECK_FALSE(cgroup_memory(root.path()).has_value());
  root.put("sys/fs/cgroup/outer/memory.max", "536870912\n");
  CHECK(cgroup_memory(root.path()) == 536870912);
  root.put("sys/fs/cgroup/outer/inner/memory.max", "1073741824\n");
  CHECK(cgroup_memory(root.path()) == 536870912);
  for (const char* nonsense : {"", "x\n", "-1\n", "0\n"}) {
    root.put("sys/fs/cgroup/outer/memory.max", nonsense);
    CHECK(cgroup_memory(root.path()) == 1073741824);
  }
}

TEST_CASE("cgroup: a limit of memory, version 1") {
  const TempFolder root;
  root.put("proc/self/cgroup", "12:cpu:/a\n4:memory:/a/b\n0::/\n");
  root.put("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
  CHECK_FALSE(cgroup_memory(root.path()).has_value());
  root.put("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1000000\n");
  CHECK(cgroup_memory(root.path()) == 1000000);
}

}  // namespace tril::test

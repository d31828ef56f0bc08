#include "train/base/threads.h"

#include <sched.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "train/base/cgroup.h"
#include "train/program.h"

namespace tril::test {

// In a process of its own, since OpenMP reads its environment once.
TEST_CASE("threads: by default as many as the affinity, OMP_NUM_THREADS and the control group allow") {
  const Shell shell;
  const auto threads = [&](const std::string& around) {
    return nlohmann::json::parse(shell.run(around + " \"$TRIL\" info --json").out).at("threads").get<int>();
  };
  cpu_set_t set;
  REQUIRE(::sched_getaffinity(0, sizeof set, &set) == 0);
  int first = 0;
  while (!CPU_ISSET(first, &set)) ++first;
  const int granted = cgroup_processors().value_or(processors());
  CHECK(threads("env -u OMP_NUM_THREADS") == std::min(processors(), granted));
  CHECK(threads("OMP_NUM_THREADS=1") == 1);
  CHECK(threads("env -u OMP_NUM_THREADS taskset -c " + std::to_string(first)) == 1);
}

}  // namespace tril::test

#include "train/threads.h"

#if __has_include(<malloc.h>)
#include <malloc.h>
#endif
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "core/parallel.h"
#include "train/cgroup.h"

namespace tril {
int processors() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : available_threads();
}

int default_threads() {
  const int available = available_threads();
  return std::min(available, cgroup_processors().value_or(available));
}

void share_heap() {
#if defined(M_ARENA_MAX)
  (void)::mallopt(M_ARENA_MAX, 1);
#endif
}

void limit_spinning(char* const* argv) {
  constexpr const char *kName = "GOMP_SPINCOUNT", *kSpins = "20000";
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv(kName) != nullptr) return;
  std::error_code failed;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", failed);
  const std::string name = program.filename().string();
  if (name.starts_with("ld-") || name.starts_with("qemu")) return;  // started by hand, with the program as its argument
  if (!failed && ::setenv(kName, kSpins, 1) == 0) ::execv(program.c_str(), argv);
}

}  // namespace tril

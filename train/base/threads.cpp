#include "train/base/threads.h"

#if __has_include(<malloc.h>)
#include <malloc.h>
#endif
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "core/machine/parallel.h"
#include "train/base/cgroup.h"

namespace tril {
namespace {

// With a tenth of a millisecond, bf16 steps on a free machine seemed some hundredths slower.
constexpr double kPatience = 2.5e-4;  // seconds

// How many spins of OpenMP's runtime take so many seconds. Processors differ fivefold.
int64_t spins_of(double seconds) {
  constexpr int64_t kLooks = 256;
  std::atomic<int> place{0};
  double least = seconds;
  for (int i = 0; i < 8; ++i) {  // the least of several, as any may be interrupted
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t looks = 0; looks < kLooks && place.load(std::memory_order_relaxed) == 0; ++looks) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return std::llround(seconds / std::max(least, 1e-8) * kLooks);
}

}  // namespace

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
  constexpr const char* kName = "GOMP_SPINCOUNT";
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv(kName) != nullptr) return;
  std::error_code failed;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", failed);
  const std::string name = program.filename().string();
  if (name.starts_with("ld-") || name.starts_with("qemu")) return;  // started by hand, with the program as its argument
  const std::string spins = std::to_string(spins_of(kPatience));
  if (!failed && ::setenv(kName, spins.c_str(), 1) == 0) ::execv(program.c_str(), argv);
}

}  // namespace tril

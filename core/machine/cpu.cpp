#include "core/machine/cpu.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "core/base/check.h"
#include "core/machine/onednn.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tril {
namespace {

constexpr std::string_view kNames[] = {"baseline", "avx2", "avx512", "avx512_bf16", "amx"};

#if defined(__x86_64__) && defined(__linux__)
bool has_tiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kBf16Tiles = 1u << 22, kTiles = 1u << 24;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kBf16Tiles) != 0 && (d & kTiles) != 0;
}

// Linux grants the matrix unit's registers only to processes that request them.
bool tiles_are_lent() {
  constexpr long kAskPermission = 0x1023, kTileData = 18;
  return ::syscall(SYS_arch_prctl, kAskPermission, kTileData) == 0;
}
#else
bool has_tiles() { return false; }
bool tiles_are_lent() { return false; }
#endif

CpuLevel level_of_processor() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return CpuLevel::baseline;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
    return CpuLevel::avx2;
  if (!__builtin_cpu_supports("avx512bf16")) return CpuLevel::avx512;
  return has_tiles() ? CpuLevel::amx : CpuLevel::avx512_bf16;
#else
  return CpuLevel::baseline;
#endif
}

CpuLevel most_allowed() {
  const char* const asked = std::getenv("TRIL_MAX_ISA");
  if (asked == nullptr || *asked == '\0') return CpuLevel::amx;
  const auto* const name = std::find(std::begin(kNames), std::end(kNames), std::string_view(asked));
  TRIL_CHECK(name != std::end(kNames), "TRIL_MAX_ISA", "baseline, avx2, avx512, avx512_bf16 or amx",
             cat("'", asked, "'"));
  return static_cast<CpuLevel>(name - std::begin(kNames));
}

Cpu chosen() {
  Cpu cpu{level_of_processor(), most_allowed()};
  cpu.level = onednn_level(std::min(cpu.machine, cpu.level), cpu.level < cpu.machine);
  if (cpu.level == CpuLevel::amx && !tiles_are_lent()) cpu = {CpuLevel::avx512_bf16, CpuLevel::avx512_bf16};
  return cpu;
}

}  // namespace

std::string_view name_of(CpuLevel level) { return kNames[static_cast<size_t>(level)]; }

const Cpu& cpu() {
  static const Cpu cpu = chosen();
  return cpu;
}

}  // namespace tril

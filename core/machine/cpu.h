// What this machine's processor can do, and how much of it is used. It is determined once, here; every loop that has
// several variants picks by this one value. Any thread may call.
#pragma once

#include <cstdint>
#include <string_view>

namespace tril {

// Each level includes those before it. Off x86-64 there is only the baseline: what the compiler was told to use.
//   avx2         AVX2 and FMA
//   avx512       AVX-512 F, BW, VL and DQ
//   avx512_bf16  and its products of bf16
//   amx          and the matrix unit (AMX with bf16), if the system grants it
enum class CpuLevel : uint8_t { baseline, avx2, avx512, avx512_bf16, amx };

[[nodiscard]] std::string_view name_of(CpuLevel level);  // as TRIL_MAX_ISA spells it: "avx512_bf16"

struct Cpu {
  CpuLevel machine;  // what processor and system give
  CpuLevel level;    // what is used of it: no more than TRIL_MAX_ISA and oneDNN's own ONEDNN_MAX_CPU_ISA ask for
};

// Determined by the first call; the same from then on. If TRIL_MAX_ISA asks for less than the machine has, that call
// limits oneDNN, too. Throws if TRIL_MAX_ISA names no level. Making a Context calls it, so that this error is thrown
// there and not in a worker thread.
[[nodiscard]] const Cpu& cpu();

[[nodiscard]] inline bool cpu_has(CpuLevel level) {
  static const CpuLevel used = cpu().level;
  return used >= level;
}

}  // namespace tril

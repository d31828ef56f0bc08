// What this machine's processor can do, and how much of it is used. Asked once, here; all that has several forms of the
// same loop picks by this one value. Any thread may call.
#pragma once

#include <cstdint>
#include <string_view>

namespace tril {

// Each level holds those before it. Off x86-64 there is the baseline alone: what the compiler was told.
//   avx2         AVX2 and FMA
//   avx512       AVX-512 F, BW, VL and DQ
//   avx512_bf16  and its products of bf16
//   amx          and the matrix unit (AMX with bf16), if the system lends it
enum class CpuLevel : uint8_t { baseline, avx2, avx512, avx512_bf16, amx };

[[nodiscard]] std::string_view name_of(CpuLevel level);  // as TRIL_MAX_ISA has it: "avx512_bf16"

struct Cpu {
  CpuLevel machine;  // what processor and system give
  CpuLevel level;    // what is used of it: no more than TRIL_MAX_ISA and oneDNN's own ONEDNN_MAX_CPU_ISA ask for
};

// Chosen by the first call, and the same from then on; that call lowers oneDNN, too, where TRIL_MAX_ISA asks for less.
// Throws where TRIL_MAX_ISA is no level's name: making a Context asks, so that no thread has to.
[[nodiscard]] const Cpu& cpu();

[[nodiscard]] inline bool cpu_has(CpuLevel level) {
  static const CpuLevel used = cpu().level;
  return used >= level;
}

}  // namespace tril

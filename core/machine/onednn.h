// oneDNN behind one door: onednn.cpp is the only file that includes it; it serves 2.6 and 3.x. Any thread may call.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/machine/cpu.h"

namespace tril {

// One f32 product on the calling thread alone: C (m, n) = alpha · A · B + beta · C, row-major; rows in memory are lda,
// ldb, ldc apart, a transposed operand lies as its transpose. With beta = 0, C is overwritten whatever it held.
// No signal handler may run on the thread meanwhile, but on a stack of its own (sigaltstack): oneDNN, 2.6.3 and 3.7.2,
// turns the stack pointer to a buffer of the heap. train/base/signals.h leaves signals to a thread that multiplies
// nothing.
void onednn_sgemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
                  int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc);

// Has oneDNN make ready what its first product needs, while there is memory: where it is refused any, it crashes.
// Throws if there is too little. Later calls do nothing.
void onednn_prepare();

[[nodiscard]] std::string onednn_version();  // "3.7.2"
[[nodiscard]] std::string cpu_isa();         // the instruction set of its products here, as isa_name calls it

// What this code was compiled for: the machine, "x86-64" for one, and elsewhere its vectors, empty where it has none.
struct CompilerTarget {
  std::string_view machine, vectors;
};
[[nodiscard]] CompilerTarget compiler_target();
// On x86-64, "AVX2": the richest set that oneDNN's number for what it uses covers. Elsewhere that number means nothing,
// and what the compiler was told is the truth: "aarch64 (NEON)".
[[nodiscard]] std::string isa_name(const CompilerTarget& target, unsigned onednn_number);

// For core/machine/cpu.cpp. The level that oneDNN's products use, up to `most`. With `lower`, oneDNN itself is held to
// `most` first, unless its own variable, ONEDNN_MAX_CPU_ISA, asks for less still.
[[nodiscard]] CpuLevel onednn_level(CpuLevel most, bool lower);

}  // namespace tril

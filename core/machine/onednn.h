// oneDNN behind one door: onednn.cpp is the only file that includes it; it serves 2.6 and 3.x. Any thread may call.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/machine/cpu.h"

namespace tril {

// One f32 product on the calling thread alone: C (m, n) = alpha · A · B + beta · C, row-major. Rows in memory are lda,
// ldb, ldc apart; a transposed operand is stored as its transpose. With beta = 0, C is overwritten whatever it held.
// While it runs, a signal handler on this thread must have a stack of its own (sigaltstack), because oneDNN, 2.6.3 and
// 3.7.2, points the stack pointer at a buffer on the heap. train/base/signals.h leaves signals to a thread that
// multiplies nothing.
void onednn_sgemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
                  int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc);

// Makes oneDNN allocate what its first product needs, while there is memory: if it is refused memory later, it crashes.
// Throws if there is too little. Later calls do nothing.
void onednn_prepare();

[[nodiscard]] std::string onednn_version();  // "3.7.2"
[[nodiscard]] std::string cpu_isa();         // the instruction set of its products here, as isa_name calls it

// What this code was compiled for: the machine, such as "x86-64", and its vector extension, which is empty on x86-64
// and where there is none.
struct CompilerTarget {
  std::string_view machine, vectors;
};
[[nodiscard]] CompilerTarget compiler_target();
// On x86-64: the richest instruction set that is included in oneDNN's number for the set it uses, such as "AVX2".
// Elsewhere that number means nothing, and the answer is what the compiler was told: "aarch64 (NEON)".
[[nodiscard]] std::string isa_name(const CompilerTarget& target, unsigned onednn_number);

// For core/machine/cpu.cpp. The level that oneDNN's products use, at most `most`. With `lower`, oneDNN is first limited
// to `most`, unless its own variable, ONEDNN_MAX_CPU_ISA, already limits it to that or less.
[[nodiscard]] CpuLevel onednn_level(CpuLevel most, bool lower);

}  // namespace tril

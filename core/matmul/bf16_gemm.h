// Products of bf16 matrices with sums in f32: on the matrix unit (AMX), by AVX-512's own bf16 instruction, or, without
// either, widened to f32. The first two read the same panels (bf16_panels.h). A is read in place if it is not
// transposed and consists of whole tiles; otherwise it is packed.
#pragma once

#include "core/matmul/gemm.h"

namespace tril {

enum class Bf16Unit : uint8_t { none, avx512, tiles };

// The best unit that this Cpu has at its level (core/machine/cpu.h).
[[nodiscard]] Bf16Unit bf16_unit();

// The bf16 products of core/matmul/gemm.h, on the given unit, which the machine must have. k must be above 0. The same
// bits at any number of threads.
void bf16_gemm(Bf16Unit unit, Context& context, const MatmulShape& shape, const bf16* a, const bf16* b, float* c,
               const float* bias);
void bf16_gemm(Bf16Unit unit, Context& context, const MatmulShape& shape, const bf16* a, const bf16* b, bf16* c,
               const float* bias);

}  // namespace tril

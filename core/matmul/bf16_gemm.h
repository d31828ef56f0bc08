// The room core/matmul: every matrix product. gemm.h chooses which of the others multiplies.

// Products of bf16 matrices with sums in f32: on the matrix unit (AMX), by AVX-512's own bf16 instruction, or, without
// either, widened to f32. The first two read the same panels; A is read where it lies unless it lies transposed or ends
// within a tile.
#pragma once

#include "core/matmul/gemm.h"

namespace tril {

enum class Bf16Unit : uint8_t { none, avx512, tiles };

// What multiplies bf16 at this Cpu's level.
[[nodiscard]] Bf16Unit bf16_unit();

// As matmul in core/matmul/gemm.h, with an inner size above 0, by nothing more than the machine has. The same bits at
// any number of threads.
void bf16_gemm(Bf16Unit unit, Context& context, const MatmulShape& shape, const bf16* a, const bf16* b, float* c,
               const float* bias);
void bf16_gemm(Bf16Unit unit, Context& context, const MatmulShape& shape, const bf16* a, const bf16* b, bf16* c,
               const float* bias);

}  // namespace tril

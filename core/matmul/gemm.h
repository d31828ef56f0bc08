// The room core/matmul: every matrix product. This header chooses which of the others multiplies.

// Matrix products for ops: f32 by oneDNN, or on the matrix unit (core/matmul/split_gemm.h); bf16 by what the processor
// has for it (core/matmul/bf16_gemm.h); f64 by a plain loop (gradient checks and oracles). All give the same bits at
// any number of threads.
#pragma once

#include "core/base/dtype.h"
#include "core/machine/context.h"

namespace tril {

// C (batch, m, n) = A (batch, m, k) · B (batch, k, n) [+ bias (n)] [+ C, if accumulate]. Row-major; a transposed
// operand is stored as its transpose. All distances count elements: lda, ldb, ldc are those between rows in memory,
// stride_* those between the matrices of a batch (0 for A or B: the same matrix for all).
struct MatmulShape {
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldc = 0;
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;
  int64_t batch = 1;
  int64_t stride_a = 0, stride_b = 0, stride_c = 0;
};

// If k is 0, the product is 0: C = 0 [+ bias] [+ C].
void matmul(Context& context, const MatmulShape& shape, const float* a, const float* b, float* c,
            const float* bias = nullptr);
void matmul(Context& context, const MatmulShape& shape, const double* a, const double* b, double* c,
            const double* bias = nullptr);
// bf16 operands, f32 sums. Where the processor cannot multiply bf16, they are widened and multiplied as f32.
void matmul(Context& context, const MatmulShape& shape, const bf16* a, const bf16* b, float* c,
            const float* bias = nullptr);
void matmul(Context& context, const MatmulShape& shape, const bf16* a, const bf16* b, bf16* c,
            const float* bias = nullptr);

}  // namespace tril

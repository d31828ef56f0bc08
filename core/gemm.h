// Matrix products for ops: f32 by oneDNN, f64 by a plain loop (gradient checks and oracles; the same bits at any number
// of threads).
#pragma once

#include "core/context.h"
#include "core/onednn.h"

namespace tril {

// C = A · B [+ bias] [+ C], over a batch; see MatmulShape. An inner size of 0 gives the bias, or zero.
void matmul(Context& context, const MatmulShape& shape, const float* a, const float* b, float* c,
            const float* bias = nullptr);
void matmul(Context& context, const MatmulShape& shape, const double* a, const double* b, double* c,
            const double* bias = nullptr);

// The same on the calling thread alone, for tiles: C = alpha · A · B + beta · C. The f32 form is oneDNN's.
void tile_matmul(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, double alpha, const double* a,
                 int64_t lda, const double* b, int64_t ldb, double beta, double* c, int64_t ldc);

}  // namespace tril

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

}  // namespace tril

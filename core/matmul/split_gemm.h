// f32 matrix products on Intel's matrix unit (AMX), which multiplies bfloat16 and adds in f32, sixteen times as fast as
// the vector units multiply f32. An f32 is cut into three bfloat16, x = x1 + x2 + x3, which together hold its 24 bits;
// of the nine products of two such sums the six largest are added up, and what is left out lies below f32's own
// rounding. Henry, Tang and Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision
// Computations", 2019, https://arxiv.org/abs/1904.06376.
#pragma once

#include "core/matmul/gemm.h"

namespace tril {

// Whether the Cpu can do it (CpuLevel::amx).
[[nodiscard]] bool split_gemm_works();

// Whether it works and is faster than oneDNN. Small products are not: cutting their operands takes too long.
[[nodiscard]] bool split_gemm_pays(const MatmulShape& shape);

// The f32 product of core/matmul/gemm.h, within the same error bounds. Call it only where it works, with k above 0. The
// same bits at any number of threads. Blocks with operands that are infinite, NaN, or 2^50 and more in size are left to
// oneDNN. Parts of an operand below 2^-126 count as 0, as all denormals do, so numbers under about 2^-110 keep fewer
// than 24 bits.
void split_gemm(Context& context, const MatmulShape& shape, const float* a, const float* b, float* c,
                const float* bias);

}  // namespace tril

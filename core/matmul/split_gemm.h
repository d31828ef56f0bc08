// f32 matrix products on Intel's matrix unit (AMX), which multiplies bfloat16 and adds in f32, sixteen times as fast as
// the vector units multiply f32. An f32 is cut into three bfloat16, x = x1 + x2 + x3, which together hold its 24 bits;
// of the nine products of two such sums the six largest are added up, and what is left out lies below f32's own
// rounding. Henry, Tang and Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision
// Computations", 2019, https://arxiv.org/abs/1904.06376.
#pragma once

#include "core/matmul/gemm.h"

namespace tril {

// Whether the Cpu can do it: on CpuLevel::amx.
[[nodiscard]] bool split_gemm_works();

// Whether it works and is faster than oneDNN: products too small to hide the cutting are not.
[[nodiscard]] bool split_gemm_pays(const MatmulShape& shape);

// As matmul in core/matmul/gemm.h, within the same error bounds; only where it works. The same bits at any number of
// threads. Where operands are infinite, NaN, or 2^50 and more, the blocks concerned are left to oneDNN. Parts of an
// operand below 2^-126 count as 0, as all denormals do, so numbers under about 2^-110 keep fewer than 24 bits.
void split_gemm(Context& context, const MatmulShape& shape, const float* a, const float* b, float* c,
                const float* bias);

}  // namespace tril

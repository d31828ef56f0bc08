#include "core/gemm.h"

#include <algorithm>

#include "core/kernels/clones.h"
#include "core/parallel.h"
#include "core/split_gemm.h"

namespace tril {
namespace {

// One row of C: c (n) += alpha · a (k) · B (k, n), rows of B ldb apart. The order of the sums is fixed.
TRIL_CLONES void add_row(const double* a, int64_t step_a, const double* b, int64_t ldb, double* c, int64_t n, int64_t k,
                         double alpha) {
  for (int64_t i = 0; i < k; ++i) {
    const double factor = alpha * a[i * step_a];
    const double* const row = b + i * ldb;
    for (int64_t j = 0; j < n; ++j) c[j] += factor * row[j];
  }
}

// The same for a B that lies transposed, as (n, k).
TRIL_CLONES void add_row_dot(const double* a, int64_t step_a, const double* b, int64_t ldb, double* c, int64_t n,
                             int64_t k, double alpha) {
  for (int64_t j = 0; j < n; ++j) {
    double sum = 0;
    const double* const row = b + j * ldb;
    for (int64_t i = 0; i < k; ++i) sum += a[i * step_a] * row[i];
    c[j] += alpha * sum;
  }
}

void add_product_row(bool transpose_a, bool transpose_b, int64_t row, int64_t n, int64_t k, double alpha,
                     const double* a, int64_t lda, const double* b, int64_t ldb, double* c) {
  const double* const first = transpose_a ? a + row : a + row * lda;
  const int64_t step = transpose_a ? lda : 1;
  transpose_b ? add_row_dot(first, step, b, ldb, c, n, k, alpha) : add_row(first, step, b, ldb, c, n, k, alpha);
}

template <class T>
void fill_without_product(const MatmulShape& shape, T* c, const T* bias) {
  for (int64_t i = 0; i < shape.batch; ++i)
    for (int64_t row = 0; row < shape.m; ++row)
      for (int64_t j = 0; j < shape.n; ++j) {
        T& at = c[i * shape.stride_c + row * shape.ldc + j];
        at = (bias ? bias[j] : T{0}) + (shape.accumulate ? at : T{0});
      }
}

// With an extent of 1 a stride means nothing, and oneDNN 3.7's matmul takes some such operands for what they are not;
// its sgemm is told which side is transposed.
void multiply_thin(const MatmulShape& shape, const float* a, const float* b, float* c, const float* bias) {
  for (int64_t i = 0; i < shape.batch; ++i) {
    float* const out = c + i * shape.stride_c;
    for (int64_t row = 0; row < shape.m; ++row)
      for (int64_t j = 0; j < shape.n; ++j) {
        float& value = out[row * shape.ldc + j];
        value = (shape.accumulate ? value : 0.0f) + (bias != nullptr ? bias[j] : 0.0f);
      }
    onednn_sgemm(shape.transpose_a, shape.transpose_b, shape.m, shape.n, shape.k, 1.0f, a + i * shape.stride_a,
                 shape.lda, b + i * shape.stride_b, shape.ldb, 1.0f, out, shape.ldc);
  }
}

}  // namespace

void matmul(Context& context, const MatmulShape& shape, const float* a, const float* b, float* c, const float* bias) {
  if (shape.m == 0 || shape.n == 0 || shape.batch == 0) return;
  if (shape.k == 0) return fill_without_product(shape, c, bias);
  use_threads(context.threads());
  if (shape.m == 1 || shape.n == 1 || shape.k == 1) return multiply_thin(shape, a, b, c, bias);
  split_gemm_pays(shape) ? split_gemm(context, shape, a, b, c, bias) : context.matmuls().run(shape, a, b, c, bias);
}

void matmul(Context& context, const MatmulShape& shape, const double* a, const double* b, double* c,
            const double* bias) {
  const int64_t grain = std::max<int64_t>(1, 4096 / std::max<int64_t>(1, shape.n * shape.k));
  parallel_for(context.threads(), shape.batch * shape.m, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t i = row / shape.m, r = row % shape.m;
      double* const out = c + i * shape.stride_c + r * shape.ldc;
      for (int64_t j = 0; j < shape.n; ++j) out[j] = (bias ? bias[j] : 0.0) + (shape.accumulate ? out[j] : 0.0);
      add_product_row(shape.transpose_a, shape.transpose_b, r, shape.n, shape.k, 1.0, a + i * shape.stride_a, shape.lda,
                      b + i * shape.stride_b, shape.ldb, out);
    }
  });
}

}  // namespace tril

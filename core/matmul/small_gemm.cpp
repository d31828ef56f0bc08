#include "core/matmul/small_gemm.h"

#include "core/machine/avx512.h"
#include "core/machine/clones.h"
#include "core/machine/onednn.h"

namespace tril {
namespace {

#if defined(__x86_64__)
// Sixteen f32 lanes at any address.
using Lanes [[gnu::vector_size(64), gnu::aligned(4), gnu::may_alias]] = float;
constexpr int64_t kLanes = 16;

// A register tile: kRows x (kVectors · 16) sums of C stay in registers over all of k. A is read one number at a time, B
// sixteen.
template <int kRows, int kVectors>
TRIL_AVX512 inline void block(int64_t k, float alpha, const float* a, int64_t row_a, int64_t step_a, const float* b,
                              int64_t ldb, float beta, float* c, int64_t ldc) {
  Lanes sums[kRows][kVectors] = {};
  for (int64_t i = 0; i < k; ++i) {
    Lanes row[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) row[v] = *reinterpret_cast<const Lanes*>(b + i * ldb + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const float factor = a[r * row_a + i * step_a];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[r][v] += factor * row[v];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      Lanes& out = *reinterpret_cast<Lanes*>(c + r * ldc + v * kLanes);
      out = beta == 0.0f ? alpha * sums[r][v] : alpha * sums[r][v] + beta * out;
    }
}

template <int kVectors>
TRIL_AVX512 void columns(int64_t m, int64_t k, float alpha, const float* a, int64_t row_a, int64_t step_a,
                         const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  int64_t row = 0;
  for (; row + 8 <= m; row += 8)
    block<8, kVectors>(k, alpha, a + row * row_a, row_a, step_a, b, ldb, beta, c + row * ldc, ldc);
  for (; row + 4 <= m; row += 4)
    block<4, kVectors>(k, alpha, a + row * row_a, row_a, step_a, b, ldb, beta, c + row * ldc, ldc);
  for (; row < m; ++row) block<1, kVectors>(k, alpha, a + row * row_a, row_a, step_a, b, ldb, beta, c + row * ldc, ldc);
}

// n must be a multiple of 16.
TRIL_AVX512 void product_avx512(bool transpose_a, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
                                int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  const int64_t row_a = transpose_a ? 1 : lda, step_a = transpose_a ? lda : 1;
  int64_t column = 0;
  for (; column + 2 * kLanes <= n; column += 2 * kLanes)
    columns<2>(m, k, alpha, a, row_a, step_a, b + column, ldb, beta, c + column, ldc);
  if (column < n) columns<1>(m, k, alpha, a, row_a, step_a, b + column, ldb, beta, c + column, ldc);
}

// rows and columns must be multiples of 16.
TRIL_AVX512 void transpose_avx512(const float* x, int64_t row_x, int64_t rows, int64_t columns, float* out,
                                  int64_t row_out) {
  for (int64_t j = 0; j < columns; j += kLanes)
    for (int64_t i = 0; i < rows; i += kLanes) {
      __m512 block[kLanes];
#pragma GCC unroll 16
      for (int64_t r = 0; r < kLanes; ++r) block[r] = _mm512_loadu_ps(x + (i + r) * row_x + j);
      avx512::transpose(block);
#pragma GCC unroll 16
      for (int64_t r = 0; r < kLanes; ++r) _mm512_storeu_ps(out + (j + r) * row_out + i, block[r]);
    }
}
#endif

template <class T>
TRIL_INLINE void transpose_plainly(const T* x, int64_t row_x, int64_t rows, int64_t columns, T* out, int64_t row_out) {
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t i = 0; i < rows; ++i) out[j * row_out + i] = x[i * row_x + j];
}

// c (n) += alpha · a (k) · B (k, n).
TRIL_INLINE void add_row(const double* a, int64_t step_a, const double* b, int64_t ldb, double* c, int64_t n, int64_t k,
                         double alpha) {
  for (int64_t i = 0; i < k; ++i) {
    const double factor = alpha * a[i * step_a];
    for (int64_t j = 0; j < n; ++j) c[j] += factor * b[i * ldb + j];
  }
}

}  // namespace

void tile_matmul(bool transpose_a, int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda,
                 const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
#if defined(__x86_64__)
  if (cpu_has(CpuLevel::avx512) && n % kLanes == 0)
    return product_avx512(transpose_a, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
#endif
  onednn_sgemm(transpose_a, false, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

void tile_matmul(bool transpose_a, int64_t m, int64_t n, int64_t k, double alpha, const double* a, int64_t lda,
                 const double* b, int64_t ldb, double beta, double* c, int64_t ldc) {
  for (int64_t row = 0; row < m; ++row) {
    double* const out = c + row * ldc;
    for (int64_t j = 0; j < n; ++j) out[j] = beta == 0.0 ? 0.0 : beta * out[j];
    cloned<add_row>(transpose_a ? a + row : a + row * lda, transpose_a ? lda : 1, b, ldb, out, n, k, alpha);
  }
}

void tile_transpose(const float* x, int64_t row_x, int64_t rows, int64_t columns, float* out, int64_t row_out) {
#if defined(__x86_64__)
  if (cpu_has(CpuLevel::avx512) && rows % kLanes == 0 && columns % kLanes == 0)
    return transpose_avx512(x, row_x, rows, columns, out, row_out);
#endif
  cloned<transpose_plainly<float>>(x, row_x, rows, columns, out, row_out);
}

void tile_transpose(const double* x, int64_t row_x, int64_t rows, int64_t columns, double* out, int64_t row_out) {
  cloned<transpose_plainly<double>>(x, row_x, rows, columns, out, row_out);
}

}  // namespace tril

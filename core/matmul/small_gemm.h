// Small matrix products on the calling thread alone, inside a parallel region: the tiles of attention.
//   C (m, n) = alpha · A (m, k) · B (k, n) + beta · C, row-major, lda, ldb, ldc apart; a transposed A lies in memory as
//   (k, m).
// With beta = 0, C is overwritten whatever it held.
#pragma once

#include <cstdint>

namespace tril {

void tile_matmul(bool transpose_a, int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda,
                 const float* b, int64_t ldb, float beta, float* c, int64_t ldc);
void tile_matmul(bool transpose_a, int64_t m, int64_t n, int64_t k, double alpha, const double* a, int64_t lda,
                 const double* b, int64_t ldb, double beta, double* c, int64_t ldc);

// out (columns, rows) = x (rows, columns) transposed; rows in memory are row_x and row_out apart.
void tile_transpose(const float* x, int64_t row_x, int64_t rows, int64_t columns, float* out, int64_t row_out);
void tile_transpose(const double* x, int64_t row_x, int64_t rows, int64_t columns, double* out, int64_t row_out);

}  // namespace tril

#include "core/matmul/gemm.h"

#include <algorithm>

#include "core/machine/clones.h"
#include "core/machine/onednn.h"
#include "core/machine/parallel.h"
#include "core/matmul/bf16_gemm.h"
#include "core/matmul/split_gemm.h"

namespace tril {
namespace {

// One row of C: c (n) += a (k) · B (k, n), rows of B ldb apart. The order of the sums is fixed.
TRIL_INLINE void add_row(const double* a, int64_t step_a, const double* b, int64_t ldb, double* c, int64_t n,
                         int64_t k) {
  for (int64_t i = 0; i < k; ++i) {
    const double factor = a[i * step_a];
    const double* const row = b + i * ldb;
    for (int64_t j = 0; j < n; ++j) c[j] += factor * row[j];
  }
}

// The same for a B that lies transposed, as (n, k).
TRIL_INLINE void add_row_dot(const double* a, int64_t step_a, const double* b, int64_t ldb, double* c, int64_t n,
                             int64_t k) {
  for (int64_t j = 0; j < n; ++j) {
    double sum = 0;
    const double* const row = b + j * ldb;
    for (int64_t i = 0; i < k; ++i) sum += a[i * step_a] * row[i];
    c[j] += sum;
  }
}

void add_product_row(bool transpose_a, bool transpose_b, int64_t row, int64_t n, int64_t k, const double* a,
                     int64_t lda, const double* b, int64_t ldb, double* c) {
  const double* const first = transpose_a ? a + row : a + row * lda;
  const int64_t step = transpose_a ? lda : 1;
  transpose_b ? cloned<add_row_dot>(first, step, b, ldb, c, n, k) : cloned<add_row>(first, step, b, ldb, c, n, k);
}

template <class T, class Sum>
void fill_without_product(const MatmulShape& shape, T* c, const Sum* bias) {
  for (int64_t i = 0; i < shape.batch; ++i)
    for (int64_t row = 0; row < shape.m; ++row)
      for (int64_t j = 0; j < shape.n; ++j) {
        T& at = c[i * shape.stride_c + row * shape.ldc + j];
        at = T((bias ? bias[j] : 0) + (shape.accumulate ? static_cast<Sum>(at) : 0));
      }
}

// How an f32 product is cut into tasks: by its shape alone, and each task is done by one thread, so that results do not
// depend on the number of threads. A slow thread does fewer tasks. Threads inside oneDNN are no faster.
struct Cut {
  int64_t rows, columns;  // of C, in a task
  int64_t row_parts, column_parts;
  [[nodiscard]] int64_t parts() const { return row_parts * column_parts; }
};

struct Inner {  // a part of the inner axis
  int64_t begin, count;
};

Cut cut(const MatmulShape& shape) {
  constexpr int64_t kRows = 64, kRowsOfTransposed = 192;  // measured; oneDNN transposes B again for each task
  constexpr int64_t kFewParts = 4, kLeastColumns = 32, kLanes = 16;
  const auto divide = [](int64_t count, int64_t parts) { return (count + parts - 1) / parts; };
  const int64_t wanted = shape.transpose_b ? kRowsOfTransposed : kRows;
  const int64_t row_parts = std::max<int64_t>(1, (shape.m + wanted / 2) / wanted), rows = divide(shape.m, row_parts);
  const int64_t most = std::max<int64_t>(1, shape.n / kLeastColumns);
  const int64_t column_parts = row_parts >= kFewParts ? 1 : std::min(most, divide(kFewParts, row_parts));
  const int64_t columns = divide(divide(shape.n, column_parts), kLanes) * kLanes;
  return {rows, columns, divide(shape.m, rows), divide(shape.n, columns)};
}

void multiply_part(const MatmulShape& s, const Cut& cut, int64_t part, Inner inner, bool accumulate, const float* a,
                   const float* b, float* c, const float* bias) {
  const int64_t index = part / cut.parts();
  const int64_t row = part % cut.parts() / cut.column_parts * cut.rows, rows = std::min(cut.rows, s.m - row);
  const int64_t column = part % cut.column_parts * cut.columns, columns = std::min(cut.columns, s.n - column);
  float* const out = c + index * s.stride_c + row * s.ldc + column;
  if (bias != nullptr)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        out[i * s.ldc + j] = (accumulate ? out[i * s.ldc + j] : 0.0f) + bias[column + j];
  const auto at = [&](bool inner_rows, int64_t outer, int64_t row_length) {
    return inner_rows ? inner.begin * row_length + outer : outer * row_length + inner.begin;
  };
  onednn_sgemm(s.transpose_a, s.transpose_b, rows, columns, inner.count, 1.0f,
               a + index * s.stride_a + at(s.transpose_a, row, s.lda), s.lda,
               b + index * s.stride_b + at(!s.transpose_b, column, s.ldb), s.ldb,
               accumulate || bias != nullptr ? 1.0f : 0.0f, out, s.ldc);
}

// The gradient of a weight sums over the rows of the batch, and each thread's cache holds the rows that it made. So
// each thread takes its own half of the rows, first for one half of C, then for the other: what moves between caches is
// C, which is smaller.
void multiply_by_halves(Context& context, const MatmulShape& s, const Cut& cut, const float* a, const float* b,
                        float* c, const float* bias) {
  const Inner halves[] = {{0, s.k / 2}, {s.k / 2, s.k - s.k / 2}};
  const int64_t parts = cut.parts(), middle = parts / 2;
  for (const int64_t first : {int64_t{0}, middle})
    parallel_tasks(context.threads(), parts, [&](int64_t task, int) {
      multiply_part(s, cut, (task + first) % parts, halves[task < middle ? 0 : 1], s.accumulate || first != 0, a, b, c,
                    first == 0 ? bias : nullptr);
    });
}

template <class Out>
void multiply_bf16(Context& context, const MatmulShape& shape, const bf16* a, const bf16* b, Out* c,
                   const float* bias) {
  if (shape.m == 0 || shape.n == 0 || shape.batch == 0) return;
  if (shape.k == 0) return fill_without_product(shape, c, bias);
  bf16_gemm(bf16_unit(), context, shape, a, b, c, bias);
}

}  // namespace

void matmul(Context& context, const MatmulShape& shape, const bf16* a, const bf16* b, float* c, const float* bias) {
  multiply_bf16(context, shape, a, b, c, bias);
}
void matmul(Context& context, const MatmulShape& shape, const bf16* a, const bf16* b, bf16* c, const float* bias) {
  multiply_bf16(context, shape, a, b, c, bias);
}

void matmul(Context& context, const MatmulShape& shape, const float* a, const float* b, float* c, const float* bias) {
  if (shape.m == 0 || shape.n == 0 || shape.batch == 0) return;
  if (shape.k == 0) return fill_without_product(shape, c, bias);
  if (split_gemm_pays(shape)) return split_gemm(context, shape, a, b, c, bias);
  constexpr int64_t kWorthATeam = int64_t{1} << 17;  // multiplications
  constexpr int64_t kLongInner = 256;
  const Cut parts = cut(shape);
  const bool alone = shape.batch * shape.m * shape.n < kWorthATeam / shape.k;
  if (!alone && shape.transpose_a && shape.batch == 1 && parts.parts() % 2 == 0 && shape.k >= kLongInner)
    return multiply_by_halves(context, shape, parts, a, b, c, bias);
  parallel_tasks(alone ? 1 : context.threads(), shape.batch * parts.parts(), [&](int64_t part, int) {
    multiply_part(shape, parts, part, {0, shape.k}, shape.accumulate, a, b, c, bias);
  });
}

void matmul(Context& context, const MatmulShape& shape, const double* a, const double* b, double* c,
            const double* bias) {
  const int64_t grain = std::max<int64_t>(1, 4096 / std::max<int64_t>(1, shape.n * shape.k));
  parallel_for(context.threads(), shape.batch * shape.m, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t i = row / shape.m, r = row % shape.m;
      double* const out = c + i * shape.stride_c + r * shape.ldc;
      for (int64_t j = 0; j < shape.n; ++j) out[j] = (bias ? bias[j] : 0.0) + (shape.accumulate ? out[j] : 0.0);
      add_product_row(shape.transpose_a, shape.transpose_b, r, shape.n, shape.k, a + i * shape.stride_a, shape.lda,
                      b + i * shape.stride_b, shape.ldb, out);
    }
  });
}

}  // namespace tril

// One query's row of attention: from scores to weights, and back. `seen` keys may be looked at, `width` are laid out in
// the tile; what lies between gets weight 0.
#pragma once

#include <cmath>

#include "core/kernels/dropout.h"
#include "core/kernels/math.h"
#include "core/kernels/rows.h"

namespace tril::attention_rows {

// Scores become e^(s - top), times the dropout factors if there are any. Returns the log-sum-exp; `total` is the sum
// before dropout.
template <class T>
TRIL_CLONES void weights(T* row, int64_t seen, int64_t width, const DropoutMask& mask, uint32_t sample, int64_t index,
                         T* factors, T* lse, T* total) {
  const T top = rows::max(row, seen);
  const T shift = top == -std::numeric_limits<T>::infinity() ? T{0} : top;
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < seen; ++j) {
    row[j] = math::exp(row[j] - shift);
    sum += row[j];
  }
  *total = sum;
  *lse = shift + std::log(sum);
  if (mask.active()) {
    dropout_factors(mask, sample, index, seen, factors);
    for (int64_t j = 0; j < seen; ++j) row[j] *= factors[j];
  }
  for (int64_t j = seen; j < width; ++j) row[j] = T{0};
}

// scores -> dropped weights P', and dP' -> dS = P (dP - delta): P is made again from the log-sum-exp.
template <class T>
TRIL_CLONES void gradients(T* scores, T* dweights, int64_t seen, int64_t width, T lse, T delta, const DropoutMask& mask,
                           uint32_t sample, int64_t index, T* factors) {
  if (mask.active()) {
    dropout_factors(mask, sample, index, seen, factors);
    for (int64_t j = 0; j < seen; ++j) {
      const T p = math::exp(scores[j] - lse);
      scores[j] = p * factors[j];
      dweights[j] = p * (dweights[j] * factors[j] - delta);
    }
  } else {
    for (int64_t j = 0; j < seen; ++j) {
      const T p = math::exp(scores[j] - lse);
      scores[j] = p;
      dweights[j] = p * (dweights[j] - delta);
    }
  }
  for (int64_t j = seen; j < width; ++j) scores[j] = dweights[j] = T{0};
}

template <class T>
TRIL_CLONES void scale_row(T* row, T factor, int64_t n) {
  for (int64_t i = 0; i < n; ++i) row[i] *= factor;
}

template <class T>
TRIL_CLONES T dot(const T* a, const T* b, int64_t n) {
  return rows::dot(a, b, n);
}

// columns (n, rows) = x (rows, n) transposed; rows of x lie `stride` apart.
template <class T>
void transpose(const T* x, int64_t stride, int64_t rows, int64_t n, T* columns) {
  constexpr int64_t kTile = 16;
  for (int64_t i0 = 0; i0 < rows; i0 += kTile)
    for (int64_t j0 = 0; j0 < n; j0 += kTile)
      for (int64_t j = j0; j < std::min(j0 + kTile, n); ++j)
        for (int64_t i = i0; i < std::min(i0 + kTile, rows); ++i) columns[j * rows + i] = x[i * stride + j];
}

}  // namespace tril::attention_rows

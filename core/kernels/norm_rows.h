// Layer normalisation of rows, forward and backward; shared by layer_norm and add_layer_norm.
// With h = (x - mean) · r and g = dy · weight: dx = r (g - mean(g) - h mean(g h)), dweight = sum of dy h, dbias = sum
// of dy, over rows.
#pragma once

#include <cmath>
#include <limits>
#include <utility>

#include "core/base/dtype.h"
#include "core/kernels/rows.h"

namespace tril::norm_rows {

// The mean of term(i) over a row, computed from the differences to the first term. So the mean of equal numbers is
// exact, and a large offset that all share costs no digits.
template <class T, class Term>
TRIL_INLINE T mean_of(int64_t n, const Term& term) {
  const T first = term(0, rows::AsNumber{});
  return first +
         rows::sum_of<T>(
             n, [ first, &term ](int64_t i, auto at) __attribute__((always_inline)) { return term(i, at) - first; }) /
             static_cast<T>(n);
}

// statistics() for a row whose squares overflow, from numbers that are scaled down. epsilon is negligible then.
template <class T>
TRIL_INLINE std::pair<T, T> statistics_of_large(const T* x, int64_t n) {
  constexpr T kSmaller = sizeof(T) == 4 ? T(0x1p-100) : T(0x1p-600);
  T mean = 0, squares = 0;
  for (int64_t i = 0; i < n; ++i) mean += x[i] * kSmaller / static_cast<T>(n);
  for (int64_t i = 0; i < n; ++i) squares += (x[i] * kSmaller - mean) * (x[i] * kSmaller - mean);
  return {mean / kSmaller, kSmaller / std::sqrt(squares / static_cast<T>(n))};
}

// Two passes: the variance is taken about the mean, never as a difference of squares. Returns (mean, 1 / sqrt(variance
// + epsilon)).
template <class T>
TRIL_INLINE std::pair<T, T> statistics(const T* x, int64_t n, T epsilon) {
  const T mean = mean_of<T>(
      n, [x](int64_t i, auto at) __attribute__((always_inline)) { return at(x + i) + T{0}; });
  const T squares = rows::sum_of<T>(
      n, [ x, mean ](int64_t i, auto at) __attribute__((always_inline)) {
        const auto centred = at(x + i) - mean;
        return centred * centred;
      });
  if (!(squares <= std::numeric_limits<T>::max())) return statistics_of_large(x, n);
  return {mean, T{1} / std::sqrt(squares / static_cast<T>(n) + epsilon)};
}

template <class T, class Out>
TRIL_INLINE void normalise(const T* x, T mean, T r, const T* weight, const T* bias, Out* y, int64_t n) {
  if (bias != nullptr) {
    TRIL_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<Out>((x[i] - mean) * r * weight[i] + bias[i]);
  } else {
    TRIL_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<Out>((x[i] - mean) * r * weight[i]);
  }
}

// The type that normalised rows are stored as.
[[nodiscard]] inline DType stored(DType dtype, bool narrow) {
  return narrow && dtype == DType::f32 ? DType::bf16 : dtype;
}

// Writes a row's gradient to dx, plus `add` if that is not null. Adds the row's terms to the sums dweight and dbias,
// each if it is not null.
template <class T>
TRIL_INLINE void gradient(const T* x, T mean, T r, const T* weight, const T* dy, const T* add, T* dx, T* dweight,
                          T* dbias, int64_t n) {
  const T mean_g = mean_of<T>(
      n, [ dy, weight ](int64_t i, auto at) __attribute__((always_inline)) { return at(dy + i) * at(weight + i); });
  const T sum_gh = rows::sum_of<T>(
      n, [ x, mean, r, dy, weight ](int64_t i, auto at)
             __attribute__((always_inline)) { return at(dy + i) * at(weight + i) * ((at(x + i) - mean) * r); });
  const T mean_gh = sum_gh / static_cast<T>(n);
  if (add != nullptr) {
    TRIL_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) dx[i] = add[i] + r * (dy[i] * weight[i] - mean_g - (x[i] - mean) * r * mean_gh);
  } else {
    TRIL_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) dx[i] = r * (dy[i] * weight[i] - mean_g - (x[i] - mean) * r * mean_gh);
  }
  if (dweight != nullptr) {
    TRIL_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) dweight[i] += dy[i] * ((x[i] - mean) * r);
  }
  if (dbias != nullptr) {
    TRIL_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) dbias[i] += dy[i];
  }
}

}  // namespace tril::norm_rows

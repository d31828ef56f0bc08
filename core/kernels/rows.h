// Loops over one row, the last axis. The simd pragmas let the compiler reorder a sum's terms into lanes, which it may
// not do by itself.
#pragma once

#include <cstdint>
#include <limits>

#include "core/kernels/clones.h"

namespace tril::rows {

template <class T>
TRIL_INLINE T sum(const T* x, int64_t n) {
  T total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < n; ++i) total += x[i];
  return total;
}

template <class T>
TRIL_INLINE T dot(const T* a, const T* b, int64_t n) {
  T total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < n; ++i) total += a[i] * b[i];
  return total;
}

template <class T>
TRIL_INLINE T max(const T* x, int64_t n) {
  T top = -std::numeric_limits<T>::infinity();
#pragma omp simd reduction(max : top)
  for (int64_t i = 0; i < n; ++i) top = x[i] > top ? x[i] : top;
  return top;
}

}  // namespace tril::rows

// Between f32 and bf16, number by number. Rounding is to nearest, ties to even.
#pragma once

#include <type_traits>

#include "core/dtype.h"
#include "core/kernels/clones.h"

namespace tril {

template <class From, class To>
TRIL_CLONES void convert(const From* from, To* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<To>(from[i]);
}

template <class From, class To>
TRIL_CLONES void convert_and_add(const From* from, To* to, int64_t count) {
  using T = Compute<To>;
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<To>(static_cast<T>(to[i]) + static_cast<T>(from[i]));
}

// A row as numbers to compute with: where it is, or widened into `copy`.
template <class T, class S>
TRIL_INLINE const T* widened(const S* row, T* copy, int64_t n) {
  if constexpr (std::is_same_v<S, T>) {
    return row;
  } else {
    for (int64_t i = 0; i < n; ++i) copy[i] = static_cast<T>(row[i]);
    return copy;
  }
}

}  // namespace tril

// The room core/kernels: loops over rows that several ops share. They take pointers and sizes, never a tensor.

// Sums, dot products and maxima over one row, the last axis. They use vector lanes explicitly, because a compiler may
// not reorder a sum's terms by itself.
#pragma once

#include <cstdint>
#include <limits>

#include "core/machine/clones.h"

namespace tril::rows {

// A vector of 64 bytes, in GCC's vector extension; on narrower machines the compiler splits it.
template <class T>
using Lanes [[gnu::vector_size(64), gnu::aligned(alignof(T)), gnu::may_alias]] = T;
template <class T>
inline constexpr int64_t kLanes = 64 / static_cast<int64_t>(sizeof(T));

// Lanes at any address of a T. Clang ignores the alignment that a template's alias declares, but not that a struct is
// packed.
template <class T>
struct [[gnu::packed, gnu::may_alias]] LanesAt {
  Lanes<T> value;
};

template <class T>
TRIL_INLINE Lanes<T> lanes(const T* x) {
  return reinterpret_cast<const LanesAt<T>*>(x)->value;
}
template <class T>
TRIL_INLINE void put_lanes(T* x, const Lanes<T>& value) {
  reinterpret_cast<LanesAt<T>*>(x)->value = value;
}

TRIL_INLINE float add_up(const Lanes<float>& v) {
  const Lanes<float> a = v + __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
  const Lanes<float> b = a + __builtin_shufflevector(a, a, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3);
  return (b[0] + b[2]) + (b[1] + b[3]);
}
TRIL_INLINE double add_up(const Lanes<double>& v) {
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

template <class T>
TRIL_INLINE Lanes<T> greater(const Lanes<T>& a, const Lanes<T>& b) {
  return a > b ? a : b;
}
TRIL_INLINE float greatest(const Lanes<float>& v) {
  const Lanes<float> a =
      greater<float>(v, __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
  const Lanes<float> b =
      greater<float>(a, __builtin_shufflevector(a, a, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3));
  const Lanes<float> c =
      greater<float>(b, __builtin_shufflevector(b, b, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1));
  return c[0] > c[1] ? c[0] : c[1];
}
TRIL_INLINE double greatest(const Lanes<double>& v) {
  double top = v[0];
  for (int lane = 1; lane < 8; ++lane) top = v[lane] > top ? v[lane] : top;
  return top;
}

// How a term reads memory: a vector of lanes, or one number.
struct AsLanes {
  template <class T>
  TRIL_INLINE Lanes<T> operator()(const T* x) const {
    return lanes(x);
  }
};
struct AsNumber {
  template <class T>
  TRIL_INLINE T operator()(const T* x) const {
    return *x;
  }
};
// The sum of n terms. term(i, AsLanes{}) gives a vector of the terms from i on, term(i, AsNumber{}) the term i alone.
template <class T, class Term>
TRIL_INLINE T sum_of(int64_t n, const Term& term) {
  Lanes<T> even = {}, odd = {};
  int64_t i = 0;
  for (; i + 2 * kLanes<T> <= n; i += 2 * kLanes<T>) {
    even += term(i, AsLanes{});
    odd += term(i + kLanes<T>, AsLanes{});
  }
  if (i + kLanes<T> <= n) {
    even += term(i, AsLanes{});
    i += kLanes<T>;
  }
  T rest = 0;
  for (; i < n; ++i) rest += term(i, AsNumber{});
  return add_up(even + odd) + rest;
}

template <class T>
TRIL_INLINE T sum(const T* x, int64_t n) {
  return sum_of<T>(
      n, [x](int64_t i, auto at) __attribute__((always_inline)) { return at(x + i) + T{0}; });
}

template <class T>
TRIL_INLINE T dot(const T* a, const T* b, int64_t n) {
  return sum_of<T>(
      n, [ a, b ](int64_t i, auto at) __attribute__((always_inline)) { return at(a + i) * at(b + i); });
}

// The maximum of a row (n); -inf if n is 0.
template <class T>
TRIL_INLINE T max(const T* x, int64_t n) {
  T top = -std::numeric_limits<T>::infinity();
  int64_t i = 0;
  if (n >= kLanes<T>) {
    Lanes<T> tops = lanes(x);
    for (i = kLanes<T>; i + kLanes<T> <= n; i += kLanes<T>) {
      const Lanes<T> next = lanes(x + i);
      tops = next > tops ? next : tops;
    }
    top = greatest(tops);
  }
  for (; i < n; ++i) top = x[i] > top ? x[i] : top;
  return top;
}

}  // namespace tril::rows

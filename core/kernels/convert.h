// Between f32 and bf16, number by number. Rounding is to nearest, ties to even.
#pragma once

#include <algorithm>
#include <bit>
#include <type_traits>

#include "core/base/dtype.h"
#include "core/machine/clones.h"

namespace tril {

namespace convert_rows {

// Rounds as the processor's instruction for it does: denormals become 0, as everywhere in this library.
TRIL_INLINE bf16 rounded(float x) {
  const auto word = std::bit_cast<uint32_t>(x);
  const bool counts = (word & 0x7f800000u) != 0;
  return bf16(std::bit_cast<float>(counts ? word : word & 0x80000000u));
}

template <class From, class To>
TRIL_INLINE void plainly(const From* from, To* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    if constexpr (std::is_same_v<From, float> && std::is_same_v<To, bf16>)
      to[i] = rounded(from[i]);
    else
      to[i] = static_cast<To>(from[i]);
}

template <class From, class To>
TRIL_INLINE void plainly_and_add(const From* from, To* to, int64_t count) {
  using T = Compute<To>;
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<To>(static_cast<T>(to[i]) + static_cast<T>(from[i]));
}

// Rounds with the processor's instruction; only on a Cpu of CpuLevel::avx512_bf16.
void round_by_instruction(const float* from, bf16* to, int64_t count);

}  // namespace convert_rows

template <class From, class To>
void convert(const From* from, To* to, int64_t count) {
  if constexpr (std::is_same_v<From, float> && std::is_same_v<To, bf16>)
    if (cpu_has(CpuLevel::avx512_bf16)) return convert_rows::round_by_instruction(from, to, count);
  cloned<convert_rows::plainly<From, To>>(from, to, count);
}

template <class From, class To>
void convert_and_add(const From* from, To* to, int64_t count) {
  cloned<convert_rows::plainly_and_add<From, To>>(from, to, count);
}

// y[i] = [y[i] +] result i, for i < count. body(begin, end, out) computes the results [begin, end) into out[i - begin].
// If they need neither rounding nor adding, `out` is y itself; otherwise body fills a small buffer, piece by piece,
// which stays in cache.
template <class S, class Body>
TRIL_INLINE void fill(S* y, int64_t count, bool add, Body&& body) {
  using T = Compute<S>;
  if constexpr (std::is_same_v<S, T>)
    if (!add) return body(int64_t{0}, count, y);
  constexpr int64_t kPiece = 512;
  alignas(64) T piece[kPiece];
  for (int64_t begin = 0; begin < count; begin += kPiece) {
    const int64_t end = std::min(begin + kPiece, count);
    body(begin, end, piece);
    (add ? convert_and_add<T, S> : convert<T, S>)(piece, y + begin, end - begin);
  }
}

// A row (n) as numbers of type T: the row itself if that is its type, else widened into `copy` (n).
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

// Rows of attention's scores: from scores to weights, and back. A row is a query's; it may look at a range of its
// columns, which are keys. The others get a score of -inf, and so the weight 0: masking is renormalising over what may
// be seen.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/attention/pattern.h"
#include "core/base/dtype.h"
#include "core/base/random.h"
#include "core/kernels/dropout.h"
#include "core/kernels/math.h"
#include "core/kernels/rows.h"
#include "core/matmul/small_gemm.h"

namespace tril::attention_rows {

// Rows are padded to whole panels of keys, so that the loops over them have no rests.
inline constexpr int64_t kPanel = 32;

// The most queries that are looked at together.
inline constexpr int64_t kMostRows = 32;

[[nodiscard]] constexpr int64_t pad(int64_t columns) { return (columns + kPanel - 1) / kPanel * kPanel; }

// `count` queries of one head, from `first` on, and their scores: column j is the key begin + j, whole panels of them;
// rows are `stride` apart.
struct QueryRows {
  int64_t first, count;
  int64_t begin, padded, stride;
  AttentionPattern pattern;
  DropoutMask mask;
  uint32_t sample;
  int64_t mask_row, mask_stride;  // the mask's place of the first row's key 0, and between rows

  // Sets begin and padded so that the columns are the panels that hold all keys which some row sees. With dropout,
  // begin is rounded down to a block of random numbers, too.
  void look(const KeyRange& keys) {
    const int64_t unit = mask.active() ? std::max(kPanel, kRandomBlock) : kPanel;
    begin = keys.first / unit * unit;
    padded = keys.first == keys.last ? 0 : pad(keys.last - begin);
  }

  // The columns that a row sees.
  [[nodiscard]] KeyRange seen(int64_t row) const {
    const KeyRange keys = pattern.seen_by(first + row);
    return {keys.first - begin, keys.last - begin};
  }
  [[nodiscard]] int64_t mask_at(int64_t row) const { return mask_row + row * mask_stride + begin; }
};

// The columns that some of a few rows see, in whole groups of lanes: weights are computed of those alone, all others
// are 0. It is found for kRowsAlike rows at once, so that loops have the same length from row to row.
template <class T>
struct SeenLanes {
  static constexpr int64_t kLanes = rows::kLanes<T>, kRowsAlike = 16;
  int64_t begin = 0, count = 0;

  SeenLanes(const QueryRows& queries, int64_t row) {
    const int64_t last_row = std::min(row + kRowsAlike, queries.count) - 1;
    const int64_t first = queries.seen(row).first, last = queries.seen(last_row).last;
    if (first >= last) return;
    begin = first / kLanes * kLanes;
    count = (last + kLanes - 1) / kLanes * kLanes - begin;
  }
  // What a row does not see of these columns.
  TRIL_INLINE void hide(T* row, const KeyRange& columns, T value) const {
    rows::Lanes<T> place = {};
    for (int lane = 0; lane < kLanes; ++lane) place[lane] = static_cast<T>(lane);
    const rows::Lanes<T> hidden = rows::Lanes<T>{} + value;
    const int64_t first = std::min(columns.first - begin, count), last = columns.last - begin;
    for (int64_t j = 0; j < first; j += kLanes)
      rows::put_lanes<T>(row + j, place < static_cast<T>(first - j) ? hidden : rows::lanes(row + j));
    for (int64_t j = last / kLanes * kLanes; j < count; j += kLanes)
      rows::put_lanes<T>(row + j, place < static_cast<T>(last - j) ? rows::lanes(row + j) : hidden);
  }
  // The columns beside these, of a whole row.
  TRIL_INLINE void clear_others(T* row, int64_t columns) const {
    constexpr rows::Lanes<T> kZero{};
    for (int64_t j = 0; j < begin; j += kLanes) rows::put_lanes<T>(row + j, kZero);
    for (int64_t j = begin + count; j < columns; j += kLanes) rows::put_lanes<T>(row + j, kZero);
  }
};

// What backward makes a row's weights from again, e^(s - shift) · share. Not their log-sum-exp: shift - log share loses
// the logarithm's digits where scores are large.
template <class T>
struct Norm {
  T *shifts, *shares;  // of the first row on
};

namespace kernels {

// Scores, q · k, become weights, with s = scale q · k: e^(s - top) over its sum, times the dropout factors if there are
// any; a row that sees nothing gets zeros. What each row took off its scores and divided them by is kept in `norm`.
template <class T>
TRIL_INLINE void weights(T* scores, T scale, const QueryRows& queries, T* factors, const Norm<T>& norm) {
  constexpr T kHidden = -std::numeric_limits<T>::infinity();
  SeenLanes<T> part(queries, 0);
  for (int64_t i = 0; i < queries.count; ++i) {
    if (i % part.kRowsAlike == 0) part = SeenLanes<T>(queries, i);
    part.clear_others(scores + i * queries.stride, queries.padded);
    T* const row = scores + i * queries.stride + part.begin;
    T factor_of_row = scale;
    if (!(scale > T{0})) {  // hidden scores stay -inf, and the largest stays the largest, under positive factors alone
      for (int64_t j = 0; j < part.count; ++j) row[j] *= scale;
      factor_of_row = T{1};
    }
    part.hide(row, queries.seen(i), kHidden);
    const T top = rows::max(row, part.count), shift = top == kHidden ? T{0} : top * factor_of_row;
    for (int64_t j = 0; j < part.count; ++j) row[j] = math::exp_of_difference(row[j] * factor_of_row - shift);
    const T total = rows::sum(row, part.count), share = total == T{0} ? T{0} : T{1} / total;
    norm.shifts[i] = shift;
    norm.shares[i] = share;
    if (queries.mask.active()) {
      dropout_factors(queries.mask, queries.sample, queries.mask_at(i), queries.padded, factors);
      const T* const factor = factors + part.begin;
      for (int64_t j = 0; j < part.count; ++j) row[j] *= share * factor[j];
    } else {
      for (int64_t j = 0; j < part.count; ++j) row[j] *= share;
    }
  }
}

// q · k -> dropped weights P', and dP' -> dS = P (dP - delta), where P is made again from the norm, and delta is the
// sum over the head of dO O. Rows of o and d_o are `row` apart. What is hidden becomes 0 last, whatever it was.
template <class T>
TRIL_INLINE void gradients(T* scores, T scale, T* dweights, const QueryRows& queries, T* factors, const Norm<T>& norm,
                           const T* o, const T* d_o, int64_t row_o, int64_t head) {
  SeenLanes<T> part(queries, 0);
  for (int64_t i = 0; i < queries.count; ++i) {
    if (i % part.kRowsAlike == 0) part = SeenLanes<T>(queries, i);
    part.clear_others(scores + i * queries.stride, queries.padded);
    part.clear_others(dweights + i * queries.stride, queries.padded);
    T *const s = scores + i * queries.stride + part.begin, *const d = dweights + i * queries.stride + part.begin;
    const T delta = rows::dot(o + i * row_o, d_o + i * row_o, head);
    const T shift = norm.shifts[i], share = norm.shares[i];
    if (queries.mask.active()) {
      dropout_factors(queries.mask, queries.sample, queries.mask_at(i), queries.padded, factors);
      const T* const factor = factors + part.begin;
      for (int64_t j = 0; j < part.count; ++j) {
        const T p = math::exp_of_difference(s[j] * scale - shift) * share;
        s[j] = p * factor[j];
        d[j] = p * (d[j] * factor[j] - delta);
      }
    } else {
      TRIL_INDEPENDENT
      for (int64_t j = 0; j < part.count; ++j) {
        const T p = math::exp_of_difference(s[j] * scale - shift) * share;
        s[j] = p;
        d[j] = p * (d[j] - delta);
      }
    }
    part.hide(s, queries.seen(i), T{0});
    part.hide(d, queries.seen(i), T{0});
  }
}

// Whether all of x (count, head), its rows `stride` apart, is finite: infinity and NaN alone have every bit of the
// exponent set, so that one more carries into the sign's place. Which bits did is gathered in lanes down the rows.
template <class S>
TRIL_INLINE bool all_finite(const S* x, int64_t stride, int64_t count, int64_t head) {
  using Bits = std::conditional_t<sizeof(S) == 8, uint64_t, std::conditional_t<sizeof(S) == 4, uint32_t, uint16_t>>;
  constexpr int64_t kLanes = rows::kLanes<Bits>;
  const Bits exponent = std::bit_cast<Bits>(S(std::numeric_limits<Compute<S>>::infinity()));
  const Bits lowest = static_cast<Bits>(exponent & (~exponent + 1));
  rows::Lanes<Bits> carried{};
  Bits last = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto* const row = reinterpret_cast<const Bits*>(x + i * stride);
    int64_t d = 0;
    for (; d + kLanes <= head; d += kLanes) carried |= (rows::lanes(row + d) & exponent) + lowest;
    for (; d < head; ++d)
      last = static_cast<Bits>(last | ((std::bit_cast<Bits>(x[i * stride + d]) & exponent) + lowest));
  }
  for (int64_t lane = 0; lane < kLanes; ++lane) last = static_cast<Bits>(last | carried[lane]);
  return (last & static_cast<Bits>(exponent + lowest)) == 0;
}

// x (rows, head), widened, without the gaps between its rows, which would make them compete for the same cache lines.
template <class S, class T>
TRIL_INLINE void pack(const S* x, int64_t stride, int64_t rows, int64_t head, T* packed) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t d = 0; d < head; ++d) packed[i * head + d] = static_cast<T>(x[i * stride + d]);
}

}  // namespace kernels

template <class T>
void weights(T* scores, T scale, const QueryRows& queries, T* factors, const Norm<T>& norm) {
  cloned<kernels::weights<T>>(scores, scale, queries, factors, norm);
}
template <class T>
void gradients(T* scores, T scale, T* dweights, const QueryRows& queries, T* factors, const Norm<T>& norm, const T* o,
               const T* d_o, int64_t row_o, int64_t head) {
  cloned<kernels::gradients<T>>(scores, scale, dweights, queries, factors, norm, o, d_o, row_o, head);
}
template <class S>
[[nodiscard]] bool all_finite(const S* x, int64_t stride, int64_t rows, int64_t head) {
  return cloned<kernels::all_finite<S>>(x, stride, rows, head);
}
template <class S, class T>
void pack(const S* x, int64_t stride, int64_t rows, int64_t head, T* packed) {
  cloned<kernels::pack<S, T>>(x, stride, rows, head, packed);
}

// x (rows, head), its rows `stride` apart, as panels of kPanel rows, each transposed: (head, kPanel). The last one is
// filled with zeros.
template <class T>
void transpose_panels(const T* x, int64_t stride, int64_t rows, int64_t head, T* panels) {
  for (int64_t first = 0; first < rows; first += kPanel) {
    T* const panel = panels + first * head;
    const int64_t count = std::min(kPanel, rows - first);
    tile_transpose(x + first * stride, stride, count, head, panel, kPanel);
    for (int64_t d = 0; count < kPanel && d < head; ++d)
      std::fill(panel + d * kPanel + count, panel + (d + 1) * kPanel, T{0});
  }
}

}  // namespace tril::attention_rows

// The products of one attention head on vectors. S is what memory holds, T what is computed with: f32 and f64 are read
// and written in place, bf16 is widened on the way in and rounded once on the way out.
// The same products on the matrix unit: core/attention/tiles.h.
#pragma once

#include <algorithm>
#include <type_traits>

#include "core/attention/gradients.h"
#include "core/attention/rows.h"
#include "core/base/dtype.h"
#include "core/kernels/convert.h"
#include "core/machine/arena.h"
#include "core/matmul/small_gemm.h"

namespace tril {

template <class S>
class AttentionVectors {
  using T = Compute<S>;
  using QueryRows = attention_rows::QueryRows;
  static constexpr bool kInPlace = std::is_same_v<S, T>;
  static constexpr int64_t kPanel = attention_rows::kPanel, kQueries = attention_rows::kMostRows;

 public:
  AttentionVectors(Scratch& scratch, int64_t head, int64_t keys, bool backward)
      : head_(head), keys_(keys), backward_(backward) {
    const int64_t padded = attention_rows::pad(keys);
    key_panels_ = scratch.get<T>(head * padded);
    packed_ = scratch.get<T>(head * keys);
    if (backward) value_panels_ = scratch.get<T>(head * padded);
    if (kInPlace) return;
    wide_keys_ = scratch.get<T>(head * keys);
    for (T** const rows : {&wide_q_, &wide_mixed_, &wide_d_o_}) *rows = scratch.get<T>(head * kQueries);
    if (!backward) return;
    dkeys_ = scratch.get<T>(head * keys);
    dvalues_ = scratch.get<T>(head * keys);
  }

  // k and v (keys, head), their rows `row` apart; the first `seen` are read. finite:
  // every number that is multiplied by the weight 0 of a hidden key is finite, so hidden keys need not be left out.
  void take_keys(const S* k, const S* v, int64_t row, int64_t seen, bool finite) {
    finite_ = finite;
    transpose(k, row, seen, key_panels_);
    if (backward_) transpose(v, row, seen, value_panels_);
    attention_rows::pack(backward_ ? k : v, row, seen, head_, packed_);
  }

  // scores (count, padded) = q (count, head) · keysᵀ
  void by_keys(const QueryRows& queries, const S* q, int64_t row, T* scores) {
    q_ = read(q, row, queries.count, wide_q_);
    multiply_by(key_panels_, queries, q_, scores);
  }
  // dweights (count, padded) = d_o (count, head) · valuesᵀ
  void by_values(const QueryRows& queries, const S* d_o, int64_t row, T* dweights) {
    d_o_ = read(d_o, row, queries.count, wide_d_o_);
    multiply_by(value_panels_, queries, d_o_, dweights);
  }

  // The weights (count, padded) of the products below, times a factor.
  void take_weights(const QueryRows&, const T* weights, T factor) {
    weights_ = weights;
    factor_ = factor;
  }
  // out (count, head) = [out +] weights · values, or in backward · keys. What a query may not see has the weight 0,
  // which takes away all that is finite; NaN and infinity must be left out, row by row.
  void mix(const QueryRows& queries, S* out, int64_t row, bool add) const {
    T* to = wide_mixed_;
    int64_t row_to = head_;
    if constexpr (kInPlace) to = out, row_to = row;
    const int64_t step = finite_ ? queries.count : 1;
    for (int64_t i = 0; i < queries.count; i += step) {
      const KeyRange seen = finite_ ? KeyRange{0, queries.seen(queries.count - 1).last} : queries.seen(i);
      tile_matmul(false, step, head_, seen.last - seen.first, factor_, weights_ + i * queries.stride + seen.first,
                  queries.stride, packed_ + (queries.begin + seen.first) * head_, head_, kInPlace && add ? T{1} : T{0},
                  to + i * row_to, row_to);
    }
    if constexpr (!kInPlace) write(to, queries.count, out, row, add);
  }
  // The gradients of the keys, or of the values, (keys, head) = [those +] weightsᵀ · q, or · d_o. Where NaN and
  // infinity must be left out, key by key.
  void spread_keys(const QueryRows& queries, const WrittenPanels& written, const KeyGradient<S>& to) const {
    if (to.data != nullptr) spread(queries, written, q_, to, dkeys_);
  }
  void spread_values(const QueryRows& queries, const WrittenPanels& written, const KeyGradient<S>& to) const {
    if (to.data != nullptr) spread(queries, written, d_o_, to, dvalues_);
  }

  // Moves the gradients to their place if they were summed elsewhere; keys that no query sees get 0.
  void finish(const WrittenPanels& written, const KeyGradient<S>& dkeys, const KeyGradient<S>& dvalues) const {
    finish(written, dkeys, dkeys_);
    finish(written, dvalues, dvalues_);
  }

 private:
  struct HeadRows {  // (…, head), to read
    const T* data;
    int64_t stride;
  };

  [[nodiscard]] HeadRows read(const S* x, int64_t row, int64_t count, T* copy) const {
    if constexpr (kInPlace) return {x, row};
    attention_rows::pack(x, row, count, head_, copy);
    return {copy, head_};
  }
  void write(const T* rows, int64_t count, S* to, int64_t row, bool add) const {
    for (int64_t i = 0; i < count; ++i)
      (add ? convert_and_add<T, S> : convert<T, S>)(rows + i * head_, to + i * row, head_);
  }

  void transpose(const S* x, int64_t row, int64_t count, T* panels) const {
    const HeadRows rows = read(x, row, count, wide_keys_);
    attention_rows::transpose_panels(rows.data, rows.stride, count, head_, panels);
  }

  void multiply_by(const T* panels, const QueryRows& queries, const HeadRows& x, T* out) const {
    for (int64_t column = 0; column < queries.padded; column += kPanel)
      tile_matmul(false, queries.count, kPanel, head_, T{1}, x.data, x.stride,
                  panels + (queries.begin + column) * head_, kPanel, T{0}, out + column, queries.stride);
  }

  void spread(const QueryRows& queries, const WrittenPanels& written, const HeadRows& x, const KeyGradient<S>& gradient,
              T* to) const {
    int64_t row_to = head_;
    if constexpr (kInPlace) to = gradient.data, row_to = gradient.row;
    int64_t first = 0, last = finite_ ? queries.count : 0;  // the queries that see the key
    written.each_run(queries.begin, queries.padded, [&](int64_t begin, int64_t end, bool add) {
      const int64_t step = finite_ ? end - begin : 1;
      for (int64_t key = begin; key < end; key += step) {
        const int64_t column = key - queries.begin;
        if (!finite_) {
          while (last < queries.count && queries.seen(last).first <= column) ++last;
          while (first < last && queries.seen(first).last <= column) ++first;
        }
        tile_matmul(true, step, head_, last - first, factor_, weights_ + first * queries.stride + column,
                    queries.stride, x.data + first * x.stride, x.stride,
                    add || (kInPlace && gradient.add) ? T{1} : T{0}, to + key * row_to, row_to);
      }
    });
  }

  void finish(const WrittenPanels& written, const KeyGradient<S>& gradient, const T* from) const {
    if (gradient.data == nullptr) return;
    written.each_run([&](int64_t begin, int64_t end, bool there) {
      S* const to = gradient.data + begin * gradient.row;
      if (there && !kInPlace) write(from + begin * head_, end - begin, to, gradient.row, gradient.add);
      if (there || gradient.add) return;
      for (int64_t i = 0; i < end - begin; ++i) std::fill_n(to + i * gradient.row, head_, S(0));
    });
  }

  int64_t head_, keys_;
  bool backward_, finite_ = true;
  T *key_panels_, *packed_, *value_panels_ = nullptr;
  T *wide_keys_ = nullptr, *wide_q_ = nullptr, *wide_mixed_ = nullptr, *wide_d_o_ = nullptr;
  T *dkeys_ = nullptr, *dvalues_ = nullptr;
  HeadRows q_{}, d_o_{};
  const T* weights_ = nullptr;
  T factor_ = 1;
};

}  // namespace tril

// The walk of attention over heads and blocks of queries, forward and backward, for the op of that name
// (core/ops/attention.cpp), which checks the operands.
#pragma once

#include <algorithm>

#include "core/attention/rows.h"
#include "core/attention/tiles.h"
#include "core/base/shape.h"
#include "core/kernels/convert.h"
#include "core/machine/context.h"
#include "core/machine/parallel.h"
#include "core/matmul/small_gemm.h"

namespace tril::attention_heads {

// Every query looks at the keys it may see; the softmax of the scores renormalises over those alone. Per head, with S =
// scale Q Kᵀ:
//   P = softmax(S), O = P V
//   dV = Pᵀ dO, dP = dO Vᵀ, delta = sum over a row of dO O = sum of P dP, dS = P (dP - delta), dQ = scale dS K, dK =
//   scale dSᵀ Q
// Work goes by blocks of kQueries rows of S, so that a block's scores stay in cache; keys no query of a block sees are
// left out of it. Heads are segments of the rows: columns h D to (h + 1) D of q, k, v and o, read and written in place.
// bf16 is multiplied on the matrix unit, where there is one; else it is widened block by block on the way in, and
// rounded once on the way out.
constexpr int64_t kQueries = attention_rows::kMostRows;

struct AttentionAttrs {
  int64_t heads;
  double scale, dropout;
  bool causal, packed, lengths;
};

template <class S>
struct Operands {
  const S *q, *k, *v;
  const int32_t* lengths;  // null: all keys are there
};

template <class S>
struct Targets {
  S *q, *k, *v;  // null: not wanted
  bool add_q, add_k, add_v;
};

// S is what memory holds, T what is computed with.
using attention_rows::Norm;

template <class S>
class Attention {
  using T = Compute<S>;
  static constexpr bool kInPlace = std::is_same_v<S, T>;

 public:
  Attention(Context& context, const RandomKey& key, uint32_t first_sample, const AttentionAttrs& attrs, const Shape& q,
            const Shape& k, const Operands<S>& operands)
      : context_(context),
        attrs_(attrs),
        in_(operands),
        mask_(key, attrs.dropout),
        first_sample_(first_sample),
        batch_(q[0]),
        queries_(q[1]),
        keys_(k[1]),
        width_(attrs.packed ? q[2] / 3 : q[2]),
        head_(width_ / attrs.heads),
        row_(attrs.packed ? 3 * width_ : width_),
        padded_(attention_rows::pad(keys_)),
        mask_stride_((keys_ + kRandomBlock - 1) / kRandomBlock * kRandomBlock) {}

  void forward(S* o, const Norm<T>& norm) const {
    // Keys are laid out once a task, so a task is a whole head where there are enough of them, else every so many-th
    // of its blocks.
    const int64_t heads = batch_ * attrs_.heads, enough = 4 * context_.threads();
    const int64_t parts =
        heads == 0 ? 1 : std::clamp<int64_t>((enough + heads - 1) / heads, 1, std::max<int64_t>(1, blocks()));
    parallel_tasks(context_.threads(), heads * parts, [&](int64_t task, int thread) {
      const int64_t index = task / parts, first = task % parts;
      Scratch scratch(context_.scratch(thread));
      const bool finite = !attrs_.causal || all_finite(in_.v + keys_at(index), row_, seen_keys(index));
      if constexpr (!kInPlace)
        if (finite && AttentionTiles::work()) return forward_on_tiles(scratch, index, first, parts, o, norm);
      const Work work(scratch, *this, false, finite);
      transpose(in_.k + keys_at(index), work, work.key_panels);
      attention_rows::pack(in_.v + keys_at(index), row_, keys_, head_, work.packed);
      for (int64_t block = first; block < blocks(); block += parts)
        forward_block(index, block * kQueries, work, o, norm);
    });
  }

  void backward(const S* o, const Norm<T>& norm, const S* d_o, const Targets<S>& targets) const {
    parallel_tasks(context_.threads(), batch_ * attrs_.heads, [&](int64_t index, int thread) {
      Scratch scratch(context_.scratch(thread));
      const bool finite = !attrs_.causal || (all_finite(in_.k + keys_at(index), row_, seen_keys(index)) &&
                                             all_finite(in_.q + queries_at(index, 0), row_, queries_) &&
                                             all_finite(d_o + outputs_at(index, 0), width_, queries_));
      if constexpr (!kInPlace)
        if (finite && AttentionTiles::work()) return backward_on_tiles(scratch, index, o, norm, d_o, targets);
      const Work work(scratch, *this, true, finite);
      transpose(in_.k + keys_at(index), work, work.key_panels);
      transpose(in_.v + keys_at(index), work, work.value_panels);
      attention_rows::pack(in_.k + keys_at(index), row_, keys_, head_, work.packed);
      // From the last block, which under a causal mask sees the most keys, so that the first one written covers the
      // others.
      bool written = false;
      for (int64_t block = blocks() - 1; block >= 0; --block)
        written |= backward_block(index, block * kQueries, work, o, norm, d_o, targets, written);
      finish_keys(index, work.dkeys, head_, targets.k, targets.add_k);
      finish_keys(index, work.dvalues, head_, targets.v, targets.add_v);
    });
  }

 private:
  // Rows of a head, to read.
  struct Rows {
    const T* data;
    int64_t stride;
  };

  // A thread's working memory for one head. The last five are for what is not in place.
  struct Work {
    T *key_panels, *scores, *factors, *packed, *value_panels = nullptr, *dscores = nullptr;
    T *wide_keys = nullptr, *wide[3] = {}, *dkeys = nullptr, *dvalues = nullptr;
    bool finite;  // all that a weight of 0 may meet
    Work(Scratch& scratch, const Attention& a, bool backward, bool all_finite)
        : key_panels(scratch.get<T>(a.head_ * a.padded_)),
          scores(scratch.get<T>(kQueries * a.padded_)),
          factors(scratch.get<T>(a.mask_stride_)),
          packed(scratch.get<T>(a.head_ * a.keys_)),
          finite(all_finite) {
      if (backward) {
        value_panels = scratch.get<T>(a.head_ * a.padded_);
        dscores = scratch.get<T>(kQueries * a.padded_);
      }
      if (kInPlace) return;
      wide_keys = scratch.get<T>(a.head_ * a.keys_);
      for (T*& rows : wide) rows = scratch.get<T>(a.head_ * kQueries);
      if (!backward) return;
      dkeys = scratch.get<T>(a.head_ * a.keys_);
      dvalues = scratch.get<T>(a.head_ * a.keys_);
    }
  };

  [[nodiscard]] int64_t blocks() const { return (queries_ + kQueries - 1) / kQueries; }
  // Where rows of one (sample, head) start in q; k and v; o and dO.
  [[nodiscard]] int64_t segment(int64_t index) const { return index % attrs_.heads * head_; }
  [[nodiscard]] int64_t queries_at(int64_t index, int64_t first) const {
    return (index / attrs_.heads * queries_ + first) * row_ + segment(index);
  }
  [[nodiscard]] int64_t keys_at(int64_t index) const { return index / attrs_.heads * keys_ * row_ + segment(index); }
  [[nodiscard]] int64_t outputs_at(int64_t index, int64_t first) const {
    return (index / attrs_.heads * queries_ + first) * width_ + segment(index);
  }

  [[nodiscard]] Rows read(const S* x, int64_t stride, int64_t count, T* copy) const {
    if constexpr (kInPlace) return {x, stride};
    attention_rows::pack(x, stride, count, head_, copy);
    return {copy, head_};
  }

  void transpose(const S* x, const Work& work, T* panels) const {
    const Rows rows = read(x, row_, keys_, work.wide_keys);
    attention_rows::transpose_panels(rows.data, rows.stride, keys_, head_, panels);
  }

  // Rows of a head, `row` apart, to where they belong.
  void write(const T* rows, int64_t row, int64_t count, S* to, int64_t stride, bool add) const {
    for (int64_t i = 0; i < count; ++i)
      (add ? convert_and_add<T, S> : convert<T, S>)(rows + i * row, to + i * stride, head_);
  }
  void clear(int64_t count, S* to, int64_t stride) const {
    for (int64_t i = 0; i < count; ++i) std::fill_n(to + i * stride, head_, S(0));
  }

  [[nodiscard]] bool all_finite(const S* x, int64_t stride, int64_t rows) const {
    return attention_rows::all_finite(x, stride, rows, head_);
  }
  // What is kept of a block's rows.
  [[nodiscard]] Norm<T> norm_of(const Norm<T>& all, int64_t index, int64_t first) const {
    const int64_t row = index * queries_ + first;
    return {all.shifts + row, all.shares + row};
  }

  [[nodiscard]] attention_rows::Block block_of(int64_t index, int64_t first) const {
    const int64_t sample = index / attrs_.heads, count = std::min(kQueries, queries_ - first);
    attention_rows::Block block{.first = first,
                                .count = count,
                                .padded = 0,
                                .stride = padded_,
                                .keys = in_.lengths == nullptr ? keys_ : in_.lengths[sample],
                                .causal = attrs_.causal,
                                .mask = mask_,
                                .sample = first_sample_ + static_cast<uint32_t>(sample),
                                .mask_row = (index % attrs_.heads * queries_ + first) * mask_stride_,
                                .mask_stride = mask_stride_};
    block.padded = attention_rows::pad(block.seen(count - 1));
    return block;
  }

  // out (count, padded) = factor · x (count, head) · panelsᵀ
  void multiply_by_panels(const attention_rows::Block& block, T factor, const Rows& x, const T* panels, T* out) const {
    constexpr int64_t kPanel = attention_rows::kPanel;
    for (int64_t column = 0; column < block.padded; column += kPanel)
      tile_matmul(false, block.count, kPanel, head_, factor, x.data, x.stride, panels + column * head_, kPanel, T{0},
                  out + column, block.stride);
  }

  void forward_block(int64_t index, int64_t first, const Work& work, S* o, const Norm<T>& norm) const {
    const attention_rows::Block block = block_of(index, first);
    const int64_t width = block.seen(block.count - 1);
    S* const out = o + outputs_at(index, first);
    const Rows q = read(in_.q + queries_at(index, first), row_, block.count, work.wide[0]);
    multiply_by_panels(block, static_cast<T>(attrs_.scale), q, work.key_panels, work.scores);
    attention_rows::weights(work.scores, block, work.factors, norm_of(norm, index, first));
    if (width == 0) {
      clear(block.count, out, width_);
    } else if constexpr (kInPlace) {
      mix(block, work, T{1}, work.scores, false, out, width_);
    } else {
      mix(block, work, T{1}, work.scores, false, work.wide[1], head_);
      write(work.wide[1], head_, block.count, out, width_, false);
    }
  }

  // How many keys of a head some query sees.
  [[nodiscard]] int64_t seen_keys(int64_t index) const {
    return queries_ == 0 ? 0 : block_of(index, queries_ - 1).seen(0);
  }

  // The keys' or values' gradients to their place, where they are not already; those that no query sees get 0.
  void finish_keys(int64_t index, const T* gradients, int64_t row, S* target, bool add) const {
    if (target == nullptr) return;
    const int64_t seen = seen_keys(index);
    if constexpr (!kInPlace) write(gradients, row, seen, target + keys_at(index), row_, add);
    if (!add) clear(keys_ - seen, target + keys_at(index) + seen * row_, row_);
  }

  void forward_on_tiles(Scratch& scratch, int64_t index, int64_t begin, int64_t step, S* o, const Norm<T>& norm) const {
    AttentionTiles tiles(scratch, head_, keys_, false);
    T *const scores = scratch.get<T>(kQueries * padded_), *const factors = scratch.get<T>(mask_stride_),
             *const mixed = scratch.get<T>(kQueries * tiles.head_columns());
    tiles.take_keys(in_.k + keys_at(index), in_.v + keys_at(index), row_, seen_keys(index));
    for (int64_t first = begin * kQueries; first < queries_; first += step * kQueries) {
      const attention_rows::Block block = block_of(index, first);
      S* const out = o + outputs_at(index, first);
      tiles.by_keys(in_.q + queries_at(index, first), row_, block.count, block.padded, static_cast<T>(attrs_.scale),
                    scores, padded_);
      attention_rows::weights(scores, block, factors, norm_of(norm, index, first));
      if (block.padded == 0) {
        clear(block.count, out, width_);
        continue;
      }
      tiles.take_weights(scores, padded_, block.count, block.padded, T{1});
      tiles.mix_values(mixed);
      write(mixed, tiles.head_columns(), block.count, out, width_, false);
    }
  }

  void backward_on_tiles(Scratch& scratch, int64_t index, const S* all_o, const Norm<T>& norm, const S* all_d_o,
                         const Targets<S>& targets) const {
    AttentionTiles tiles(scratch, head_, keys_, true);
    const int64_t columns = tiles.head_columns();
    T *const scores = scratch.get<T>(kQueries * padded_), *const dscores = scratch.get<T>(kQueries * padded_),
             *const factors = scratch.get<T>(mask_stride_), *const dq = scratch.get<T>(kQueries * columns),
             *const dkeys = scratch.get<T>(padded_ * columns), *const dvalues = scratch.get<T>(padded_ * columns),
             *const wide_o = scratch.get<T>(kQueries * head_), *const wide_d_o = scratch.get<T>(kQueries * head_);
    tiles.take_keys(in_.k + keys_at(index), in_.v + keys_at(index), row_, seen_keys(index));
    bool written = false;  // the last block first, as in place
    for (int64_t first = (blocks() - 1) * kQueries; first >= 0; first -= kQueries) {
      const attention_rows::Block block = block_of(index, first);
      S* const target = targets.q == nullptr ? nullptr : targets.q + queries_at(index, first);
      if (block.padded == 0) {
        if (target != nullptr && !targets.add_q) clear(block.count, target, row_);
        continue;
      }
      const S *const q = in_.q + queries_at(index, first), *const d_o = all_d_o + outputs_at(index, first);
      tiles.by_keys(q, row_, block.count, block.padded, static_cast<T>(attrs_.scale), scores, padded_);
      tiles.by_values(d_o, width_, block.count, block.padded, dscores, padded_);
      const Rows o = read(all_o + outputs_at(index, first), width_, block.count, wide_o),
                 d = read(d_o, width_, block.count, wide_d_o);
      attention_rows::gradients(scores, dscores, block, factors, norm_of(norm, index, first), o.data, d.data, head_,
                                head_);
      tiles.take_weights(scores, padded_, block.count, block.padded, T{1});
      tiles.spread(d_o, width_, written, dvalues);
      tiles.take_weights(dscores, padded_, block.count, block.padded, static_cast<T>(attrs_.scale));
      tiles.spread(q, row_, written, dkeys);
      tiles.mix_keys(dq);
      if (target != nullptr) write(dq, columns, block.count, target, row_, targets.add_q);
      written = true;
    }
    finish_keys(index, dkeys, columns, targets.k, targets.add_k);
    finish_keys(index, dvalues, columns, targets.v, targets.add_v);
  }

  // Returns whether the keys' and values' gradients were written.
  bool backward_block(int64_t index, int64_t first, const Work& work, const S* all_o, const Norm<T>& norm,
                      const S* all_d_o, const Targets<S>& targets, bool written) const {
    const attention_rows::Block block = block_of(index, first);
    const int64_t width = block.seen(block.count - 1);
    const T scale = static_cast<T>(attrs_.scale);
    S* const dq = targets.q == nullptr ? nullptr : targets.q + queries_at(index, first);
    if (width == 0) {
      if (dq != nullptr && !targets.add_q) clear(block.count, dq, row_);
      return false;
    }
    const Rows q = read(in_.q + queries_at(index, first), row_, block.count, work.wide[0]);
    const Rows o = read(all_o + outputs_at(index, first), width_, block.count, work.wide[1]);
    const Rows d_o = read(all_d_o + outputs_at(index, first), width_, block.count, work.wide[2]);
    multiply_by_panels(block, scale, q, work.key_panels, work.scores);
    multiply_by_panels(block, T{1}, d_o, work.value_panels, work.dscores);
    attention_rows::gradients(work.scores, work.dscores, block, work.factors, norm_of(norm, index, first), o.data,
                              d_o.data, d_o.stride, head_);
    if constexpr (kInPlace) {
      if (dq != nullptr) mix(block, work, scale, work.dscores, targets.add_q, dq, row_);
      spread(block, work, scale, work.dscores, q, targets.k == nullptr ? nullptr : targets.k + keys_at(index), row_,
             targets.add_k || written);
      spread(block, work, T{1}, work.scores, d_o, targets.v == nullptr ? nullptr : targets.v + keys_at(index), row_,
             targets.add_v || written);
    } else {
      if (dq != nullptr) {
        mix(block, work, scale, work.dscores, false, work.wide[1], head_);
        write(work.wide[1], head_, block.count, dq, row_, targets.add_q);
      }
      spread(block, work, scale, work.dscores, q, targets.k == nullptr ? nullptr : work.dkeys, head_, written);
      spread(block, work, T{1}, work.scores, d_o, targets.v == nullptr ? nullptr : work.dvalues, head_, written);
    }
    return true;
  }

  // out (count, head) = [out +] factor · weights · packed (keys, head). What a query may not see has the weight 0,
  // which takes away all that is finite; NaN and infinity must be left out, row by row.
  void mix(const attention_rows::Block& block, const Work& work, T factor, const T* weights, bool add, T* out,
           int64_t stride) const {
    const int64_t step = work.finite ? block.count : 1;
    for (int64_t i = 0; i < block.count; i += step)
      tile_matmul(false, step, head_, block.seen(i + step - 1), factor, weights + i * block.stride, block.stride,
                  work.packed, head_, add ? T{1} : T{0}, out + i * stride, stride);
  }

  // target (keys, head) = [target +] factor · weightsᵀ · rows; likewise, key by key.
  void spread(const attention_rows::Block& block, const Work& work, T factor, const T* weights, const Rows& rows,
              T* target, int64_t stride, bool add) const {
    if (target == nullptr) return;
    const int64_t seen = block.seen(block.count - 1), step = work.finite ? seen : 1;
    int64_t first = 0;  // the first query that sees the key
    for (int64_t j = 0; j < seen; j += step) {
      while (!work.finite && block.seen(first) <= j) ++first;
      tile_matmul(true, step, head_, block.count - first, factor, weights + first * block.stride + j, block.stride,
                  rows.data + first * rows.stride, rows.stride, add ? T{1} : T{0}, target + j * stride, stride);
    }
  }

  Context& context_;
  const AttentionAttrs& attrs_;
  Operands<S> in_;
  DropoutMask mask_;
  uint32_t first_sample_;
  int64_t batch_, queries_, keys_, width_, head_;
  int64_t row_;  // between rows of q, k and v
  int64_t padded_, mask_stride_;
};

}  // namespace tril::attention_heads

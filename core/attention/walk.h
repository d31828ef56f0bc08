// The walk of attention over heads and rows of queries, forward and backward, for the op of that name
// (core/ops/attention.cpp), which checks the operands.
#pragma once

#include <algorithm>
#include <cmath>

#include "core/attention/options.h"
#include "core/attention/tiles.h"
#include "core/attention/vectors.h"
#include "core/machine/context.h"
#include "core/machine/parallel.h"

namespace tril {

struct AttentionShape {
  int64_t batch, queries, keys, head;  // head: D
};

// Heads are segments of the rows: columns h D to (h + 1) D, read and written in place. q's rows are row_q apart, those
// of k and v row_k; o's and dO's lie close.
template <class S>
struct AttentionOperands {
  const S *q, *k, *v;
  int64_t row_q, row_k;
  const int32_t* lengths;  // null: all keys are there
};

template <class S>
struct AttentionTargets {
  S *q, *k, *v;  // null: not wanted
  bool add_q, add_k, add_v;
};

// Every query looks at the keys it may see; the softmax of the scores renormalises over those alone. Per head, with S =
// scale Q Kᵀ:
//   P = softmax(S), O = P V
//   dV = Pᵀ dO, dP = dO Vᵀ, delta = sum over a row of dO O = sum of P dP, dS = P (dP - delta), dQ = scale dS K, dK =
//   scale dSᵀ Q
// Work goes by kQueries rows of S, so that their scores stay in cache; keys that none of them sees are left out. A task
// is one head of keys and values, with all heads of queries that look at it, so that what they add to its gradients
// comes in one order. The products are those of core/attention/vectors.h or tiles.h.
template <class S>
class AttentionWalk {
  using T = Compute<S>;
  using QueryRows = attention_rows::QueryRows;
  using Norm = attention_rows::Norm<T>;
  static constexpr bool kInPlace = std::is_same_v<S, T>;
  static constexpr int64_t kQueries = attention_rows::kMostRows;

 public:
  AttentionWalk(Context& context, const RandomKey& key, uint32_t first_sample, const AttentionOptions& options,
                const AttentionShape& shape, const AttentionOperands<S>& operands)
      : context_(context),
        options_(options),
        shape_(shape),
        in_(operands),
        mask_(key, options.dropout),
        first_sample_(first_sample),
        scale_(static_cast<T>(options.scale.value_or(1.0 / std::sqrt(static_cast<double>(shape.head))))),
        group_(options.heads / options.key_heads()),
        row_o_(options.heads * shape.head),
        stride_(attention_rows::pad(shape.keys)) {}

  void forward(S* o, const Norm& norm) const {
    // Each task lays a head's keys out once. With enough heads a task is a whole head; otherwise a head is split into
    // `parts` tasks, and task i takes the pieces i, i + parts, and so on.
    const int64_t heads = key_heads(), enough = 4 * context_.threads(), pieces = group_ * blocks();
    const int64_t parts =
        heads == 0 ? 1 : std::clamp<int64_t>((enough + heads - 1) / heads, 1, std::max<int64_t>(1, pieces));
    parallel_tasks(context_.threads(), heads * parts, [&](int64_t task, int thread) {
      const Head head = head_of(task / parts);
      const bool finite = head.pattern.is_full() || all_finite(head.v, in_.row_k, head.seen, shape_.head);
      with_products(thread, head, finite, false, [&](Scratch& scratch, auto& products) {
        const Work work(scratch, *this, false);
        for (int64_t piece = task % parts; piece < pieces; piece += parts)
          forward_rows(products, work, rows_of(head, piece), head, o, norm);
      });
    });
  }

  void backward(const S* o, const Norm& norm, const S* d_o, const AttentionTargets<S>& targets) const {
    parallel_tasks(context_.threads(), key_heads(), [&](int64_t index, int thread) {
      const Head head = head_of(index);
      const int64_t columns = group_ * shape_.head, first = head.index * columns;
      const bool finite =
          head.pattern.is_full() ||
          (all_finite(head.k, in_.row_k, head.seen, shape_.head) &&
           all_finite(in_.q + row(head.sample, 0) * in_.row_q + first, in_.row_q, shape_.queries, columns) &&
           all_finite(d_o + row(head.sample, 0) * row_o_ + first, row_o_, shape_.queries, columns));
      with_products(thread, head, finite, true, [&](Scratch& scratch, auto& products) {
        const Work work(scratch, *this, true);
        WrittenPanels written(scratch, shape_.keys);
        const int64_t at = keys_at(head.sample, head.index);
        const KeyGradient<S> dkeys{targets.k == nullptr ? nullptr : targets.k + at, in_.row_k, targets.add_k},
            dvalues{targets.v == nullptr ? nullptr : targets.v + at, in_.row_k, targets.add_v};
        for (int64_t piece = group_ * blocks() - 1; piece >= 0; --piece)
          backward_rows(products, work, rows_of(head, piece), head, {o, d_o, norm}, targets, written, dkeys, dvalues);
        products.finish(written, dkeys, dvalues);
      });
    });
  }

 private:
  // A head of keys and values.
  struct Head {
    int64_t sample, index;
    const S *k, *v;
    AttentionPattern pattern;
    int64_t seen;  // keys, from the first on, that some query sees
  };
  // Queries of one head that looks at it.
  struct Piece {
    QueryRows rows;
    int64_t head;
    KeyRange keys;  // that they see
  };
  struct Outcome {
    const S *o, *d_o;
    const Norm& norm;
  };
  // A thread's working memory.
  struct Work {
    T *scores, *factors, *dscores = nullptr, *wide_o = nullptr, *wide_d_o = nullptr;
    Work(Scratch& scratch, const AttentionWalk& walk, bool backward)
        : scores(scratch.get<T>(kQueries * walk.stride_)), factors(scratch.get<T>(walk.stride_)) {
      if (!backward) return;
      dscores = scratch.get<T>(kQueries * walk.stride_);
      if (kInPlace) return;
      wide_o = scratch.get<T>(kQueries * walk.shape_.head);
      wide_d_o = scratch.get<T>(kQueries * walk.shape_.head);
    }
  };

  [[nodiscard]] int64_t key_heads() const { return shape_.batch * options_.key_heads(); }
  [[nodiscard]] int64_t blocks() const { return (shape_.queries + kQueries - 1) / kQueries; }
  [[nodiscard]] int64_t row(int64_t sample, int64_t query) const { return sample * shape_.queries + query; }
  [[nodiscard]] int64_t keys_at(int64_t sample, int64_t head) const {
    return sample * shape_.keys * in_.row_k + head * shape_.head;
  }
  [[nodiscard]] static bool all_finite(const S* x, int64_t stride, int64_t rows, int64_t columns) {
    return attention_rows::all_finite(x, stride, rows, columns);
  }

  [[nodiscard]] Head head_of(int64_t index) const {
    const int64_t sample = index / options_.key_heads(), head = index % options_.key_heads();
    const AttentionPattern pattern{.causal = options_.causal,
                                   .window = options_.window,
                                   .keys = in_.lengths == nullptr ? shape_.keys : in_.lengths[sample]};
    return {.sample = sample,
            .index = head,
            .k = in_.k + keys_at(sample, head),
            .v = in_.v + keys_at(sample, head),
            .pattern = pattern,
            .seen = shape_.queries == 0 ? 0 : pattern.seen_by(shape_.queries - 1).last};
  }

  [[nodiscard]] Piece rows_of(const Head& head, int64_t piece) const {
    const int64_t query_head = head.index * group_ + piece / blocks(), first = piece % blocks() * kQueries,
                  count = std::min(kQueries, shape_.queries - first);
    // A row of the dropout mask starts a random block of its own.
    const int64_t mask_stride = (shape_.keys + kRandomBlock - 1) / kRandomBlock * kRandomBlock;
    Piece made{.rows = {.first = first,
                        .count = count,
                        .begin = 0,
                        .padded = 0,
                        .stride = stride_,
                        .pattern = head.pattern,
                        .mask = mask_,
                        .sample = first_sample_ + static_cast<uint32_t>(head.sample),
                        .mask_row = (query_head * shape_.queries + first) * mask_stride,
                        .mask_stride = mask_stride},
               .head = query_head,
               .keys = head.pattern.seen_by(first, count)};
    made.rows.look(made.keys);
    return made;
  }

  // Where rows of a head of queries start in q, and in o and dO; and what is kept of their scores.
  [[nodiscard]] int64_t queries_at(const Head& head, const Piece& piece) const {
    return row(head.sample, piece.rows.first) * in_.row_q + piece.head * shape_.head;
  }
  [[nodiscard]] int64_t outputs_at(const Head& head, const Piece& piece) const {
    return row(head.sample, piece.rows.first) * row_o_ + piece.head * shape_.head;
  }
  [[nodiscard]] Norm norm_of(const Norm& all, const Head& head, const Piece& piece) const {
    const int64_t at = (head.sample * options_.heads + piece.head) * shape_.queries + piece.rows.first;
    return {all.shifts + at, all.shares + at};
  }

  // Calls body(scratch, products) with the head's keys laid out for one of the ways to multiply.
  template <class Body>
  void with_products(int thread, const Head& head, bool finite, bool backward, const Body& body) const {
    Scratch scratch(context_.scratch(thread));
    const auto run = [&](auto&& products) {
      products.take_keys(head.k, head.v, in_.row_k, head.seen, finite);
      body(scratch, products);
    };
    if constexpr (std::is_same_v<S, bf16>)
      if (finite && AttentionTiles::work()) return run(AttentionTiles(scratch, shape_.head, shape_.keys, backward));
    run(AttentionVectors<S>(scratch, shape_.head, shape_.keys, backward));
  }

  // Rows of a head, in what is computed with.
  struct Wide {
    const T* data;
    int64_t stride;
  };
  [[nodiscard]] Wide widen(const S* x, int64_t count, T* copy) const {
    if constexpr (kInPlace) return {x, row_o_};
    attention_rows::pack(x, row_o_, count, shape_.head, copy);
    return {copy, shape_.head};
  }

  void clear(S* x, int64_t count, int64_t stride) const {
    for (int64_t i = 0; i < count; ++i) std::fill_n(x + i * stride, shape_.head, S(0));
  }

  template <class Products>
  void forward_rows(Products& products, const Work& work, const Piece& piece, const Head& head, S* all_o,
                    const Norm& norm) const {
    const QueryRows& rows = piece.rows;
    S* const o = all_o + outputs_at(head, piece);
    products.by_keys(rows, in_.q + queries_at(head, piece), in_.row_q, work.scores);
    attention_rows::weights(work.scores, scale_, rows, work.factors, norm_of(norm, head, piece));
    if (rows.padded == 0) return clear(o, rows.count, row_o_);
    products.take_weights(rows, work.scores, T{1});
    products.mix(rows, o, row_o_, false);
  }

  template <class Products>
  void backward_rows(Products& products, const Work& work, const Piece& piece, const Head& head, const Outcome& outcome,
                     const AttentionTargets<S>& targets, WrittenPanels& written, const KeyGradient<S>& dkeys,
                     const KeyGradient<S>& dvalues) const {
    const QueryRows& rows = piece.rows;
    S* const dq = targets.q == nullptr ? nullptr : targets.q + queries_at(head, piece);
    if (rows.padded == 0) {
      if (dq != nullptr && !targets.add_q) clear(dq, rows.count, in_.row_q);
      return;
    }
    const S* const d_o = outcome.d_o + outputs_at(head, piece);
    products.by_keys(rows, in_.q + queries_at(head, piece), in_.row_q, work.scores);
    products.by_values(rows, d_o, row_o_, work.dscores);
    const Wide o = widen(outcome.o + outputs_at(head, piece), rows.count, work.wide_o),
               d = widen(d_o, rows.count, work.wide_d_o);
    attention_rows::gradients(work.scores, scale_, work.dscores, rows, work.factors, norm_of(outcome.norm, head, piece),
                              o.data, d.data, d.stride, shape_.head);
    products.take_weights(rows, work.scores, T{1});
    products.spread_values(rows, written, dvalues);
    products.take_weights(rows, work.dscores, scale_);
    products.spread_keys(rows, written, dkeys);
    if (dq != nullptr) products.mix(rows, dq, in_.row_q, targets.add_q);
    written.mark(rows.begin, rows.padded);
  }

  Context& context_;
  const AttentionOptions& options_;
  AttentionShape shape_;
  AttentionOperands<S> in_;
  DropoutMask mask_;
  uint32_t first_sample_;
  T scale_;
  int64_t group_;   // heads of queries to one of keys and values
  int64_t row_o_;   // between rows of o and dO
  int64_t stride_;  // between rows of scores
};

}  // namespace tril

#include <algorithm>
#include <cmath>

#include "core/gemm.h"
#include "core/kernels/attention_rows.h"
#include "core/ops.h"
#include "core/parallel.h"

namespace tril {
namespace {

// Every query looks at the keys it may see; the softmax of the scores renormalises over those alone. Per head, with S =
// scale Q Kᵀ:
//   P = softmax(S), O = P V
//   dV = Pᵀ dO, dP = dO Vᵀ, delta = sum over a row of dO O = sum of P dP, dS = P (dP - delta), dQ = scale dS K, dK =
//   scale dSᵀ Q
// Work goes by blocks of kQueries rows of S, so that a block's scores stay in cache; keys no query of a block sees are
// left out of it. Heads are segments of the rows: column h D of q, k, v and o, read and written in place.
constexpr int64_t kQueries = 32;

struct AttentionAttrs {
  int64_t heads;
  double scale, dropout;
  bool causal, packed, lengths;
};

struct Sizes {
  int64_t batch, queries, keys, width, heads, head;
  Sizes(const Shape& q, const Shape& k, const AttentionAttrs& attrs)
      : batch(q[0]),
        queries(q[1]),
        keys(k[1]),
        width(attrs.packed ? q[2] / 3 : q[2]),
        heads(attrs.heads),
        head(width / attrs.heads) {}
};

// One (sample, head): where its rows start in each operand, and how far apart rows are.
template <class T>
struct Head {
  const T *q, *k, *v;
  int64_t row;   // distance between rows of q, k and v
  int64_t seen;  // keys there are for this sample
  uint32_t sample;
  int64_t index;  // of the head's first weight among its sample's, for dropout
};

template <class T>
class Attention {
 public:
  Attention(const Forward& op, const AttentionAttrs& attrs, const Tensor& q, const Tensor& k, const Tensor& v,
            const int32_t* lengths)
      : op_(op),
        attrs_(attrs),
        sizes_(q.shape, k.shape, attrs),
        mask_(op.key(), attrs.dropout),
        q_(q.ptr<T>()),
        k_(attrs.packed ? q_ + sizes_.width : k.ptr<T>()),
        v_(attrs.packed ? q_ + 2 * sizes_.width : v.ptr<T>()),
        lengths_(lengths),
        row_(attrs.packed ? 3 * sizes_.width : sizes_.width),
        key_blocks_((sizes_.keys + kRandomBlock - 1) / kRandomBlock * kRandomBlock) {}

  void forward(T* o, T* lse) const {
    const int64_t blocks = (sizes_.queries + kQueries - 1) / kQueries, heads = sizes_.batch * sizes_.heads;
    // Whole heads where there are enough of them (keys are transposed once a head), else their blocks one by one.
    const int64_t parts = heads >= 4 * op_.threads() ? 1 : blocks;
    parallel_tasks(op_.threads(), heads * parts, [&](int64_t task, int thread) {
      const int64_t index = task / parts, first = task % parts * (blocks / parts),
                    last = parts == 1 ? blocks : first + 1;
      const Head<T> head = head_of(index);
      Scratch scratch(op_.context().scratch(thread));
      T* const keys = scratch.get<T>(sizes_.head * sizes_.keys);
      T* const scores = scratch.get<T>(kQueries * sizes_.keys);
      T* const factors = scratch.get<T>(key_blocks_);
      attention_rows::transpose(head.k, head.row, sizes_.keys, sizes_.head, keys);
      for (int64_t block = first; block < last; ++block)
        forward_block(head, index, block * kQueries, keys, scores, factors, o, lse);
    });
  }

  struct Targets {
    T *q, *k, *v;
    bool add_q, add_k, add_v;
  };

  void backward(const T* o, const T* lse, const T* d_o, const Targets& targets) const {
    parallel_tasks(op_.threads(), sizes_.batch * sizes_.heads, [&](int64_t index, int thread) {
      const Head<T> head = head_of(index);
      Scratch scratch(op_.context().scratch(thread));
      T* const keys = scratch.get<T>(sizes_.head * sizes_.keys);
      T* const values = scratch.get<T>(sizes_.head * sizes_.keys);
      T* const tiles = scratch.get<T>(2 * kQueries * sizes_.keys);
      T* const factors = scratch.get<T>(key_blocks_);
      attention_rows::transpose(head.k, head.row, sizes_.keys, sizes_.head, keys);
      attention_rows::transpose(head.v, head.row, sizes_.keys, sizes_.head, values);
      const int64_t offset = offset_of(index, row_, sizes_.keys);
      clear_unseen(head, index, targets);
      // From the last block, which under a causal mask sees the most keys, so that the first one written covers the
      // others.
      const int64_t blocks = (sizes_.queries + kQueries - 1) / kQueries;
      int64_t written = 0;
      for (int64_t block = blocks - 1; block >= 0; --block)
        written = backward_block(head, index, block * kQueries, keys, values, tiles, factors, o, lse, d_o, targets,
                                 offset, written);
    });
  }

 private:
  [[nodiscard]] int64_t offset_of(int64_t index, int64_t row, int64_t rows) const {
    return index / sizes_.heads * rows * row + index % sizes_.heads * sizes_.head;
  }

  [[nodiscard]] Head<T> head_of(int64_t index) const {
    const int64_t sample = index / sizes_.heads, at_keys = offset_of(index, row_, sizes_.keys);
    return {q_ + offset_of(index, row_, sizes_.queries),
            k_ + at_keys,
            v_ + at_keys,
            row_,
            lengths_ == nullptr ? sizes_.keys : lengths_[sample],
            op_.context().first_sample() + static_cast<uint32_t>(sample),
            index % sizes_.heads * sizes_.queries * key_blocks_};
  }

  // How many keys query i sees.
  [[nodiscard]] int64_t seen_by(const Head<T>& head, int64_t i) const {
    return attrs_.causal ? std::min(i + 1, head.seen) : head.seen;
  }

  // S = scale Q Kᵀ of a block, over the keys that its last query sees. Returns how many those are.
  int64_t scores_of(const Head<T>& head, int64_t first, int64_t count, const T* keys, T* scores) const {
    const int64_t width = seen_by(head, first + count - 1);
    if (width > 0)
      tile_matmul(false, false, count, width, sizes_.head, static_cast<T>(attrs_.scale), head.q + first * head.row,
                  head.row, keys, sizes_.keys, T{0}, scores, width);
    return width;
  }

  void forward_block(const Head<T>& head, int64_t index, int64_t first, const T* keys, T* scores, T* factors, T* o,
                     T* lse) const {
    const int64_t count = std::min(kQueries, sizes_.queries - first),
                  width = scores_of(head, first, count, keys, scores);
    T* const out = o + offset_of(index, sizes_.width, sizes_.queries) + first * sizes_.width;
    T totals[kQueries];
    for (int64_t i = 0; i < count; ++i)
      attention_rows::weights(scores + i * width, seen_by(head, first + i), width, mask_, head.sample,
                              head.index + (first + i) * key_blocks_, factors, lse + index * sizes_.queries + first + i,
                              totals + i);
    if (width > 0)
      tile_matmul(false, false, count, sizes_.head, width, T{1}, scores, width, head.v, head.row, T{0}, out,
                  sizes_.width);
    for (int64_t i = 0; i < count; ++i) {
      T* const row = out + i * sizes_.width;
      if (totals[i] == T{0})
        std::fill(row, row + sizes_.head, T{0});  // nothing to see
      else
        attention_rows::scale_row(row, T{1} / totals[i], sizes_.head);
    }
  }

  // Keys that no query of this sample sees get gradient 0.
  void clear_unseen(const Head<T>& head, int64_t index, const Targets& targets) const {
    const int64_t from = sizes_.queries == 0 ? 0 : seen_by(head, sizes_.queries - 1),
                  offset = offset_of(index, row_, sizes_.keys);
    for (int64_t j = from; j < sizes_.keys; ++j) {
      if (targets.k != nullptr && !targets.add_k) std::fill_n(targets.k + offset + j * row_, sizes_.head, T{0});
      if (targets.v != nullptr && !targets.add_v) std::fill_n(targets.v + offset + j * row_, sizes_.head, T{0});
    }
  }

  int64_t backward_block(const Head<T>& head, int64_t index, int64_t first, const T* keys, const T* values, T* tiles,
                         T* factors, const T* o, const T* lse, const T* d_o, const Targets& targets, int64_t offset,
                         int64_t written) const {
    const int64_t count = std::min(kQueries, sizes_.queries - first),
                  at = offset_of(index, sizes_.width, sizes_.queries) + first * sizes_.width;
    T *const scores = tiles, *const dscores = tiles + kQueries * sizes_.keys;
    const int64_t width = scores_of(head, first, count, keys, scores);
    T* const dq = targets.q == nullptr ? nullptr : targets.q + offset_of(index, row_, sizes_.queries) + first * row_;
    if (width == 0) {
      for (int64_t i = 0; dq != nullptr && !targets.add_q && i < count; ++i)
        std::fill_n(dq + i * row_, sizes_.head, T{0});
      return written;
    }
    tile_matmul(false, false, count, width, sizes_.head, T{1}, d_o + at, sizes_.width, values, sizes_.keys, T{0},
                dscores, width);
    for (int64_t i = 0; i < count; ++i)
      attention_rows::gradients(
          scores + i * width, dscores + i * width, seen_by(head, first + i), width,
          lse[index * sizes_.queries + first + i],
          attention_rows::dot(d_o + at + i * sizes_.width, o + at + i * sizes_.width, sizes_.head), mask_, head.sample,
          head.index + (first + i) * key_blocks_, factors);
    const T scale = static_cast<T>(attrs_.scale), add = written > 0 ? T{1} : T{0};
    if (dq != nullptr)
      tile_matmul(false, false, count, sizes_.head, width, scale, dscores, width, head.k, row_,
                  targets.add_q ? T{1} : T{0}, dq, row_);
    if (targets.k != nullptr)
      tile_matmul(true, false, width, sizes_.head, count, scale, dscores, width, head.q + first * row_, row_,
                  targets.add_k ? T{1} : add, targets.k + offset, row_);
    if (targets.v != nullptr)
      tile_matmul(true, false, width, sizes_.head, count, T{1}, scores, width, d_o + at, sizes_.width,
                  targets.add_v ? T{1} : add, targets.v + offset, row_);
    return width;
  }

  const Forward& op_;
  const AttentionAttrs& attrs_;
  Sizes sizes_;
  DropoutMask mask_;
  const T *q_, *k_, *v_;
  const int32_t* lengths_;
  int64_t row_, key_blocks_;
};

struct AttentionOp {
  using Attrs = AttentionAttrs;

  static void infer(Infer& op, const Attrs& attrs) {
    const int operands = attrs.packed ? 1 : 3;
    const char* const names[] = {attrs.packed ? "qkv" : "q", "k", "v"};
    for (int i = 0; i < operands; ++i) {
      op.expect_floating(i, names[i]);
      op.expect_same_dtype(i, names[i]);
      TRIL_CHECK(op.shape(i).rank() == 3, op.name(), cat(names[i], attrs.packed ? " (B, T, 3C)" : " (B, T, C)"),
                 cat("shape ", op.shape(i)));
      op.backward_reads_input(i);
    }
    const Shape& q = op.shape(0);
    const int64_t width = attrs.packed ? q[2] / 3 : q[2];
    if (attrs.packed) {
      TRIL_CHECK(q[2] % 3 == 0, op.name(), "qkv (B, T, 3C)", cat("shape ", q));
    } else {
      TRIL_CHECK(op.shape(1)[0] == q[0] && op.shape(1)[2] == width, op.name(),
                 cat("k (", q[0], ", Tk, ", width, ") for q ", q), cat(op.shape(1)));
      TRIL_CHECK(op.shape(2) == op.shape(1), op.name(), cat("v ", op.shape(1), " as k"), cat(op.shape(2)));
    }
    TRIL_CHECK(attrs.heads >= 1 && width > 0 && width % attrs.heads == 0, op.name(),
               cat("heads that divide the width ", width), cat(attrs.heads, " heads"));
    TRIL_CHECK(attrs.dropout >= 0.0 && attrs.dropout < 1.0, op.name(), "0 <= dropout < 1", cat(attrs.dropout));
    TRIL_CHECK(std::isfinite(attrs.scale), op.name(), "a finite scale", cat(attrs.scale));
    if (attrs.lengths) infer_lengths(op, operands, q[0], attrs.packed ? q[1] : op.shape(1)[1]);
    op.output(q.with(2, width), op.in(0).dtype);
    op.save({q[0], attrs.heads, q[1]}, op.in(0).dtype);  // the log-sum-exp of each row of scores
    op.backward_reads_output(0);
  }

  static void forward(const Forward& op, const Attrs& attrs) {
    dispatch(op.name(), op.in(0).dtype, [&](auto type) {
      using T = decltype(type);
      const auto& k = op.in(attrs.packed ? 0 : 1);
      const auto& v = op.in(attrs.packed ? 0 : 2);
      const int32_t* const lengths = attrs.lengths ? op.in(op.count() - 1).ptr<int32_t>() : nullptr;
      Attention<T>(op, attrs, op.in(0), k, v, lengths).forward(op.out(0).ptr<T>(), op.saved(0).ptr<T>());
    });
  }

  static void backward(const Backward& op, const Attrs& attrs) {
    dispatch(op.name(), op.dout(0).dtype, [&](auto type) {
      using T = decltype(type);
      const int k = attrs.packed ? 0 : 1, v = attrs.packed ? 0 : 2;
      const int32_t* const lengths = attrs.lengths ? op.in(op.count() - 1).ptr<int32_t>() : nullptr;
      const int64_t width = op.dout(0).shape[2];
      typename Attention<T>::Targets targets{op.din(0).ptr<T>(),   op.din(k).ptr<T>(),   op.din(v).ptr<T>(),
                                             op.din(0).accumulate, op.din(k).accumulate, op.din(v).accumulate};
      if (attrs.packed) {
        targets.k += width;
        targets.v += 2 * width;
      }
      Attention<T>(op, attrs, op.in(0), op.in(k), op.in(v), lengths)
          .backward(op.out(0).ptr<T>(), op.saved(0).ptr<T>(), op.dout(0).ptr<T>(), targets);
    });
  }

  static std::vector<Sample> samples();

 private:
  static void infer_lengths(Infer& op, int operand, int64_t batch, int64_t keys) {
    TRIL_CHECK(op.in(operand).dtype == DType::i32 && op.shape(operand) == Shape{batch}, op.name(),
               cat("lengths (", batch, ") of i32"), cat(op.in(operand).dtype, " ", op.shape(operand)));
    for (int64_t i = 0; i < batch; ++i) {
      const int32_t length = op.in(operand).ptr<int32_t>()[i];
      TRIL_CHECK(length >= 0 && length <= keys, op.name(), cat("lengths from 0 to ", keys),
                 cat(length, " for sample ", i));
    }
    op.backward_reads_input(operand);
    op.no_gradient(operand);
  }
};

// The same from plain products and a softmax over a mask of -inf: heads are cut out, rows are looked at one mask at a
// time.
Tensor compose_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  const int64_t batch = q.shape[0], queries = q.shape[1], keys = k.shape[1], heads = options.heads,
                head = q.shape[2] / heads;
  const auto split = [&](const Tensor& x, int64_t time) {
    return permute(reshape(x, {batch, time, heads, head}), {0, 2, 1, 3});
  };
  std::vector<double> mask(static_cast<size_t>(batch * queries * keys));
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = 0; i < queries; ++i)
      for (int64_t j = 0; j < keys; ++j) {
        const bool hidden =
            (options.causal && j > i) || (options.lengths.data != nullptr && j >= options.lengths.ptr<int32_t>()[b]);
        mask[static_cast<size_t>((b * queries + i) * keys + j)] =
            hidden ? -std::numeric_limits<double>::infinity() : 0.0;
      }
  const Tensor scores = scale(matmul(split(q, queries), split(k, keys), {.transpose_b = true}),
                              options.scale.value_or(1.0 / std::sqrt(static_cast<double>(head))));
  const Tensor masked = scores + q.tape->constant<double>({batch, 1, queries, keys}, mask);
  return reshape(permute(matmul(softmax(masked), split(v, keys)), {0, 2, 1, 3}), {batch, queries, q.shape[2]});
}

struct Case {
  int64_t batch, queries, keys, width;
  AttentionOptions options;
  std::vector<double> lengths{};
};

Sample cross_sample(const Case& c, const char* what) {
  Sample sample{.label = cat(c.batch, " x ", c.queries, " queries, ", c.keys, " keys, width ", c.width, ", ",
                             c.options.heads, " heads", what),
                .inputs = {{.shape = {c.batch, c.queries, c.width}},
                           {.shape = {c.batch, c.keys, c.width}},
                           {.shape = {c.batch, c.keys, c.width}}}};
  const auto options_for = [c](std::span<const Tensor> in) {
    AttentionOptions options = c.options;
    if (!c.lengths.empty()) options.lengths = in[3];
    return options;
  };
  if (!c.lengths.empty()) {
    SampleInput lengths = SampleInput::of_tokens({c.batch}, 1);
    lengths.given = c.lengths;
    lengths.not_varied = "lengths";
    sample.inputs.push_back(lengths);
  }
  sample.run = [=](auto in) { return std::vector{attention(in[0], in[1], in[2], options_for(in))}; };
  if (c.options.dropout == 0.0)
    sample.compose = [=](auto in) { return std::vector{compose_attention(in[0], in[1], in[2], options_for(in))}; };
  return sample;
}

Sample packed_sample(int64_t batch, int64_t time, int64_t width, const AttentionOptions& options, const char* what) {
  Sample sample{.label = cat("packed ", batch, " x ", time, ", width ", width, ", ", options.heads, " heads", what),
                .inputs = {{.shape = {batch, time, 3 * width}}}};
  sample.run = [=](auto in) { return std::vector{attention(in[0], options)}; };
  if (options.dropout == 0.0)
    sample.compose = [=](auto in) {
      return std::vector{compose_attention(slice(in[0], 2, 0, width), slice(in[0], 2, width, 2 * width),
                                           slice(in[0], 2, 2 * width, 3 * width), options)};
    };
  return sample;
}

std::vector<Sample> AttentionOp::samples() {
  const AttentionOptions causal{.heads = 2, .causal = true}, full{.heads = 2};
  std::vector<Sample> samples = {
      cross_sample({2, 3, 5, 4, full}, ", full"),
      cross_sample({1, 5, 3, 4, causal}, ", causal"),
      cross_sample({1, 1, 1, 1, {}}, ""),
      cross_sample({2, 4, 4, 6, {.heads = 3, .causal = true, .scale = 1.0}}, ", causal, no scale"),
      cross_sample({1, 35, 3, 2, full}, ", two blocks"),
      cross_sample({2, 3, 4, 4, {.heads = 2, .dropout = 0.3}}, ", dropout"),
      cross_sample({3, 3, 4, 2, full, {4, 0, 2}}, ", lengths 4 0 2"),
      cross_sample({2, 4, 4, 2, causal, {3, 0}}, ", causal, lengths 3 0"),
      cross_sample({1, 0, 3, 2, full}, ", no queries"),
      cross_sample({1, 2, 0, 2, full}, ", no keys"),
      packed_sample(2, 5, 4, causal, ", causal"),
      packed_sample(1, 7, 3, {.heads = 1}, ", full"),
      packed_sample(1, 34, 2, causal, ", causal, two blocks"),
      packed_sample(2, 6, 4, {.heads = 2, .causal = true, .dropout = 0.4}, ", causal, dropout"),
      packed_sample(1, 3, 8, {.heads = 8, .causal = true, .scale = 0.5}, ", head size 1")};
  samples.push_back({.label = "heads that do not divide",
                     .inputs = {{.shape = {1, 2, 24}}},
                     .run = [](auto in) { return std::vector{attention(in[0], {.heads = 3})}; },
                     .error = "attention: expected heads that divide the width 8, got 3 heads"});
  Sample keys = cross_sample({1, 2, 3, 4, full}, "");
  keys.label = "keys of another width";
  keys.inputs[1].shape = {1, 3, 6};
  keys.error = "attention: expected k (1, Tk, 4) for q (1, 2, 4), got (1, 3, 6)";
  samples.push_back(keys);
  Sample lengths = cross_sample({2, 3, 4, 2, full, {4, 5}}, "");
  lengths.label = "a length too long";
  lengths.error = "attention: expected lengths from 0 to 4, got 5 for sample 1";
  samples.push_back(lengths);
  return samples;
}

}  // namespace

TRIL_REGISTER_OP(attention, AttentionOp)

namespace {

Tensor run(std::span<const Tensor> operands, int64_t width, const AttentionOptions& options) {
  const double head = static_cast<double>(width) / static_cast<double>(std::max<int64_t>(1, options.heads));
  const bool training = operands[0].tape == nullptr || operands[0].tape->training();
  const bool has_lengths = options.lengths.data != nullptr, packed = operands.size() == 1;
  const AttentionAttrs attrs{.heads = options.heads,
                             .scale = options.scale.value_or(1.0 / std::sqrt(std::max(head, 1.0))),
                             .dropout = training ? options.dropout : 0.0,
                             .causal = options.causal,
                             .packed = packed,
                             .lengths = has_lengths};
  std::array<Tensor, 4> all{};
  std::copy(operands.begin(), operands.end(), all.begin());
  all[operands.size()] = options.lengths;
  return apply(registered::attention, {all.data(), operands.size() + (has_lengths ? 1u : 0u)}, &attrs);
}

}  // namespace

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  const std::array<Tensor, 3> operands = {q, k, v};
  return run(operands, q.shape.rank() == 3 ? q.shape[2] : 1, options);
}

Tensor attention(const Tensor& qkv, const AttentionOptions& options) {
  return run({&qkv, 1}, qkv.shape.rank() == 3 ? qkv.shape[2] / 3 : 1, options);
}

}  // namespace tril

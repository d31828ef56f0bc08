#include <algorithm>
#include <cmath>

#include "core/kernels/attention_rows.h"
#include "core/kernels/convert.h"
#include "core/ops.h"
#include "core/parallel.h"
#include "core/tile.h"

namespace tril {
namespace {

// Every query looks at the keys it may see; the softmax of the scores renormalises over those alone. Per head, with S =
// scale Q Kᵀ:
//   P = softmax(S), O = P V
//   dV = Pᵀ dO, dP = dO Vᵀ, delta = sum over a row of dO O = sum of P dP, dS = P (dP - delta), dQ = scale dS K, dK =
//   scale dSᵀ Q
// Work goes by blocks of kQueries rows of S, so that a block's scores stay in cache; keys no query of a block sees are
// left out of it. Heads are segments of the rows: columns h D to (h + 1) D of q, k, v and o, read and written in place.
// bf16 is widened block by block on the way in, and rounded once on the way out.
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
template <class S>
class Attention {
  using T = Compute<S>;
  static constexpr bool kInPlace = std::is_same_v<S, T>;

 public:
  Attention(const Forward& op, const AttentionAttrs& attrs, const Shape& q, const Shape& k, const Operands<S>& operands)
      : context_(op.context()),
        attrs_(attrs),
        in_(operands),
        mask_(op.key(), attrs.dropout),
        batch_(q[0]),
        queries_(q[1]),
        keys_(k[1]),
        width_(attrs.packed ? q[2] / 3 : q[2]),
        head_(width_ / attrs.heads),
        row_(attrs.packed ? 3 * width_ : width_),
        padded_(attention_rows::pad(keys_)),
        mask_stride_((keys_ + kRandomBlock - 1) / kRandomBlock * kRandomBlock) {}

  void forward(S* o, T* lse) const {
    // Whole heads where there are enough of them (keys are transposed once a head), else their blocks one by one.
    const int64_t heads = batch_ * attrs_.heads, parts = heads >= 4 * context_.threads() ? 1 : blocks();
    parallel_tasks(context_.threads(), heads * parts, [&](int64_t task, int thread) {
      const int64_t index = task / parts, first = parts == 1 ? 0 : task % parts,
                    last = parts == 1 ? blocks() : first + 1;
      Scratch scratch(context_.scratch(thread));
      const Work work(scratch, *this, false);
      transpose(in_.k + keys_at(index), work, work.key_panels);
      attention_rows::pack(in_.v + keys_at(index), row_, keys_, head_, work.packed);
      for (int64_t block = first; block < last; ++block) forward_block(index, block * kQueries, work, o, lse);
    });
  }

  void backward(const S* o, const T* lse, const S* d_o, const Targets<S>& targets) const {
    parallel_tasks(context_.threads(), batch_ * attrs_.heads, [&](int64_t index, int thread) {
      Scratch scratch(context_.scratch(thread));
      const Work work(scratch, *this, true);
      transpose(in_.k + keys_at(index), work, work.key_panels);
      transpose(in_.v + keys_at(index), work, work.value_panels);
      attention_rows::pack(in_.k + keys_at(index), row_, keys_, head_, work.packed);
      // From the last block, which under a causal mask sees the most keys, so that the first one written covers the
      // others.
      bool written = false;
      for (int64_t block = blocks() - 1; block >= 0; --block)
        written |= backward_block(index, block * kQueries, work, o, lse, d_o, targets, written);
      finish_keys(index, work.dkeys, targets.k, targets.add_k);
      finish_keys(index, work.dvalues, targets.v, targets.add_v);
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
    Work(Scratch& scratch, const Attention& a, bool backward)
        : key_panels(scratch.get<T>(a.head_ * a.padded_)),
          scores(scratch.get<T>(kQueries * a.padded_)),
          factors(scratch.get<T>(a.mask_stride_)),
          packed(scratch.get<T>(a.head_ * a.keys_)) {
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

  // Rows of a head that lie together, to where they belong.
  void write(const T* rows, int64_t count, S* to, int64_t stride, bool add) const {
    for (int64_t i = 0; i < count; ++i)
      (add ? convert_and_add<T, S> : convert<T, S>)(rows + i * head_, to + i * stride, head_);
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
                                .sample = context_.first_sample() + static_cast<uint32_t>(sample),
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

  void forward_block(int64_t index, int64_t first, const Work& work, S* o, T* lse) const {
    const attention_rows::Block block = block_of(index, first);
    const int64_t width = block.seen(block.count - 1);
    S* const out = o + outputs_at(index, first);
    const Rows q = read(in_.q + queries_at(index, first), row_, block.count, work.wide[0]);
    multiply_by_panels(block, static_cast<T>(attrs_.scale), q, work.key_panels, work.scores);
    attention_rows::weights(work.scores, block, work.factors, lse + index * queries_ + first);
    if (width == 0) {
      for (int64_t i = 0; i < block.count; ++i) std::fill_n(out + i * width_, head_, S(0));
    } else if constexpr (kInPlace) {
      tile_matmul(false, block.count, head_, width, T{1}, work.scores, block.stride, work.packed, head_, T{0}, out,
                  width_);
    } else {
      tile_matmul(false, block.count, head_, width, T{1}, work.scores, block.stride, work.packed, head_, T{0},
                  work.wide[1], head_);
      write(work.wide[1], block.count, out, width_, false);
    }
  }

  // How many keys of a head some query sees.
  [[nodiscard]] int64_t seen_keys(int64_t index) const {
    return queries_ == 0 ? 0 : block_of(index, queries_ - 1).seen(0);
  }

  // The keys' or values' gradients to their place, where they are not already; those that no query sees get 0.
  void finish_keys(int64_t index, const T* gradients, S* target, bool add) const {
    if (target == nullptr) return;
    const int64_t seen = seen_keys(index);
    if constexpr (!kInPlace) write(gradients, seen, target + keys_at(index), row_, add);
    for (int64_t j = seen; !add && j < keys_; ++j) std::fill_n(target + keys_at(index) + j * row_, head_, S(0));
  }

  // Returns whether the keys' and values' gradients were written.
  bool backward_block(int64_t index, int64_t first, const Work& work, const S* all_o, const T* lse, const S* all_d_o,
                      const Targets<S>& targets, bool written) const {
    const attention_rows::Block block = block_of(index, first);
    const int64_t width = block.seen(block.count - 1);
    const T scale = static_cast<T>(attrs_.scale);
    S* const dq = targets.q == nullptr ? nullptr : targets.q + queries_at(index, first);
    if (width == 0) {
      for (int64_t i = 0; dq != nullptr && !targets.add_q && i < block.count; ++i)
        std::fill_n(dq + i * row_, head_, S(0));
      return false;
    }
    const Rows q = read(in_.q + queries_at(index, first), row_, block.count, work.wide[0]);
    const Rows o = read(all_o + outputs_at(index, first), width_, block.count, work.wide[1]);
    const Rows d_o = read(all_d_o + outputs_at(index, first), width_, block.count, work.wide[2]);
    multiply_by_panels(block, scale, q, work.key_panels, work.scores);
    multiply_by_panels(block, T{1}, d_o, work.value_panels, work.dscores);
    attention_rows::gradients(work.scores, work.dscores, block, work.factors, lse + index * queries_ + first, o.data,
                              d_o.data, d_o.stride, head_);
    if constexpr (kInPlace) {
      if (dq != nullptr)
        tile_matmul(false, block.count, head_, width, scale, work.dscores, block.stride, work.packed, head_,
                    targets.add_q ? T{1} : T{0}, dq, row_);
      add_to_keys(block, scale, work.dscores, q, targets.k == nullptr ? nullptr : targets.k + keys_at(index), row_,
                  targets.add_k || written);
      add_to_keys(block, T{1}, work.scores, d_o, targets.v == nullptr ? nullptr : targets.v + keys_at(index), row_,
                  targets.add_v || written);
    } else {
      if (dq != nullptr) {
        tile_matmul(false, block.count, head_, width, scale, work.dscores, block.stride, work.packed, head_, T{0},
                    work.wide[1], head_);
        write(work.wide[1], block.count, dq, row_, targets.add_q);
      }
      add_to_keys(block, scale, work.dscores, q, targets.k == nullptr ? nullptr : work.dkeys, head_, written);
      add_to_keys(block, T{1}, work.scores, d_o, targets.v == nullptr ? nullptr : work.dvalues, head_, written);
    }
    return true;
  }

  // target (keys, head) = [target +] factor · weightsᵀ · rows
  void add_to_keys(const attention_rows::Block& block, T factor, const T* weights, const Rows& rows, T* target,
                   int64_t stride, bool add) const {
    if (target != nullptr)
      tile_matmul(true, block.seen(block.count - 1), head_, block.count, factor, weights, block.stride, rows.data,
                  rows.stride, add ? T{1} : T{0}, target, stride);
  }

  Context& context_;
  const AttentionAttrs& attrs_;
  Operands<S> in_;
  DropoutMask mask_;
  int64_t batch_, queries_, keys_, width_, head_;
  int64_t row_;  // between rows of q, k and v
  int64_t padded_, mask_stride_;
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
    op.save({q[0], attrs.heads, q[1]}, compute_dtype(op.in(0).dtype));  // the log-sum-exp of each row of scores
    op.backward_reads_output(0);
    op.flops(4.0 * static_cast<double>(width * q[0]) * pairs(q[1], attrs.packed ? q[1] : op.shape(1)[1], attrs.causal));
  }

  static void forward(const Forward& op, const Attrs& attrs) {
    dispatch_with_bf16(op.name(), op.in(0).dtype, [&](auto type) {
      using S = decltype(type);
      attention_of<S>(op, attrs, op).forward(op.out(0).ptr<S>(), op.saved(0).ptr<Compute<S>>());
    });
  }

  static void backward(const Backward& op, const Attrs& attrs) {
    dispatch_with_bf16(op.name(), op.dout(0).dtype, [&](auto type) {
      using S = decltype(type);
      const int k = attrs.packed ? 0 : 1, v = attrs.packed ? 0 : 2;
      const int64_t width = op.dout(0).shape[2];
      Targets<S> targets{op.din(0).ptr<S>(),   op.din(k).ptr<S>(),   op.din(v).ptr<S>(),
                         op.din(0).accumulate, op.din(k).accumulate, op.din(v).accumulate};
      if (attrs.packed) {
        targets.k += width;
        targets.v += 2 * width;
      }
      attention_of<S>(op, attrs, op)
          .backward(op.out(0).ptr<S>(), op.saved(0).ptr<Compute<S>>(), op.dout(0).ptr<S>(), targets);
    });
  }

  static std::vector<Sample> samples();

 private:
  // How many keys all queries together look at.
  static double pairs(int64_t queries, int64_t keys, bool causal) {
    const int64_t both = std::min(queries, keys);
    const int64_t count = causal ? both * (both + 1) / 2 + (queries - both) * keys : queries * keys;
    return static_cast<double>(count);
  }

  template <class S, class Op>
  static Attention<S> attention_of(const Forward& forward, const Attrs& attrs, const Op& op) {
    const Tensor& q = op.in(0);
    const int64_t width = q.shape[2] / 3;
    Operands<S> operands{q.ptr<S>(), nullptr, nullptr,
                         attrs.lengths ? op.in(op.count() - 1).template ptr<int32_t>() : nullptr};
    operands.k = attrs.packed ? operands.q + width : op.in(1).template ptr<S>();
    operands.v = attrs.packed ? operands.q + 2 * width : op.in(2).template ptr<S>();
    return Attention<S>(forward, attrs, q.shape, op.in(attrs.packed ? 0 : 1).shape, operands);
  }

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
  for (const char* const label : {", causal, two blocks", ", causal, dropout", ", head size 1"})
    for (size_t i = 0, count = samples.size(); i < count; ++i)
      if (samples[i].label.ends_with(label)) samples.push_back(in_bf16(samples[i], {0}));
  for (const char* const label : {", lengths 4 0 2", ", no keys", ", no queries", ", two blocks", ", full"})
    for (size_t i = 0, count = samples.size(); i < count; ++i)
      if (samples[i].label.ends_with(label) && samples[i].inputs.size() >= 3)
        samples.push_back(in_bf16(samples[i], {0, 1, 2}));
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

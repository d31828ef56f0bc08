#include <algorithm>
#include <cmath>

#include "core/attention/walk.h"
#include "core/ops.h"

namespace tril {
namespace {

using attention_heads::Attention;
using attention_heads::AttentionAttrs;
using attention_heads::Norm;
using attention_heads::Operands;
using attention_heads::Targets;

struct AttentionOp {
  using Attrs = AttentionAttrs;

  static void infer(Infer& op, const Attrs& attrs) {
    const int operands = attrs.packed ? 1 : 3;
    const char* const names[] = {attrs.packed ? "qkv" : "q", "k", "v"};
    for (int i = 0; i < operands; ++i) {
      op.expect_floating_or_bf16(i, names[i]);
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
    for (int i = 0; i < 2; ++i)  // of each row of scores: what was taken off, and 1 / the sum of exponentials
      op.save({q[0], attrs.heads, q[1]}, compute_dtype(op.in(0).dtype));
    op.backward_reads_output(0);
    op.flops(4.0 * static_cast<double>(width * q[0]) * pairs(q[1], attrs.packed ? q[1] : op.shape(1)[1], attrs.causal));
  }

  static void forward(const Forward& op, const Attrs& attrs) {
    dispatch_with_bf16(op.name(), op.in(0).dtype, [&](auto type) {
      using S = decltype(type);
      attention_of<S>(op, attrs, op).forward(op.out(0).ptr<S>(), norm_of<S>(op));
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
      attention_of<S>(op, attrs, op).backward(op.out(0).ptr<S>(), norm_of<S>(op), op.dout(0).ptr<S>(), targets);
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

  template <class S>
  static Norm<Compute<S>> norm_of(const Forward& op) {
    return {op.saved(0).ptr<Compute<S>>(), op.saved(1).ptr<Compute<S>>()};
  }

  template <class S, class Op>
  static Attention<S> attention_of(const Forward& forward, const Attrs& attrs, const Op& op) {
    const Tensor& q = op.in(0);
    const int64_t width = q.shape[2] / 3;
    Operands<S> operands{q.ptr<S>(), nullptr, nullptr,
                         attrs.lengths ? op.in(op.count() - 1).template ptr<int32_t>() : nullptr};
    operands.k = attrs.packed ? operands.q + width : op.in(1).template ptr<S>();
    operands.v = attrs.packed ? operands.q + 2 * width : op.in(2).template ptr<S>();
    return Attention<S>(forward.context(), forward.key(), forward.first_sample(), attrs, q.shape,
                        op.in(attrs.packed ? 0 : 1).shape, operands);
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
  const bool has_lengths = options.lengths.data != nullptr, packed = operands.size() == 1;
  std::array<Tensor, 4> all{};
  std::copy(operands.begin(), operands.end(), all.begin());
  all[operands.size()] = options.lengths;
  const AttentionAttrs attrs{.heads = options.heads,
                             .scale = options.scale.value_or(1.0 / std::sqrt(std::max(head, 1.0))),
                             .dropout = is_training(all) ? options.dropout : 0.0,
                             .causal = options.causal,
                             .packed = packed,
                             .lengths = has_lengths};
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

#include <algorithm>
#include <cmath>

#include "core/attention/walk.h"
#include "core/ops.h"

namespace tril {
namespace {

struct AttentionOp {
  struct Attrs {
    AttentionOptions options;
    bool packed, lengths;
  };

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
    const AttentionOptions& options = attrs.options;
    const Shape& q = op.shape(0);
    const int64_t key_heads = options.key_heads();
    const bool alike = key_heads == options.heads;
    if (attrs.packed && alike) TRIL_CHECK(q[2] % 3 == 0, op.name(), "qkv (B, T, 3C)", cat("shape ", q));
    const int64_t width_of_heads = attrs.packed && alike ? q[2] / 3 : q[2];
    const auto fits = [&] { return cat("heads that divide the width ", width_of_heads); };
    const auto found = [&] { return cat(options.heads, " heads"); };
    TRIL_CHECK(options.heads >= 1 && options.heads <= width_of_heads, op.name(), fits(), found());
    TRIL_CHECK(key_heads >= 1 && options.heads % key_heads == 0, op.name(),
               cat("kv_heads that divide the ", options.heads, " heads"), cat(options.kv_heads));
    const int64_t segments = options.heads + (attrs.packed && !alike ? 2 * key_heads : 0);
    TRIL_CHECK(width_of_heads % segments == 0, op.name(),
               segments == options.heads ? fits() : cat("qkv (B, T, (", options.heads, " + 2 x ", key_heads, ") D)"),
               segments == options.heads ? found() : cat("shape ", q));
    const int64_t head = width_of_heads / segments, width = options.heads * head, key_width = key_heads * head;
    if (!attrs.packed) {
      TRIL_CHECK(op.shape(1)[0] == q[0] && op.shape(1)[2] == key_width, op.name(),
                 cat("k (", q[0], ", Tk, ", key_width, ") for q ", q), cat(op.shape(1)));
      TRIL_CHECK(op.shape(2) == op.shape(1), op.name(), cat("v ", op.shape(1), " as k"), cat(op.shape(2)));
    }
    constexpr int64_t kWidest = int64_t{1} << 40;  // a position plus a window does not overflow
    TRIL_CHECK(options.window >= 0 && options.window <= kWidest, op.name(),
               cat("a window of 1 to ", kWidest, " keys, or 0 for all"), cat(options.window));
    TRIL_CHECK(options.dropout >= 0.0 && options.dropout < 1.0, op.name(), "0 <= dropout < 1", cat(options.dropout));
    TRIL_CHECK(!options.scale || std::isfinite(*options.scale), op.name(), "a finite scale", cat(*options.scale));
    if (attrs.lengths) infer_lengths(op, operands, q[0], attrs.packed ? q[1] : op.shape(1)[1]);
    op.output(q.with(2, width), op.in(0).dtype);
    for (int i = 0; i < 2; ++i)  // of each row of scores: what was taken off, and 1 / the sum of exponentials
      op.save({q[0], options.heads, q[1]}, compute_dtype(op.in(0).dtype));
    op.backward_reads_output(0);
    op.flops(4.0 * static_cast<double>(width * q[0]) * pairs(options, q[1], attrs.packed ? q[1] : op.shape(1)[1]));
  }

  static void forward(const Forward& op, const Attrs& attrs) {
    dispatch_with_bf16(op.name(), op.in(0).dtype, [&](auto type) {
      using S = decltype(type);
      walk_of<S>(op, attrs, op).forward(op.out(0).ptr<S>(), norm_of<S>(op));
    });
  }

  static void backward(const Backward& op, const Attrs& attrs) {
    dispatch_with_bf16(op.name(), op.dout(0).dtype, [&](auto type) {
      using S = decltype(type);
      const int k = attrs.packed ? 0 : 1, v = attrs.packed ? 0 : 2;
      AttentionTargets<S> targets{op.din(0).ptr<S>(),   op.din(k).ptr<S>(),   op.din(v).ptr<S>(),
                                  op.din(0).accumulate, op.din(k).accumulate, op.din(v).accumulate};
      if (attrs.packed) {
        targets.k += op.dout(0).shape[2];
        targets.v = targets.k + key_width(attrs, op.in(0));
      }
      walk_of<S>(op, attrs, op).backward(op.out(0).ptr<S>(), norm_of<S>(op), op.dout(0).ptr<S>(), targets);
    });
  }

  static std::vector<Sample> samples();

 private:
  // The number of pairs (query, key) in which the query sees the key, in one head of one sample.
  static double pairs(const AttentionOptions& options, int64_t queries, int64_t keys) {
    const AttentionPattern pattern{options.causal, options.window, keys};
    double count = 0;
    for (int64_t i = 0; i < queries; ++i) {
      const KeyRange seen = pattern.seen_by(i);
      count += static_cast<double>(seen.last - seen.first);
    }
    return count;
  }

  template <class S>
  static attention_rows::Norm<Compute<S>> norm_of(const Forward& op) {
    return {op.saved(0).ptr<Compute<S>>(), op.saved(1).ptr<Compute<S>>()};
  }

  // The width of a head, and of all heads of keys, from q or from a packed operand.
  static int64_t head_size(const Attrs& attrs, const Tensor& q) {
    return q.shape[2] / (attrs.options.heads + (attrs.packed ? 2 * attrs.options.key_heads() : 0));
  }
  static int64_t key_width(const Attrs& attrs, const Tensor& q) {
    return attrs.options.key_heads() * head_size(attrs, q);
  }

  template <class S, class Op>
  static AttentionWalk<S> walk_of(const Forward& forward, const Attrs& attrs, const Op& op) {
    const Tensor &q = op.in(0), &k = op.in(attrs.packed ? 0 : 1);
    const int64_t head = head_size(attrs, q), width = attrs.options.heads * head;
    AttentionOperands<S> operands{.q = q.ptr<S>(),
                                  .k = k.ptr<S>(),
                                  .v = op.in(attrs.packed ? 0 : 2).template ptr<S>(),
                                  .row_q = q.shape[2],
                                  .row_k = k.shape[2],
                                  .lengths = attrs.lengths ? op.in(op.count() - 1).template ptr<int32_t>() : nullptr};
    if (attrs.packed) {
      operands.k += width;
      operands.v += width + key_width(attrs, q);
    }
    return AttentionWalk<S>(forward.context(), forward.key(), forward.first_sample(), attrs.options,
                            {q.shape[0], q.shape[1], k.shape[1], head}, operands);
  }

  static void infer_lengths(Infer& op, int operand, int64_t batch, int64_t keys) {
    TRIL_CHECK(op.in(operand).dtype == DType::i32 && op.shape(operand) == Shape{batch}, op.name(),
               cat("lengths (", batch, ") of i32"), cat(op.in(operand).dtype, " ", op.shape(operand)));
    const std::span<const int32_t> lengths = op.numbers(operand);
    for (size_t i = 0; i < lengths.size(); ++i)
      TRIL_CHECK(lengths[i] >= 0 && lengths[i] <= keys, op.name(), cat("lengths from 0 to ", keys),
                 cat(lengths[i], " for sample ", i));
    op.backward_reads_input(operand);
    op.no_gradient(operand);
  }
};

// The same from plain products and a softmax with a mask of -inf. Heads are cut out; a head of keys is repeated for
// each head of queries that looks at it.
Tensor compose_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                         const AttentionMasks& masks) {
  const int64_t batch = q.shape[0], queries = q.shape[1], keys = k.shape[1], heads = options.heads,
                key_heads = options.key_heads(), head = q.shape[2] / heads;
  const auto split = [&](const Tensor& x, int64_t time, int64_t count) {
    return permute(reshape(x, {batch, time, count, head}), {0, 2, 1, 3});
  };
  const auto repeated = [&](const Tensor& x) {
    std::vector<Tensor> all;
    const Tensor apart = split(x, keys, key_heads);
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t from = h / (heads / key_heads);
      all.push_back(slice(apart, 1, from, from + 1));
    }
    return concat(all, 1);
  };
  std::vector<double> mask(static_cast<size_t>(batch * queries * keys));
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = 0; i < queries; ++i)
      for (int64_t j = 0; j < keys; ++j) {
        const bool far = options.window > 0 && std::abs(i - j) >= options.window;
        const bool hidden =
            far || (options.causal && j > i) || (masks.lengths.data != nullptr && j >= masks.lengths.ptr<int32_t>()[b]);
        mask[static_cast<size_t>((b * queries + i) * keys + j)] =
            hidden ? -std::numeric_limits<double>::infinity() : 0.0;
      }
  const Tensor scores = scale(matmul(split(q, queries, heads), repeated(k), {.transpose_b = true}),
                              options.scale.value_or(1.0 / std::sqrt(static_cast<double>(head))));
  const Tensor masked = scores + q.tape->constant<double>({batch, 1, queries, keys}, mask);
  return reshape(permute(matmul(softmax(masked), repeated(v)), {0, 2, 1, 3}), {batch, queries, q.shape[2]});
}

struct Case {
  int64_t batch, queries, keys, width;
  AttentionOptions options;
  std::vector<double> lengths{};
};

std::string kind_of(const AttentionOptions& options) {
  return cat(options.heads, " heads", options.kv_heads == 0 ? std::string() : cat(", ", options.kv_heads, " of keys"),
             options.window == 0 ? std::string() : cat(", window ", options.window));
}

Sample cross_sample(const Case& c, const char* what) {
  const int64_t key_width = c.width / c.options.heads * c.options.key_heads();
  Sample sample{.label = cat(c.batch, " x ", c.queries, " queries, ", c.keys, " keys, width ", c.width, ", ",
                             kind_of(c.options), what),
                .inputs = {{.shape = {c.batch, c.queries, c.width}},
                           {.shape = {c.batch, c.keys, key_width}},
                           {.shape = {c.batch, c.keys, key_width}}}};
  const auto masks_for = [c](std::span<const Tensor> in) {
    return c.lengths.empty() ? AttentionMasks{} : AttentionMasks{.lengths = in[3]};
  };
  if (!c.lengths.empty()) {
    SampleInput lengths = SampleInput::of_tokens({c.batch}, 1);
    lengths.given = c.lengths;
    lengths.not_varied = "lengths";
    sample.inputs.push_back(lengths);
  }
  sample.run = [=](auto in) { return std::vector{attention(in[0], in[1], in[2], c.options, masks_for(in))}; };
  if (c.options.dropout == 0.0)
    sample.compose = [=](auto in) {
      return std::vector{compose_attention(in[0], in[1], in[2], c.options, masks_for(in))};
    };
  return sample;
}

Sample packed_sample(int64_t batch, int64_t time, int64_t width, const AttentionOptions& options, const char* what) {
  const int64_t keys = width + width / options.heads * options.key_heads(), all = 2 * keys - width;
  Sample sample{.label = cat("packed ", batch, " x ", time, ", width ", width, ", ", kind_of(options), what),
                .inputs = {{.shape = {batch, time, all}}}};
  sample.run = [=](auto in) { return std::vector{attention(in[0], options)}; };
  if (options.dropout == 0.0)
    sample.compose = [=](auto in) {
      return std::vector{compose_attention(slice(in[0], 2, 0, width), slice(in[0], 2, width, keys),
                                           slice(in[0], 2, keys, all), options, {})};
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
      packed_sample(1, 3, 8, {.heads = 8, .causal = true, .scale = 0.5}, ", head size 1"),
      packed_sample(1, 35, 6, {.heads = 3, .causal = true, .scale = -1.5}, ", causal, a scale below 0"),
      cross_sample({1, 20, 18, 2, {.causal = true, .scale = 0.0}}, ", causal, a scale of 0"),
      cross_sample({1, 9, 9, 4, {.heads = 2, .causal = true, .window = 3}}, ", causal"),
      cross_sample({2, 7, 9, 2, {.window = 2}}, ", two-sided"),
      cross_sample({1, 2, 71, 2, {.window = 70}}, ", two-sided, beyond the queries"),
      cross_sample({1, 75, 70, 2, {.causal = true, .window = 34}}, ", causal, queries that see nothing"),
      cross_sample({2, 40, 8, 2, {.window = 5}, {8, 3}}, ", two-sided, lengths 8 3"),
      packed_sample(1, 99, 2, {.heads = 1, .causal = true, .window = 33}, ", causal, panels left out"),
      packed_sample(1, 99, 2, {.window = 33, .dropout = 0.4}, ", two-sided, dropout"),
      cross_sample({2, 3, 5, 8, {.heads = 4, .kv_heads = 2}}, ", full"),
      cross_sample({1, 5, 3, 6, {.heads = 3, .kv_heads = 1, .causal = true}}, ", causal"),
      packed_sample(2, 35, 8, {.heads = 4, .kv_heads = 2, .causal = true, .window = 5}, ", causal"),
      packed_sample(2, 6, 4, {.heads = 4, .kv_heads = 1, .causal = true, .dropout = 0.4}, ", causal, dropout")};
  for (const char* const label :
       {", causal, two blocks", ", causal, dropout", ", head size 1", ", causal, panels left out",
        ", two-sided, dropout", "window 5, causal", ", a scale below 0"})
    for (size_t i = 0, count = samples.size(); i < count; ++i)
      if (samples[i].label.ends_with(label)) samples.push_back(in_bf16(samples[i], {0}));
  for (const char* const label : {", lengths 4 0 2", ", no keys", ", no queries", ", two blocks", ", full",
                                  ", two-sided", ", queries that see nothing", ", lengths 8 3"})
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
  Sample groups = cross_sample({1, 2, 3, 6, {.heads = 3, .kv_heads = 1}}, "");
  groups.label = "heads of keys that do not divide";
  groups.run = [](auto in) { return std::vector{attention(in[0], in[1], in[2], {.heads = 3, .kv_heads = 2})}; };
  groups.error = "attention: expected kv_heads that divide the 3 heads, got 2";
  samples.push_back(groups);
  samples.push_back({.label = "packed heads that do not divide",
                     .inputs = {{.shape = {1, 2, 12}}},
                     .run = [](auto in) { return std::vector{attention(in[0], {.heads = 3, .kv_heads = 1})}; },
                     .error = "attention: expected qkv (B, T, (3 + 2 x 1) D), got shape (1, 2, 12)"});
  samples.push_back({.label = "a window below 0",
                     .inputs = {{.shape = {1, 2, 6}}},
                     .run = [](auto in) { return std::vector{attention(in[0], {.window = -3})}; },
                     .error = "attention: expected a window of 1 to 1099511627776 keys, or 0 for all, got -3"});
  Sample lengths = cross_sample({2, 3, 4, 2, full, {4, 5}}, "");
  lengths.label = "a length too long";
  lengths.error = "attention: expected lengths from 0 to 4, got 5 for sample 1";
  samples.push_back(lengths);
  return samples;
}

}  // namespace

TRIL_REGISTER_OP(attention, AttentionOp)

namespace {

Tensor run(std::span<const Tensor> operands, const AttentionOptions& options, const AttentionMasks& masks) {
  const bool has_lengths = masks.lengths.data != nullptr, packed = operands.size() == 1;
  std::array<Tensor, 4> all{};
  std::copy(operands.begin(), operands.end(), all.begin());
  all[operands.size()] = masks.lengths;
  AttentionOp::Attrs attrs{.options = options, .packed = packed, .lengths = has_lengths};
  if (!is_training(all)) attrs.options.dropout = 0.0;
  return apply(registered::attention, {all.data(), operands.size() + (has_lengths ? 1u : 0u)}, &attrs);
}

}  // namespace

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                 const AttentionMasks& masks) {
  const std::array<Tensor, 3> operands = {q, k, v};
  return run(operands, options, masks);
}

Tensor attention(const Tensor& qkv, const AttentionOptions& options, const AttentionMasks& masks) {
  return run({&qkv, 1}, options, masks);
}

}  // namespace tril

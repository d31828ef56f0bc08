#include "core/kernels/convert.h"
#include "core/kernels/dropout.h"
#include "core/ops.h"
#include "core/ops/elementwise.h"
#include "core/ops/norm.h"

namespace tril {
namespace {

// The dropout factors of a row: elements [index, index + n) of a sample. A row may begin inside a block of random
// words; the factors begin with that block, so the row's own are factors[lead + i].
template <class T>
TRIL_INLINE void row_factors(const DropoutMask& mask, uint32_t sample, int64_t index, int64_t n, T* factors) {
  const int64_t lead = index % kRandomBlock;
  dropout_factors(mask, sample, index - lead, lead + n, factors);
}

struct SampleRows {  // which rows of which samples, for the masks
  int64_t begin, end, rows_per_sample;
  uint32_t first_sample;
};

template <class T, class Y, class Out>
TRIL_INLINE void forward_rows(const T* x, const Y* y, const T* weight, const T* bias, T epsilon, T* sum, Out* normed,
                              T* means, T* scales, int64_t n, const DropoutMask& mask, const SampleRows& rows, T* wide,
                              T* factors) {
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const T *const from = x + r * n, *const branch = widened(y + r * n, wide, n);
    T* const total = sum + r * n;
    if (mask.active()) {
      const int64_t index = r % rows.rows_per_sample * n, lead = index % kRandomBlock;
      row_factors(mask, rows.first_sample + static_cast<uint32_t>(r / rows.rows_per_sample), index, n, factors);
      for (int64_t i = 0; i < n; ++i) total[i] = from[i] + factors[lead + i] * branch[i];
    } else {
      for (int64_t i = 0; i < n; ++i) total[i] = from[i] + branch[i];
    }
    std::tie(means[r], scales[r]) = norm_rows::statistics(total, n, epsilon);
    norm_rows::normalise(total, means[r], scales[r], weight, bias, normed + r * n, n);
  }
}

template <class T, class Out>
TRIL_INLINE void give(const T* gradient, const T* factors, Out* target, bool accumulate, int64_t n) {
  if (target == nullptr) return;
  const auto before = [&](int64_t i) { return accumulate ? static_cast<T>(target[i]) : T{0}; };
  if (factors != nullptr) {
    for (int64_t i = 0; i < n; ++i) target[i] = static_cast<Out>(before(i) + gradient[i] * factors[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) target[i] = static_cast<Out>(before(i) + gradient[i]);
  }
}

template <class T, class Y, class Out>
struct BackwardRows {
  const T *sum, *means, *scales, *weight, *dsum;
  const Out* dnormed;
  T* dx;
  Y* dy;
  T *dweight, *dbias;
  bool accumulate_x, accumulate_y;
};

template <class T, class Y, class Out>
TRIL_INLINE void backward_rows(const BackwardRows<T, Y, Out>& p, int64_t n, const DropoutMask& mask,
                               const SampleRows& rows, T* wide, T* gradient, T* factors) {
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const T* const dsum = p.dsum == nullptr ? nullptr : p.dsum + r * n;
    const T* total = dsum;
    if (p.dnormed != nullptr) {
      norm_rows::gradient(p.sum + r * n, p.means[r], p.scales[r], p.weight, widened(p.dnormed + r * n, wide, n), dsum,
                          gradient, p.dweight, p.dbias, n);
      total = gradient;
    }
    give(total, static_cast<const T*>(nullptr), p.dx == nullptr ? nullptr : p.dx + r * n, p.accumulate_x, n);
    if (p.dy == nullptr) continue;
    const T* row = nullptr;
    if (mask.active()) {
      const int64_t index = r % rows.rows_per_sample * n;
      row_factors(mask, rows.first_sample + static_cast<uint32_t>(r / rows.rows_per_sample), index, n, factors);
      row = factors + index % kRandomBlock;
    }
    give(total, row, p.dy + r * n, p.accumulate_y, n);
  }
}

struct AddLayerNormOp {
  struct Attrs {
    double dropout, epsilon;
    bool narrow;
  };

  static void infer(Infer& op, const Attrs& attrs) {
    op.expect_floating(0, "x");
    op.expect_rank_at_least(0, "x", 1);
    if (op.in(0).dtype != DType::f32 || op.in(1).dtype != DType::bf16) op.expect_same_dtype(1, "y");
    const Shape& x = op.shape(0);
    TRIL_CHECK(op.shape(1) == x, op.name(), cat("y ", x, " as x"), cat(op.shape(1)));
    TRIL_CHECK(attrs.dropout >= 0.0 && attrs.dropout < 1.0, op.name(), "0 <= dropout < 1", cat(attrs.dropout));
    norm_rows::infer_weights(op, 2, x[-1], attrs.epsilon);
    op.output(x, op.in(0).dtype);                                   // the sum
    op.output(x, norm_rows::stored(op.in(0).dtype, attrs.narrow));  // its norm
    op.save({x.rows()}, op.in(0).dtype);                            // means
    op.save({x.rows()}, op.in(0).dtype);                            // 1 / standard deviations
    op.backward_reads_output(0);
  }

  static void forward(const Forward& op, const Attrs& attrs) {
    const Shape& shape = op.in(0).shape;
    const int64_t n = shape[-1];
    const DropoutMask mask(op.key(), attrs.dropout);
    dispatch_types(
        op.name(), op.out(0).dtype, op.in(1).dtype, op.out(1).dtype, [&](auto type, auto branch, auto normed) {
          using T = decltype(type);
          const T* const bias = op.count() == 4 ? op.in(3).ptr<T>() : nullptr;
          parallel_for(op.threads(), shape.rows(), std::max<int64_t>(1, kElementGrain / n),
                       [&](int64_t begin, int64_t end, int thread) {
                         Scratch scratch(op.context().scratch(thread));
                         cloned<forward_rows<T, decltype(branch), decltype(normed)>>(
                             op.in(0).ptr<T>(), op.in(1).ptr<decltype(branch)>(), op.in(2).ptr<T>(), bias,
                             static_cast<T>(attrs.epsilon), op.out(0).ptr<T>(), op.out(1).ptr<decltype(normed)>(),
                             op.saved(0).ptr<T>(), op.saved(1).ptr<T>(), n, mask, rows_of(op, shape, begin, end),
                             scratch.get<T>(n), scratch.get<T>(n + 2 * kRandomBlock));
                       });
        });
  }

  static void backward(const Backward& op, const Attrs& attrs) {
    const Shape& shape = op.shape(0);
    const int64_t n = shape[-1];
    const DropoutMask mask(op.key(), attrs.dropout);
    dispatch_types(
        op.name(), op.out(0).dtype, op.din(1).tensor.dtype, op.dout(1).dtype, [&](auto type, auto branch, auto normed) {
          using T = decltype(type);
          using Y = decltype(branch);
          using Out = decltype(normed);
          const norm_rows::WeightSums<T> sums(op, 2, n);
          for_row_chunks(op.context(), shape.rows(), [&](int64_t begin, int64_t end, int64_t chunk, int thread) {
            Scratch scratch(op.context().scratch(thread));
            const BackwardRows<T, Y, Out> all{.sum = op.out(0).ptr<T>(),
                                              .means = op.saved(0).ptr<T>(),
                                              .scales = op.saved(1).ptr<T>(),
                                              .weight = op.in(2).ptr<T>(),
                                              .dsum = op.dout(0).data == nullptr ? nullptr : op.dout(0).ptr<T>(),
                                              .dnormed = op.dout(1).data == nullptr ? nullptr : op.dout(1).ptr<Out>(),
                                              .dx = op.din(0).ptr<T>(),
                                              .dy = op.din(1).ptr<Y>(),
                                              .dweight = sums.weight(chunk),
                                              .dbias = sums.bias(chunk),
                                              .accumulate_x = op.din(0).accumulate,
                                              .accumulate_y = op.din(1).accumulate};
            cloned<backward_rows<T, Y, Out>>(all, n, mask, rows_of(op, shape, begin, end), scratch.get<T>(n),
                                             scratch.get<T>(n), scratch.get<T>(n + 2 * kRandomBlock));
          });
          sums.finish();
        });
  }

  static std::vector<Sample> samples() {
    const auto sample = [](const Shape& shape, bool bias, double p, bool only_sum = false, bool only_norm = false) {
      const Shape width{shape[-1]};
      Sample made{.label = cat(shape, bias ? "" : ", no bias", ", dropout ", p, only_sum ? ", only the sum used" : "",
                               only_norm ? ", only the norm used" : ""),
                  .inputs = {{.shape = shape}, {.shape = shape}, {.shape = width}}};
      if (shape[-1] == 2) {  // if the two sums are too close, their gradient is all rounding
        made.inputs[0].values = SampleInput::Values::spaced;
        made.inputs[1].spread = 0.02;
      }
      if (bias) made.inputs.push_back({.shape = width});
      made.run = [=](auto in) {
        const AddLayerNorm both = add_layer_norm(in[0], in[1], in[2], bias ? in[3] : Tensor{}, p);
        if (only_sum) return std::vector{both.sum};
        return only_norm ? std::vector{both.normed} : std::vector{both.sum, both.normed};
      };
      if (p == 0.0 && !only_sum && !only_norm)
        made.compose = [=](auto in) {
          const Tensor sum = in[0] + in[1];
          return std::vector{sum, layer_norm(sum, in[2], bias ? in[3] : Tensor{})};
        };
      if (only_sum)
        for (size_t i = 2; i < made.inputs.size(); ++i) made.inputs[i].not_varied = "the sum does not depend on it";
      return made;
    };
    std::vector<Sample> samples = {sample({3, 7}, true, 0.0),
                                   sample({2, 3, 17}, false, 0.0),
                                   sample({2, 5, 33}, true, 0.3),
                                   sample({2, 2, 64}, false, 0.5),
                                   sample({1, 2}, true, 0.0),
                                   sample({3, 9}, true, 0.2, true),
                                   sample({3, 9}, true, 0.2, false, true),
                                   sample({2, 250, 33}, true, 0.3)};
    for (const auto& [p, bf16_branch, narrow] :
         {std::tuple{0.0, true, true}, {0.3, true, true}, {0.3, true, false}, {0.0, false, true}}) {
      Sample mixed = sample({2, 5, 33}, p > 0, p);
      mixed.label += cat(bf16_branch ? ", y in bf16" : "", narrow ? ", narrow" : "");
      mixed.run = [p = p, narrow = narrow](auto in) {
        const AddLayerNorm both =
            add_layer_norm(in[0], in[1], in[2], in.size() == 4 ? in[3] : Tensor{}, p, 1e-5, narrow);
        return std::vector{both.sum, both.normed};
      };
      samples.push_back(bf16_branch ? in_bf16(mixed, {1}) : in_bf16(mixed, {}));
    }
    Sample shapes = sample({2, 3}, false, 0.0);
    shapes.inputs[1].shape = {2, 4};
    shapes.error = "add_layer_norm: expected y (2, 3) as x, got (2, 4)";
    samples.push_back(shapes);
    return samples;
  }

 private:
  // Calls body with values of the sum's, the branch's and the norm's types.
  template <class Body>
  static void dispatch_types(const char* op, DType sum, DType branch, DType normed, Body&& body) {
    norm_rows::dispatch_rows(op, sum, normed, [&](auto type, auto stored) {
      if constexpr (std::is_same_v<decltype(type), float>)
        if (branch == DType::bf16) return body(type, bf16{}, stored);
      body(type, type, stored);
    });
  }

  static SampleRows rows_of(const Forward& op, const Shape& shape, int64_t begin, int64_t end) {
    const int64_t samples = shape.rank() == 1 ? 1 : shape[0];
    return {begin, end, samples == 0 ? 1 : shape.rows() / samples, op.first_sample()};
  }
};

}  // namespace

TRIL_REGISTER_OP(add_layer_norm, AddLayerNormOp)

AddLayerNorm add_layer_norm(const Tensor& x, const Tensor& y, const Tensor& weight, const Tensor& bias, double dropout,
                            double epsilon, bool narrow) {
  const std::array<Tensor, 4> inputs = {x, y, weight, bias};
  const AddLayerNormOp::Attrs attrs{is_training(inputs) ? dropout : 0.0, epsilon, narrow};
  const auto outputs =
      apply_all(registered::add_layer_norm, {inputs.data(), bias.data == nullptr ? size_t{3} : size_t{4}}, &attrs);
  return {outputs[0], outputs[1]};
}

}  // namespace tril

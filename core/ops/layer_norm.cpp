#include "core/kernels/convert.h"
#include "core/ops.h"
#include "core/ops/elementwise.h"
#include "core/ops/norm.h"

namespace tril {
namespace {

template <class T, class Out>
TRIL_INLINE void forward_rows(const T* x, const T* weight, const T* bias, T epsilon, Out* y, T* means, T* scales,
                              int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r) {
    std::tie(means[r], scales[r]) = norm_rows::statistics(x + r * n, n, epsilon);
    norm_rows::normalise(x + r * n, means[r], scales[r], weight, bias, y + r * n, n);
  }
}

// Writes dx, or adds to it. `wide` and `unwanted` hold a row each.
template <class T, class Out>
TRIL_INLINE void backward_rows(const T* x, const T* means, const T* scales, const T* weight, const Out* dy, T* dx,
                               bool accumulate, T* dweight, T* dbias, int64_t begin, int64_t end, int64_t n, T* wide,
                               T* unwanted) {
  for (int64_t r = begin; r < end; ++r) {
    T* const row = dx == nullptr ? unwanted : dx + r * n;
    norm_rows::gradient(x + r * n, means[r], scales[r], weight, widened(dy + r * n, wide, n),
                        accumulate ? row : nullptr, row, dweight, dbias, n);
  }
}

struct LayerNorm {
  struct Attrs {
    double epsilon;
    bool narrow;
  };

  static void infer(Infer& op, const Attrs& attrs) {
    op.expect_floating(0, "x");
    op.expect_rank_at_least(0, "x", 1);
    const Shape& x = op.shape(0);
    norm_rows::infer_weights(op, 1, x[-1], attrs.epsilon);
    op.output(x, norm_rows::stored(op.in(0).dtype, attrs.narrow));
    op.save({x.rows()}, op.in(0).dtype);  // means
    op.save({x.rows()}, op.in(0).dtype);  // 1 / standard deviations
    op.backward_reads_input(0);
  }

  static void forward(const Forward& op, const Attrs& attrs) {
    const int64_t n = op.in(0).shape[-1], count = op.in(0).shape.rows();
    norm_rows::dispatch_rows(op.name(), op.in(0).dtype, op.out(0).dtype, [&](auto type, auto stored) {
      using T = decltype(type);
      const T *const x = op.in(0).ptr<T>(), *const weight = op.in(1).ptr<T>(),
                     *const bias = op.count() == 3 ? op.in(2).ptr<T>() : nullptr;
      auto* const y = op.out(0).ptr<decltype(stored)>();
      T *const means = op.saved(0).ptr<T>(), *const scales = op.saved(1).ptr<T>();
      parallel_for(op.threads(), count, std::max<int64_t>(1, kElementGrain / n), [&](int64_t begin, int64_t end, int) {
        cloned<forward_rows<T, decltype(stored)>>(x + begin * n, weight, bias, static_cast<T>(attrs.epsilon),
                                                  y + begin * n, means + begin, scales + begin, end - begin, n);
      });
    });
  }

  static void backward(const Backward& op, const Attrs&) {
    const int64_t n = op.shape(0)[-1], count = op.shape(0).rows();
    norm_rows::dispatch_rows(op.name(), op.in(0).dtype, op.dout(0).dtype, [&](auto type, auto stored) {
      using T = decltype(type);
      const norm_rows::WeightSums<T> sums(op, 1, n);
      for_row_chunks(op.context(), count, [&](int64_t begin, int64_t end, int64_t chunk, int thread) {
        Scratch scratch(op.context().scratch(thread));
        T *const wide = scratch.get<T>(n), *const unwanted = scratch.get<T>(n);
        cloned<backward_rows<T, decltype(stored)>>(op.in(0).ptr<T>(), op.saved(0).ptr<T>(), op.saved(1).ptr<T>(),
                                                   op.in(1).ptr<T>(), op.dout(0).ptr<decltype(stored)>(),
                                                   op.din(0).ptr<T>(), op.din(0).accumulate, sums.weight(chunk),
                                                   sums.bias(chunk), begin, end, n, wide, unwanted);
      });
      sums.finish();
    });
  }

  static std::vector<Sample> samples() {
    const SampleFunction run = [](auto in) {
      return std::vector{in.size() == 3 ? layer_norm(in[0], in[1], in[2]) : layer_norm(in[0], in[1])};
    };
    const SampleFunction compose = [](auto in) {
      const Tensor centred = in[0] - mean(in[0], {-1}, true);
      const Tensor epsilon = in[0].tape->template constant<double>({}, {1e-5});
      const Tensor deviation = exp(scale(log(mean(centred * centred, {-1}, true) + epsilon), 0.5));
      const Tensor normed = centred / deviation * in[1];
      return std::vector{in.size() == 3 ? normed + in[2] : normed};
    };
    const SampleFunction narrow = [](auto in) {
      return std::vector{layer_norm(in[0], in[1], in.size() == 3 ? in[2] : Tensor{}, 1e-5, true)};
    };
    std::vector<Sample> samples;
    for (const Shape& shape : {Shape{3, 7}, Shape{500, 33}}) {
      const Shape width{shape[-1]};
      samples.push_back(
          in_bf16({.label = cat(shape), .inputs = {{.shape = shape}, {.shape = width}}, .run = narrow}, {}));
      samples.push_back(in_bf16({.label = cat(shape, ", bias"),
                                 .inputs = {{.shape = shape}, {.shape = width}, {.shape = width}},
                                 .run = narrow},
                                {}));
    }
    for (const auto& [rows, n] :
         std::vector<std::array<int64_t, 2>>{{1, 2}, {3, 7}, {5, 16}, {2, 33}, {19, 4}, {500, 33}}) {
      // Two numbers must not lie too close: their gradient is then all rounding.
      const SampleInput x{.shape = {rows, n},
                          .values = n == 2 ? SampleInput::Values::spaced : SampleInput::Values::normal};
      samples.push_back({.label = cat(rows, " rows of ", n),
                         .inputs = {x, {.shape = {n}}, {.shape = {n}}},
                         .run = run,
                         .compose = compose});
      samples.push_back({.label = cat(rows, " rows of ", n, ", no bias"),
                         .inputs = {x, {.shape = {n}}},
                         .run = run,
                         .compose = compose});
    }
    samples.push_back({.label = "three axes",
                       .inputs = {{.shape = {2, 3, 5}}, {.shape = {5}}, {.shape = {5}}},
                       .run = run,
                       .compose = compose});
    samples.push_back({.label = "no rows", .inputs = {{.shape = {0, 5}}, {.shape = {5}}, {.shape = {5}}}, .run = run});
    samples.push_back({.label = "weight of another width",
                       .inputs = {{.shape = {2, 3}}, {.shape = {4}}},
                       .run = run,
                       .error = "layer_norm: expected weight (3) for x (2, 3), got (4)"});
    samples.push_back({.label = "empty rows",
                       .inputs = {{.shape = {2, 0}}, {.shape = {0}}},
                       .run = run,
                       .error = "layer_norm: expected rows of at least one element"});
    samples.push_back({.label = "epsilon 0",
                       .inputs = {{.shape = {2, 3}}, {.shape = {3}}},
                       .run = [](auto in) { return std::vector{layer_norm(in[0], in[1], {}, 0.0)}; },
                       .error = "layer_norm: expected epsilon > 0, got 0"});
    return samples;
  }
};

}  // namespace

TRIL_REGISTER_OP(layer_norm, LayerNorm)

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double epsilon, bool narrow) {
  const LayerNorm::Attrs attrs{epsilon, narrow};
  if (bias.data == nullptr) return apply(registered::layer_norm, {x, weight}, attrs);
  return apply(registered::layer_norm, {x, weight, bias}, attrs);
}

}  // namespace tril

// Ops that are a function of one number, applied to every element. F gives value(x, attrs) and gradient(dy, v, attrs),
// which is dy times the derivative; v is x or y = value(x), as F::kReads says. The derivative is not a function of its
// own, because it may be out of range where the product is not.
#pragma once

#include "core/autograd/op.h"
#include "core/kernels/convert.h"
#include "core/machine/parallel.h"

namespace tril {

inline constexpr int64_t kElementGrain = 8192;  // elements worth waking another thread for

struct NoAttrs {};

namespace elementwise {

template <class F, class S>
TRIL_INLINE void values(const S* x, Compute<S>* y, int64_t n, typename F::Attrs attrs) {
  for (int64_t i = 0; i < n; ++i) y[i] = F::value(static_cast<Compute<S>>(x[i]), attrs);
}

template <class F, class S>
TRIL_INLINE void gradients(const S* x_or_y, const S* dy, Compute<S>* dx, int64_t n, typename F::Attrs attrs) {
  using T = Compute<S>;
  for (int64_t i = 0; i < n; ++i) dx[i] = F::gradient(static_cast<T>(dy[i]), static_cast<T>(x_or_y[i]), attrs);
}

}  // namespace elementwise

enum class GradientReads : uint8_t { nothing, input, output };

template <class F>
struct ElementwiseOp {
  using Attrs = typename F::Attrs;

  static void infer(Infer& op, const Attrs&) {
    op.expect_floating_or_bf16(0, "x");
    op.output(op.shape(0), op.in(0).dtype);
    if (F::kReads == GradientReads::input) op.backward_reads_input(0);
    if (F::kReads == GradientReads::output) op.backward_reads_output(0);
  }

  static void forward(const Forward& op, const Attrs& attrs) {
    dispatch_with_bf16(op.name(), op.in(0).dtype, [&](auto type) {
      using T = decltype(type);
      const T* const x = op.in(0).ptr<T>();
      T* const y = op.out(0).ptr<T>();
      parallel_for(op.threads(), op.in(0).count(), kElementGrain, [&](int64_t begin, int64_t end, int) {
        fill(y + begin, end - begin, false, [&](int64_t from, int64_t to, Compute<T>* out) {
          cloned<elementwise::values<F, T>>(x + begin + from, out, to - from, attrs);
        });
      });
    });
  }

  static void backward(const Backward& op, const Attrs& attrs) {
    dispatch_with_bf16(op.name(), op.dout(0).dtype, [&](auto type) {
      using T = decltype(type);
      const T* const dy = op.dout(0).ptr<T>();
      const T* read = dy;
      if (F::kReads == GradientReads::input) read = op.in(0).ptr<T>();
      if (F::kReads == GradientReads::output) read = op.out(0).ptr<T>();
      T* const dx = op.din(0).ptr<T>();
      parallel_for(op.threads(), op.shape(0).count(), kElementGrain, [&](int64_t begin, int64_t end, int) {
        fill(dx + begin, end - begin, op.din(0).accumulate, [&](int64_t from, int64_t to, Compute<T>* out) {
          cloned<elementwise::gradients<F, T>>(read + begin + from, dy + begin + from, out, to - from, attrs);
        });
      });
    });
  }
};

// Sizes on both sides of the vector widths, empty, and enough for three threads.
[[nodiscard]] inline std::vector<Sample> elementwise_samples(SampleInput::Values values, const SampleFunction& run) {
  std::vector<Sample> samples;
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{7}, Shape{2, 9}, Shape{3, 17}, Shape{2, 3, 11}, Shape{0, 4},
                             Shape{2, kElementGrain + 8}})
    samples.push_back({.label = cat("shape ", shape), .inputs = {{.shape = shape, .values = values}}, .run = run});
  samples.push_back(in_bf16(samples[5], {0}));
  samples.push_back({.label = "i32",
                     .inputs = {SampleInput::of_tokens({3}, 5)},
                     .run = run,
                     .error = "expected x of f32, f64 or bf16, got i32"});
  return samples;
}

}  // namespace tril

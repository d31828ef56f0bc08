#include "core/kernels/math.h"
#include "core/ops.h"
#include "core/ops/elementwise.h"

namespace tril {
namespace {

// x Phi(x); derivative Phi(x) + x phi(x).
struct GeluErf {
  using Attrs = NoAttrs;
  static constexpr SlopeReads kReads = SlopeReads::input;
  template <class T>
  TRIL_INLINE static T value(T x, Attrs) {
    return math::gelu_erf(x);
  }
  template <class T>
  TRIL_INLINE static T slope(T x, Attrs) {
    return math::gelu_erf_slope(x);
  }
};

// x/2 (1 + tanh u) = x sigmoid(2u) with u = sqrt(2/pi) (x + 0.044715 x^3); derivative s + x s (1 - s) 2u'.
struct GeluTanh {
  using Attrs = NoAttrs;
  static constexpr SlopeReads kReads = SlopeReads::input;
  static constexpr double kTwice = 1.5957691216057308, kCubic = 0.044715;  // 2 sqrt(2/pi)
  template <class T>
  TRIL_INLINE static T gate(T x) {
    return math::sigmoid(T(kTwice) * x * (T{1} + T(kCubic) * x * x));
  }
  template <class T>
  TRIL_INLINE static T value(T x, Attrs) {
    return x * gate(x);
  }
  template <class T>
  TRIL_INLINE static T slope(T x, Attrs) {
    const T s = gate(x);
    return s + x * s * (T{1} - s) * T(kTwice) * (T{1} + T(3 * kCubic) * x * x);
  }
};

struct GeluOp {
  struct Attrs {
    Gelu form;
  };
  static void infer(Infer& op, const Attrs&) { ElementwiseOp<GeluErf>::infer(op, {}); }
  static void forward(const Forward& op, const Attrs& attrs) {
    attrs.form == Gelu::erf ? ElementwiseOp<GeluErf>::forward(op, {}) : ElementwiseOp<GeluTanh>::forward(op, {});
  }
  static void backward(const Backward& op, const Attrs& attrs) {
    attrs.form == Gelu::erf ? ElementwiseOp<GeluErf>::backward(op, {}) : ElementwiseOp<GeluTanh>::backward(op, {});
  }
  static std::vector<Sample> samples() {
    auto samples =
        elementwise_samples(SampleInput::Values::normal, [](auto in) { return std::vector{gelu(in[0], Gelu::erf)}; });
    for (Sample& sample : elementwise_samples(SampleInput::Values::normal,
                                              [](auto in) { return std::vector{gelu(in[0], Gelu::tanh)}; })) {
      sample.label += ", tanh form";
      // The formula as it is printed.
      sample.compose = [](auto in) {
        const Tensor x = in[0], cubed = scale(x * x * x, 0.044715);
        const Tensor t = tanh(scale(x + cubed, 0.79788456080286535588));
        return std::vector{scale(x * t + x, 0.5)};
      };
      samples.push_back(std::move(sample));
    }
    return samples;
  }
};

}  // namespace

TRIL_REGISTER_OP(gelu, GeluOp)

Tensor gelu(const Tensor& x, Gelu form) { return apply(registered::gelu, {x}, GeluOp::Attrs{form}); }

}  // namespace tril

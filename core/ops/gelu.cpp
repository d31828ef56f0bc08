#include "core/kernels/math.h"
#include "core/ops.h"
#include "core/ops/elementwise.h"

namespace tril {
namespace {

struct GeluErf {
  using Attrs = NoAttrs;
  static constexpr GradientReads kReads = GradientReads::input;
  template <class T>
  TRIL_INLINE static T value(T x, Attrs) {
    return math::gelu_erf(x);
  }
  template <class T>
  TRIL_INLINE static T gradient(T dy, T x, Attrs) {
    return dy * math::gelu_erf_slope(x);
  }
};

struct GeluTanh {
  using Attrs = NoAttrs;
  static constexpr GradientReads kReads = GradientReads::input;
  template <class T>
  TRIL_INLINE static T value(T x, Attrs) {
    return math::gelu_tanh(x);
  }
  template <class T>
  TRIL_INLINE static T gradient(T dy, T x, Attrs) {
    return dy * math::gelu_tanh_slope(x);
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

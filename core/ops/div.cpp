#include "core/kernels/over_square.h"
#include "core/ops.h"
#include "core/ops/broadcast.h"

namespace tril {
namespace {

struct DivFunction {
  static constexpr bool kReadsOperands = true;
  template <class T>
  TRIL_INLINE static T value(T a, T b) {
    return a / b;
  }
  template <class T>
  TRIL_INLINE static T gradient_a(T dy, T, T b) {
    return dy / b;
  }
  template <class T>
  TRIL_INLINE static T gradient_b(T dy, T a, T b) {
    return over_square(-dy, a, b);
  }
};

struct Div : BroadcastOp<DivFunction> {
  static std::vector<Sample> samples() {
    return broadcast_samples(SampleInput::Values::positive, [](auto in) { return std::vector{div(in[0], in[1])}; });
  }
};

}  // namespace

TRIL_REGISTER_OP(div, Div)

Tensor div(const Tensor& a, const Tensor& b) { return apply(registered::div, {a, b}, NoAttrs{}); }

}  // namespace tril

#include "core/ops.h"
#include "core/ops/broadcast.h"

namespace tril {
namespace {

struct MulFunction {
  static constexpr bool kReadsOperands = true;
  template <class T>
  TRIL_INLINE static T value(T a, T b) {
    return a * b;
  }
  template <class T>
  TRIL_INLINE static T gradient_a(T dy, T, T b) {
    return dy * b;
  }
  template <class T>
  TRIL_INLINE static T gradient_b(T dy, T a, T) {
    return dy * a;
  }
};

struct Mul : BroadcastOp<MulFunction> {
  static std::vector<Sample> samples() {
    return broadcast_samples(SampleInput::Values::normal, [](auto in) { return std::vector{mul(in[0], in[1])}; });
  }
};

}  // namespace

TRIL_REGISTER_OP(mul, Mul)

Tensor mul(const Tensor& a, const Tensor& b) { return apply(registered::mul, {a, b}, NoAttrs{}); }

}  // namespace tril

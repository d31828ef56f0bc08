#include "core/ops/softmax.h"
#include "core/ops.h"

namespace tril {
namespace {

template <class T>
TRIL_INLINE void softmax_row(const T* x, T* y, int64_t n) {
  const T total = exp_row(x, y, n, shift_of(rows::max(x, n)));
  const T factor = total == T{0} ? T{0} : T{1} / total;
  for (int64_t i = 0; i < n; ++i) y[i] *= factor;
}

// dx = y (dy - y·dy)
template <class T>
TRIL_INLINE void softmax_gradient_row(const T* y, const T* dy, T* dx, int64_t n) {
  const T inner = rows::dot(y, dy, n);
  for (int64_t i = 0; i < n; ++i) dx[i] = y[i] * (dy[i] - inner);
}

struct Softmax {
  using Attrs = SoftmaxAttrs;
  static void infer(Infer& op, const Attrs& attrs) { infer_softmax(op, attrs); }

  static void forward(const Forward& op, const Attrs& attrs) {
    dispatch(op.name(), op.in(0).dtype, [&](auto type) {
      using T = decltype(type);
      for_softmax_rows<T, 1>(op, op.in(0).shape, attrs.axis, {op.in(0).ptr<T>()}, op.out(0).ptr<T>(), false,
                             [](const auto& in, T* y, int64_t n) { cloned<softmax_row<T>>(in[0], y, n); });
    });
  }

  static void backward(const Backward& op, const Attrs& attrs) {
    dispatch(op.name(), op.dout(0).dtype, [&](auto type) {
      using T = decltype(type);
      for_softmax_rows<T, 2>(op, op.shape(0), attrs.axis, {op.out(0).ptr<T>(), op.dout(0).ptr<T>()}, op.din(0).ptr<T>(),
                             op.din(0).accumulate, [](const auto& in, T* dx, int64_t n) {
                               cloned<softmax_gradient_row<T>>(in[0], in[1], dx, n);
                             });
    });
  }

  static std::vector<Sample> samples() {
    return softmax_samples(&softmax, [](auto in) {
      const Tensor e = exp(in[0] - max(in[0], {-1}, true));
      return std::vector{e / sum(e, {-1}, true)};
    });
  }
};

}  // namespace

TRIL_REGISTER_OP(softmax, Softmax)

Tensor softmax(const Tensor& x, int64_t axis) { return apply(registered::softmax, {x}, Softmax::Attrs{axis}); }

}  // namespace tril

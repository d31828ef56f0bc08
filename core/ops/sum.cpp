#include "core/ops.h"
#include "core/ops/reduce.h"

namespace tril {
namespace {

struct Sum {
  using Attrs = ReduceAttrs;
  static void infer(Infer& op, const Attrs& attrs) { infer_reduce(op, attrs); }
  static void forward(const Forward& op, const Attrs& attrs) { forward_sum(op, attrs, 1.0); }
  static void backward(const Backward& op, const Attrs& attrs) { backward_sum(op, attrs, 1.0); }
  static std::vector<Sample> samples() { return reduce_samples(&sum, &sum, SampleInput::Values::normal); }
};

}  // namespace

TRIL_REGISTER_OP(sum, Sum)

Tensor sum(const Tensor& x) { return apply(registered::sum, {x}, ReduceAttrs{.all = true}); }

Tensor sum(const Tensor& x, std::initializer_list<int64_t> axes, bool keep) {
  return apply(registered::sum, {x}, reduce_attrs("sum", x, axes, keep));
}

}  // namespace tril

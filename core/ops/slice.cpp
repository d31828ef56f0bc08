#include "core/ops.h"
#include "core/ops/copy.h"

namespace tril {
namespace {

struct Slice {
  struct Attrs {
    int64_t axis, begin, end;
  };

  static void infer(Infer& op, const Attrs& attrs) {
    op.expect_floating(0, "x");
    const int axis = op.checked_axis(0, attrs.axis);
    const Shape& x = op.shape(0);
    TRIL_CHECK(attrs.begin >= 0 && attrs.begin <= attrs.end && attrs.end <= x[axis], op.name(),
               cat("0 <= begin <= end <= ", x[axis], " on axis ", axis, " of ", x),
               cat("begin ", attrs.begin, " and end ", attrs.end));
    op.output(x.with(axis, attrs.end - attrs.begin), op.in(0).dtype);
  }

  static void forward(const Forward& op, const Attrs& attrs) {
    const Shape& x = op.in(0).shape;
    const AxisView view(x, static_cast<int>(attrs.axis < 0 ? attrs.axis + x.rank() : attrs.axis));
    dispatch(op.name(), op.in(0).dtype, [&](auto type) {
      using T = decltype(type);
      copy_from_axis(op.in(0).ptr<T>(), view, attrs.begin, attrs.end - attrs.begin, op.out(0).ptr<T>(), false);
    });
  }

  // Zero outside the part.
  static void backward(const Backward& op, const Attrs& attrs) {
    const Shape& x = op.shape(0);
    const AxisView view(x, static_cast<int>(attrs.axis < 0 ? attrs.axis + x.rank() : attrs.axis));
    dispatch(op.name(), op.dout(0).dtype, [&](auto type) {
      using T = decltype(type);
      T* const dx = op.din(0).ptr<T>();
      if (!op.din(0).accumulate) std::fill(dx, dx + x.count(), T{0});
      copy_to_axis(op.dout(0).ptr<T>(), view, attrs.begin, attrs.end - attrs.begin, dx, op.din(0).accumulate);
    });
  }

  static std::vector<Sample> samples() {
    const auto sample = [](const Shape& shape, int64_t axis, int64_t begin, int64_t end, const char* error = "") {
      return Sample{.label = cat(shape, " axis ", axis, " from ", begin, " to ", end),
                    .inputs = {{.shape = shape}},
                    .run = [=](auto in) { return std::vector{slice(in[0], axis, begin, end)}; },
                    .error = error};
    };
    return {
        sample({7}, 0, 2, 5),
        sample({3, 9}, 1, 0, 4),
        sample({3, 9}, 0, 1, 3),
        sample({2, 3, 4}, -2, 1, 2),
        sample({2, 3}, 1, 2, 2),
        sample({2, 3}, 1, 0, 3),
        sample({2, 3}, 1, 1, 4, "slice: expected 0 <= begin <= end <= 3 on axis 1 of (2, 3), got begin 1 and end 4"),
        sample({2, 3}, 2, 0, 1, "slice: expected an axis of shape (2, 3), from -2 to 1, got 2")};
  }
};

}  // namespace

TRIL_REGISTER_OP(slice, Slice)

Tensor slice(const Tensor& x, int64_t axis, int64_t begin, int64_t end) {
  return apply(registered::slice, {x}, Slice::Attrs{axis, begin, end});
}

}  // namespace tril

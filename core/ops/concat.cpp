#include "core/ops.h"
#include "core/ops/copy.h"

namespace tril {
namespace {

struct Concat {
  struct Attrs {
    int64_t axis;
  };

  static void infer(Infer& op, const Attrs& attrs) {
    op.expect_floating(0, "the first part");
    const int axis = op.checked_axis(0, attrs.axis);
    int64_t extent = 0;
    for (int i = 0; i < op.count(); ++i) {
      op.expect_same_dtype(i, "parts");
      TRIL_CHECK(op.shape(i).rank() == op.shape(0).rank() && op.shape(i).with(axis, 0) == op.shape(0).with(axis, 0),
                 op.name(), cat("parts like ", op.shape(0), " but for axis ", axis), cat(op.shape(i)));
      extent += op.shape(i)[axis];
    }
    op.output(op.shape(0).with(axis, extent), op.in(0).dtype);
  }

  static void forward(const Forward& op, const Attrs& attrs) {
    const Shape& y = op.out(0).shape;
    const auto axis = static_cast<int>(attrs.axis < 0 ? attrs.axis + y.rank() : attrs.axis);
    dispatch(op.name(), op.in(0).dtype, [&](auto type) {
      using T = decltype(type);
      int64_t begin = 0;
      for (int i = 0; i < op.count(); begin += op.in(i++).shape[axis])
        copy_to_axis(op.in(i).ptr<T>(), AxisView(y, axis), begin, op.in(i).shape[axis], op.out(0).ptr<T>(), false);
    });
  }

  static void backward(const Backward& op, const Attrs& attrs) {
    const Shape& y = op.dout(0).shape;
    const auto axis = static_cast<int>(attrs.axis < 0 ? attrs.axis + y.rank() : attrs.axis);
    dispatch(op.name(), op.dout(0).dtype, [&](auto type) {
      using T = decltype(type);
      int64_t begin = 0;
      for (int i = 0; i < op.count(); begin += op.shape(i++)[axis])
        if (op.din(i))
          copy_from_axis(op.dout(0).ptr<T>(), AxisView(y, axis), begin, op.shape(i)[axis], op.din(i).ptr<T>(),
                         op.din(i).accumulate);
    });
  }

  static std::vector<Sample> samples() {
    const auto sample = [](const std::vector<Shape>& shapes, int64_t axis, const char* error = "") {
      Sample made{.label = cat(shapes.size(), " parts on axis ", axis, " like ", shapes[0]),
                  .run = [=](auto in) { return std::vector{concat(in, axis)}; },
                  .error = error};
      for (const Shape& shape : shapes) made.inputs.push_back({.shape = shape});
      return made;
    };
    return {sample({{3}, {5}}, 0),
            sample({{2, 3}, {2, 1}, {2, 4}}, 1),
            sample({{1, 3}, {2, 3}}, 0),
            sample({{2, 2, 3}, {2, 1, 3}}, -2),
            sample({{2, 3}}, 0),
            sample({{2, 0}, {2, 3}}, 1),
            sample({{2, 3}, {3, 3}}, 1, "concat: expected parts like (2, 3) but for axis 1, got (3, 3)"),
            sample({{2, 3}, {2}}, 0, "concat: expected parts like (2, 3)")};
  }
};

}  // namespace

TRIL_REGISTER_OP(concat, Concat)

Tensor concat(std::span<const Tensor> parts, int64_t axis) {
  TRIL_CHECK(!parts.empty(), "concat", "at least one part", "none");
  const Concat::Attrs attrs{axis};
  return apply(registered::concat, parts, &attrs);
}

Tensor concat(std::initializer_list<Tensor> parts, int64_t axis) {
  return concat(std::span<const Tensor>(parts.begin(), parts.size()), axis);
}

}  // namespace tril

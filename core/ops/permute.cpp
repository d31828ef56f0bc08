#include <algorithm>

#include "core/ops.h"
#include "core/ops/elementwise.h"

namespace tril {
namespace {

struct Permute {
  struct Attrs {
    int rank;
    std::array<int, kMaxRank> axes;
  };

  static void infer(Infer& op, const Attrs& attrs) {
    op.expect_floating(0, "x");
    const Shape& x = op.shape(0);
    uint32_t seen = 0;
    Shape out = x;
    bool valid = attrs.rank == x.rank();
    for (int i = 0; valid && i < attrs.rank; ++i) {
      const int axis = attrs.axes[static_cast<size_t>(i)];
      valid = axis >= 0 && axis < x.rank() && (seen >> axis & 1u) == 0;
      if (!valid) break;
      seen |= 1u << axis;
      out = out.with(i, x[axis]);
    }
    TRIL_CHECK(valid, op.name(), cat("each of the ", x.rank(), " axes of ", x, " once"), describe(attrs));
    op.output(out, op.in(0).dtype);
  }

  static void forward(const Forward& op, const Attrs& attrs) {
    dispatch(op.name(), op.in(0).dtype, [&](auto type) {
      using T = decltype(type);
      const T* const x = op.in(0).ptr<T>();
      T* const y = op.out(0).ptr<T>();
      for_pairs(op, op.in(0).shape, op.out(0).shape, attrs, [&](int64_t from, int64_t to) { y[to] = x[from]; });
    });
  }

  static void backward(const Backward& op, const Attrs& attrs) {
    dispatch(op.name(), op.dout(0).dtype, [&](auto type) {
      using T = decltype(type);
      const T* const dy = op.dout(0).ptr<T>();
      T* const dx = op.din(0).ptr<T>();
      const bool accumulate = op.din(0).accumulate;
      for_pairs(op, op.shape(0), op.dout(0).shape, attrs,
                [&](int64_t from, int64_t to) { dx[from] = accumulate ? dx[from] + dy[to] : dy[to]; });
    });
  }

  static std::vector<Sample> samples() {
    return {{.label = "transpose",
             .inputs = {{.shape = {3, 17}}},
             .run =
                 [](auto in) {
                   return std::vector{permute(in[0], {1, 0})};
                 }},
            {.label = "heads forward",
             .inputs = {{.shape = {2, 5, 3, 4}}},
             .run =
                 [](auto in) {
                   return std::vector{permute(in[0], {0, 2, 1, 3})};
                 }},
            {.label = "a cycle, from the end",
             .inputs = {{.shape = {2, 3, 4}}},
             .run =
                 [](auto in) {
                   return std::vector{permute(in[0], {-1, 0, 1})};
                 }},
            {.label = "large",
             .inputs = {{.shape = {127, 130}}},
             .run =
                 [](auto in) {
                   return std::vector{permute(in[0], {1, 0})};
                 }},
            {.label = "a scalar",
             .inputs = {{.shape = {}}},
             .run = [](auto in) { return std::vector{permute(in[0], {})}; }},
            {.label = "empty",
             .inputs = {{.shape = {0, 3}}},
             .run =
                 [](auto in) {
                   return std::vector{permute(in[0], {1, 0})};
                 }},
            {.label = "an axis twice",
             .inputs = {{.shape = {2, 3}}},
             .run =
                 [](auto in) {
                   return std::vector{permute(in[0], {0, 0})};
                 },
             .error = "permute: expected each of the 2 axes of (2, 3) once, got (0, 0)"},
            {.label = "too few",
             .inputs = {{.shape = {2, 3}}},
             .run = [](auto in) { return std::vector{permute(in[0], {0})}; },
             .error = "permute: expected each of the 2 axes"}};
  }

  static std::string describe(const Attrs& attrs) {
    std::string text = "(";
    for (int i = 0; i < attrs.rank; ++i) text += cat(i > 0 ? ", " : "", attrs.axes[static_cast<size_t>(i)]);
    return text + ")";
  }

 private:
  // Calls body(place in x, place in y) for every element, in the order of y.
  template <class Body>
  static void for_pairs(const Forward& op, const Shape& x, const Shape& y, const Attrs& attrs, Body&& body) {
    std::array<int64_t, kMaxRank> steps{};  // in x, for an axis of y
    for (int i = 0; i < attrs.rank; ++i) {
      const int axis = attrs.axes[static_cast<size_t>(i)];
      steps[static_cast<size_t>(i)] = x.count(axis + 1, x.rank());
    }
    const int64_t row = std::max<int64_t>(1, y.last()),
                  step = y.rank() == 0 ? 1 : steps[static_cast<size_t>(y.rank() - 1)];
    if (y.count() == 0) return;
    parallel_for(op.threads(), y.rows(), std::max<int64_t>(1, kElementGrain / row),
                 [&](int64_t begin, int64_t end, int) {
                   for (int64_t r = begin; r < end; ++r) {
                     int64_t index = r, from = 0;
                     for (int i = y.rank() - 2; i >= 0; --i) {
                       from += index % y[i] * steps[static_cast<size_t>(i)];
                       index /= y[i];
                     }
                     for (int64_t j = 0; j < row; ++j) body(from + j * step, r * row + j);
                   }
                 });
  }
};

}  // namespace

TRIL_REGISTER_OP(permute, Permute)

Tensor permute(const Tensor& x, std::initializer_list<int64_t> axes) {
  TRIL_CHECK(axes.size() <= kMaxRank, "permute", cat("at most ", kMaxRank, " axes"), cat(axes.size()));
  Permute::Attrs attrs{.rank = 0, .axes = {}};
  for (const int64_t axis : axes) {
    const int64_t from_start = axis < 0 ? axis + x.shape.rank() : axis;
    attrs.axes[static_cast<size_t>(attrs.rank++)] = static_cast<int>(std::clamp<int64_t>(from_start, -1, kMaxRank));
  }
  return apply(registered::permute, {x}, attrs);
}

}  // namespace tril

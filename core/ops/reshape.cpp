#include "core/kernels/convert.h"
#include "core/ops.h"
#include "core/ops/elementwise.h"

namespace tril {
namespace {

struct Reshape {
  struct Attrs {
    int rank;
    std::array<int64_t, kMaxRank> dims;
  };

  static void infer(Infer& op, const Attrs& attrs) {
    const int64_t count = op.in(0).count();
    std::array<int64_t, kMaxRank> dims = attrs.dims;
    int64_t known = 1;
    int free = -1;
    for (int axis = 0; axis < attrs.rank; ++axis) {
      const int64_t dim = dims[static_cast<size_t>(axis)];
      TRIL_CHECK(dim >= -1 && (dim != -1 || free < 0), op.name(), "extents of 0 or more, and at most one -1",
                 describe(attrs));
      if (dim == -1)
        free = axis;
      else if (__builtin_mul_overflow(known, dim, &known))
        known = -1;
    }
    if (free >= 0) dims[static_cast<size_t>(free)] = known > 0 ? count / known : 0;
    const bool fits = free < 0 ? known == count : known > 0 && count % known == 0;
    TRIL_CHECK(fits, op.name(), cat(count, " elements, as ", op.shape(0), " has"), describe(attrs));
    op.output_is_view_of_input(Shape(std::span<const int64_t>(dims.data(), static_cast<size_t>(attrs.rank))));
  }

  static void forward(const Forward&, const Attrs&) {}

  static void backward(const Backward& op, const Attrs&) {
    dispatch_with_bf16(op.name(), op.dout(0).dtype, [&](auto type) {
      using T = decltype(type);
      const T* const dy = op.dout(0).ptr<T>();
      T* const dx = op.din(0).ptr<T>();
      parallel_for(op.threads(), op.dout(0).count(), kElementGrain, [&](int64_t begin, int64_t end, int) {
        (op.din(0).accumulate ? convert_and_add<T, T> : convert<T, T>)(dy + begin, dx + begin, end - begin);
      });
    });
  }

  static std::vector<Sample> samples() {
    const auto sample = [](const Shape& from, std::vector<int64_t> to, const char* error = "") {
      Attrs attrs{.rank = static_cast<int>(to.size()), .dims = {}};
      std::copy(to.begin(), to.end(), attrs.dims.begin());
      return Sample{.label = cat("from ", from, " to ", describe(attrs)),
                    .inputs = {{.shape = from}},
                    .run = [to](auto in) { return std::vector{reshape(in[0], std::span<const int64_t>(to))}; },
                    .error = error};
    };
    return {sample({2, 6}, {3, 4}),
            sample({2, 6}, {12}),
            sample({2, 3, 4}, {-1, 4}),
            sample({1}, {}),
            sample({0, 3}, {3, 0}),
            sample({2, 8200}, {8200, 2}),
            in_bf16(sample({2, 6}, {3, 4}), {0}),
            sample({2, 3}, {4, 2}, "reshape: expected 6 elements, as (2, 3) has, got (4, 2)"),
            sample({2, 3}, {-1, -1}, "reshape: expected extents of 0 or more, and at most one -1, got (-1, -1)"),
            sample({2, 3}, {4, -1}, "reshape: expected 6 elements")};
  }

 private:
  static std::string describe(const Attrs& attrs) {
    std::string text = "(";
    for (int axis = 0; axis < attrs.rank; ++axis)
      text += cat(axis > 0 ? ", " : "", attrs.dims[static_cast<size_t>(axis)]);
    return text + ")";
  }
};

}  // namespace

TRIL_REGISTER_OP(reshape, Reshape)

Tensor reshape(const Tensor& x, std::span<const int64_t> dims) {
  TRIL_CHECK(dims.size() <= kMaxRank, "reshape", cat("at most ", kMaxRank, " axes"), cat(dims.size()));
  Reshape::Attrs attrs{.rank = static_cast<int>(dims.size()), .dims = {}};
  std::copy(dims.begin(), dims.end(), attrs.dims.begin());
  return apply(registered::reshape, {x}, attrs);
}

Tensor reshape(const Tensor& x, std::initializer_list<int64_t> dims) {
  return reshape(x, std::span<const int64_t>(dims.begin(), dims.size()));
}

}  // namespace tril

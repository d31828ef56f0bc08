#include "core/matmul/gemm.h"
#include "core/ops.h"
#include "core/ops/broadcast.h"

namespace tril {
namespace {

// C = A B over batches. dA = dC Bᵀ, dB = Aᵀ dC; where a side was given transposed, its gradient is the transpose of
// that. An operand that broadcasts over the batch gets the sum of its gradients.
struct Matmul {
  struct Attrs {
    bool transpose_a, transpose_b;
  };

  static Shape batch_of(const Shape& shape) { return Shape(shape.dims().first(static_cast<size_t>(shape.rank() - 2))); }

  static void infer(Infer& op, const Attrs& attrs) {
    op.expect_floating(0, "a");
    op.expect_same_dtype(1, "b");
    op.expect_rank_at_least(0, "a", 2);
    op.expect_rank_at_least(1, "b", 2);
    const Shape &a = op.shape(0), &b = op.shape(1);
    const int64_t m = attrs.transpose_a ? a[-1] : a[-2], inner_a = attrs.transpose_a ? a[-2] : a[-1];
    const int64_t n = attrs.transpose_b ? b[-2] : b[-1], inner_b = attrs.transpose_b ? b[-1] : b[-2];
    TRIL_CHECK(inner_a == inner_b, op.name(), "inner extents that agree",
               cat(inner_a, " and ", inner_b, " from a ", a, attrs.transpose_a ? " transposed" : "", " and b ", b,
                   attrs.transpose_b ? " transposed" : ""));
    Shape out = a.rank() >= b.rank() ? a : b;
    for (int axis = 3; axis <= out.rank(); ++axis) {
      const int64_t dim_a = axis <= a.rank() ? a[-axis] : 1, dim_b = axis <= b.rank() ? b[-axis] : 1;
      TRIL_CHECK(dim_a == dim_b || dim_a == 1 || dim_b == 1, op.name(), "batch axes that broadcast",
                 cat(a, " and ", b));
      out = out.with(-axis, dim_a == 1 ? dim_b : dim_a);
    }
    out = out.with(-2, m).with(-1, n);
    op.output(out, op.in(0).dtype);
    op.flops(2.0 * static_cast<double>(out.count()) * static_cast<double>(inner_a));
    op.backward_reads_input(0);
    op.backward_reads_input(1);
  }

  static void forward(const Forward& op, const Attrs& attrs) {
    const Shape &a = op.in(0).shape, &b = op.in(1).shape, &c = op.out(0).shape;
    const MatmulShape one{.m = c[-2],
                          .n = c[-1],
                          .k = attrs.transpose_a ? a[-2] : a[-1],
                          .lda = a[-1],
                          .ldb = b[-1],
                          .ldc = c[-1],
                          .transpose_a = attrs.transpose_a,
                          .transpose_b = attrs.transpose_b};
    dispatch(op.name(), op.in(0).dtype, [&](auto type) {
      using T = decltype(type);
      for_batches(
          a, b, c, [&](int64_t batch, int64_t at_a, int64_t at_b, int64_t at_c, bool a_repeats, bool b_repeats) {
            matmul(op.context(),
                   batched(one, batch, a_repeats ? 0 : a[-2] * a[-1], b_repeats ? 0 : b[-2] * b[-1], c[-2] * c[-1]),
                   op.in(0).ptr<T>() + at_a, op.in(1).ptr<T>() + at_b, op.out(0).ptr<T>() + at_c);
          });
    });
  }

  static void backward(const Backward& op, const Attrs& attrs) {
    dispatch(op.name(), op.dout(0).dtype, [&](auto type) {
      using T = decltype(type);
      if (op.din(0)) gradient<T>(op, attrs, 0);
      if (op.din(1)) gradient<T>(op, attrs, 1);
    });
  }

  static std::vector<Sample> samples() {
    std::vector<Sample> samples;
    const auto run = [](bool ta, bool tb) {
      return SampleFunction(
          [=](auto in) { return std::vector{matmul(in[0], in[1], {.transpose_a = ta, .transpose_b = tb})}; });
    };
    for (const bool ta : {false, true})
      for (const bool tb : {false, true})
        for (const auto& [m, k, n] : std::vector<std::array<int64_t, 3>>{{1, 1, 1}, {3, 4, 5}, {9, 17, 7}, {16, 8, 33}})
          samples.push_back(
              {.label = cat(m, " x ", k, " x ", n, ta ? ", a transposed" : "", tb ? ", b transposed" : ""),
               .inputs = {{.shape = ta ? Shape{k, m} : Shape{m, k}}, {.shape = tb ? Shape{n, k} : Shape{k, n}}},
               .run = run(ta, tb)});
    const auto batched_sample = [&](const Shape& a, const Shape& b) {
      samples.push_back({.label = cat(a, " by ", b), .inputs = {{.shape = a}, {.shape = b}}, .run = run(false, false)});
    };
    batched_sample({2, 3, 4}, {2, 4, 5});
    batched_sample({2, 3, 3, 4}, {2, 3, 4, 2});
    batched_sample({2, 3, 4}, {4, 5});
    batched_sample({3, 4}, {2, 4, 5});
    batched_sample({2, 1, 3, 4}, {1, 3, 4, 2});
    batched_sample({3, 0}, {0, 2});
    batched_sample({0, 2, 3}, {3, 2});
    samples.push_back({.label = "inner extents",
                       .inputs = {{.shape = {2, 3}}, {.shape = {2, 3}}},
                       .run = run(false, false),
                       .error = "matmul: expected inner extents that agree, got 3 and 2 from a (2, 3) and b (2, 3)"});
    samples.push_back({.label = "a vector",
                       .inputs = {{.shape = {3}}, {.shape = {3, 2}}},
                       .run = run(false, false),
                       .error = "matmul: expected a with at least 2 axes, got shape (3)"});
    samples.push_back({.label = "batch axes",
                       .inputs = {{.shape = {2, 2, 3}}, {.shape = {3, 3, 2}}},
                       .run = run(false, false),
                       .error = "matmul: expected batch axes that broadcast"});
    return samples;
  }

 private:
  static MatmulShape batched(MatmulShape one, int64_t batch, int64_t stride_a, int64_t stride_b, int64_t stride_c) {
    one.batch = batch;
    one.stride_a = stride_a;
    one.stride_b = stride_b;
    one.stride_c = stride_c;
    return one;
  }

  // Calls body(batch, offsets in a, b and c, whether a and b repeat) for the longest batches over which each operand
  // either advances matrix by matrix or repeats one.
  template <class Body>
  static void for_batches(const Shape& a, const Shape& b, const Shape& c, Body&& body) {
    const BroadcastPlan plan(batch_of(a), batch_of(b), batch_of(c));
    const int64_t total = batch_of(c).count();
    plan.for_rows(0, total, [&](int64_t at_a, int64_t at_b, int64_t at, int64_t batch) {
      body(batch, at_a * a[-2] * a[-1], at_b * b[-2] * b[-1], at * c[-2] * c[-1], plan.step_a() == 0,
           plan.step_b() == 0);
    });
  }

  // The gradient of operand X (…, rows, columns), with Y the other operand. For A it is dC Yᵀ, or Y dCᵀ if A was given
  // transposed; for B it is Yᵀ dC, or dCᵀ Y if B was.
  template <class T>
  static void gradient(const Backward& op, const Attrs& attrs, int operand) {
    const Shape &a = op.shape(0), &b = op.shape(1), &c = op.dout(0).shape, &x = op.shape(operand);
    const T *const dc = op.dout(0).ptr<T>(), *const other = op.in(1 - operand).ptr<T>();
    T* const dx = op.din(operand).ptr<T>();
    const bool transposed = operand == 0 ? attrs.transpose_a : attrs.transpose_b;
    const bool other_transposed = operand == 0 ? attrs.transpose_b : attrs.transpose_a;
    const bool dc_first = (operand == 0) != transposed;
    MatmulShape one{.m = x[-2], .n = x[-1], .ldc = x[-1]};
    const int64_t other_row = (operand == 0 ? b : a)[-1];
    one.k = operand == 0 ? c[-1] : c[-2];
    one.lda = dc_first ? c[-1] : other_row;
    one.ldb = dc_first ? other_row : c[-1];
    one.transpose_a = dc_first ? operand == 1 : (operand == 1) != other_transposed;
    one.transpose_b = dc_first ? (operand == 0) != other_transposed : operand == 0;
    const int64_t size_x = x[-2] * x[-1];
    if (!op.din(operand).accumulate) std::fill(dx, dx + x.count(), T{0});
    one.accumulate = true;
    for_batches(a, b, c, [&](int64_t batch, int64_t at_a, int64_t at_b, int64_t at_c, bool a_repeats, bool b_repeats) {
      const bool x_repeats = operand == 0 ? a_repeats : b_repeats, other_repeats = operand == 0 ? b_repeats : a_repeats;
      const int64_t at_x = operand == 0 ? at_a : at_b, at_other = operand == 0 ? at_b : at_a;
      const int64_t size_other =
          other_repeats ? 0
                        : (operand == 0 ? b : a)
                              .count(operand == 0 ? b.rank() - 2 : a.rank() - 2, operand == 0 ? b.rank() : a.rank());
      const int64_t size_c = c[-2] * c[-1], stride_a = dc_first ? size_c : size_other,
                    stride_b = dc_first ? size_other : size_c;
      const int64_t rounds =
          x_repeats ? batch : 1;  // a repeated operand takes the terms of its sum one after the other
      for (int64_t i = 0; i < rounds; ++i) {
        const T* const from_dc = dc + at_c + i * size_c;
        const T* const from_other = other + at_other + i * size_other;
        matmul(op.context(), batched(one, x_repeats ? 1 : batch, stride_a, stride_b, size_x),
               dc_first ? from_dc : from_other, dc_first ? from_other : from_dc, dx + at_x);
      }
    });
  }
};

}  // namespace

TRIL_REGISTER_OP(matmul, Matmul)

Tensor matmul(const Tensor& a, const Tensor& b, const MatmulOptions& options) {
  return apply(registered::matmul, {a, b}, Matmul::Attrs{options.transpose_a, options.transpose_b});
}

}  // namespace tril

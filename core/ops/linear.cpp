#include "core/kernels/convert.h"
#include "core/kernels/sums.h"
#include "core/matmul/gemm.h"
#include "core/ops.h"

namespace tril {
namespace {

// The weight as a product with x reads it: itself; for x in bf16 its bf16 shadow, or a rounded copy in scratch.
template <class S>
const S* weight_for_product(Context& context, Scratch& scratch, const Tensor& weight) {
  if constexpr (std::is_same_v<S, bf16>) {
    if (weight.shadow != nullptr) return weight.shadow;
    bf16* const rounded = scratch.get<bf16>(weight.count());
    const auto* const values = weight.ptr<float>();
    parallel_for(context.threads(), weight.count(), int64_t{1} << 14,
                 [&](int64_t begin, int64_t end, int) { convert(values + begin, rounded + begin, end - begin); });
    return rounded;
  } else {
    return weight.ptr<S>();
  }
}

// y = x Wᵀ + b on the N rows of x. dX = dY W, dW = dYᵀ X, db = the column sums of dY.
struct Linear {
  struct Attrs {};

  static void infer(Infer& op, const Attrs&) {
    op.expect_floating_or_bf16(0, "x");
    op.expect_rank_at_least(0, "x", 1);
    expect_weight(op, 1, "weight");
    const Shape &x = op.shape(0), &weight = op.shape(1);
    TRIL_CHECK(weight.rank() == 2 && weight[1] == x[-1], op.name(), cat("weight (out, ", x[-1], ") for x ", x),
               cat("weight ", weight));
    if (op.count() == 3) {
      expect_weight(op, 2, "bias");
      TRIL_CHECK(op.shape(2) == Shape{weight[0]}, op.name(), cat("bias (", weight[0], ")"), cat("bias ", op.shape(2)));
    }
    op.output(x.with(-1, weight[0]), op.in(0).dtype);
    op.flops(2.0 * static_cast<double>(x.count()) * static_cast<double>(weight[0]));
    op.backward_reads_input(0);
    op.backward_reads_input(1);
  }

  static void forward(const Forward& op, const Attrs&) {
    const int64_t rows = op.in(0).shape.rows(), in = op.in(1).shape[1], out = op.in(1).shape[0];
    dispatch_with_bf16(op.name(), op.in(0).dtype, [&](auto type) {
      using S = decltype(type);
      const bool biased = op.count() == 3;
      Scratch scratch(op.context().scratch());
      matmul(op.context(), {.m = rows, .n = out, .k = in, .lda = in, .ldb = in, .ldc = out, .transpose_b = true},
             op.in(0).ptr<S>(), weight_for_product<S>(op.context(), scratch, op.in(1)), op.out(0).ptr<S>(),
             biased ? op.in(2).ptr<Compute<S>>() : nullptr);
    });
  }

  static void backward(const Backward& op, const Attrs&) {
    const int64_t rows = op.shape(0).rows(), in = op.shape(1)[1], out = op.shape(1)[0];
    dispatch_with_bf16(op.name(), op.dout(0).dtype, [&](auto type) {
      using S = decltype(type);
      using T = Compute<S>;
      const S* const dy = op.dout(0).ptr<S>();
      Scratch scratch(op.context().scratch());
      if (const Gradient& dx = op.din(0))
        matmul(op.context(),
               {.m = rows, .n = in, .k = out, .lda = out, .ldb = in, .ldc = in, .accumulate = dx.accumulate}, dy,
               weight_for_product<S>(op.context(), scratch, op.in(1)), dx.ptr<S>());
      if (const Gradient& dw = op.din(1))
        matmul(op.context(),
               {.m = out,
                .n = in,
                .k = rows,
                .lda = out,
                .ldb = in,
                .ldc = in,
                .transpose_a = true,
                .accumulate = dw.accumulate},
               dy, op.in(0).ptr<S>(), dw.ptr<T>());
      if (op.count() == 3 && op.din(2))
        column_sums(op.context(), dy, rows, out, op.din(2).ptr<T>(), op.din(2).accumulate);
    });
  }

  static void expect_weight(const Infer& op, int i, const char* operand) {
    if (op.in(0).dtype != DType::bf16) return op.expect_same_dtype(i, operand);
    TRIL_CHECK(op.in(i).dtype == DType::f32, op.name(), cat(operand, " of f32 for x of bf16"), name_of(op.in(i).dtype));
  }

  static std::vector<Sample> samples() {
    std::vector<Sample> samples;
    const SampleFunction biased = [](auto in) { return std::vector{linear(in[0], in[1], in[2])}; };
    const SampleFunction plain = [](auto in) { return std::vector{linear(in[0], in[1])}; };
    for (const auto& [rows, in, out] :
         std::vector<std::array<int64_t, 3>>{{1, 1, 1}, {3, 7, 9}, {17, 8, 16}, {5, 31, 33}}) {
      samples.push_back({.label = cat(rows, " rows, ", in, " to ", out),
                         .inputs = {{.shape = {rows, in}}, {.shape = {out, in}}, {.shape = {out}}},
                         .run = biased});
      samples.push_back({.label = cat(rows, " rows, ", in, " to ", out, ", no bias"),
                         .inputs = {{.shape = {rows, in}}, {.shape = {out, in}}},
                         .run = plain});
    }
    for (const size_t i : {size_t{3}, size_t{4}, size_t{6}, size_t{7}}) samples.push_back(in_bf16(samples[i], {0}));
    samples.push_back(
        {.label = "three axes", .inputs = {{.shape = {2, 3, 4}}, {.shape = {5, 4}}, {.shape = {5}}}, .run = biased});
    samples.push_back({.label = "one axis", .inputs = {{.shape = {4}}, {.shape = {5, 4}}}, .run = plain});
    samples.push_back(
        {.label = "no rows", .inputs = {{.shape = {0, 4}}, {.shape = {5, 4}}, {.shape = {5}}}, .run = biased});
    samples.push_back({.label = "weight of another width",
                       .inputs = {{.shape = {2, 3}}, {.shape = {5, 4}}},
                       .run = plain,
                       .error = "linear: expected weight (out, 3) for x (2, 3), got weight (5, 4)"});
    samples.push_back({.label = "bias of another width",
                       .inputs = {{.shape = {2, 4}}, {.shape = {5, 4}}, {.shape = {4}}},
                       .run = biased,
                       .error = "linear: expected bias (5), got bias (4)"});
    return samples;
  }
};

}  // namespace

TRIL_REGISTER_OP(linear, Linear)

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (bias.data == nullptr) return apply(registered::linear, {x, weight}, Linear::Attrs{});
  return apply(registered::linear, {x, weight, bias}, Linear::Attrs{});
}

}  // namespace tril

// The guide to writing an op, as a program: PReLU (https://arxiv.org/abs/1502.01852), which the library does not have.
// Where x is positive it stays, where it is negative it is multiplied by a learned slope, one for each column.
//
// An op is one struct with four functions. Here it stays outside of the library, which is all that a program of your
// own needs. To add it for everybody: the struct and the function go into core/ops/prelu.cpp, with
// TRIL_REGISTER_OP(prelu, Prelu) between them, and a line each into core/autograd/op_list.h, core/ops.h and
// CMakeLists.txt. The tests and `tril gradcheck` then check it by themselves.
#include <cstdio>

#include "core/gradcheck/gradcheck.h"
#include "core/machine/parallel.h"
#include "core/ops.h"

namespace {

using tril::Shape;
using tril::Tensor;

struct Prelu {
  struct Attrs {};  // plain numbers that are no tensors, such as a probability; here none

  // The shape rule: says what is wrong with the operands, and what the engine is to allocate and keep. An op itself
  // allocates nothing.
  static void infer(tril::Infer& op, const Attrs&) {
    op.expect_floating(0, "x");
    op.expect_rank_at_least(0, "x", 1);
    op.expect_same_dtype(1, "slope");
    const Shape& x = op.shape(0);
    TRIL_CHECK(op.shape(1) == Shape{x[-1]}, op.name(), tril::cat("slope (", x[-1], ") for x ", x),
               tril::cat("slope ", op.shape(1)));
    op.output(x, op.in(0).dtype);
    op.backward_reads_input(0);
    op.backward_reads_input(1);
  }

  // Writes every element of the output. `dispatch` makes it once for float and once for double.
  static void forward(const tril::Forward& op, const Attrs&) {
    const int64_t rows = op.in(0).shape.rows(), columns = op.in(0).shape.last();
    tril::dispatch(op.name(), op.in(0).dtype, [&](auto type) {
      using T = decltype(type);
      const T *const x = op.in(0).ptr<T>(), *const slope = op.in(1).ptr<T>();
      T* const y = op.out(0).ptr<T>();
      tril::parallel_for(op.threads(), rows, 64, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin * columns; i < end * columns; ++i) y[i] = x[i] > T{0} ? x[i] : slope[i % columns] * x[i];
      });
    });
  }

  // dx = dy, times the slope where x is negative; dslope = the sum of dy x over the rows where it is. An operand whose
  // gradient nobody wants has none to write to. `accumulate` says whether to add to what is there or to overwrite it.
  static void backward(const tril::Backward& op, const Attrs&) {
    const int64_t rows = op.shape(0).rows(), columns = op.shape(0).last();
    tril::dispatch(op.name(), op.dout(0).dtype, [&](auto type) {
      using T = decltype(type);
      const T *const x = op.in(0).ptr<T>(), *const slope = op.in(1).ptr<T>(), *const dy = op.dout(0).ptr<T>();
      if (const tril::Gradient& gradient = op.din(0)) {
        T* const dx = gradient.ptr<T>();
        tril::parallel_for(op.threads(), rows, 64, [&](int64_t begin, int64_t end, int) {
          for (int64_t i = begin * columns; i < end * columns; ++i) {
            const T value = x[i] > T{0} ? dy[i] : slope[i % columns] * dy[i];
            dx[i] = gradient.accumulate ? dx[i] + value : value;
          }
        });
      }
      if (const tril::Gradient& gradient = op.din(1)) {
        T* const dslope = gradient.ptr<T>();
        // Shared out by columns, so that the sum of each has one order whatever the number of threads.
        tril::parallel_for(op.threads(), columns, 16, [&](int64_t begin, int64_t end, int) {
          for (int64_t column = begin; column < end; ++column) {
            T total = 0;
            for (int64_t i = column; i < rows * columns; i += columns)
              if (x[i] <= T{0}) total += dy[i] * x[i];
            dslope[column] = gradient.accumulate ? dslope[column] + total : total;
          }
        });
      }
    });
  }

  // What the checks run it on: several shapes, and an error with its text.
  static std::vector<tril::Sample> samples();
};

constexpr tril::OpInfo kPrelu = tril::make_op<Prelu>("prelu");

// The function that users call.
Tensor prelu(const Tensor& x, const Tensor& slope) { return tril::apply(kPrelu, {x, slope}, Prelu::Attrs{}); }

std::vector<tril::Sample> samples_of(tril::SampleFunction run) {
  const auto spaced = tril::SampleInput::Values::spaced;  // away from 0, where there is a kink and no derivative
  std::vector<tril::Sample> samples;
  for (const Shape& x : {Shape{1}, Shape{5, 3}, Shape{2, 3, 17}, Shape{0, 4}})
    samples.push_back(
        {.label = tril::cat("x ", x), .inputs = {{.shape = x, .values = spaced}, {.shape = {x[-1]}}}, .run = run});
  samples.push_back({.label = "slope of another width",
                     .inputs = {{.shape = {5, 3}}, {.shape = {4}}},
                     .run = run,
                     .error = "prelu: expected slope (3) for x (5, 3), got slope (4)"});
  return samples;
}
std::vector<tril::Sample> Prelu::samples() {
  return samples_of([](auto in) { return std::vector{prelu(in[0], in[1])}; });
}

// The same with a mistake that is easily made: the slope's gradient takes the positive elements too.
struct Careless : Prelu {
  static void backward(const tril::Backward& op, const Attrs& attrs) {
    Prelu::backward(op, attrs);
    const tril::Gradient& gradient = op.din(1);
    if (!gradient) return;
    tril::dispatch(op.name(), op.dout(0).dtype, [&](auto type) {
      using T = decltype(type);
      for (int64_t i = 0; i < op.shape(0).count(); ++i)
        if (const T x = op.in(0).ptr<T>()[i]; x > T{0})
          gradient.ptr<T>()[i % op.shape(0).last()] += op.dout(0).ptr<T>()[i] * x;
    });
  }
};
constexpr tril::OpInfo kCareless = tril::make_op<Careless>("careless");

}  // namespace

int main() {
  tril::Context context;
  tril::Tape tape(context);
  const Tensor x = tape.variable<float>({2, 2}, {1.0f, -2.0f, -3.0f, 4.0f});
  const Tensor slope = tape.variable<float>({2}, {0.1f, 0.5f});
  const Tensor y = prelu(x, slope);
  tape.backward(sum(y));
  std::printf("prelu of (1 -2; -3 4), slopes 0.1 0.5:  (%g %g; %g %g)\n", y.ptr<float>()[0], y.ptr<float>()[1],
              y.ptr<float>()[2], y.ptr<float>()[3]);
  const Tensor dslope = tape.gradient(slope);
  std::printf("gradient of the slopes:                 (%g %g)\n\n", dslope.ptr<float>()[0], dslope.ptr<float>()[1]);

  bool good = true;
  for (const tril::Sample& sample : Prelu::samples()) {
    const tril::GradcheckResult result = tril::gradcheck("prelu", sample);
    std::printf("gradcheck prelu, %-24s %s\n", sample.label.c_str(), name_of(result.verdict()));
    good &= result.verdict() == tril::Verdict::passed;
  }

  const tril::Sample sample = samples_of([](auto in) {
    return std::vector{tril::apply(kCareless, {in[0], in[1]}, Prelu::Attrs{})};
  })[1];
  const tril::GradcheckResult found = tril::gradcheck("careless", sample);
  std::printf("\nAnd what it says of a backward with a mistake in it:\n\n%s\n", found.report().c_str());
  return good && found.verdict() == tril::Verdict::failed ? 0 : 1;
}

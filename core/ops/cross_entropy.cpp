#include <cmath>

#include "core/kernels/convert.h"
#include "core/kernels/sums.h"
#include "core/ops.h"
#include "core/ops/softmax.h"

namespace tril {
namespace {

// A row's softmax is e^(x - shift) / total. The two are kept apart, because shift + log(total), the log-sum-exp, would
// lose log(total) to rounding where the logits are large.
template <class T>
struct Row {
  T shift, total;
};

template <class S, class T>
TRIL_INLINE Row<T> softmax_of(const S* x, T* wide, T* work, int64_t n) {
  const T* const row = widened(x, wide, n);
  const T shift = shift_of(rows::max(row, n));
  return {shift, exp_row(row, work, n, shift)};
}

// dx = [dx +] (softmax - one-hot) times the factor. The target's element is computed first, in full precision: in bf16
// it would otherwise be rounded between its two terms.
template <class S, class T>
TRIL_INLINE void gradient_row(const S* x, int32_t target, Row<T> row, T factor, S* dx, int64_t n, bool accumulate) {
  const T before = accumulate ? static_cast<T>(dx[target]) : T{0}, share = factor / row.total;
  const T at_target = before + (share * math::exp_of_difference(static_cast<T>(x[target]) - row.shift) - factor);
  if (accumulate) {
    for (int64_t i = 0; i < n; ++i)
      dx[i] = static_cast<S>(static_cast<T>(dx[i]) + share * math::exp_of_difference(static_cast<T>(x[i]) - row.shift));
  } else {
    for (int64_t i = 0; i < n; ++i)
      dx[i] = static_cast<S>(share * math::exp_of_difference(static_cast<T>(x[i]) - row.shift));
  }
  dx[target] = static_cast<S>(at_target);
}

struct CrossEntropy {
  struct Attrs {
    Reduction reduction;
    int32_t ignore_index;
  };

  static void infer(Infer& op, const Attrs& attrs) {
    op.expect_floating_or_bf16(0, "logits");
    op.expect_rank_at_least(0, "logits", 1);
    TRIL_CHECK(op.in(1).dtype == DType::i32, op.name(), "targets of i32", name_of(op.in(1).dtype));
    const Shape& logits = op.shape(0);
    const Shape expected(logits.dims().first(static_cast<size_t>(logits.rank() - 1)));
    TRIL_CHECK(op.shape(1) == expected, op.name(), cat("targets ", expected, " for logits ", logits), cat(op.shape(1)));
    TRIL_CHECK(logits[-1] > 0, op.name(), "at least one class", cat("logits ", logits));
    const std::span<const int32_t> target = op.numbers(1);
    for (size_t i = 0; i < target.size(); ++i)
      TRIL_CHECK((target[i] >= 0 && target[i] < logits[-1]) || target[i] == attrs.ignore_index, op.name(),
                 cat("targets from 0 to ", logits[-1] - 1, " or the ignored ", attrs.ignore_index),
                 cat(target[i], " at place ", i));
    op.output({}, compute_dtype(op.in(0).dtype));
    op.save(expected, compute_dtype(op.in(0).dtype));  // each row's shift
    op.save(expected, compute_dtype(op.in(0).dtype));  // each row's total
    op.backward_reads_input(0);
    op.backward_reads_input(1);
    op.no_gradient(1);
  }

  static void forward(const Forward& op, const Attrs& attrs) {
    const int64_t rows = op.in(0).shape.rows(), classes = op.in(0).shape[-1];
    const auto* const target = op.in(1).ptr<int32_t>();
    dispatch_with_bf16(op.name(), op.in(0).dtype, [&](auto type) {
      using S = decltype(type);
      using T = Compute<S>;
      const S* const x = op.in(0).ptr<S>();
      T *const shifts = op.saved(0).ptr<T>(), *const totals = op.saved(1).ptr<T>();
      double partial[kReductionChunks] = {};
      for_row_chunks(op.context(), rows, [&](int64_t begin, int64_t end, int64_t chunk, int thread) {
        Scratch scratch(op.context().scratch(thread));
        T *const work = scratch.get<T>(classes), *const wide = scratch.get<T>(classes);
        for (int64_t r = begin; r < end; ++r) {
          const S* const row = x + r * classes;
          const auto [shift, total] = cloned<softmax_of<S, T>>(row, wide, work, classes);
          shifts[r] = shift;
          totals[r] = total;
          if (target[r] != attrs.ignore_index)
            partial[chunk] += static_cast<double>(std::log(total) - (static_cast<T>(row[target[r]]) - shift));
        }
      });
      double loss = 0;
      for (const double part : partial) loss += part;
      *op.out(0).ptr<T>() = static_cast<T>(loss * weight(attrs, target, rows));
    });
  }

  static void backward(const Backward& op, const Attrs& attrs) {
    const int64_t rows = op.shape(0).rows(), classes = op.shape(0)[-1];
    const auto* const target = op.in(1).ptr<int32_t>();
    dispatch_with_bf16(op.name(), op.in(0).dtype, [&](auto type) {
      using S = decltype(type);
      using T = Compute<S>;
      const S* const x = op.in(0).ptr<S>();
      const T *const shifts = op.saved(0).ptr<T>(), *const totals = op.saved(1).ptr<T>();
      S* const dx = op.din(0).ptr<S>();
      const bool accumulate = op.din(0).accumulate;
      const T factor = static_cast<T>(static_cast<double>(*op.dout(0).ptr<T>()) * weight(attrs, target, rows));
      parallel_for(op.threads(), rows, std::max<int64_t>(1, kElementGrain / classes),
                   [&](int64_t begin, int64_t end, int) {
                     for (int64_t r = begin; r < end; ++r) {
                       S* const row = dx + r * classes;
                       if (target[r] == attrs.ignore_index) {
                         if (!accumulate) std::fill(row, row + classes, S(0));
                         continue;
                       }
                       cloned<gradient_row<S, T>>(x + r * classes, target[r], Row<T>{shifts[r], totals[r]}, factor, row,
                                                  classes, accumulate);
                     }
                   });
    });
  }

  static std::vector<Sample> samples() {
    const auto sample = [](const char* label, const Shape& logits, std::vector<double> targets,
                           const CrossEntropyOptions& options) {
      SampleInput ids = SampleInput::of_tokens(Shape(logits.dims().first(static_cast<size_t>(logits.rank() - 1))),
                                               static_cast<int32_t>(logits[-1]));
      ids.given = std::move(targets);
      return Sample{.label = label, .inputs = {{.shape = logits}, ids}, .run = [=](auto in) {
                      return std::vector{cross_entropy(in[0], in[1], options)};
                    }};
    };
    std::vector<Sample> samples = {sample("mean", {5, 7}, {}, {}),
                                   sample("sum", {2, 3, 17}, {}, {.reduction = Reduction::sum}),
                                   sample("one class", {3, 1}, {}, {}),
                                   sample("some ignored", {4, 9}, {1, -1, 3, -1}, {}),
                                   sample("all ignored", {2, 3}, {-1, -1}, {}),
                                   sample("ignore_index 2", {3, 33}, {2, 0, 32}, {.ignore_index = 2}),
                                   sample("far apart", {2, 5}, {0, 1}, {}),
                                   sample("one row", {65}, {64}, {}),
                                   sample("many rows", {1000, 17}, {}, {})};
    samples[6].inputs[0].given = {-41, 12, 33, 5, -7, 20, -60, 8.5, 31, 2};  // the targets are the least likely
    samples[0].compose = samples[6].compose = [](auto in) {
      // The mean over rows of -log softmax at the target, which a product with a one-hot matrix picks.
      const int64_t rows = in[0].shape[0], classes = in[0].shape[1];
      std::vector<double> one_hot(static_cast<size_t>(rows * classes));
      for (int64_t r = 0; r < rows; ++r)
        one_hot[static_cast<size_t>(r * classes + in[1].template ptr<int32_t>()[r])] = 1.0;
      const Tensor picked = in[0].tape->template constant<double>(in[0].shape, one_hot);
      return std::vector{scale(sum(log_softmax(in[0]) * picked), -1.0 / static_cast<double>(rows))};
    };
    for (const size_t i : {size_t{0}, size_t{3}, size_t{5}, size_t{8}}) samples.push_back(in_bf16(samples[i], {0}));
    Sample too_high = sample("a target too high", {2, 3}, {0, 3}, {});
    too_high.error = "cross_entropy: expected targets from 0 to 2 or the ignored -1, got 3 at place 1";
    Sample wrong_shape = sample("targets of another shape", {2, 3}, {}, {});
    wrong_shape.inputs[1].shape = {3};
    wrong_shape.error = "cross_entropy: expected targets (2) for logits (2, 3), got (3)";
    samples.push_back(too_high);
    samples.push_back(wrong_shape);
    return samples;
  }

 private:
  // What each row's loss is multiplied by; 0 if no target counts.
  static double weight(const Attrs& attrs, const int32_t* target, int64_t rows) {
    if (attrs.reduction == Reduction::sum) return 1.0;
    const auto counted = rows - std::count(target, target + rows, attrs.ignore_index);
    return counted == 0 ? 0.0 : 1.0 / static_cast<double>(counted);
  }
};

}  // namespace

TRIL_REGISTER_OP(cross_entropy, CrossEntropy)

Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options) {
  return apply(registered::cross_entropy, {logits, targets},
               CrossEntropy::Attrs{options.reduction, options.ignore_index});
}

}  // namespace tril

#include <algorithm>

#include "core/kernels/sums.h"
#include "core/ops.h"
#include "core/ops/elementwise.h"

namespace tril {
namespace {

struct Embedding {
  struct Attrs {};

  static void infer(Infer& op, const Attrs&) {
    TRIL_CHECK(op.in(0).dtype == DType::i32, op.name(), "ids of i32", name_of(op.in(0).dtype));
    op.expect_floating(1, "weight");
    const Shape &ids = op.shape(0), &weight = op.shape(1);
    TRIL_CHECK(weight.rank() == 2, op.name(), "weight (V, C)", cat("weight ", weight));
    TRIL_CHECK(ids.rank() < kMaxRank, op.name(), cat("ids with at most ", kMaxRank - 1, " axes"), cat("shape ", ids));
    const std::span<const int32_t> id = op.numbers(0);
    for (size_t i = 0; i < id.size(); ++i)
      TRIL_CHECK(id[i] >= 0 && id[i] < weight[0], op.name(), cat("ids from 0 to ", weight[0] - 1),
                 cat(id[i], " at place ", i));
    std::array<int64_t, kMaxRank> dims{};
    std::copy(ids.dims().begin(), ids.dims().end(), dims.begin());
    dims[static_cast<size_t>(ids.rank())] = weight[1];
    op.output(Shape(std::span<const int64_t>(dims.data(), static_cast<size_t>(ids.rank()) + 1)), op.in(1).dtype);
    op.backward_reads_input(0);
    op.no_gradient(0);
  }

  static void forward(const Forward& op, const Attrs&) {
    const auto* const id = op.in(0).ptr<int32_t>();
    const int64_t width = op.in(1).shape[1];
    dispatch(op.name(), op.in(1).dtype, [&](auto type) {
      using T = decltype(type);
      const T* const weight = op.in(1).ptr<T>();
      T* const y = op.out(0).ptr<T>();
      parallel_for(op.threads(), op.in(0).count(), 64, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) std::copy_n(weight + id[i] * width, width, y + i * width);
      });
    });
  }

  // Every thread walks all ids and adds its own columns, so that the gradients of a repeated id are summed in one
  // order.
  static void backward(const Backward& op, const Attrs&) {
    const auto* const id = op.in(0).ptr<int32_t>();
    const int64_t width = op.shape(1)[1], vocabulary = op.shape(1)[0];
    dispatch(op.name(), op.dout(0).dtype, [&](auto type) {
      using T = decltype(type);
      const T* const dy = op.dout(0).ptr<T>();
      T* const dw = op.din(1).ptr<T>();
      parallel_for(op.threads(), width, 16, [&](int64_t begin, int64_t end, int) {
        if (!op.din(1).accumulate)
          for (int64_t v = 0; v < vocabulary; ++v) std::fill(dw + v * width + begin, dw + v * width + end, T{0});
        for (int64_t i = 0; i < op.shape(0).count(); ++i)
          cloned<add_row<T, T>>(dy + i * width + begin, dw + id[i] * width + begin, end - begin);
      });
    });
  }

  static std::vector<Sample> samples() {
    const SampleFunction run = [](auto in) { return std::vector{embedding(in[0], in[1])}; };
    const auto sample = [&](const Shape& ids, int64_t vocabulary, int64_t width) {
      return Sample{
          .label = cat("ids ", ids, ", weight (", vocabulary, ", ", width, ")"),
          .inputs = {SampleInput::of_tokens(ids, static_cast<int32_t>(vocabulary)), {.shape = {vocabulary, width}}},
          .run = run};
    };
    SampleInput too_high = SampleInput::of_tokens({3}, 5);
    too_high.given = {0, 5, 1};
    SampleInput negative = too_high;
    negative.given = {0, 1, -1};
    return {sample({7}, 5, 9),
            sample({2, 5}, 3, 33),
            sample({1}, 1, 1),
            sample({0}, 2, 3),
            sample({200}, 5, 33),
            {.label = "an id too high",
             .inputs = {too_high, {.shape = {5, 2}}},
             .run = run,
             .error = "embedding: expected ids from 0 to 4, got 5 at place 1"},
            {.label = "a negative id",
             .inputs = {negative, {.shape = {5, 2}}},
             .run = run,
             .error = "embedding: expected ids from 0 to 4, got -1 at place 2"},
            {.label = "ids of f32",
             .inputs = {{.shape = {2}}, {.shape = {5, 2}}},
             .run = run,
             .error = "embedding: expected ids of i32"}};
  }
};

}  // namespace

TRIL_REGISTER_OP(embedding, Embedding)

Tensor embedding(const Tensor& ids, const Tensor& weight) {
  return apply(registered::embedding, {ids, weight}, Embedding::Attrs{});
}

}  // namespace tril

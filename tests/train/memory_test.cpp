// What training is said to take before it begins, against what it takes.
#include "train/run/memory.h"

#include "core/ops.h"
#include "support/catch.h"
#include "support/tensors.h"
#include "train/model/architecture.h"

using namespace tril;
using namespace tril::test;

namespace {

constexpr int64_t kVocabulary = 30;

double bytes_taken(const TrainConfig& config, DType precision) {
  ParamStore store;
  const auto model = make_language_model(store, config, kVocabulary);
  store.freeze();
  GradStore gradients(store);
  Context context({.threads = 1, .precision = precision});
  for (int pass = 0; pass < 2; ++pass) {
    Tape tape(context);
    tape.bind(gradients.binding());
    const std::vector<int32_t> ids = random_ids(config.batch * config.context, kVocabulary, 1);
    const Shape shape = {config.batch, config.context};
    const Tensor tokens = tape.view(shape, DType::i32, ids.data());
    tape.backward(model->loss(tokens, tokens));
  }
  const int64_t copies = 4 * size_of(DType::f32) + (precision == DType::bf16 ? size_of(DType::bf16) : 0);
  return static_cast<double>(store.elements() * copies + context.memory().bytes());
}

}  // namespace

TEST_CASE("memory: what training is said to take is what it takes") {
  TrainConfig deep, wide, odd;
  deep.layers = 12, deep.width = 64, deep.batch = 12;
  wide.layers = 2, wide.heads = 2, wide.width = 32, wide.batch = 512;
  odd.layers = 3, odd.heads = 3, odd.width = 33, odd.context = 17, odd.batch = 5, odd.bias = true, odd.window = 4;
  odd.kv_heads = 1, odd.dropout = 0.1;
  for (const auto& [name, config] : {std::pair{"small inner layers", deep}, {"large ones", wide}, {"odd sizes", odd}})
    for (const bool recompute : {false, true})
      for (const DType precision : {DType::f32, DType::bf16}) {
        TrainConfig asked = config;
        asked.recompute = recompute;
        INFO(cat(name, recompute ? ", recomputed, " : ", ", precision));
        const double said = training_needs(asked, kVocabulary, precision).bytes, taken = bytes_taken(asked, precision);
        INFO(cat("said ", said / 1e6, " MB, taken ", taken / 1e6, " MB"));
        CHECK(taken == said);
      }
}

TEST_CASE("memory: operations are counted of every product, and of attention over the pairs that see each other") {
  TrainConfig config;
  config.layers = 3, config.heads = 2, config.width = 16, config.context = 9, config.batch = 5;
  const auto counted = [&] { return training_needs(config, kVocabulary, DType::f32).flops; };
  const double tokens = 5 * 9, weights = 3 * 12 * 16 * 16 + kVocabulary * 16;
  const auto expected = [&](double pairs, double fewer) {
    return 6 * tokens * (weights - fewer) + 12 * 5 * pairs * 3 * 16;
  };
  CHECK(counted() == Approx(expected(9 * 10 / 2, 0)));
  config.window = 4;
  CHECK(counted() == Approx(expected(1 + 2 + 3 + 6 * 4, 0)));
  config.recompute = true;  // recomputed ops do not count as work
  CHECK(counted() == Approx(expected(1 + 2 + 3 + 6 * 4, 0)));
  config.window = 0, config.kv_heads = 1;
  CHECK(counted() == Approx(expected(9 * 10 / 2, 3 * 16 * 16)));
}

TEST_CASE("memory: a model beyond any machine is refused before anything is laid out") {
  TrainConfig config;
  config.layers = 4096, config.width = 1 << 16, config.heads = 1, config.context = 1 << 20, config.batch = 1 << 16;
  CHECK_THROWS_WITH(expect_memory(config, 1 << 24, DType::f32),
                    contains("model: expected one to train within the ") &&
                        contains("4096 layers, 65536 wide, context 1048576, batch 65536, "));
}

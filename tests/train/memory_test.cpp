// What training is said to take before it begins, against what it takes.
#include "train/model/memory.h"

#include "core/ops.h"
#include "support/catch.h"
#include "support/tensors.h"

using namespace tril;
using namespace tril::test;

namespace {

double bytes_taken(const GptConfig& config, int64_t batch, DType precision) {
  constexpr double kCopies = 4, kFloat = 4;  // weights, gradients, and the optimizer's two moments
  ParamStore store;
  const Gpt gpt(store, config);
  store.freeze();
  if (precision == DType::bf16) store.keep_shadow();
  GradStore gradients(store);
  Context context({.threads = 1, .precision = precision});
  for (int pass = 0; pass < 2; ++pass) {
    Tape tape(context);
    tape.bind(gradients.binding());
    const std::vector<int32_t> ids = random_ids(batch * config.context, static_cast<int32_t>(config.vocabulary), 1);
    const Shape shape = {batch, config.context};
    tape.backward(gpt.loss(tape.constant<int32_t>(shape, ids), tape.constant<int32_t>(shape, ids)));
  }
  return kCopies * kFloat * static_cast<double>(config.parameters()) + static_cast<double>(context.memory().bytes());
}

}  // namespace

TEST_CASE("memory: what training is said to take is within a quarter of what it takes") {
  const GptConfig deep{.vocabulary = 30, .context = 64, .layers = 12, .heads = 4, .width = 64};
  const GptConfig wide{.vocabulary = 30, .context = 64, .layers = 2, .heads = 2, .width = 32};
  for (const auto& [name, config, batch] : {std::tuple{"small inner layers", deep, 12}, {"large ones", wide, 512}})
    for (const bool recompute : {false, true})
      for (const DType precision : {DType::f32, DType::bf16}) {
        GptConfig asked = config;
        asked.recompute = recompute;
        INFO(cat(name, recompute ? ", recomputed, " : ", ", precision));
        const double said = training_bytes(asked, batch, precision), taken = bytes_taken(asked, batch, precision);
        INFO(cat("said ", said / 1e6, " MB, taken ", taken / 1e6, " MB"));
        CHECK(taken > 0.75 * said);
        CHECK(taken < 1.25 * said);
      }
}

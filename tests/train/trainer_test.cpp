#include "train/run/trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/catch.h"
#include "train/run/evaluate.h"
#include "train/temp_folder.h"
#include "train/tiny_model.h"

namespace tril::test {
namespace {

float* values_named(Model& model, std::string_view name) { return model.params->find(name)->value.ptr<float>(); }

void fill(Model& model, std::string_view name, float value) {
  const Tensor& tensor = model.params->find(name)->value;
  std::fill_n(tensor.ptr<float>(), tensor.count(), value);
}

std::string step_error(Tiny& tiny) {
  try {
    (void)tiny.trainer.step();
  } catch (const NonFiniteError& error) { return error.what(); }
  return {};
}

// The rule of evaluation by hand: each window alone, at its own length.
double mean_loss_by_hand(Tiny& tiny, int64_t begin, int64_t end) {
  const int64_t context = tiny.model.lm->context();
  double sum = 0;
  for (int64_t at = begin; at + 1 < end; at += context) {
    const int64_t length = std::min(context, end - 1 - at);
    std::vector<int32_t> inputs(static_cast<size_t>(length)), targets(inputs.size());
    tiny.data.tokens().copy(at, length, inputs.data());
    tiny.data.tokens().copy(at + 1, length, targets.data());
    Tape tape(tiny.context, Tape::Mode::evaluate);
    const Tensor loss =
        tiny.model.lm->loss(tape.constant<int32_t>({1, length}, inputs), tape.constant<int32_t>({1, length}, targets));
    sum += loss.item() * static_cast<double>(length);
  }
  return sum / static_cast<double>(end - begin - 1);
}

}  // namespace

TEST_CASE("trainer: learns a text that repeats as good as by heart") {
  TrainConfig config = tiny_config();
  config.steps = 200;
  std::string text;
  while (text.size() < 900) text += "abcdefgh\n";
  Tiny tiny(config, text);
  const double first = tiny.trainer.step().loss;
  CHECK(first == Approx(std::log(9.0)).epsilon(0.05));
  double last = first;
  while (tiny.trainer.steps_done() < config.steps) last = tiny.trainer.step().loss;
  CHECK(last < 0.05 * first);
}

TEST_CASE("trainer: says what it did") {
  Tiny tiny;
  const StepResult first = tiny.trainer.step(), second = tiny.trainer.step();
  CHECK(first.step == 1);
  CHECK(second.step == 2);
  CHECK(first.rate == Approx(1e-2 / 3));
  CHECK(second.rate == Approx(2e-2 / 3));
  CHECK(first.norm > 0);
  CHECK(tiny.trainer.steps_done() == 2);
  CHECK(tiny.trainer.tokens_a_step() == 4 * 8);
}

TEST_CASE("trainer: the same bits at any number of threads") {
  // Large enough for every op to share its work; with biases, dropout and an evaluation.
  TrainConfig config = tiny_config();
  config.layers = 2;
  config.heads = 4;
  config.width = 96;
  config.context = 70;
  config.batch = 9;
  config.dropout = 0.1;
  config.bias = true;
  const std::string text = tiny_text(6000);
  std::vector<float> weights;
  double loss = 0;
  for (const int threads : {1, 2, 3}) {
    INFO(threads << " threads");
    config.threads = threads;
    Tiny tiny(config, text);
    REQUIRE(tiny.context.threads() == threads);
    for (int i = 0; i < 3; ++i) (void)tiny.trainer.step();
    const auto evaluated =
        evaluate(tiny.context, *tiny.model.lm, tiny.data.validation(config.context), [] { return false; });
    if (threads == 1) {
      weights = tiny.weights();
      loss = evaluated.value();
    }
    CHECK((tiny.weights() == weights));
    CHECK(evaluated.value() == loss);
  }

  // From step to step, as --threads auto changes it.
  config.threads = 3;
  Tiny tiny(config, text);
  for (const int threads : {2, 1, 3}) {
    tiny.context.use_threads(threads);
    (void)tiny.trainer.step();
  }
  CHECK((tiny.weights() == weights));
}

TEST_CASE("trainer: accumulated batches equal the big one, with dropout") {
  TrainConfig whole = tiny_config(), parts = tiny_config();
  whole.dropout = parts.dropout = 0.3;
  whole.batch = 6;
  parts.batch = 2;
  parts.accumulate = 3;
  Tiny a(whole), b(parts);
  for (int i = 0; i < 4; ++i) {
    INFO("step " << i + 1);
    const StepResult ra = a.trainer.step(), rb = b.trainer.step();
    CHECK(ra.loss == Approx(rb.loss).epsilon(1e-6));
    CHECK(ra.norm == Approx(rb.norm).epsilon(1e-5));
  }
  CHECK(difference(a.weights(), b.weights()) < 2e-5);
}

TEST_CASE("trainer: a step of more samples than random numbers tell apart is refused at once") {
  TrainConfig config = tiny_config();
  config.batch = int64_t{1} << 17;
  config.accumulate = (int64_t{1} << 15) + 1;
  CHECK_THROWS_WITH(Tiny(config),
                    contains("accumulate: expected 1 or more, and batch x accumulate of at most 4294967296, "
                             "got batch 131072 and accumulate 32769"));
}

TEST_CASE("trainer: other seeds, other batches and other dropout") {
  TrainConfig config = tiny_config();
  config.dropout = 0.3;
  Tiny a(config), same(config);
  config.seed = 2;
  Tiny other(config);
  CHECK(a.trainer.step().loss == same.trainer.step().loss);
  CHECK(a.trainer.step().loss != other.trainer.step().loss);
}

TEST_CASE("trainer: a step stopped between micro-batches changes nothing") {
  TrainConfig config = tiny_config();
  config.dropout = 0.2;
  config.accumulate = 3;
  Tiny straight(config), stopped(config);
  for (int i = 0; i < 2; ++i) {
    (void)straight.trainer.step();
    (void)stopped.trainer.step();
  }
  const std::vector<float> before = stopped.weights();
  for (int allowed = 0; allowed < 3; ++allowed) {
    int left = allowed;
    CHECK_FALSE(stopped.trainer.step([&] { return left-- == 0; }).has_value());
    CHECK(stopped.trainer.steps_done() == 2);
    CHECK(same_bits(stopped.weights(), before));
  }
  CHECK(straight.trainer.step().loss == stopped.trainer.step().loss);
  CHECK(same_bits(straight.weights(), stopped.weights()));
  CHECK(same_bits(straight.mean(), stopped.mean()));
  CHECK(same_bits(straight.square(), stopped.square()));
}

TEST_CASE("trainer: asks the system for nothing after the first steps") {
  TrainConfig config = tiny_config();
  config.dropout = 0.1;
  config.accumulate = 2;
  Tiny tiny(config);
  for (int i = 0; i < 3; ++i) (void)tiny.trainer.step();
  const int64_t before = tiny.context.allocations();
  for (int i = 0; i < 3; ++i) (void)tiny.trainer.step();
  CHECK(tiny.context.allocations() == before);
}

TEST_CASE("trainer: a loss that is not finite stops it, naming the step and the first op, and nothing is changed") {
  Tiny tiny;
  (void)tiny.trainer.step();
  values_named(tiny.model, "transformer.h.0.mlp.c_fc.weight")[3] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> before = tiny.weights(), mean = tiny.mean();
  CHECK_THAT(step_error(tiny), contains("step 2: expected a finite loss, got nan, first in linear -> f32 (4, 8, 32)"));
  CHECK(same_bits(tiny.weights(), before));
  CHECK(same_bits(tiny.mean(), mean));
  CHECK(tiny.trainer.steps_done() == 1);
  CHECK(std::isnan(*evaluate(tiny.context, *tiny.model.lm, tiny.data.validation(8), never)));  // the context is free
  CHECK_THAT(error_of([&] { expect_finite(*tiny.model.params); }),
             contains("first in transformer.h.0.mlp.c_fc.weight"));
}

TEST_CASE("trainer: a gradient that is not finite stops it, naming the step and the first parameter") {
  TrainConfig config = tiny_config();
  config.batch = 1;
  Tiny tiny(config);
  // The MLP gives 0 whatever its second layer holds, but the gradient that flows back through that layer overflows.
  fill(tiny.model, "transformer.h.0.mlp.c_fc.weight", 0.0f);
  std::fill_n(values_named(tiny.model, "transformer.h.0.mlp.c_proj.weight"), 32, 3e38f);
  fill(tiny.model, "transformer.ln_f.weight", 1e5f);
  const std::vector<float> before = tiny.weights();
  CHECK_THAT(step_error(tiny), contains("step 1: expected a finite gradient, got "));
  CHECK_THAT(step_error(tiny), contains("first in transformer."));
  CHECK(same_bits(tiny.weights(), before));
}

TEST_CASE("evaluation: equals the mean by hand, whatever is left for the last window") {
  for (const size_t size : {100u, 101u, 105u, 113u, 180u, 5000u}) {
    TrainConfig config = tiny_config();
    config.val_fraction = 0.5;
    Tiny tiny(config, tiny_text(size));
    for (int i = 0; i < 5; ++i) (void)tiny.trainer.step();
    const double expected = mean_loss_by_hand(tiny, tiny.data.train_size(), tiny.data.tokens().size());
    const EvalWindows windows = tiny.data.validation(config.context);
    CHECK(*evaluate(tiny.context, *tiny.model.lm, windows, never) == Approx(expected).epsilon(1e-6));
  }
}

TEST_CASE("evaluation: the batch size of training does not matter") {
  std::vector<double> losses;
  for (const int64_t batch : {1, 5, 64}) {
    TrainConfig config = tiny_config();
    config.batch = batch;
    Tiny tiny(config, tiny_text(2000));
    const Model fresh = make_model(tiny_config(), tiny.model.tokenizer);
    losses.push_back(*evaluate(tiny.context, *fresh.lm, tiny.data.validation(config.context), never));
  }
  CHECK(losses[0] == losses[1]);
  CHECK(losses[0] == losses[2]);
}

TEST_CASE("evaluation: training goes on as if it had not been") {
  TrainConfig config = tiny_config();
  config.dropout = 0.3;
  Tiny plain(config), watched(config);
  for (int i = 0; i < 8; ++i) {
    const double loss = plain.trainer.step().loss;
    CHECK(loss == watched.trainer.step().loss);
    CHECK(std::isfinite(*evaluate(watched.context, *watched.model.lm, watched.data.validation(8), never)));
  }
  CHECK(same_bits(plain.weights(), watched.weights()));
  CHECK(same_bits(plain.mean(), watched.mean()));
  CHECK(same_bits(plain.square(), watched.square()));
}

TEST_CASE("evaluation: windows of another context are refused") {
  Tiny tiny;
  for (const int64_t context : {7, 9})
    CHECK_THAT(error_of([&] { (void)evaluate(tiny.context, *tiny.model.lm, tiny.data.validation(context), never); }),
               contains("evaluate: expected windows of the model's context, 8, got " + std::to_string(context)));
}

TEST_CASE("evaluation: stops when asked to") {
  Tiny tiny(tiny_config(), tiny_text(60'000));
  int passes = 0;
  const auto third = [&] { return ++passes == 3; };
  CHECK_FALSE(evaluate(tiny.context, *tiny.model.lm, tiny.data.validation(8), third).has_value());
  CHECK(passes == 3);
  CHECK(std::isfinite(tiny.trainer.step().loss));
}

}  // namespace tril::test

#include "nn/gpt.h"

#include "support/catch.h"
#include "support/tensors.h"
#include "train/run/adamw.h"

namespace tril::test {
namespace {

struct Model {
  explicit Model(const GptConfig& config, DType dtype = DType::f32, double stronger = 1.0)
      : store(dtype, 1), gpt(store, config) {
    store.freeze();
    // Initial weights are so small that nothing depends on much; stronger ones show what does.
    for (const ParamInfo& param : store.params())
      if (param.decays())
        dispatch("test", dtype, [&](auto type) {
          for (int64_t i = 0; i < param.value.count(); ++i)
            param.value.ptr<decltype(type)>()[i] *= static_cast<decltype(type)>(stronger);
        });
  }
  ParamStore store;
  Gpt gpt;
};

constexpr GptConfig kTiny{.vocabulary = 16, .context = 12, .layers = 2, .heads = 2, .width = 16};

std::vector<float> logits_of(const Model& model, const std::vector<int32_t>& ids, int64_t batch) {
  Context context;
  Tape tape(context, Tape::Mode::evaluate);
  return values_of<float>(model.gpt(tape.constant<int32_t>({batch, static_cast<int64_t>(ids.size()) / batch}, ids)));
}

// All gradients of the mean loss over 4 samples, in batches of `rows` one after the other; the first sample has
// `ignored` targets that do not count.
std::vector<double> accumulated_gradients(int64_t rows, double dropout, int64_t ignored) {
  GptConfig config = kTiny;
  config.dropout = dropout;
  const Model model(config, DType::f64, 10.0);
  GradStore gradients(model.store);
  Context context({.seed = 5});
  Tape tape(context);
  tape.bind(gradients.binding());
  const int64_t time = config.context;
  const std::vector<int32_t> ids = random_ids(4 * time, 16, 1);
  std::vector<int32_t> targets = random_ids(4 * time, 16, 2);
  std::fill_n(targets.begin(), ignored, -1);
  for (int64_t first = 0; first < 4; first += rows) {
    tape.reset();
    context.set_step(3, first);
    const auto part = [&](const std::vector<int32_t>& all) {
      return tape.constant<int32_t>(
          {rows, time}, std::span(all).subspan(static_cast<size_t>(first * time), static_cast<size_t>(rows * time)));
    };
    // The sum over a micro-batch divided by the whole batch's targets: a mean of means would weigh unequal ones
    // wrongly.
    const Tensor total = model.gpt.loss(part(ids), part(targets), {.reduction = Reduction::sum});
    tape.backward(scale(total, 1.0 / static_cast<double>(4 * time - ignored)));
  }
  const auto* const flat = reinterpret_cast<const double*>(gradients.data());
  return {flat, flat + model.store.elements()};
}

}  // namespace

TEST_CASE("Gpt: has nanoGPT's number of parameters, without the characters' rows counted twice") {
  const auto count = [](const GptConfig& config) {
    ParamStore store;
    const Gpt gpt(store, config);
    return store.count();
  };
  CHECK(count({.vocabulary = 65, .context = 256, .layers = 6, .heads = 6, .width = 384}) == 10'745'088);
  const int64_t V = 17, T = 5, L = 3, C = 8;
  const GptConfig config{.vocabulary = V, .context = T, .layers = L, .heads = 2, .width = C};
  GptConfig biased = config, shared = config;
  biased.bias = true;
  shared.kv_heads = 1;
  const int64_t plain = (V + T) * C + L * (12 * C * C + 2 * C) + C;
  CHECK(count(config) == plain);
  CHECK(count(biased) == plain + L * (9 * C + 2 * C) + C);
  CHECK(count(shared) == plain - L * C * C);
}

TEST_CASE("Gpt: a change of a token moves no bit of any logits before it") {
  const Model model(kTiny, DType::f32, 10.0);
  const std::vector<int32_t> ids = random_ids(12, 16, 1);
  const std::vector<float> logits = logits_of(model, ids, 1);
  for (int64_t t = 1; t < 12; ++t) {
    INFO("changed from " << t);
    std::vector<int32_t> changed = ids;
    for (size_t i = static_cast<size_t>(t); i < 12; ++i) changed[i] = 15 - changed[i];
    const std::vector<float> moved = logits_of(model, changed, 1);
    const int64_t past = t * 16;
    CHECK(std::memcmp(logits.data(), moved.data(), static_cast<size_t>(past) * sizeof(float)) == 0);
    CHECK(difference(std::vector<float>(logits.begin() + past, logits.begin() + past + 16),
                     std::vector<float>(moved.begin() + past, moved.begin() + past + 16)) > 1e-3);
  }
}

TEST_CASE("Gpt: the first token still counts at the last position") {
  const Model model(kTiny, DType::f32, 10.0);
  std::vector<int32_t> ids = random_ids(12, 16, 1);
  const std::vector<float> logits = logits_of(model, ids, 1);
  ids[0] = 15 - ids[0];
  const std::vector<float> moved = logits_of(model, ids, 1);
  CHECK(difference(std::vector<float>(logits.end() - 16, logits.end()),
                   std::vector<float>(moved.end() - 16, moved.end())) > 1e-4);
}

TEST_CASE("Gpt: samples of a batch do not see one another") {
  const Model model(kTiny, DType::f32, 10.0);
  const std::vector<int32_t> first = random_ids(12, 16, 1), second = random_ids(12, 16, 2);
  std::vector<int32_t> both = first;
  both.insert(both.end(), second.begin(), second.end());
  const std::vector<float> together = logits_of(model, both, 2);
  const auto middle = together.begin() + static_cast<int64_t>(together.size()) / 2;
  CHECK(difference(std::vector<float>(together.begin(), middle), logits_of(model, first, 1)) < 1e-5);
  CHECK(difference(std::vector<float>(middle, together.end()), logits_of(model, second, 1)) < 1e-5);
}

TEST_CASE("Gpt: an untrained model is as uncertain as can be") {
  const Model model(kTiny);
  Context context;
  Tape tape(context, Tape::Mode::evaluate);
  const Tensor ids = tape.constant<int32_t>({8, 12}, random_ids(96, 16, 1)),
               targets = tape.constant<int32_t>({8, 12}, random_ids(96, 16, 2));
  CHECK(std::abs(model.gpt.loss(ids, targets).item() - std::log(16.0)) < 0.02);
}

TEST_CASE("Gpt: gradients accumulated over parts of a batch equal the whole batch's") {
  for (const double dropout : {0.0, 0.3})
    for (const int64_t ignored : {0, 11}) {  // nanochat#59: parts with unequal numbers of targets
      INFO("dropout " << dropout << ", ignored " << ignored);
      const std::vector<double> whole = accumulated_gradients(4, dropout, ignored);
      CHECK(difference(whole, accumulated_gradients(2, dropout, ignored)) < 1e-12);
      CHECK(difference(whole, accumulated_gradients(1, dropout, ignored)) < 1e-12);
      CHECK(difference(whole, std::vector<double>(whole.size(), 0.0)) > 1e-3);
    }
}

TEST_CASE("Gpt: recomputed blocks give the same bits in less memory") {
  std::vector<double> losses;
  std::vector<std::vector<float>> gradients;
  std::vector<int64_t> bytes;
  for (const DType precision : {DType::f32, DType::bf16})
    for (const bool recompute : {false, true}) {
      const GptConfig config{.vocabulary = 16,
                             .context = 32,
                             .layers = 12,
                             .heads = 4,
                             .width = 64,
                             .dropout = 0.2,
                             .bias = true,
                             .recompute = recompute};
      const Model model(config, DType::f32, 5.0);
      GradStore store(model.store);
      Context context({.threads = 2, .seed = 5, .precision = precision});
      Tape tape(context);
      tape.bind(store.binding());
      const std::vector<int32_t> ids = random_ids(32 * 32, 16, 1), targets = random_ids(32 * 32, 16, 2);
      for (int pass = 0; pass < 3; ++pass) {
        tape.reset();
        store.reset();
        const Tensor loss =
            model.gpt.loss(tape.constant<int32_t>({32, 32}, ids), tape.constant<int32_t>({32, 32}, targets));
        tape.backward(loss);
        if (pass == 2) losses.push_back(loss.item());
      }
      const auto* const flat = reinterpret_cast<const float*>(store.data());
      gradients.emplace_back(flat, flat + model.store.elements());
      bytes.push_back(context.memory().bytes());
    }
  for (const size_t i : {size_t{0}, size_t{2}}) {
    INFO(bytes[0] << " " << bytes[1] << " " << bytes[2] << " " << bytes[3]);
    CHECK(losses[i] == losses[i + 1]);
    CHECK((gradients[i] == gradients[i + 1]));
    CHECK(2 * bytes[i + 1] < bytes[i]);
  }
}

TEST_CASE("Gpt: dropout draws other numbers in every step and the same ones in the same step") {
  GptConfig config = kTiny;
  config.dropout = 0.3;
  const Model model(config, DType::f32, 10.0);
  Context context;
  Tape tape(context);
  const auto loss = [&](int64_t step) {
    tape.reset();
    context.set_step(step);
    return model.gpt
        .loss(tape.constant<int32_t>({1, 12}, random_ids(12, 16, 1)),
              tape.constant<int32_t>({1, 12}, random_ids(12, 16, 2)))
        .item();
  };
  const double first = loss(0);
  CHECK(loss(1) != first);
  CHECK(loss(0) == first);
}

TEST_CASE("Gpt: random tokens cannot be learned, on fresh ones the loss stays at ln V") {  // transformers#48745
  Model model(kTiny);
  GradStore gradients(model.store);
  AdamW optimizer(model.store, {.beta2 = 0.99});
  Context context;
  Tape tape(context);
  tape.bind(gradients.binding());
  const int64_t batch = 8, time = kTiny.context;
  double recent = 0.0;
  for (uint64_t step = 0; step < 300; ++step) {
    tape.reset();
    gradients.reset();
    // A model that saw the future would only have to copy its input: targets are the tokens one place on.
    const std::vector<int32_t> tokens = random_ids(batch * (time + 1), 16, step);
    std::vector<int32_t> ids, targets;
    for (int64_t row = 0; row < batch; ++row) {
      const auto first = tokens.begin() + row * (time + 1);
      ids.insert(ids.end(), first, first + time);
      targets.insert(targets.end(), first + 1, first + time + 1);
    }
    const Tensor loss =
        model.gpt.loss(tape.constant<int32_t>({batch, time}, ids), tape.constant<int32_t>({batch, time}, targets));
    if (step >= 250) recent += loss.item() / 50.0;
    tape.backward(loss);
    optimizer.update(gradients, 1e-2, 1.0, context.threads());
  }
  INFO("mean loss of the last 50 fresh batches " << recent << ", ln 16 = 2.773");
  CHECK(recent >= 2.70);
  CHECK(recent < 2.95);
}

TEST_CASE("Gpt: any length up to the context works and a longer one is refused with both numbers") {
  const Model model(kTiny);
  Context context;
  Tape tape(context);
  for (const int64_t time : {0, 1, 5, 12})
    CHECK(model.gpt(tape.constant<int32_t>({1, time}, random_ids(time, 16, 1))).shape == Shape{1, time, 16});
  REQUIRE_THROWS_WITH(model.gpt(tape.constant<int32_t>({1, 13}, random_ids(13, 16, 1))),
                      contains("gpt: expected ids (B, T) with T at most the context 12, got shape (1, 13)"));
  REQUIRE_THROWS_WITH(model.gpt(tape.constant<int32_t>({12}, random_ids(12, 16, 1))), contains("got shape (12)"));
  REQUIRE_THROWS_WITH(model.gpt(tape.constant<int32_t>({1, 1}, {16})), contains("embedding: ") && contains("16"));
}

TEST_CASE("GptConfig: what cannot be made is refused at once with the field and both numbers") {
  const auto refused = [](auto change, const std::string& text) {
    GptConfig config = kTiny;
    change(config);
    ParamStore store;
    REQUIRE_THROWS_WITH(Gpt(store, config), contains(text));
    CHECK(store.params().empty());
  };
  refused([](GptConfig& c) { c.width = 128, c.heads = 3; },
          "heads: expected a number that divides the width 128, got 3");
  refused([](GptConfig& c) { c.width = 4, c.heads = 8; }, "heads: expected a number that divides the width 4, got 8");
  refused([](GptConfig& c) { c.heads = 0; }, "heads: expected 1 to 65536, got 0");
  refused([](GptConfig& c) { c.heads = -2; }, "heads: expected 1 to 65536, got -2");
  refused([](GptConfig& c) { c.layers = 0; }, "layers: expected 1 to 4096, got 0");
  refused([](GptConfig& c) { c.layers = 1'000'000; }, "layers: expected 1 to 4096, got 1000000");
  refused([](GptConfig& c) { c.width = 100'000'000; }, "width: expected 1 to 65536, got 100000000");
  refused([](GptConfig& c) { c.width = std::numeric_limits<int64_t>::max(); }, "width: expected 1 to 65536");
  refused([](GptConfig& c) { c.context = 0; }, "context: expected 1 to 1048576, got 0");
  refused([](GptConfig& c) { c.vocabulary = 0; }, "vocabulary: expected 1 to 16777216, got 0");
  refused([](GptConfig& c) { c.dropout = 1.0; }, "dropout: expected 0 <= dropout < 1, got 1");
  refused([](GptConfig& c) { c.dropout = std::nan(""); }, "dropout: expected 0 <= dropout < 1, got");
}

TEST_CASE("GptConfig: the largest that passes the checks is counted without overflow") {
  const GptConfig config{.vocabulary = 1 << 24, .context = 1 << 20, .layers = 4096, .heads = 1, .width = 1 << 16};
  ParamStore store;
  const Gpt gpt(store, config);
  CHECK(store.count() == (int64_t{17} << 36) + 4096 * ((int64_t{12} << 32) + 2 * 65536) + 65536);
}

TEST_CASE("ParamStore: a model larger than any machine's memory is refused and not tried") {
  ParamStore store;
  const Gpt gpt(store, {.vocabulary = 1 << 24, .context = 1 << 20, .layers = 16, .heads = 1, .width = 1 << 16});
  REQUIRE_THROWS_WITH(store.freeze(), contains("memory: expected ") && contains(" MiB more"));
}

}  // namespace tril::test

// Mixed precision: a model whose products read bf16 beside the same model in f64.
#include <cmath>

#include "nn/gpt.h"
#include "support/catch.h"
#include "support/tensors.h"

namespace tril::test {
namespace {

constexpr GptConfig kConfig{.vocabulary = 19, .context = 12, .layers = 2, .heads = 2, .width = 32, .bias = true};

// The same weights in two stores, f32 and f64, that bf16 does not hold exactly.
template <class T>
struct Model {
  explicit Model(const GptConfig& config) : store(kDTypeOf<T>, 3), gpt(store, config) {
    store.freeze();
    for (const ParamInfo& param : store.params())
      for (int64_t i = 0; param.decays() && i < param.value.count(); ++i) param.value.ptr<T>()[i] *= T{5};
  }
  ParamStore store;
  Gpt gpt;
};

struct Pass {
  double loss = 0;
  std::vector<std::vector<double>> gradients;  // one a parameter
};

template <class T>
Pass run(const Model<T>& model, DType precision) {
  Context context({.threads = 2, .seed = 9, .precision = precision});
  GradStore gradients(model.store);
  Tape tape(context);
  tape.bind(gradients.binding());
  const std::vector<int32_t> ids = random_ids(60, 19, 1), targets = random_ids(60, 19, 2);
  const Tensor loss = model.gpt.loss(tape.constant<int32_t>({5, 12}, ids), tape.constant<int32_t>({5, 12}, targets));
  tape.backward(loss);
  Pass pass{loss.item(), {}};
  for (const ParamInfo& param : model.store.params()) {
    const auto values = values_of<T>(gradients.of(param));
    pass.gradients.emplace_back(values.begin(), values.end());
  }
  return pass;
}

double norm(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum);
}

}  // namespace

TEST_CASE("precision: in bf16 the loss and every gradient are near f64's") {
  for (const double dropout : {0.0, 0.2}) {
    GptConfig config = kConfig;
    config.dropout = dropout;
    Model<float> model(config);
    model.store.keep_shadow();
    const Pass exact = run(Model<double>(config), DType::f32), mixed = run(model, DType::bf16);
    CHECK(mixed.loss == Approx(exact.loss).epsilon(2e-3));
    CHECK(mixed.loss != exact.loss);
    for (size_t i = 0; i < exact.gradients.size(); ++i) {
      std::vector<double> off = exact.gradients[i];
      for (size_t j = 0; j < off.size(); ++j) off[j] -= mixed.gradients[i][j];
      INFO(model.store.params()[i].name);
      CHECK(norm(off) < 0.02 * norm(exact.gradients[i]));
    }
  }
}

TEST_CASE("precision: weights with a shadow and without give the same bits") {
  Model<float> plain(kConfig), shadowed(kConfig);
  shadowed.store.keep_shadow();
  const Pass expected = run(plain, DType::bf16), got = run(shadowed, DType::bf16);
  CHECK(got.loss == expected.loss);
  CHECK((got.gradients == expected.gradients));
}

TEST_CASE("precision: products read the shadow, and nothing else does") {
  Model<float> model(kConfig);
  model.store.keep_shadow();
  const Pass before = run(model, DType::bf16), in_f32 = run(model, DType::f32);
  const ParamInfo& weight = *model.store.find("transformer.h.0.mlp.c_fc.weight");
  model.store.shadow()[model.store.offset(weight)] = bf16(3.0f);
  CHECK(run(model, DType::bf16).loss != before.loss);
  CHECK(run(model, DType::f32).loss == in_f32.loss);
}

TEST_CASE("precision: what stays f32 and what becomes bf16") {
  Model<float> model(kConfig);
  Context context({.threads = 1, .precision = DType::bf16});
  Tape tape(context, Tape::Mode::evaluate);
  const std::vector<int32_t> ids = random_ids(12, 19, 1);
  const Tensor logits = model.gpt(tape.constant<int32_t>({1, 12}, ids));
  CHECK(logits.dtype == DType::bf16);
  CHECK(cross_entropy(logits, tape.constant<int32_t>({1, 12}, ids)).dtype == DType::f32);
}

TEST_CASE("precision: a gradient has no shadow") {
  Model<float> model(kConfig);
  model.store.keep_shadow();
  GradStore gradients(model.store);
  Context context({.threads = 1, .precision = DType::bf16});
  Tape tape(context);
  tape.bind(gradients.binding());
  const Tensor weight = model.store.find("transformer.wte.weight")->value;
  tape.backward(sum(weight * tape.constant<float>({}, {1.0f})), {.allow_unused = true});
  CHECK(weight.shadow != nullptr);
  CHECK(tape.gradient(weight).shadow == nullptr);
  CHECK(gradients.of(model.store.params()[0]).shadow == nullptr);
}

TEST_CASE("precision: wrong types are named") {
  Context context({.threads = 1});
  Tape tape(context);
  const std::vector<bf16> numbers(8, bf16(1.0f));
  const Tensor x = tape.variable<bf16>({2, 4}, numbers);
  CHECK_THROWS_WITH(linear(x, x), contains("linear: expected weight of f32 for x of bf16, got bf16"));
  const Tensor exact = tape.variable<double>({2, 4}, std::vector<double>(8, 1.0));
  CHECK_THROWS_WITH(add_layer_norm(exact, x, exact), contains("add_layer_norm: expected y of f64"));
  CHECK_THROWS_WITH(x + x, contains("add: expected a of f32 or f64, got bf16"));
  CHECK_THROWS_WITH(Context({.precision = DType::f64}), contains("precision: expected f32 or bf16, got f64"));
  ParamStore store(DType::f64, 1);
  CHECK_THROWS_WITH(store.keep_shadow(), contains("keep_shadow: expected a store whose parameters have their values"));
  store.add("w", {2}, Init::zeros());
  store.freeze();
  CHECK_THROWS_WITH(store.keep_shadow(), contains("keep_shadow: expected a store of f32, got one of f64 with w"));
}

}  // namespace tril::test

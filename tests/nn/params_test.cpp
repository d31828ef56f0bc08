#include "nn/params.h"

#include <algorithm>

#include "nn/gpt.h"
#include "support/catch.h"
#include "support/tensors.h"

namespace tril::test {

TEST_CASE("params: a model's names and shapes are those of GPT-2 and nanoGPT") {
  ParamStore store;
  const Gpt gpt(store, {.vocabulary = 7, .context = 5, .layers = 1, .heads = 2, .width = 4, .bias = true});
  const std::vector<std::pair<std::string, Shape>> expected = {{"transformer.wte.weight", {7, 4}},
                                                               {"transformer.wpe.weight", {5, 4}},
                                                               {"transformer.h.0.ln_1.weight", {4}},
                                                               {"transformer.h.0.ln_1.bias", {4}},
                                                               {"transformer.h.0.attn.c_attn.weight", {12, 4}},
                                                               {"transformer.h.0.attn.c_attn.bias", {12}},
                                                               {"transformer.h.0.attn.c_proj.weight", {4, 4}},
                                                               {"transformer.h.0.attn.c_proj.bias", {4}},
                                                               {"transformer.h.0.ln_2.weight", {4}},
                                                               {"transformer.h.0.ln_2.bias", {4}},
                                                               {"transformer.h.0.mlp.c_fc.weight", {16, 4}},
                                                               {"transformer.h.0.mlp.c_fc.bias", {16}},
                                                               {"transformer.h.0.mlp.c_proj.weight", {4, 16}},
                                                               {"transformer.h.0.mlp.c_proj.bias", {4}},
                                                               {"transformer.ln_f.weight", {4}},
                                                               {"transformer.ln_f.bias", {4}}};
  REQUIRE(store.params().size() == expected.size());
  for (const auto& [name, shape] : expected) {
    INFO(name);
    const ParamInfo* const param = store.find(name);
    REQUIRE(param != nullptr);
    CHECK(param->value.shape == shape);
  }
  CHECK(store.find("lm_head.weight") == nullptr);  // tied: it is transformer.wte.weight
}

TEST_CASE("params: initial values depend on the seed and the name and not on the order of making") {
  const auto make = [](ParamStore& store, std::vector<std::string> names) {
    for (const std::string& name : names) store.add(name, {3, 5}, Init::normal(1.0));
    store.freeze();
  };
  const auto values = [](const ParamStore& store, const char* name) {
    return values_of<float>(store.find(name)->value);
  };
  ParamStore store(DType::f32, 7), reordered(DType::f32, 7), reseeded(DType::f32, 8);
  make(store, {"a", "b", "c"});
  make(reordered, {"c", "other", "a"});
  make(reseeded, {"a", "b", "c"});
  CHECK(same_bits(values(store, "a"), values(reordered, "a")));
  CHECK(same_bits(values(store, "c"), values(reordered, "c")));
  CHECK(difference(values(store, "a"), values(store, "c")) > 0.1);
  CHECK(difference(values(store, "a"), values(reseeded, "a")) > 0.1);
}

TEST_CASE("params: f32 values are the f64 ones rounded") {
  ParamStore narrow(DType::f32), wide(DType::f64);
  for (ParamStore* store : {&narrow, &wide}) {
    store->add("w", {40}, Init::normal(0.02));
    store->freeze();
  }
  const std::vector<double> exact = values_of<double>(wide.find("w")->value);
  CHECK(same_bits(values_of<float>(narrow.find("w")->value), std::vector<float>(exact.begin(), exact.end())));
}

TEST_CASE("params: constant starts are exact") {
  ParamStore store;
  store.add("ones", {3}, Init::ones());
  store.add("zeros", {3}, Init::zeros());
  store.freeze();
  CHECK(values_of<float>(store.find("ones")->value) == std::vector<float>(3, 1.0f));
  CHECK(values_of<float>(store.find("zeros")->value) == std::vector<float>(3, 0.0f));
}

TEST_CASE("params: a name that is taken is refused by name") {
  ParamStore store;
  const Linear first(Scope(store) / "layer", 2, 3);
  REQUIRE_THROWS_WITH(Linear(Scope(store) / "layer", 2, 3), contains("layer.weight: expected a name of its own"));
  CHECK_NOTHROW(Linear(Scope(store) / "another", 2, 3));
}

TEST_CASE("params: a frozen store grows no more") {
  ParamStore store;
  store.add("w", {2}, Init::zeros());
  store.freeze();
  CHECK(store.frozen());
  REQUIRE_THROWS_WITH(store.add("late", {2}, Init::zeros()), contains("late: expected a store that still grows"));
  REQUIRE_THROWS_WITH(store.freeze(), contains("freeze() once"));
}

TEST_CASE("params: a module called before the store is frozen throws and names the parameter") {
  ParamStore store;
  const Linear layer(Scope(store) / "layer", 2, 3, false);
  Context context;
  Tape tape(context);
  const Tensor x = tape.constant<float>({1, 2}, {1.0f, 2.0f});
  REQUIRE_THROWS_WITH(layer(x), contains("layer.weight") && contains("freeze()"));
  REQUIRE_THROWS_WITH(GradStore(store), contains("freeze()"));
  store.freeze();
  CHECK(layer(x).shape == Shape{1, 3});
}

TEST_CASE("params: stores of element types that cannot be trained are refused") {
  for (const DType dtype : {DType::i32, DType::bf16})
    REQUIRE_THROWS_WITH(ParamStore(dtype), contains("expected f32 or f64, got " + std::string(name_of(dtype))));
}

TEST_CASE("params: a parameter of another store than the bound one is refused") {
  ParamStore mine, other;
  const Linear bound(Scope(mine) / "bound", 2, 2), stranger(Scope(other) / "stranger", 2, 2);
  mine.freeze();
  other.freeze();
  GradStore gradients(mine);
  Context context;
  Tape tape(context);
  tape.bind(gradients.binding());
  const Tensor x = tape.constant<float>({1, 2}, {1.0f, 2.0f});
  CHECK_NOTHROW(bound(x));
  REQUIRE_THROWS_WITH(stranger(x), contains("linear: expected a parameter of the store that is bound to the tape"));
}

TEST_CASE("params: each starts on a line of 64 bytes and the padding between is zero and stays zero") {
  ParamStore store(DType::f32, 3);
  const Linear layer(Scope(store), 3, 5);
  store.freeze();
  GradStore gradients(store);
  std::vector<bool> padding(static_cast<size_t>(store.elements()), true);
  for (const ParamInfo& param : store.params()) {
    CHECK(store.offset(param) * 4 % 64 == 0);
    CHECK(static_cast<void*>(store.data() + store.offset(param) * 4) == param.value.data);
    for (int64_t i = 0; i < param.value.count(); ++i) padding[static_cast<size_t>(store.offset(param) + i)] = false;
  }
  CHECK(store.count() == 3 * 5 + 5);
  CHECK(store.elements() == 32);
  Context context;
  Tape tape(context);
  tape.bind(gradients.binding());
  tape.backward(sum(layer(tape.constant<float>({1, 3}, {1.0f, 2.0f, 3.0f}))));
  const auto* const values = reinterpret_cast<const float*>(store.data());
  const auto* const slopes = reinterpret_cast<const float*>(gradients.data());
  for (size_t i = 0; i < padding.size(); ++i) {
    INFO(i);
    if (padding[i]) CHECK((values[i] == 0.0f && slopes[i] == 0.0f));
  }
}

TEST_CASE("params: tied weights are one Param whose gradient is the sum of its uses") {
  const auto ids = random_ids(6, 5, 1);
  // Tied: the head reads the embedding's own rows. Untied: two parameters of equal values.
  const auto gradients_of = [&](bool tied) {
    ParamStore store(DType::f64, 1);
    const Embedding in(Scope(store) / "in", 5, 4);
    const Param out = tied ? in.weight : Scope(store).param("out", {5, 4}, Init::zeros());
    store.freeze();
    if (!tied) std::copy_n(in.weight.info().value.ptr<double>(), 20, out.info().value.ptr<double>());
    GradStore gradients(store);
    Context context;
    Tape tape(context);
    tape.bind(gradients.binding());
    tape.backward(cross_entropy(linear(in(tape.constant<int32_t>({6}, ids)), out), tape.constant<int32_t>({6}, ids)));
    std::vector<std::vector<double>> all;
    for (const ParamInfo& param : store.params()) all.push_back(values_of<double>(gradients.of(param)));
    return all;
  };
  const auto tied = gradients_of(true), untied = gradients_of(false);
  REQUIRE(tied.size() == 1);
  REQUIRE(untied.size() == 2);
  std::vector<double> total = untied[0];
  for (size_t i = 0; i < total.size(); ++i) total[i] += untied[1][i];
  CHECK(difference(tied[0], total) < 1e-15);
}

TEST_CASE("params: gradients add up until the store of gradients is reset") {
  ParamStore store(DType::f64, 1);
  const Linear layer(Scope(store), 2, 1, false);
  store.freeze();
  GradStore gradients(store);
  Context context;
  Tape tape(context);
  tape.bind(gradients.binding());
  const auto pass = [&] {
    tape.reset();
    tape.backward(sum(layer(tape.constant<double>({1, 2}, {3.0, 4.0}))));
    return values_of<double>(gradients.of(store.params()[0]));
  };
  CHECK_FALSE(gradients.received(store.params()[0]));
  CHECK(pass() == std::vector<double>{3.0, 4.0});
  CHECK(gradients.received(store.params()[0]));
  CHECK(pass() == std::vector<double>{6.0, 8.0});
  gradients.reset();
  CHECK_FALSE(gradients.received(store.params()[0]));
  CHECK(pass() == std::vector<double>{3.0, 4.0});
}

TEST_CASE("params: a parameter that received no gradient is named unless that is allowed") {
  ParamStore store;
  const Linear used(Scope(store) / "used", 2, 2, false), unused(Scope(store) / "unused", 2, 2, false);
  store.freeze();
  GradStore gradients(store);
  Context context;
  Tape tape(context);
  tape.bind(gradients.binding());
  const Tensor loss = sum(used(tape.constant<float>({1, 2}, {1.0f, 2.0f})));
  REQUIRE_THROWS_WITH(tape.backward(loss), contains("none for unused.weight"));
  tape.reset();
  gradients.reset();
  // What an earlier step left in the buffer is not a gradient of this step.
  for (const ParamInfo& param : store.params()) std::fill_n(gradients.of(param).ptr<float>(), 4, 7.0f);
  CHECK_NOTHROW(tape.backward(sum(used(tape.constant<float>({1, 2}, {1.0f, 2.0f}))), {.allow_unused = true}));
  CHECK(values_of<float>(gradients.of(store.params()[0])) == std::vector<float>{1, 2, 1, 2});
  CHECK(values_of<float>(gradients.of(store.params()[1])) == std::vector<float>{0, 0, 0, 0});
}

TEST_CASE("params: matrices decay and biases and norms do not") {
  ParamStore store;
  const Linear layer(Scope(store) / "layer", 2, 2);
  const LayerNorm norm(Scope(store) / "norm", 2);
  CHECK(layer.weight.info().decays());
  CHECK_FALSE(layer.bias.info().decays());
  CHECK_FALSE(norm.weight.info().decays());
  CHECK_FALSE(norm.bias.info().decays());
}

TEST_CASE("params: errors name the whole parameter and what to do about it") {
  ParamStore store;
  const Linear layer(Scope(store) / "block" / 0 / "layer", 2, 3);
  Context context;
  Tape tape(context);
  const Tensor x = tape.constant<float>({1, 2}, {1.0f, 2.0f});
  const std::string freeze =
      "call the store's freeze() when all modules are made: it lays the parameters out and fills them";
  CHECK_THROWS_WITH(layer(x), contains("parameter block.0.layer.weight: expected values, got none yet, because its "
                                       "store is not frozen; " +
                                       freeze));
  CHECK_THROWS_WITH(Tensor(layer.bias), contains("parameter block.0.layer.bias: expected values, got none yet"));
  const std::string growing =
      "expected a store whose parameters have their values, got one that still grows, with "
      "block.0.layer.weight and 1 more; call its freeze()";
  CHECK_THROWS_WITH(GradStore(store), contains("gradients: " + growing));
  CHECK_THROWS_WITH(store.keep_shadow(), contains("keep_shadow: " + growing));
  CHECK_THROWS_WITH(
      Linear(Scope(store) / "block" / 0 / "layer", 4, 4),
      contains("parameter block.0.layer.weight: expected a name of its own, got that of another parameter "
               "of the store, (3, 2); give each module its own scope, as in Scope(store) / \"encoder\""));
  store.freeze();
  CHECK_THROWS_WITH(store.freeze(), contains("got a second call on the store of block.0.layer.weight and 1 more"));
  CHECK_THROWS_WITH(Scope(store).param("late", {1}, Init::zeros()),
                    contains("parameter late: expected a store that still grows, got one whose freeze()"));
  CHECK_THROWS_WITH(ParamStore().expect_frozen("here"), contains("one that still grows, with no parameters"));
}

TEST_CASE("params: what a layer's op refuses tells whose parameters they are") {
  ParamStore store, other;
  const Linear layer(Scope(store) / "head", 2, 3), stranger(Scope(other) / "stranger", 2, 2);
  const Embedding embedding(Scope(store) / "wte", 5, 2);
  const LayerNorm norm(Scope(store) / "ln", 2);
  store.freeze();
  other.freeze();
  GradStore gradients(store);
  Context context;
  Tape tape(context);
  tape.bind(gradients.binding());
  const Tensor wide = tape.constant<float>({1, 3}, {1.0f, 2.0f, 3.0f}), x = tape.constant<float>({1, 2}, {1.0f, 2.0f});
  CHECK_THROWS_WITH(layer(wide), contains("linear: expected weight (out, 3)") && contains("(with head.weight)"));
  CHECK_THROWS_WITH(norm(wide), contains("layer_norm: expected") && contains("(with ln.weight)"));
  CHECK_THROWS_WITH(embedding(tape.constant<int32_t>({1}, {5})),
                    contains("embedding: expected ids from 0 to 4") && contains("(with wte.weight)"));
  CHECK_THROWS_WITH(stranger(x), contains("of another store") && contains("(with stranger.weight)"));
  ResidualStream stream(x);
  stream.add(wide);
  CHECK_THROWS_WITH(norm(stream), contains("add_layer_norm: expected") && contains("(with ln.weight)"));
}

TEST_CASE("params: a parameter that was never made, or of another store, is refused where it is asked for") {
  ParamStore store, other;
  const Linear layer(Scope(store) / "layer", 2, 3, false), stranger(Scope(other) / "stranger", 2, 3);
  store.freeze();
  other.freeze();
  GradStore gradients(store);
  CHECK_THROWS_WITH(layer.bias.info(), contains("parameter: expected one that was made, got none"));
  for (const ParamInfo* const param : {&stranger.weight.info(), &stranger.bias.info()}) {
    const std::string error = cat("parameter ", param->name,
                                  ": expected one of the store of layer.weight, got one of "
                                  "another store");
    CHECK_THROWS_WITH(gradients.of(*param), contains(error));
    CHECK_THROWS_WITH(gradients.received(*param), contains(error));
    CHECK_THROWS_WITH(gradients.set_received(*param), contains(error));
    CHECK_THROWS_WITH(store.offset(*param), contains(error));
  }
  CHECK_FALSE(gradients.received(layer.weight.info()));
  CHECK(gradients.missing() == "layer.weight");
  gradients.set_received(layer.weight.info());
  CHECK(gradients.missing().empty());
}

TEST_CASE("params: sizes beyond what can be counted are refused") {
  ParamStore store;
  const int64_t large = int64_t{1} << 47;
  store.add("a", {large}, Init::zeros());
  store.add("b", {large - 16}, Init::zeros());
  CHECK_THROWS_WITH(store.add("c", {17}, Init::zeros()),
                    contains("parameter c: expected a store of at most 2^48 elements in all, got (17) more"));
  CHECK_THROWS_WITH(SelfAttention(Scope(store) / "attn", {.width = int64_t{1} << 62}),
                    contains("width: expected 1 to"));
  CHECK_THROWS_WITH(LearnedPositions(Scope(store) / "wpe", int64_t{1} << 31, 0),
                    contains("parameter wpe.weight: expected at most 2147483647 positions"));
}

}  // namespace tril::test

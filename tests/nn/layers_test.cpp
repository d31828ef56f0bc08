#include "nn/layers.h"

#include "nn/gpt.h"
#include "nn/positions.h"
#include "support/catch.h"
#include "support/tensors.h"

namespace tril::test {
namespace {

struct Moments {
  double mean = 0.0, deviation = 0.0;
};

Moments moments_of(const ParamInfo& param) {
  const std::vector<double> values = values_of<double>(param.value);
  Moments moments;
  for (const double value : values) moments.mean += value / static_cast<double>(values.size());
  for (const double value : values)
    moments.deviation += (value - moments.mean) * (value - moments.mean) / static_cast<double>(values.size());
  moments.deviation = std::sqrt(moments.deviation);
  return moments;
}

// The output of a residual stream's last norm and all gradients, computed by LayerNorm in one pass, or by plain
// additions and norms.
std::vector<std::vector<double>> two_branches(bool plainly) {
  ParamStore store(DType::f64, 5);
  const LayerNorm first(Scope(store) / "first", 6), second(Scope(store) / "second", 6), last(Scope(store) / "last", 6);
  const Linear a(Scope(store) / "a", 6, 6, true, 0.5), b(Scope(store) / "b", 6, 6, true, 0.5);
  store.freeze();
  GradStore gradients(store);
  Context context;
  Tape tape(context);
  tape.bind(gradients.binding());
  const Tensor x = tape.variable<double>({2, 3, 6}, noise<double>(36, 1));
  const Tensor out = [&] {
    if (plainly) {
      const Tensor middle = x + a(first(x));
      return last(middle + b(second(middle)));
    }
    ResidualStream stream(x);
    stream.add(a(first(stream)));
    stream.add(b(second(stream)));
    return last(stream);
  }();
  tape.backward(out, tape.constant<double>(out.shape, noise<double>(36, 2)));
  std::vector<std::vector<double>> all = {values_of<double>(out), values_of<double>(tape.gradient(x))};
  for (const ParamInfo& param : store.params()) all.push_back(values_of<double>(gradients.of(param)));
  return all;
}

}  // namespace

TEST_CASE("Linear: works on the last axis whatever stands before it") {
  ParamStore store;
  const Linear layer(Scope(store) / "layer", 3, 5), plain(Scope(store) / "plain", 3, 5, false);
  store.freeze();
  Context context;
  Tape tape(context);
  for (const Shape& shape : {Shape{3}, Shape{2, 3}, Shape{4, 2, 3}, Shape{0, 3}}) {
    const Tensor x = tape.constant<float>(shape, noise<float>(shape.count(), 1));
    CHECK(layer(x).shape == shape.with(-1, 5));
    CHECK(plain(x).shape == shape.with(-1, 5));
  }
  CHECK(plain.bias.operator bool() == false);
  const Tensor wide = tape.constant<float>({2, 4}, noise<float>(8, 1));
  REQUIRE_THROWS_WITH(layer(wide), contains("linear: expected weight (out, 4) for x (2, 4), got weight (5, 3)"));
}

TEST_CASE("Embedding: gives a row for each id and refuses ids it has no row for") {
  ParamStore store;
  const Embedding rows(Scope(store), 4, 3);
  store.freeze();
  Context context;
  Tape tape(context);
  const Tensor out = rows(tape.constant<int32_t>({2, 2}, {3, 0, 0, 1}));
  REQUIRE(out.shape == Shape{2, 2, 3});
  const std::vector<float> table = values_of<float>(rows.weight.info().value), got = values_of<float>(out);
  CHECK(std::vector<float>(got.begin(), got.begin() + 3) == std::vector<float>(table.begin() + 9, table.end()));
  for (const int32_t id : {4, -1, std::numeric_limits<int32_t>::max()})
    REQUIRE_THROWS_WITH(rows(tape.constant<int32_t>({1}, {id})), contains("embedding: ") && contains(cat(id)));
}

TEST_CASE("LayerNorm: starts as plain normalisation and its bias is optional") {
  ParamStore store(DType::f64);
  const LayerNorm norm(Scope(store) / "norm", 8), plain(Scope(store) / "plain", 8, false);
  store.freeze();
  CHECK(store.params().size() == 3);
  Context context;
  Tape tape(context);
  const Tensor x = tape.constant<double>({2, 8}, noise<double>(16, 1));
  const std::vector<double> y = values_of<double>(norm(x));
  CHECK(same_bits(y, values_of<double>(plain(x))));
  for (size_t row = 0; row < 2; ++row) {
    double mean = 0.0, square = 0.0;
    for (size_t c = 0; c < 8; ++c) {
      mean += y[row * 8 + c] / 8.0;
      square += y[row * 8 + c] * y[row * 8 + c] / 8.0;
    }
    CHECK(std::abs(mean) < 1e-12);
    CHECK(square == Approx(1.0).epsilon(1e-3));  // epsilon under the root makes it a little less
  }
}

TEST_CASE("LayerNorm: constant rows give the bias and finite gradients") {  // burn#1992, onnxruntime#21935
  for (const double value : {0.0, 1234.0, 1234.567, 0.1, 1e8}) {
    INFO(value);
    ParamStore store;
    const LayerNorm norm(Scope(store), 16);
    store.freeze();
    GradStore gradients(store);
    Context context;
    Tape tape(context);
    tape.bind(gradients.binding());
    const std::vector<float> row(16, static_cast<float>(value));
    const Tensor x = tape.variable<float>({1, 16}, row), y = norm(x);
    tape.backward(y, tape.constant<float>({1, 16}, noise<float>(16, 1)));
    CHECK(difference(values_of<float>(y), std::vector<float>(16, 0.0f)) < 1e-5);
    for (const float slope : values_of<float>(tape.gradient(x))) CHECK(std::isfinite(slope));
  }
}

TEST_CASE("LayerNorm: a large mean does not drown the variance") {
  std::vector<float> row(16);
  for (size_t i = 0; i < row.size(); ++i) row[i] = 1e5f + 0.25f * static_cast<float>(i * i % 11);
  const auto normed = [](auto values) {
    using T = typename decltype(values)::value_type;
    ParamStore store(kDTypeOf<T>);
    const LayerNorm norm(Scope(store), 16);
    store.freeze();
    Context context;
    Tape tape(context);
    const std::vector<T> y = values_of<T>(norm(tape.constant<T>({1, 16}, values)));
    return std::vector<double>(y.begin(), y.end());
  };
  CHECK(difference(normed(row), normed(std::vector<double>(row.begin(), row.end()))) < 0.02);
}

TEST_CASE("Mlp: keeps the width and tells the two forms of GELU apart") {
  ParamStore erf_store(DType::f64), tanh_store(DType::f64);
  const Mlp erf(Scope(erf_store), 6, 24, true, Gelu::erf, 1.0), tanh(Scope(tanh_store), 6, 24, true, Gelu::tanh, 1.0);
  for (ParamStore* const store : {&erf_store, &tanh_store}) {
    store->freeze();
    double* const weight = store->find("c_fc.weight")->value.ptr<double>();
    for (int64_t i = 0; i < 6 * 24; ++i) weight[i] *= 50.0;
  }
  Context context;
  Tape tape(context);
  const Tensor x = tape.constant<double>({2, 3, 6}, noise<double>(36, 1)), y = erf(x);
  CHECK(y.shape == x.shape);
  const double gap = difference(values_of<double>(y), values_of<double>(tanh(x)));
  CHECK(gap > 1e-5);
  CHECK(gap < 1e-2);
}

TEST_CASE("Mlp: an inner layer whose memory is given back is made again with the same bits") {
  constexpr int64_t kRows = 8192, kWidth = 64, kInner = 256;  // 8 MiB
  constexpr int kLayers = 5;
  ParamStore store;
  const Mlp mlp(Scope(store), kWidth, kInner, true, Gelu::erf, 1.0);
  store.freeze();
  const std::vector<float> values = noise<float>(kRows * kWidth, 1);
  const auto param = [&](const char* name) { return store.find(name)->value; };
  const auto plain = [&](const Tensor& x) {
    return linear(gelu(linear(x, param("c_fc.weight"), param("c_fc.bias"))), param("c_proj.weight"),
                  param("c_proj.bias"));
  };
  int64_t bytes = 0;
  const auto run = [&](bool plainly) {
    std::vector<std::vector<float>> all;
    Context context;
    context.poison = true;
    for (int pass = 0; pass < 2; ++pass) {  // memory is one block after the first
      GradStore gradients(store);
      Tape tape(context);
      tape.bind(gradients.binding());
      const Tensor x = tape.variable<float>({kRows, kWidth}, values);
      Tensor y = x;
      for (int i = 0; i < kLayers; ++i) y = plainly ? plain(y) : mlp(y);
      tape.backward(y, x);
      all = {values_of<float>(y), values_of<float>(tape.gradient(x))};
      for (const ParamInfo& info : store.params()) all.push_back(values_of<float>(gradients.of(info)));
    }
    bytes = context.memory().bytes();
    return all;
  };
  const auto expected = run(true);
  const int64_t kept = bytes;
  const auto got = run(false);
  CHECK(bytes <= kept - (kLayers - 2) * kRows * kInner * 4);
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) CHECK(same_bits(got[i], expected[i]));
}

TEST_CASE("init: weights are normal with GPT-2's deviation and residual projections with less") {
  ParamStore store(DType::f64, 11);
  const Gpt gpt(store, {.vocabulary = 300, .context = 200, .layers = 3, .heads = 2, .width = 64, .bias = true});
  store.freeze();
  for (const ParamInfo& param : store.params()) {
    INFO(param.name);
    const Moments moments = moments_of(param);
    if (!param.decays()) {
      CHECK(moments.mean == (param.name.ends_with("bias") ? 0.0 : 1.0));
      CHECK(moments.deviation == 0.0);
      continue;
    }
    const double expected = param.name.ends_with("c_proj.weight") ? 0.02 / std::sqrt(2.0 * 3.0) : 0.02;
    const double error = expected / std::sqrt(static_cast<double>(param.value.count()));  // of the mean
    CHECK(std::abs(moments.mean) < 4.0 * error);
    CHECK(std::abs(moments.deviation - expected) < 4.0 * error);
  }
}

TEST_CASE("Dropout: zeroes a share of the elements and scales the rest on a training tape alone") {
  const Dropout drop(0.25);
  const std::vector<float> ones(4000, 1.0f);
  Context context;
  {
    Tape tape(context);
    const std::vector<float> y = values_of<float>(drop(tape.constant<float>({4, 1000}, ones)));
    const auto zeros = std::count(y.begin(), y.end(), 0.0f);
    CHECK(std::abs(static_cast<double>(zeros) / 4000.0 - 0.25) < 0.03);  // 4 deviations
    for (const float value : y) CHECK((value == 0.0f || value == Approx(1.0 / 0.75)));
  }
  Tape tape(context, Tape::Mode::evaluate);
  CHECK(values_of<float>(drop(tape.constant<float>({4, 1000}, ones))) == ones);
}

TEST_CASE("Dropout: probabilities that leave nothing are refused") {
  for (const double p : {-0.1, 1.0, 1.5, std::numeric_limits<double>::quiet_NaN()})
    REQUIRE_THROWS_WITH(Dropout(p), contains("dropout: expected 0 <= p < 1, got"));
  CHECK_NOTHROW(Dropout(0.0));
}

TEST_CASE("dropout: a model with it computes the same on an evaluating tape as one without") {
  const auto logits = [](double dropout, Tape::Mode mode) {
    ParamStore store(DType::f32, 2);
    const Gpt gpt(store, {.vocabulary = 5, .context = 4, .layers = 2, .heads = 2, .width = 8, .dropout = dropout});
    store.freeze();
    Context context;
    Tape tape(context, mode);
    return values_of<float>(gpt(tape.constant<int32_t>({1, 4}, {0, 1, 2, 3})));
  };
  CHECK(same_bits(logits(0.5, Tape::Mode::evaluate), logits(0.0, Tape::Mode::evaluate)));
  CHECK(difference(logits(0.5, Tape::Mode::train), logits(0.0, Tape::Mode::train)) > 1e-3);
}

TEST_CASE("ResidualStream: equals plain additions and norms in values and gradients") {
  const auto stream = two_branches(false), plain = two_branches(true);
  REQUIRE(stream.size() == plain.size());
  for (size_t i = 0; i < stream.size(); ++i) {
    INFO(i);
    CHECK(difference(stream[i], plain[i]) < 1e-13);
  }
}

TEST_CASE("ResidualStream: two branches without a norm between are refused") {
  Context context;
  Tape tape(context);
  const Tensor x = tape.constant<float>({1, 1, 2}, {1.0f, 2.0f});
  ResidualStream stream(x);
  stream.add(x);
  REQUIRE_THROWS_WITH(stream.add(x), contains("ResidualStream: expected a norm between two branches"));
}

TEST_CASE("SinusoidalPositions: are the paper's waves and an odd width ends on a sine") {  // BERT-pytorch#78
  for (const int64_t width : {1, 2, 33, 64}) {
    INFO(width);
    const SinusoidalPositions positions(10, width);
    Context context;
    Tape tape(context);
    const std::vector<double> zeros(static_cast<size_t>(10 * width), 0.0);
    const std::vector<double> waves = values_of<double>(positions(tape.constant<double>({1, 10, width}, zeros)));
    for (int64_t t = 0; t < 10; ++t)
      for (int64_t pair = 0; 2 * pair < width; ++pair) {
        const double angle =
            static_cast<double>(t) * std::pow(10000.0, -2.0 * static_cast<double>(pair) / static_cast<double>(width));
        const auto at = static_cast<size_t>(t * width + 2 * pair);
        CHECK(waves[at] == Approx(std::sin(angle)).margin(1e-12));
        if (2 * pair + 1 < width) CHECK(waves[at + 1] == Approx(std::cos(angle)).margin(1e-12));
      }
  }
}

TEST_CASE("positions: a sequence longer than the context is refused with both numbers") {
  ParamStore store;
  const LearnedPositions learned(Scope(store) / "wpe", 4, 2);
  const SinusoidalPositions waves(4, 2);
  store.freeze();
  Context context;
  Tape tape(context);
  const Tensor longer = tape.constant<float>({1, 5, 2}, noise<float>(10, 1)),
               wider = tape.constant<float>({1, 4, 3}, noise<float>(12, 1));
  REQUIRE_THROWS_WITH(learned(longer), contains("positions: expected at most 4 positions, got 5"));
  REQUIRE_THROWS_WITH(waves(longer), contains("positions: expected at most 4 positions, got 5"));
  REQUIRE_THROWS_WITH(learned(wider), contains("expected x (B, T, 2), got shape (1, 4, 3)"));
  REQUIRE_THROWS_WITH(waves(wider), contains("expected x (B, T, 2), got shape (1, 4, 3)"));
  Tensor outside = longer;
  outside.tape = nullptr;
  outside.slot = -1;
  REQUIRE_THROWS_WITH(learned(outside), contains("positions: expected x on a tape"));
  REQUIRE_THROWS_WITH(waves(outside), contains("positions: expected x on a tape"));
}

TEST_CASE("LearnedPositions: a shorter sequence uses the first rows and only those learn") {
  ParamStore store(DType::f64);
  const LearnedPositions learned(Scope(store) / "wpe", 4, 2);
  store.freeze();
  GradStore gradients(store);
  Context context;
  Tape tape(context);
  tape.bind(gradients.binding());
  const Tensor y = learned(tape.constant<double>({3, 2, 2}, std::vector<double>(12, 0.0)));
  const std::vector<double> table = values_of<double>(learned.weight.info().value);
  for (int sample = 0; sample < 3; ++sample)
    CHECK(std::equal(table.begin(), table.begin() + 4, y.ptr<double>() + 4 * sample));
  tape.backward(sum(y));
  CHECK(values_of<double>(gradients.of(learned.weight.info())) == std::vector<double>{3, 3, 3, 3, 0, 0, 0, 0});
}

}  // namespace tril::test

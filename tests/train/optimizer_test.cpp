// What every optimizer does, and the formulas of each.
#include "train/run/optimizer.h"

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "nn/layers.h"
#include "support/catch.h"
#include "support/tensors.h"
#include "train/run/adamw.h"
#include "train/run/sgd.h"

namespace tril::test {
namespace {

// A matrix, a bias and a norm's weight, with sizes that leave padding.
struct Model {
  explicit Model(DType dtype) : params(dtype, 3) {
    matrix = &params.add("matrix", {33, 300}, Init::normal(0.5));
    bias = &params.add("bias", {5}, Init::normal(0.5));
    weight = &params.add("weight", {7}, Init::ones());
    params.freeze();
  }
  ParamStore params;
  const ParamInfo *matrix, *bias, *weight;
};

template <class T>
std::vector<T> flat(const std::byte* data, const ParamStore& params) {
  const T* const values = reinterpret_cast<const T*>(data);
  return {values, values + params.elements()};
}

template <class T>
void fill_gradients(const Model& model, GradStore& gradients, uint64_t seed) {
  for (const ParamInfo& param : model.params.params()) {
    const std::vector<T> values = noise<T>(param.value.count(), seed + static_cast<uint64_t>(param.value.slot));
    std::copy(values.begin(), values.end(), gradients.of(param).ptr<T>());
    gradients.set_received(param);
  }
}

}  // namespace

TEST_CASE("AdamW: five steps equal the formula's numbers") {
  // p = 1, gradients 0.5, -1, 0.25, 2, -0.125; rate 0.1, betas 0.9 and 0.95, decay 0.1, epsilon 1e-8: computed apart,
  // in double precision, decay first and epsilon outside the root.
  const std::vector<double> gradients = {0.5, -1.0, 0.25, 2.0, -0.125};
  const std::vector<double> expected = {0.890000002, 0.9174373965715928, 0.9219853370539607, 0.86895892471233,
                                        0.8257385674998537};
  ParamStore params(DType::f64);
  const ParamInfo& p = params.add("p", {1, 1}, Init::ones());
  params.freeze();
  GradStore grads(params);
  AdamW optimizer(params, {.beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1, .epsilon = 1e-8});
  for (size_t i = 0; i < gradients.size(); ++i) {
    *grads.of(p).ptr<double>() = gradients[i];
    grads.set_received(p);
    optimizer.update(grads, 0.1, 1.0, 1);
    INFO("step " << i + 1);
    CHECK(*p.value.ptr<double>() == Approx(expected[i]).epsilon(1e-12));
  }
  CHECK(optimizer.updates() == 5);
}

TEMPLATE_TEST_CASE("AdamW: with gradients of 0, matrices shrink by rate x decay and nothing else changes a bit", "",
                   float, double) {
  using T = TestType;
  Model model(kDTypeOf<T>);
  const std::vector<T> matrix = values_of<T>(model.matrix->value), bias = values_of<T>(model.bias->value),
                       weight = values_of<T>(model.weight->value);
  GradStore gradients(model.params);
  for (const ParamInfo& param : model.params.params()) gradients.set_received(param);
  AdamW optimizer(model.params, {.weight_decay = 0.5});
  optimizer.update(gradients, 0.125, 1.0, 2);
  CHECK(same_bits(values_of<T>(model.bias->value), bias));
  CHECK(same_bits(values_of<T>(model.weight->value), weight));
  for (size_t i = 0; i < matrix.size(); ++i)
    CHECK(model.matrix->value.ptr<T>()[i] == matrix[i] * static_cast<T>(1.0 - 0.125 * 0.5));
}

namespace {

// Each optimizer, with options that let every part of it work.
const std::function<std::unique_ptr<Optimizer>(ParamStore&)> kOptimizers[] = {
    [](ParamStore& store) { return std::make_unique<AdamW>(store, AdamWOptions{}); },
    [](ParamStore& store) { return std::make_unique<Sgd>(store, SgdOptions{.weight_decay = 0.1}); }};

}  // namespace

TEMPLATE_TEST_CASE("optimizers: the same bits at any number of threads, and padding stays zero", "", float, double) {
  using T = TestType;
  for (const auto& make : kOptimizers) {
    std::vector<std::vector<T>> results;
    std::vector<double> norms;
    for (const int threads : {1, 2, 3}) {
      Model model(kDTypeOf<T>);
      GradStore gradients(model.params);
      const auto optimizer = make(model.params);
      INFO(optimizer->name());
      const std::vector<T> before = flat<T>(model.params.data(), model.params);
      for (uint64_t step = 0; step < 3; ++step) {
        fill_gradients<T>(model, gradients, 100 * step);
        const double norm = optimizer->norm(gradients, threads);
        norms.push_back(norm);
        optimizer->update(gradients, 1e-2, clip_scale(norm, 1.0), threads);
      }
      results.push_back(flat<T>(model.params.data(), model.params));
      CHECK_FALSE(same_bits(results.back(), before));
      std::vector<const std::byte*> buffers = {model.params.data()};
      for (const NamedBuffer& state : optimizer->state()) buffers.push_back(state.data);
      CHECK(buffers.size() > 1);
      for (const std::byte* data : buffers) {
        const std::vector<T> all = flat<T>(data, model.params);
        size_t padding = 0, end = 0;
        for (const ParamInfo& param : model.params.params()) {
          for (const auto begin = static_cast<size_t>(model.params.offset(param)); end < begin; ++end, ++padding)
            CHECK(all[end] == T{0});
          end += static_cast<size_t>(param.value.count());
        }
        CHECK(padding > 0);
      }
    }
    CHECK(same_bits(results[0], results[1]));
    CHECK(same_bits(results[0], results[2]));
    for (size_t i = 3; i < norms.size(); ++i) CHECK(norms[i] == norms[i % 3]);
  }
}

TEST_CASE("optimizers: the shadow is the weights, rounded") {
  for (const auto& make : kOptimizers) {
    Model model(DType::f32);
    model.params.keep_shadow();
    GradStore gradients(model.params);
    fill_gradients<float>(model, gradients, 1);
    const auto optimizer = make(model.params);
    optimizer->update(gradients, 1e-2, 1.0, 2);
    INFO(optimizer->name());
    for (const ParamInfo& param : model.params.params())
      for (int64_t i = 0; i < param.value.count(); ++i)
        CHECK(model.params.shadow()[model.params.offset(param) + i].bits == bf16{param.value.ptr<float>()[i]}.bits);
  }
}

TEST_CASE("SGD: three steps equal the formula's numbers") {
  // p = 2, gradients 0.5, -1, 0.25; rate 0.1, momentum 0.5, decay 0.25: g + decay p, summed with half of the sum
  // before.
  const std::vector<double> gradients = {0.5, -1.0, 0.25}, expected = {1.9, 1.9025, 1.8311875};
  ParamStore params(DType::f64);
  const ParamInfo& p = params.add("p", {1, 1}, Init{.constant = 2.0});
  const ParamInfo& bias = params.add("bias", {1}, Init{.constant = 2.0});  // does not decay
  params.freeze();
  GradStore grads(params);
  Sgd optimizer(params, {.momentum = 0.5, .weight_decay = 0.25});
  for (size_t i = 0; i < gradients.size(); ++i) {
    for (const ParamInfo* const param : {&p, &bias}) {
      *grads.of(*param).ptr<double>() = gradients[i];
      grads.set_received(*param);
    }
    optimizer.update(grads, 0.1, 1.0, 1);
    INFO("step " << i + 1);
    CHECK(*p.value.ptr<double>() == Approx(expected[i]).epsilon(1e-12));
  }
  CHECK(*bias.value.ptr<double>() == Approx(2.0 - 0.1 * (0.5 + (-1.0 + 0.25) + (0.25 + 0.5 * -0.75))).epsilon(1e-12));
}

TEST_CASE("clipping: the norm is that of all gradients together, in double precision") {
  Model model(DType::f32);
  GradStore gradients(model.params);
  AdamW optimizer(model.params, {});
  for (const ParamInfo& param : model.params.params()) gradients.set_received(param);
  CHECK(optimizer.norm(gradients, 1) == 0.0);
  fill_gradients<float>(model, gradients, 1);
  double sum = 0;
  for (const ParamInfo& param : model.params.params())
    for (const float value : values_of<float>(gradients.of(param))) sum += static_cast<double>(value) * value;
  CHECK(optimizer.norm(gradients, 2) == Approx(std::sqrt(sum)).epsilon(1e-14));

  std::fill_n(gradients.of(*model.bias).ptr<float>(), 5, 3e38f);  // whose square no float holds
  CHECK(optimizer.norm(gradients, 1) == Approx(3e38 * std::sqrt(5.0)).epsilon(1e-6));
  *gradients.of(*model.weight).ptr<float>() = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::isnan(optimizer.norm(gradients, 1)));
  *gradients.of(*model.weight).ptr<float>() = std::numeric_limits<float>::infinity();
  CHECK(std::isinf(optimizer.norm(gradients, 1)));
}

TEST_CASE("clipping: gradients above the limit are scaled to it, others left alone") {
  CHECK(clip_scale(2.0, 1.0) == 1.0 / (2.0 + 1e-6));
  CHECK(clip_scale(0.5, 1.0) == 1.0);
  CHECK(clip_scale(0.0, 1.0) == 1.0);
  CHECK(clip_scale(1e9, 0.0) == 1.0);

  // A scaled gradient is as good as the scaled one.
  ParamStore a(DType::f64), b(DType::f64);
  const ParamInfo &pa = a.add("p", {3}, Init::ones()), &pb = b.add("p", {3}, Init::ones());
  a.freeze();
  b.freeze();
  GradStore ga(a), gb(b);
  AdamW oa(a, {}), ob(b, {});
  for (int64_t i = 0; i < 3; ++i) {
    ga.of(pa).ptr<double>()[i] = 8.0 * static_cast<double>(i);
    gb.of(pb).ptr<double>()[i] = 2.0 * static_cast<double>(i);
  }
  ga.set_received(pa);
  gb.set_received(pb);
  oa.update(ga, 0.1, 0.25, 1);
  ob.update(gb, 0.1, 1.0, 1);
  CHECK(same_bits(values_of<double>(pa.value), values_of<double>(pb.value)));
}

namespace {

// Two linear layers, one or both of them in the loss.
struct TwoLayers {
  TwoLayers() {
    store.freeze();
    gradients.emplace(store);
  }
  void backward(bool both, double value = 1.0) {
    Tape tape(context);
    tape.bind(gradients->binding());
    const Tensor x = tape.constant<double>({1, 2}, {value, 2.0}), y = first(x);
    tape.backward(sum(both ? second(y) : y), {.allow_unused = !both});
  }
  [[nodiscard]] std::vector<double> weights() const { return flat<double>(store.data(), store); }

  Context context{{.threads = 1}};
  ParamStore store{DType::f64, 1};
  Linear first{Scope(store) / "net" / "first", 2, 2, false, 0.5},
      second{Scope(store) / "net" / "second", 2, 2, true, 0.5};
  std::optional<GradStore> gradients;
};

}  // namespace

TEMPLATE_TEST_CASE("optimizers: step on no gradients but this step's", "", AdamW, Sgd) {
  TwoLayers net;
  TestType optimizer(net.store, {});
  const std::vector<double> before = net.weights();
  const auto require_refused = [&](const std::string& missing) {
    const std::vector<double> weights = net.weights();
    const int64_t updates = optimizer.updates();
    const std::string error = "optimizer: expected a gradient for every parameter, got none for " + missing +
                              "; call backward between reset() and this, or set the option allow_unused";
    CHECK_THROWS_WITH(optimizer.norm(*net.gradients, 1), contains(error));
    CHECK_THROWS_WITH(optimizer.update(*net.gradients, 0.1, 1.0, 1), contains(error));
    CHECK(same_bits(net.weights(), weights));
    CHECK(optimizer.updates() == updates);
  };
  const std::string all = "net.first.weight, net.second.weight, net.second.bias";
  require_refused(all);  // before any backward
  net.backward(true);
  optimizer.update(*net.gradients, 0.1, clip_scale(optimizer.norm(*net.gradients, 1), 1.0), 1);
  CHECK_FALSE(same_bits(net.weights(), before));
  net.gradients->reset();
  require_refused(all);  // what the step before left there
  net.backward(false);
  require_refused("net.second.weight, net.second.bias");
  net.gradients->reset();
  {
    Tape tape(net.context);  // a backward that fails
    tape.bind(net.gradients->binding());
    CHECK_THROWS_AS(tape.backward(sum(net.first(tape.constant<double>({1, 2}, {1.0, 2.0})))), Error);
  }
  require_refused("net.second.weight, net.second.bias");
  net.backward(true);
  CHECK_NOTHROW(optimizer.update(*net.gradients, 0.1, 1.0, 1));
}

TEMPLATE_TEST_CASE(
    "optimizers: until the reset, a second update takes the same gradients and a second backward adds, as in PyTorch",
    "", AdamW, Sgd) {
  TwoLayers once, twice;
  TestType a(once.store, {}), b(twice.store, {});
  once.backward(true);
  twice.backward(true);
  a.update(*once.gradients, 0.1, 1.0, 1);
  b.update(*twice.gradients, 0.1, 1.0, 1);
  for (const ParamInfo& param : once.store.params()) {  // given again by hand
    const std::vector<double> same = values_of<double>(once.gradients->of(param));
    once.gradients->reset();
    std::copy(same.begin(), same.end(), once.gradients->of(param).ptr<double>());
  }
  for (const ParamInfo& param : once.store.params()) once.gradients->set_received(param);
  a.update(*once.gradients, 0.1, 1.0, 1);
  b.update(*twice.gradients, 0.1, 1.0, 1);
  CHECK(same_bits(once.weights(), twice.weights()));
  const ParamInfo& bias = twice.second.bias.info();
  CHECK(values_of<double>(twice.gradients->of(bias)) == std::vector<double>{1, 1});
  twice.backward(true);
  CHECK(values_of<double>(twice.gradients->of(bias)) == std::vector<double>{2, 2});
}

TEMPLATE_TEST_CASE(
    "optimizers: unused parameters, where they are allowed, stay as they are and count their own updates", "", AdamW,
    Sgd) {
  TwoLayers net, alone;
  TestType optimizer(net.store, {.allow_unused = true}), reference(alone.store, {});
  CHECK_THROWS_WITH(optimizer.update(*net.gradients, 0.1, 1.0, 1),
                    contains("optimizer: expected a gradient for some parameter, got none for net.first.weight"));
  CHECK_THROWS_WITH(optimizer.norm(*net.gradients, 1), contains("a gradient for some parameter"));
  CHECK(optimizer.updates() == 0);
  const ParamInfo &first = net.first.weight.info(), &second = net.second.weight.info();
  const std::vector<double> start = values_of<double>(second.value);
  for (int i = 0; i < 3; ++i) {
    net.gradients->reset();
    net.backward(false, i + 1.0);
    const std::vector<double> gradient = values_of<double>(net.gradients->of(first));
    double sum = 0;
    for (const double g : gradient) sum += g * g;
    std::fill_n(net.gradients->of(second).ptr<double>(), 4, 1e6);  // as an earlier step might have left it
    CHECK(optimizer.norm(*net.gradients, 1) == Approx(std::sqrt(sum)).epsilon(1e-14));
    optimizer.update(*net.gradients, 0.1, 1.0, 1);
    CHECK(same_bits(values_of<double>(second.value), start));
  }
  // From the same weights on, an update is that of an optimizer which never saw the others.
  std::copy_n(first.value.ptr<double>(), 4, alone.first.weight.info().value.ptr<double>());
  const std::vector<double> rows = values_of<double>(second.value);
  for (int i = 0; i < 2; ++i) {
    for (TwoLayers* const model : {&net, &alone}) {
      for (const Param& param : {model->second.weight, model->second.bias}) {
        std::fill_n(model->gradients->of(param.info()).ptr<double>(), param.info().value.count(), 0.25 * (i + 1));
        model->gradients->set_received(param.info());
      }
      model->gradients->set_received(model->first.weight.info());
    }
    optimizer.update(*net.gradients, 0.1, 1.0, 1);
    reference.update(*alone.gradients, 0.1, 1.0, 1);
    CHECK(same_bits(values_of<double>(second.value), values_of<double>(alone.second.weight.info().value)));
    CHECK(
        same_bits(values_of<double>(net.second.bias.info().value), values_of<double>(alone.second.bias.info().value)));
  }
  const std::span<const int64_t> counts = optimizer.parameter_updates();
  CHECK(std::vector<int64_t>(counts.begin(), counts.end()) == std::vector<int64_t>{5, 2, 2});
  CHECK(optimizer.updates() == 5);
  optimizer.restore(7);
  CHECK(std::vector<int64_t>(counts.begin(), counts.end()) == std::vector<int64_t>{7, 7, 7});
}

TEMPLATE_TEST_CASE("optimizers: gradients of another store, and numbers that would spoil the weights, are refused", "",
                   AdamW, Sgd) {
  TwoLayers net, other;
  net.backward(true);
  other.backward(true);
  TestType optimizer(net.store, {});
  const std::vector<double> before = net.weights();
  CHECK_THROWS_WITH(optimizer.norm(*other.gradients, 1),
                    contains("optimizer: expected gradients of the store that it updates, got those of another store"));
  CHECK_THROWS_WITH(optimizer.update(*other.gradients, 0.1, 1.0, 1), contains("got those of another store"));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double rate : {nan, -0.1, std::numeric_limits<double>::infinity()})
    CHECK_THROWS_WITH(optimizer.update(*net.gradients, rate, 1.0, 1),
                      contains("optimizer: expected a rate of 0 or more"));
  CHECK_THROWS_WITH(optimizer.update(*net.gradients, 0.1, nan, 1), contains("a finite gradient_scale, got nan"));
  for (const int64_t threads : {int64_t{0}, int64_t{-1}, int64_t{1025}, (int64_t{1} << 32) + 1})
    CHECK_THROWS_WITH(optimizer.update(*net.gradients, 0.1, 1.0, threads), contains("1 to 1024 threads"));
  CHECK_THROWS_WITH(optimizer.restore(-1), contains("optimizer: expected 0 or more updates, got -1"));
  CHECK(same_bits(net.weights(), before));
  CHECK(optimizer.updates() == 0);
  ParamStore growing;
  growing.add("w", {2}, Init::zeros());
  CHECK_THROWS_WITH(TestType(growing, {}),
                    contains("optimizer: expected a store whose parameters have their values, got "
                             "one that still grows, with w; call its freeze()"));
}

TEST_CASE("optimizers: options out of range are refused by name") {
  TwoLayers net;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS_WITH(AdamW(net.store, {.beta1 = 1.0}),
                    contains("optimizer: expected beta1 of 0 or more, and less than 1"));
  CHECK_THROWS_WITH(AdamW(net.store, {.beta2 = -0.1}), contains("beta2"));
  CHECK_THROWS_WITH(AdamW(net.store, {.weight_decay = nan}), contains("weight_decay"));
  CHECK_THROWS_WITH(AdamW(net.store, {.epsilon = -1.0}), contains("epsilon"));
  CHECK_THROWS_WITH(Sgd(net.store, {.momentum = 1.0}), contains("momentum of 0 or more, and less than 1, got 1"));
  CHECK_THROWS_WITH(Sgd(net.store, {.weight_decay = -0.5}), contains("weight_decay"));
}

}  // namespace tril::test

#include "train/optimizer.h"

#include <cmath>
#include <limits>
#include <vector>

#include "support/catch.h"
#include "support/tensors.h"

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
    optimizer.update(grads, 0.1, 1.0, 1);
    INFO("step " << i + 1);
    CHECK(*p.value.ptr<double>() == Approx(expected[i]).epsilon(1e-12));
  }
  CHECK(optimizer.updates() == 5);
}

TEMPLATE_TEST_CASE("AdamW: without gradients, matrices shrink by rate x decay and nothing else changes a bit", "",
                   float, double) {
  using T = TestType;
  Model model(kDTypeOf<T>);
  const std::vector<T> matrix = values_of<T>(model.matrix->value), bias = values_of<T>(model.bias->value),
                       weight = values_of<T>(model.weight->value);
  GradStore gradients(model.params);
  AdamW optimizer(model.params, {.weight_decay = 0.5});
  optimizer.update(gradients, 0.125, 1.0, 2);
  CHECK(same_bits(values_of<T>(model.bias->value), bias));
  CHECK(same_bits(values_of<T>(model.weight->value), weight));
  for (size_t i = 0; i < matrix.size(); ++i)
    CHECK(model.matrix->value.ptr<T>()[i] == matrix[i] * static_cast<T>(1.0 - 0.125 * 0.5));
}

TEMPLATE_TEST_CASE("AdamW: the same bits at any number of threads, and padding stays zero", "", float, double) {
  using T = TestType;
  std::vector<std::vector<T>> results;
  std::vector<double> norms;
  for (const int threads : {1, 2, 3}) {
    Model model(kDTypeOf<T>);
    GradStore gradients(model.params);
    AdamW optimizer(model.params, {});
    for (uint64_t step = 0; step < 3; ++step) {
      fill_gradients<T>(model, gradients, 100 * step);
      const double norm = optimizer.norm(gradients, threads);
      norms.push_back(norm);
      optimizer.update(gradients, 1e-2, clip_scale(norm, 1.0), threads);
    }
    results.push_back(flat<T>(model.params.data(), model.params));
    for (const std::byte* data : {model.params.data(), optimizer.mean(), optimizer.square()}) {
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

TEST_CASE("clipping: the norm is that of all gradients together, in double precision") {
  Model model(DType::f32);
  GradStore gradients(model.params);
  AdamW optimizer(model.params, {});
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
  oa.update(ga, 0.1, 0.25, 1);
  ob.update(gb, 0.1, 1.0, 1);
  CHECK(same_bits(values_of<double>(pa.value), values_of<double>(pb.value)));
}

}  // namespace tril::test

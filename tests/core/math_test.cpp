// The functions of core/kernels/math.h against the standard library's in f64, over all of f32: in plain code and as the
// kernels run them, compiled for the machine at hand.
#include "core/kernels/math.h"

#include <algorithm>
#include <vector>

#include "support/catch.h"

using namespace tril;
using namespace tril::test;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const float kNaN = std::numeric_limits<float>::quiet_NaN();

// Both signs of floats from `low` to `high`, evenly spaced in their bits, which is nearly in their logarithm.
std::vector<float> sweep(float low, float high, uint32_t step = 4099) {
  std::vector<float> values;
  for (auto bits = std::bit_cast<uint32_t>(low); bits <= std::bit_cast<uint32_t>(high); bits += step) {
    values.push_back(std::bit_cast<float>(bits));
    values.push_back(-values.back());
  }
  return values;
}

struct Exp {
  TRIL_INLINE static float at(float x) { return math::exp(x); }
};
struct ExpOfDifference {
  TRIL_INLINE static float at(float x) { return math::exp_of_difference(x); }
};
struct Log {
  TRIL_INLINE static float at(float x) { return math::log(x); }
};
struct Sigmoid {
  TRIL_INLINE static float at(float x) { return math::sigmoid(x); }
};
struct Tanh {
  TRIL_INLINE static float at(float x) { return math::tanh(x); }
};
struct GeluErf {
  TRIL_INLINE static float at(float x) { return math::gelu_erf(x); }
};
struct GeluErfSlope {
  TRIL_INLINE static float at(float x) { return math::gelu_erf_slope(x); }
};

template <class F>
TRIL_INLINE void run_kernel(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = F::at(x[i]);
}

template <class F>
void run_plainly(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = F::at(x[i]);
}

// The largest error over x, in both forms; error(expected, got) of one. What is not a number where it should be one
// counts as infinite.
template <class F, class Expected, class ErrorOf>
double worst_error(const std::vector<float>& x, Expected&& expected, ErrorOf&& error) {
  double worst = 0;
  std::vector<float> y(x.size());
  for (const bool plainly : {false, true}) {
    const auto count = static_cast<int64_t>(x.size());
    plainly ? run_plainly<F>(x.data(), y.data(), count) : cloned<run_kernel<F>>(x.data(), y.data(), count);
    for (size_t i = 0; i < x.size(); ++i) {
      const double off = error(expected(static_cast<double>(x[i])), static_cast<double>(y[i]));
      worst = std::isnan(off) ? HUGE_VAL : std::max(worst, off);
    }
  }
  return worst;
}

double relative(double expected, double got) { return std::fabs(got - expected) / std::fabs(expected); }
double absolute(double expected, double got) { return std::fabs(got - expected); }

template <class F>
float one(float x) {
  float y = 0, again = 0;
  cloned<run_kernel<F>>(&x, &y, 1);
  run_plainly<F>(&x, &again, 1);
  if (!(std::isnan(y) && std::isnan(again))) CHECK(y == Approx(again).epsilon(1e-6));
  return y;
}

double normal_distribution(double x) { return 0.5 * std::erfc(-x * std::sqrt(0.5)); }
double normal_density(double x) { return std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi); }

}  // namespace

TEST_CASE("math: exp is right to 1.2e-7 where its result is a normal number") {
  CHECK(worst_error<Exp>(
            sweep(1e-30f, 87.33f), [](double x) { return std::exp(x); }, relative) < 1.2e-7);
  CHECK(worst_error<Exp>(
            {88.0f, 88.5f, 88.7f, 88.722f}, [](double x) { return std::exp(x); }, relative) < 1.2e-7);
}

TEST_CASE("math: exp at the ends") {
  CHECK(one<Exp>(0.0f) == 1.0f);
  CHECK(one<Exp>(-0.0f) == 1.0f);
  CHECK(one<Exp>(1e-45f) == 1.0f);
  for (const float x : {-87.4f, -88.0f, -103.0f, -1000.0f, -3.4e38f, -kInfinity}) CHECK(one<Exp>(x) == 0.0f);
  for (const float x : {88.73f, 89.0f, 1000.0f, 3.4e38f, kInfinity}) CHECK(one<Exp>(x) == kInfinity);
  CHECK(std::isnan(one<Exp>(kNaN)));
  CHECK(std::isnan(one<Exp>(-kNaN)));
}

TEST_CASE("math: exp of differences from a maximum, and masked ones give 0") {
  std::vector<float> below = sweep(1e-30f, 87.0f);
  below.erase(std::remove_if(below.begin(), below.end(), [](float x) { return x > 1e-3f; }), below.end());
  CHECK(worst_error<ExpOfDifference>(
            below, [](double x) { return std::exp(x); }, relative) < 1.2e-7);
  CHECK(one<ExpOfDifference>(0.0f) == 1.0f);
  for (const float x : {-88.0f, -100.0f, -3.4e38f, -kInfinity}) CHECK(one<ExpOfDifference>(x) == 0.0f);
  CHECK(worst_error<ExpOfDifference>(
            {-87.3f, -87.5f, -87.9f}, [](double x) { return std::exp(x); }, absolute) < 2e-38);
  CHECK(std::isnan(one<ExpOfDifference>(kNaN)));
}

TEST_CASE("math: log is right to 1.2e-7 of the larger of 1 and its result, and reaches both infinities") {
  std::vector<float> positive = sweep(1.2e-38f, 3.4e38f);
  positive.erase(std::remove_if(positive.begin(), positive.end(), [](float x) { return x < 0; }), positive.end());
  const auto of_one = [](double expected, double got) {
    return absolute(expected, got) / std::max(1.0, std::fabs(expected));
  };
  CHECK(worst_error<Log>(
            positive, [](double x) { return std::log(x); }, of_one) < 1.2e-7);
  CHECK(worst_error<Log>(
            {0.99f, 0.9999f, 0.9999999f, 1.0000001f, 1.0001f, 1.01f}, [](double x) { return std::log(x); }, relative) <
        1.2e-7);
  CHECK(one<Log>(1.0f) == 0.0f);
  CHECK(one<Log>(0.0f) == -kInfinity);
  CHECK(std::isnan(one<Log>(-1.0f)));
  CHECK(one<Log>(kInfinity) == kInfinity);
  CHECK(std::isnan(one<Log>(kNaN)));
}

TEST_CASE("math: sigmoid is right to 3e-7 and reaches 0 and 1") {
  const auto exact = [](double x) { return 1 / (1 + std::exp(-x)); };
  CHECK(worst_error<Sigmoid>(sweep(1e-30f, 87.0f), exact, relative) < 3e-7);
  CHECK(one<Sigmoid>(0.0f) == 0.5f);
  for (const float x : {100.0f, 3.4e38f, kInfinity}) CHECK(one<Sigmoid>(x) == 1.0f);
  for (const float x : {-100.0f, -3.4e38f, -kInfinity}) CHECK(one<Sigmoid>(x) == 0.0f);
  CHECK(std::isnan(one<Sigmoid>(kNaN)));
}

TEST_CASE("math: tanh is right to 2e-7, odd, and never past 1") {
  CHECK(worst_error<Tanh>(
            sweep(1e-30f, 3e38f), [](double x) { return std::tanh(x); }, relative) < 2e-7);
  for (const float x : sweep(1e-30f, 3e38f, 400009)) {
    REQUIRE(one<Tanh>(x) == -one<Tanh>(-x));
    REQUIRE(std::fabs(one<Tanh>(x)) <= 1.0f);
  }
  CHECK(one<Tanh>(0.0f) == 0.0f);
  CHECK(std::signbit(one<Tanh>(-0.0f)));
  CHECK(one<Tanh>(kInfinity) == 1.0f);
  CHECK(one<Tanh>(-kInfinity) == -1.0f);
  CHECK(std::isnan(one<Tanh>(kNaN)));
}

TEST_CASE("math: the exact GELU is right to 2e-7 of x, its slope to 5e-7") {
  const std::vector<float> values = sweep(1e-30f, 1e30f);
  const auto of_x = [&](double expected, double got) { return std::fabs(got - expected); };
  std::vector<float> near;
  std::copy_if(values.begin(), values.end(), std::back_inserter(near), [](float x) { return std::fabs(x) < 8; });
  // The distribution is what is fitted; the value is x times it.
  CHECK(worst_error<GeluErf>(
            values, [](double x) { return x * normal_distribution(x); },
            [](double expected, double got) { return std::fabs(expected) > 8 ? relative(expected, got) : 0.0; }) <
        3e-7);
  CHECK(worst_error<GeluErf>(
            near, [](double x) { return x * normal_distribution(x); }, of_x) < 8 * 2e-7);
  CHECK(worst_error<GeluErfSlope>(
            values, [](double x) { return normal_distribution(x) + x * normal_density(x); }, absolute) <
        5e-7);  // 8 roundings
}

namespace {

using Real = long double;

Real logistic(Real x) { return 1 / (1 + std::exp(-x)); }
Real silu_slope(Real x) { return logistic(x) * (1 + x * logistic(-x)); }
Real gelu_tanh_slope(Real x) {
  const Real twice = 2 * std::sqrt(2 / std::acos(Real{-1})), z = twice * (x + 0.044715L * x * x * x);
  return logistic(z) * (1 + x * logistic(-z) * twice * (1 + 3 * 0.044715L * x * x));
}
Real gelu_erf_slope(Real x) {
  return std::erfc(-x / std::sqrt(Real{2})) / 2 + x * std::exp(-x * x / 2) / std::sqrt(2 * std::acos(Real{-1}));
}

// The largest error over [-12, 12], in roundings of 1.
template <class T, class Function, class Exact>
Real worst_roundings(Function&& function, Exact&& exact) {
  Real worst = 0;
  for (int i = -120000; i <= 120000; ++i) {
    const T x = static_cast<T>(i) * static_cast<T>(1.0001e-4);
    const Real off = std::fabs(static_cast<Real>(function(x)) - exact(static_cast<Real>(x)));
    worst = std::isnan(off) ? HUGE_VALL : std::max(worst, off);
  }
  return worst / (static_cast<Real>(std::numeric_limits<T>::epsilon()) / 2);
}

}  // namespace

TEST_CASE("math: the slopes of SiLU and of GELU's tanh form are right to 4 roundings, also where the gate is near 1") {
  CHECK(worst_roundings<float>([](float x) { return math::gelu_tanh_slope(x); }, gelu_tanh_slope) < 4);
  CHECK(worst_roundings<double>([](double x) { return math::gelu_tanh_slope(x); }, gelu_tanh_slope) < 4);
  CHECK(worst_roundings<float>([](float x) { return math::silu_slope(x); }, silu_slope) < 4);
  CHECK(worst_roundings<double>([](double x) { return math::silu_slope(x); }, silu_slope) < 4);
  CHECK(worst_roundings<double>([](double x) { return math::gelu_erf_slope(x); }, gelu_erf_slope) < 4);
}

TEST_CASE("math: GELU at the ends and around 0") {
  CHECK(one<GeluErf>(0.0f) == 0.0f);
  CHECK(one<GeluErf>(kInfinity) == kInfinity);
  CHECK(std::fabs(one<GeluErf>(-kInfinity)) == 0.0f);
  CHECK(std::fabs(one<GeluErf>(-20.0f)) == 0.0f);
  CHECK(one<GeluErf>(1e-20f) == Approx(5e-21));
  CHECK(one<GeluErfSlope>(0.0f) == 0.5f);
  CHECK(one<GeluErfSlope>(kInfinity) == 1.0f);
  CHECK(one<GeluErfSlope>(-kInfinity) == 0.0f);
  CHECK(std::isnan(one<GeluErf>(kNaN)));
  CHECK(std::isnan(one<GeluErfSlope>(kNaN)));
}

TEST_CASE("math: the f64 forms are the exact ones") {
  for (const double x : {-40.0, -3.0, -0.5, -1e-9, 0.0, 1e-9, 0.7, 2.0, 9.0, 40.0}) {
    CHECK(math::exp(x) == std::exp(x));
    CHECK(math::exp_of_difference(x) == std::exp(x));
    CHECK(math::tanh(x) == std::tanh(x));
    if (x > 0) CHECK(math::log(x) == std::log(x));
    CHECK(math::sigmoid(x) == Approx(1 / (1 + std::exp(-x))).epsilon(1e-15));
    CHECK(math::gelu_erf(x) == Approx(x * normal_distribution(x)).epsilon(1e-14));
    CHECK(math::gelu_erf_slope(x) == Approx(normal_distribution(x) + x * normal_density(x)).epsilon(1e-14));
  }
}

// What the header promises of single numbers: every elementwise op, its value and its gradient, at the ends of each
// type's range, at infinities, NaN and zeros, and among subnormal numbers, against the same in long double.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/ops.h"
#include "support/catch.h"
#include "support/tensors.h"

using namespace tril;
using namespace tril::test;

namespace {

using Real = long double;

constexpr Real kInfinity = std::numeric_limits<Real>::infinity();

// What differs from type to type. `error`: what values and gradients may be off, relatively; in f32 that of the
// polynomials of core/kernels/math.h.
template <class T>
struct Range;
template <>
struct Range<float> {
  static constexpr Real least = std::numeric_limits<float>::min(), most = std::numeric_limits<float>::max(),
                        subnormal = std::numeric_limits<float>::denorm_min(), error = 5e-7L;
};
template <>
struct Range<double> {
  static constexpr Real least = std::numeric_limits<double>::min(), most = std::numeric_limits<double>::max(),
                        subnormal = std::numeric_limits<double>::denorm_min(), error = 1e-15L;
};
template <>
struct Range<bf16> {
  static constexpr Real least = std::numeric_limits<float>::min(), most = 3.38953139e38L, subnormal = 9.18354962e-41L,
                        error = 4e-3L;
};

template <class T>
T stored(Real x) {
  if constexpr (std::is_same_v<T, bf16>)
    return bf16(static_cast<float>(x));
  else
    return static_cast<T>(x);
}
template <class T>
Real number(T x) {
  if constexpr (std::is_same_v<T, bf16>)
    return static_cast<Real>(static_cast<float>(x));
  else
    return static_cast<Real>(x);
}

// The rule: numbers below the least normal one count as 0.
template <class T>
Real flushed(Real x) {
  return std::fabs(x) < Range<T>::least ? std::copysign(Real{0}, x) : x;
}
// Whether `got` is the exact result as the type can hold it. Just below the least normal number, 0 is right, too.
template <class T>
bool agrees(Real expected, Real got, Real floor) {
  if (std::isnan(expected)) return std::isnan(got);
  if (std::fabs(expected) > Range<T>::most * (1 + Range<T>::error)) return got == std::copysign(kInfinity, expected);
  if (std::isinf(got))
    return std::fabs(expected) >= Range<T>::most * (1 - Range<T>::error) && (got > 0) == (expected > 0);
  if (std::fabs(expected) < Range<T>::least * (1 + Range<T>::error))
    return std::fabs(got) <= Range<T>::least * (1 + 3 * Range<T>::error);
  return std::fabs(got - expected) <= Range<T>::error * std::fabs(expected) + floor;
}

template <class T>
std::vector<Real> edges() {
  std::vector<Real> all = {std::numeric_limits<Real>::quiet_NaN()};
  for (const Real x : {Real{0},
                       Range<T>::subnormal,
                       Range<T>::least / 4,
                       Range<T>::least,
                       4 * Range<T>::least,
                       Real{1e-30L},
                       Real{1e-3L},
                       Real{0.25L},
                       Real{1},
                       Real{1.5L},
                       Real{5},
                       Real{17},
                       Real{87},
                       Real{88},
                       Real{88.5L},
                       Real{89},
                       Real{200},
                       Real{706},
                       Real{710},
                       Real{745},
                       Real{1e19L},
                       Real{1e30L},
                       Range<T>::most / 4,
                       Range<T>::most,
                       kInfinity})
    for (const Real sign : {Real{1}, Real{-1}}) all.push_back(number(stored<T>(sign * x)));
  return all;
}

struct Unary {
  const char* name;
  Tensor (*op)(const Tensor&);
  Real (*value)(Real);
  Real (*slope)(Real);
  Real floor;  // absolute error of both that the f32 form may have, for |x| under 1 in proportion to x
};

Real logistic(Real x) { return 1 / (1 + std::exp(-x)); }
Real distribution(Real x) { return std::erfc(-x / std::sqrt(Real{2})) / 2; }
Real density(Real x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::acos(Real{-1})); }
constexpr Real kTwice = 1.5957691216057307117597842397375L, kCubic = 0.044715L;
// Where a factor has reached 0, so has the product, whatever the other one is.
Real product(Real vanishing, Real x) { return vanishing == 0 ? Real{0} : vanishing * x; }

const std::vector<Unary> kUnary = {
    {"exp", &tril::exp, [](Real x) { return std::exp(x); }, [](Real x) { return std::exp(x); }, 0},
    {"log", &tril::log, [](Real x) { return std::log(x); }, [](Real x) { return 1 / x; }, 0},
    {"tanh", &tril::tanh, [](Real x) { return std::tanh(x); }, [](Real x) { return 1 / (std::cosh(x) * std::cosh(x)); },
     5e-7L},
    {"sigmoid", &sigmoid, logistic, [](Real x) { return product(logistic(-x), logistic(x)); }, 1e-7L},
    {"relu", &relu, [](Real x) { return x < 0 ? Real{0} : x; }, [](Real x) { return x <= 0 ? Real{0} : Real{1}; }, 0},
    {"silu", &silu, [](Real x) { return product(logistic(x), x); },
     [](Real x) { return logistic(x) + product(logistic(x) * logistic(-x), x); }, 3e-7L},
    {"gelu erf", [](const Tensor& x) { return gelu(x, Gelu::erf); }, [](Real x) { return product(distribution(x), x); },
     [](Real x) { return distribution(x) + product(density(x), x); }, 1e-6L},
    {"gelu tanh", [](const Tensor& x) { return gelu(x, Gelu::tanh); },
     [](Real x) { return product(logistic(kTwice * (x + kCubic * x * x * x)), x); },
     [](Real x) {
       const Real z = kTwice * (x + kCubic * x * x * x), s = logistic(z);
       return s + product(s * logistic(-z), x * kTwice * (1 + 3 * kCubic * x * x));
     },
     1e-6L},
    {"scale", [](const Tensor& x) { return scale(x, -0.75); }, [](Real x) { return Real{-0.75L} * x; },
     [](Real) { return Real{-0.75L}; }, 0},
    {"affine", [](const Tensor& x) { return x + 1.5; }, [](Real x) { return x + Real{1.5L}; },
     [](Real) { return Real{1}; }, 0},
    {"div_by", [](const Tensor& x) { return x / -3; }, [](Real x) { return x / -3; }, [](Real) { return 1 / Real{-3}; },
     0},
    {"reciprocal", [](const Tensor& x) { return -1.5 / x; }, [](Real x) { return Real{-1.5L} / x; },
     [](Real x) { return (Real{1.5L} / x) / x; }, 0},
};

template <class T>
void check_unary(Context& context, const Unary& f) {
  const std::vector<Real> points = edges<T>();
  std::vector<T> values;
  for (const Real x : points) values.push_back(stored<T>(x));
  Tape tape(context);
  const Tensor x = tape.variable<T>({static_cast<int64_t>(values.size())}, values);
  const Tensor y = f.op(x);
  tape.backward(y, tape.constant<T>(y.shape, std::vector<T>(values.size(), stored<T>(1))));
  const std::vector<T> got = values_of<T>(y), slopes = values_of<T>(tape.gradient(x));
  for (size_t i = 0; i < points.size(); ++i) {
    const Real at = flushed<T>(points[i]);
    const bool narrow = !std::is_same_v<T, double>;
    const Real floor =
        narrow ? f.floor * std::min(Real{1}, std::fabs(at)) : Real{4e-16L} * std::min(Real{1}, std::fabs(at));
    INFO(f.name << " of " << static_cast<double>(points[i]) << ": " << static_cast<double>(number(got[i])) << ", slope "
                << static_cast<double>(number(slopes[i])));
    CHECK(agrees<T>(f.value(at), number(got[i]), std::isnan(at) || std::isinf(at) ? 0 : floor));
    // A slope computed from the output, as in PyTorch, is only as exact as the stored output.
    const Real of_output = std::is_same_v<T, bf16> && f.floor > 0 ? 2 * Range<T>::error : Real{0};
    CHECK(agrees<T>(f.slope(at), number(slopes[i]), of_output + (narrow ? f.floor : Real{1e-15L})));
  }
}

struct Binary {
  const char* name;
  Tensor (*op)(const Tensor&, const Tensor&);
  Real (*value)(Real, Real);
  Real (*by_a)(Real, Real);
  Real (*by_b)(Real, Real);
};

const std::vector<Binary> kBinary = {
    {"add", &add, [](Real a, Real b) { return a + b; }, [](Real, Real) { return Real{1}; },
     [](Real, Real) { return Real{1}; }},
    {"sub", &sub, [](Real a, Real b) { return a - b; }, [](Real, Real) { return Real{1}; },
     [](Real, Real) { return Real{-1}; }},
    {"mul", &mul, [](Real a, Real b) { return a * b; }, [](Real, Real b) { return b; }, [](Real a, Real) { return a; }},
    {"div", &tril::div, [](Real a, Real b) { return a / b; }, [](Real, Real b) { return 1 / b; },
     [](Real a, Real b) { return -(a / b) / b; }},
};

template <class T>
void check_binary(Context& context, const Binary& f, T factor) {
  std::vector<T> a, b;
  for (const Real x : edges<T>())
    for (const Real y : edges<T>()) {
      a.push_back(stored<T>(x));
      b.push_back(stored<T>(y));
    }
  Tape tape(context);
  const Shape shape{static_cast<int64_t>(a.size())};
  const Tensor in_a = tape.variable<T>(shape, a), in_b = tape.variable<T>(shape, b), y = f.op(in_a, in_b);
  tape.backward(y, tape.constant<T>(shape, std::vector<T>(a.size(), factor)));
  const std::vector<T> got = values_of<T>(y), by_a = values_of<T>(tape.gradient(in_a)),
                       by_b = values_of<T>(tape.gradient(in_b));
  const Real dy = number(factor);
  for (size_t i = 0; i < a.size(); ++i) {
    const Real x = flushed<T>(number(a[i])), z = flushed<T>(number(b[i]));
    INFO(f.name << " of " << static_cast<double>(a[i]) << " and " << static_cast<double>(b[i]) << ", dy "
                << static_cast<double>(factor) << ": " << static_cast<double>(got[i]) << ", gradients "
                << static_cast<double>(by_a[i]) << " and " << static_cast<double>(by_b[i]));
    // What cancels is as exact as its operands.
    const Real floor = Range<T>::error * std::max(std::fabs(x), std::fabs(z));
    const bool sum = f.op == &add || f.op == &sub;
    CHECK(agrees<T>(f.value(x, z), number(got[i]), sum && std::isfinite(floor) ? floor : 0));
    CHECK(agrees<T>(dy * f.by_a(x, z), number(by_a[i]), 0));
    CHECK(agrees<T>(dy * f.by_b(x, z), number(by_b[i]), 0));
  }
}

}  // namespace

TEMPLATE_TEST_CASE("limits: every elementwise op of one number has IEEE's limits, and subnormals count as 0", "", float,
                   double, bf16) {
  Context context({.threads = 1});
  for (const Unary& f : kUnary) check_unary<TestType>(context, f);
}

TEMPLATE_TEST_CASE("limits: every elementwise op of two numbers is right wherever its result can be held", "", float,
                   double) {
  Context context({.threads = 1});
  for (const Binary& f : kBinary)
    for (const Real dy : {Real{1}, Real{-3e-11L}, Real{2e29L}})
      check_binary<TestType>(context, f, static_cast<TestType>(dy));
}

// The same row of logits moved by c, as long as c + 4 is exact: nothing may depend on c.
TEMPLATE_TEST_CASE("limits: losses and their gradients do not feel a number that all logits have in common", "", float,
                   double) {
  using T = TestType;
  Context context({.threads = 1});
  const double exact = 4 + std::log1p(std::exp(-2.0) + std::exp(-4.0));
  const double e0 = std::exp(-4.0) / (1 + std::exp(-2.0) + std::exp(-4.0));
  const T tolerance = 8 * std::numeric_limits<T>::epsilon();
  for (const double c : {0.0, 3.0, -50.0, 2e4, -2e4, 4e6, sizeof(T) == 4 ? 8e6 : 3e15, sizeof(T) == 4 ? -8e6 : -3e15}) {
    INFO("c = " << c);
    Tape tape(context);
    const Tensor x = tape.variable<T>({1, 3}, {T(c), T(c + 2), T(c + 4)});
    const Tensor loss = cross_entropy(x, tape.constant<int32_t>({1}, {0}));
    tape.backward(loss);
    CHECK(loss.item() == Approx(exact).epsilon(static_cast<double>(tolerance)));
    const std::vector<T> dx = values_of<T>(tape.gradient(x));
    CHECK(static_cast<double>(dx[0]) == Approx(e0 - 1).epsilon(static_cast<double>(tolerance)));
    CHECK(std::fabs(dx[0] + dx[1] + dx[2]) <= tolerance);
    tape.reset();
    const Tensor again = tape.variable<T>({1, 3}, {T(c), T(c + 2), T(c + 4)});
    const Tensor logs = log_softmax(again);
    tape.backward(logs, tape.constant<T>({1, 3}, {1, 0, 0}));
    CHECK(static_cast<double>(logs.ptr<T>()[0]) == Approx(-exact).epsilon(static_cast<double>(tolerance)));
    const std::vector<T> d = values_of<T>(tape.gradient(again));
    CHECK(static_cast<double>(d[0]) == Approx(1 - e0).epsilon(static_cast<double>(tolerance)));
    CHECK(std::fabs(d[0] + d[1] + d[2]) <= tolerance);
  }
}

// Scores q k of (c, c + 2, c + 4), and values whose gradients are the weights.
TEMPLATE_TEST_CASE("limits: attention does not feel a number that all scores have in common", "", float, double) {
  using T = TestType;
  Context context({.threads = 1});
  const auto run = [&](double c) {
    Tape tape(context);
    const Tensor q = tape.variable<T>({1, 1, 2}, {1, 1});
    const Tensor k = tape.variable<T>({1, 3, 2}, {T(c), 0, T(c), 2, T(c), 4});
    const Tensor v = tape.variable<T>({1, 3, 2}, {1, 0, 0, 1, 3, -2});
    const Tensor y = attention(q, k, v, {.scale = 1.0});
    tape.backward(y, tape.constant<T>({1, 1, 2}, {T(1), T(0.5)}));
    std::vector<T> all = values_of<T>(y);
    for (const Tensor& x : {k, v})
      for (const T g : values_of<T>(tape.gradient(x))) all.push_back(g);
    const std::vector<T> dv = values_of<T>(tape.gradient(v));
    CHECK(std::fabs(dv[0] + dv[2] + dv[4] - 1) <= 8 * std::numeric_limits<T>::epsilon());
    return all;
  };
  const std::vector<T> plain = run(0);
  for (const double c : {3.0, -50.0, 2e4, -2e4, 4e6, sizeof(T) == 4 ? 8e6 : 3e15}) {
    INFO("c = " << c);
    CHECK(difference(run(c), plain) <= 8 * static_cast<double>(std::numeric_limits<T>::epsilon()));
  }
}

TEMPLATE_TEST_CASE("limits: the norm of equal numbers is the bias, and a row of one has no gradient, exactly", "",
                   float, double) {
  using T = TestType;
  Context context({.threads = 1});
  for (const double value : {0.1, 1.0 / 3.0, 1234.567, -3e-5, 7e18, 0.0})
    for (const int64_t width : {1, 2, 3, 7, 16, 17, 33, 64, 100, 384, 1000}) {
      INFO(width << " times " << value);
      Tape tape(context);
      const auto n = static_cast<size_t>(width);
      const Tensor x = tape.variable<T>({2, width}, std::vector<T>(2 * n, static_cast<T>(value)));
      const Tensor zero = tape.constant<T>({2, width}, std::vector<T>(2 * n, T{0}));
      const Tensor weight = tape.variable<T>({width}, noise<T>(width, 1)),
                   bias = tape.variable<T>({width}, noise<T>(width, 2));
      // All terms of the gradient (cotangent times weight) are equal, so they cancel to exactly 0.
      std::vector<T> dy;
      for (size_t i = 0; i < 2 * n; ++i) dy.push_back(width == 1 ? static_cast<T>(0.3) : static_cast<T>(1));
      const Tensor ones = tape.constant<T>({width}, std::vector<T>(n, static_cast<T>(0.7)));
      const Tensor y = layer_norm(x, width == 1 ? weight : ones, bias),
                   both = add_layer_norm(x, zero, width == 1 ? weight : ones, bias).normed;
      for (const Tensor& out : {y, both})
        for (int64_t i = 0; i < 2 * width; ++i) REQUIRE(out.ptr<T>()[i] == bias.ptr<T>()[i % width]);
      tape.backward(y, tape.constant<T>({2, width}, dy));
      for (const T g : values_of<T>(tape.gradient(x))) REQUIRE(g == 0);
      tape.backward(both, tape.constant<T>({2, width}, dy));
      for (const T g : values_of<T>(tape.gradient(x))) REQUIRE(g == 0);
    }
}

TEMPLATE_TEST_CASE("limits: the norm of numbers whose squares leave the range is that of smaller ones", "", float,
                   double) {
  using T = TestType;
  Context context({.threads = 1});
  const auto run = [&](T factor) {
    std::vector<T> numbers = noise<T>(40, 1);
    for (T& x : numbers) x *= factor;
    Tape tape(context);
    const Tensor x = tape.variable<T>({2, 20}, numbers), weight = tape.variable<T>({20}, noise<T>(20, 2));
    const Tensor y = layer_norm(x, weight);
    tape.backward(y, tape.constant<T>({2, 20}, noise<T>(40, 3)));
    std::vector<double> all;
    for (const T value : values_of<T>(y)) all.push_back(static_cast<double>(value));
    for (const T g : values_of<T>(tape.gradient(x)))
      all.push_back(static_cast<double>(g) * static_cast<double>(factor));
    for (const T g : values_of<T>(tape.gradient(weight))) all.push_back(static_cast<double>(g));
    return all;
  };
  const std::vector<double> plain = run(T(0x1p10));
  for (const T factor :
       {T(0x1p40), sizeof(T) == 4 ? T(0x1p70) : T(0x1p600), sizeof(T) == 4 ? T(0x1p118) : T(0x1p1000)}) {
    INFO("times " << static_cast<double>(factor));
    CHECK(difference(run(factor), plain) < (sizeof(T) == 4 ? 2e-5 : 1e-8));
  }
}

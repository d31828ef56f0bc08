// Tensors with numbers, in every form that C++ users write, in every floating type.
#include <cmath>
#include <limits>

#include "core/gradcheck/gradcheck.h"
#include "core/ops.h"
#include "nn/layers.h"
#include "support/catch.h"
#include "support/tensors.h"

using namespace tril;
using namespace tril::test;

namespace {

template <class A, class B>
concept Arithmetic = requires(const A& a, const B& b) {
  { a + b } -> std::same_as<Tensor>;
  { a - b } -> std::same_as<Tensor>;
  { a* b } -> std::same_as<Tensor>;
  { a / b } -> std::same_as<Tensor>;
};
template <class... Numbers>
constexpr bool with_all() {
  return ((Arithmetic<Tensor, Numbers> && Arithmetic<Numbers, Tensor> && Arithmetic<Param, Numbers> &&
           Arithmetic<Numbers, Param>)&&...);
}
static_assert(with_all<int, long, long long, short, unsigned, size_t, int64_t, float, double, long double>());
static_assert(Arithmetic<Tensor, Tensor> && Arithmetic<Param, Tensor> && Arithmetic<Tensor, Param>);
static_assert(requires(const Tensor& x, const Param& p) {
  { -x } -> std::same_as<Tensor>;
  { -p } -> std::same_as<Tensor>;
});
static_assert(!Arithmetic<Tensor, const char*> && !Arithmetic<Tensor, std::nullptr_t>);

// Expected: the numbers are rounded to T, the formula is computed in T's arithmetic, and the result is rounded once.
template <class T>
void check_all_forms() {
  using C = Compute<T>;
  Context context({.threads = 1});
  Tape tape(context);
  std::vector<T> numbers;
  for (const double value : {-2.5, 0.3, 1.0, 49.0, 1e-3}) numbers.push_back(static_cast<T>(static_cast<C>(value)));
  const Tensor x = tape.variable<T>({5}, numbers);
  const auto expect = [&](const Tensor& y, auto&& formula) {
    CHECK(y.dtype == kDTypeOf<T>);
    CHECK(y.shape == x.shape);
    std::vector<T> expected;
    for (const T value : numbers) expected.push_back(static_cast<T>(formula(static_cast<C>(value))));
    CHECK(same_bits(values_of<T>(y), expected));
  };
  expect(x * 2.0, [](C v) { return v * C(2); });
  expect(2.0 * x, [](C v) { return v * C(2); });
  expect(x * 3, [](C v) { return v * C(3); });
  expect(-x, [](C v) { return -v; });
  expect(x + 1, [](C v) { return v + C(1); });
  expect(0.1 + x, [](C v) { return v + C(0.1); });
  expect(x + 0.1f, [](C v) { return v + C(0.1f); });
  expect(x - 1, [](C v) { return v - C(1); });
  expect(x - 3u, [](C v) { return v - C(3); });
  expect(x - size_t{3}, [](C v) { return v - C(3); });
  expect(1 - x, [](C v) { return C(1) - v; });
  expect(x / 2, [](C v) { return v / C(2); });
  expect(x / 49, [](C v) { return v / C(49); });
  expect(1 / x, [](C v) { return C(1) / v; });
  expect(1.5 / x, [](C v) { return C(1.5) / v; });
}

}  // namespace

TEST_CASE("operators: with numbers, in f64, f32 and bf16, the type stays") {
  check_all_forms<double>();
  check_all_forms<float>();
  check_all_forms<bf16>();
}

TEST_CASE("operators: gradients of every form are right") {
  const auto check = [](const char* label, const SampleFunction& run) {
    const Sample sample{
        .label = label, .inputs = {{.shape = {3, 5}, .values = SampleInput::Values::positive}}, .run = run};
    const GradcheckResult result = gradcheck("operators", sample, {});
    INFO(result.report());
    CHECK(result.verdict() == Verdict::passed);
  };
  check("x * 2.5, 2 * x, -x", [](auto in) { return std::vector{in[0] * 2.5, 2 * in[0], -in[0]}; });
  check("x + 1, 1.5 + x, x - 1, 1 - x", [](auto in) {
    return std::vector{in[0] + 1, 1.5 + in[0], in[0] - 1, 1 - in[0]};
  });
  check("x / 3, 1 / x, -2.5 / x", [](auto in) { return std::vector{in[0] / 3, 1 / in[0], -2.5 / in[0]}; });
  check("together", [](auto in) {
    const Tensor x = in[0];
    return std::vector{(1 - x) * (x + 1) / (2 - 1 / (x * x + 3)) - x / 7};
  });
  check("logistic", [](auto in) { return std::vector{1 / (1 + exp(-in[0]))}; });
}

TEST_CASE("operators: a tensor's neighbours stay out of it, and no large tensor is copied for a number") {
  Context context({.threads = 1});
  Tape tape(context);
  const Tensor x = tape.variable<float>({2, 3}, noise<float>(6, 1));
  (void)(1 - x / 2 + 3);
  CHECK(tape.to_string() ==
        "div_by -> %1 f32 (2, 3) from %0\naffine -> %2 f32 (2, 3) from %1\naffine -> %3 f32 (2, 3) from %2\n");
}

TEST_CASE("operators: special numbers go their IEEE way") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Context context({.threads = 1});
  Tape tape(context);
  const Tensor x = tape.variable<double>({4}, {0.0, -0.0, kInfinity, 2.0});
  CHECK(values_of<double>(1 / x) == std::vector<double>{kInfinity, -kInfinity, 0.0, 0.5});
  CHECK(same_bits(values_of<double>(-x), {-0.0, 0.0, -kInfinity, -2.0}));
  CHECK(same_bits(values_of<double>(0 - x), {0.0, 0.0, -kInfinity, -2.0}));
  CHECK(same_bits(values_of<double>(x - 0.0), {0.0, -0.0, kInfinity, 2.0}));
  CHECK(values_of<double>(x / kInfinity)[3] == 0.0);
  const std::vector<double> by_zero = values_of<double>(x / 0);
  CHECK(std::isnan(by_zero[0]));
  CHECK(by_zero[3] == kInfinity);
  CHECK(std::isnan(values_of<double>(x * std::nan(""))[3]));
}

TEST_CASE("operators: what has no floating type, or no tape, is refused") {
  Context context({.threads = 1});
  Tape tape(context);
  const Tensor ids = tape.constant<int32_t>({2}, {1, 2});
  CHECK_THROWS_WITH(ids * 2, contains("scale: expected x of f32, f64 or bf16, got i32"));
  CHECK_THROWS_WITH(ids + 1, contains("affine: expected x of f32, f64 or bf16, got i32"));
  ParamStore store;
  const Linear layer(Scope(store) / "layer", 2, 2);
  CHECK_THROWS_WITH(layer.weight * 2, contains("parameter layer.weight: expected values"));
  store.freeze();
  CHECK_THROWS_WITH(-layer.weight, contains("scale: expected at least one operand on a tape"));
}

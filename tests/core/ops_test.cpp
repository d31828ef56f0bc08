// What single ops must do besides a right gradient: edge cases that went wrong in other libraries.
#include "core/ops.h"

#include <cmath>
#include <limits>

#include "support/catch.h"
#include "support/tensors.h"

using namespace tril;
using namespace tril::test;

namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

template <class T>
bool all_finite(const std::vector<T>& values) {
  for (const T value : values)
    if (!std::isfinite(value)) return false;
  return true;
}

std::vector<double> gradient_of(Tape& tape, const Tensor& x) { return values_of<double>(tape.gradient(x)); }

Tensor random_variable(Tape& tape, const Shape& shape, uint64_t seed) {
  return tape.variable<double>(shape, noise<double>(shape.count(), seed));
}

// Backward from a random projection, so that nothing cancels.
void backward(Tape& tape, const Tensor& y, uint64_t seed = 99) {
  tape.backward(y, tape.constant<double>(y.shape, noise<double>(y.count(), seed)));
}

// Numbers of y (B, T, C) of sample b at time t.
std::vector<double> at_time(const Tensor& y, int64_t b, int64_t t) {
  const double* const row = y.ptr<double>() + (b * y.shape[1] + t) * y.shape[2];
  return {row, row + y.shape[2]};
}

}  // namespace

TEST_CASE("ops: attention under a causal mask and lengths together heeds both") {
  Context context({.threads = 2});
  constexpr int64_t kBatch = 2, kTime = 5, kWidth = 4;
  const std::vector<double> numbers = noise<double>(kBatch * kTime * kWidth, 1);
  const std::vector<int32_t> lengths = {3, 5};
  const auto run = [&](const std::vector<double>& keys) {
    Tape tape(context);
    const Tensor k = tape.constant<double>({kBatch, kTime, kWidth}, keys);
    const Tensor q = tape.constant<double>({kBatch, kTime, kWidth}, numbers);
    return values_of<double>(
        attention(q, k, k, {.heads = 2, .causal = true}, {.lengths = tape.constant<int32_t>({kBatch}, lengths)}));
  };
  const std::vector<double> before = run(numbers);
  REQUIRE(all_finite(before));
  for (int64_t b = 0; b < kBatch; ++b)
    for (int64_t j = 0; j < kTime; ++j) {
      std::vector<double> changed = numbers;
      for (int64_t c = 0; c < kWidth; ++c) changed[static_cast<size_t>((b * kTime + j) * kWidth + c)] += 100.0;
      const std::vector<double> after = run(changed);
      const bool padding = j >= lengths[static_cast<size_t>(b)];
      for (int64_t i = 0; i < kBatch * kTime; ++i) {
        const bool sees = i / kTime == b && i % kTime >= j && !padding;
        const auto row = static_cast<size_t>(i * kWidth);
        INFO("key " << j << " of sample " << b << ", query " << i % kTime << " of sample " << i / kTime);
        CHECK(std::equal(&before[row], &before[row] + kWidth, &after[row]) == !sees);
      }
    }
}

TEST_CASE("ops: attention gives 0 and gradient 0 where nothing may be seen") {
  Context context({.threads = 2});
  for (const bool causal : {false, true}) {
    Tape tape(context);
    const Tensor q = random_variable(tape, {2, 4, 6}, 1), k = random_variable(tape, {2, 3, 6}, 2),
                 v = random_variable(tape, {2, 3, 6}, 3);
    const Tensor lengths = tape.constant<int32_t>({2}, {0, 2});
    const Tensor y = attention(q, k, v, {.heads = 3, .causal = causal, .dropout = 0.25}, {.lengths = lengths});
    backward(tape, y);
    const std::vector<double> zeros(6, 0.0);
    for (int64_t t = 0; t < 4; ++t) CHECK(at_time(y, 0, t) == zeros);
    for (int64_t t = 0; t < 4; ++t) CHECK(at_time(tape.gradient(q), 0, t) == zeros);
    for (const Tensor& operand : {k, v}) {
      for (int64_t t = 0; t < 3; ++t) CHECK(at_time(tape.gradient(operand), 0, t) == zeros);
      CHECK(at_time(tape.gradient(operand), 1, 2) == zeros);  // past the length
      CHECK(at_time(tape.gradient(operand), 1, 0) != zeros);
    }
    for (const Tensor& operand : {q, k, v}) CHECK(all_finite(gradient_of(tape, operand)));
  }
}

TEST_CASE("ops: rows of softmax that are all -inf give 0 and gradient 0") {
  Context context({.threads = 1});
  Tape tape(context);
  const Tensor x = tape.variable<double>({3, 2}, {kMinusInfinity, kMinusInfinity, 1, kMinusInfinity, 2, 3});
  const Tensor y = softmax(x);
  backward(tape, y);
  const std::vector<double> values = values_of<double>(y), gradient = gradient_of(tape, x);
  CHECK(values[0] == 0);
  CHECK(values[1] == 0);
  CHECK(values[2] == 1);
  CHECK(values[3] == 0);
  CHECK(values[4] + values[5] == Approx(1));
  REQUIRE(all_finite(gradient));
  for (size_t i = 0; i < 4; ++i) CHECK(gradient[i] == 0);
  CHECK(gradient[4] == Approx(-gradient[5]));
}

TEST_CASE("ops: attention is a convex combination, so values of 1 come out as 1") {
  Context context({.threads = 2});
  for (const bool causal : {false, true})
    for (const int64_t keys : {1, 3, 33, 70}) {
      Tape tape(context);
      const Tensor q = random_variable(tape, {2, 37, 6}, 1), k = random_variable(tape, {2, keys, 6}, 2);
      const Tensor ones = tape.constant<double>({2, keys, 6}, std::vector<double>(static_cast<size_t>(12 * keys), 1.0));
      for (const double y : values_of<double>(attention(scale(q, 3.0), k, ones, {.heads = 2, .causal = causal})))
        REQUIRE(y == Approx(1.0).epsilon(1e-13));
    }
}

TEST_CASE("ops: masking by -inf equals multiplying the weights by the mask and renormalising") {
  Context context({.threads = 1});
  Tape tape(context);
  constexpr int64_t kQueries = 4, kKeys = 5, kWidth = 3;
  const Tensor q = random_variable(tape, {1, kQueries, kWidth}, 1), k = random_variable(tape, {1, kKeys, kWidth}, 2),
               v = random_variable(tape, {1, kKeys, kWidth}, 3);
  std::vector<double> mask, minus_infinity;
  for (int64_t i = 0; i < kQueries; ++i)
    for (int64_t j = 0; j < kKeys; ++j) {
      mask.push_back(j <= i ? 1.0 : 0.0);
      minus_infinity.push_back(j <= i ? 0.0 : kMinusInfinity);
    }
  const Shape square{1, kQueries, kKeys};
  const Tensor scores = scale(matmul(q, k, {.transpose_b = true}), 1 / std::sqrt(3.0));
  const Tensor added = matmul(softmax(scores + tape.constant<double>(square, minus_infinity)), v);
  const Tensor kept = exp(scores) * tape.constant<double>(square, mask);
  const Tensor renormalised = matmul(kept / sum(kept, {2}, true), v);
  const Tensor fused = attention(q, k, v, {.heads = 1, .causal = true});
  CHECK(difference(values_of<double>(added), values_of<double>(renormalised)) < 1e-14);
  CHECK(difference(values_of<double>(fused), values_of<double>(renormalised)) < 1e-14);
}

TEST_CASE("ops: no attention option lets the future through") {
  Context context({.threads = 2, .seed = 5});
  constexpr int64_t kTime = 40, kWidth = 6;
  const std::vector<float> numbers = noise<float>(kTime * 3 * kWidth, 1);
  const AttentionOptions causal{.heads = 2, .causal = true};
  AttentionOptions dropped = causal, unscaled = causal, one_head = causal;
  dropped.dropout = 0.5;
  unscaled.scale = 1.0;
  one_head.heads = 1;
  for (const AttentionOptions& options : {causal, dropped, unscaled, one_head}) {
    const auto run = [&](const std::vector<float>& x) {
      Tape tape(context);
      return values_of<float>(attention(tape.constant<float>({1, kTime, 3 * kWidth}, x), options));
    };
    const std::vector<float> before = run(numbers);
    for (const int64_t j : {1, 15, 16, 31, 32, 39}) {
      std::vector<float> changed = numbers;
      for (size_t c = static_cast<size_t>(j * 3 * kWidth); c < changed.size(); ++c) changed[c] = 1e30f;
      const std::vector<float> after = run(changed);
      const auto end = static_cast<std::ptrdiff_t>(j * kWidth);
      CHECK(std::equal(before.begin(), before.begin() + end, after.begin()));
    }
  }
}

TEST_CASE("ops: a causal mask is the lower triangle, also where there are more keys than queries") {
  Context context({.threads = 1});
  Tape tape(context);
  const Tensor q = tape.constant<double>({1, 2, 1}, {0, 0});
  const Tensor k = tape.constant<double>({1, 4, 1}, {0, 0, 0, 0}), v = tape.constant<double>({1, 4, 1}, {1, 3, 5, 7});
  CHECK(values_of<double>(attention(q, k, v, {.causal = true})) == std::vector<double>{1, 2});
  CHECK(values_of<double>(attention(q, k, v)) == std::vector<double>{4, 4});
}

TEST_CASE("ops: a full length masks nothing, bit for bit") {
  Context context({.threads = 2});
  Tape tape(context);
  const Tensor x = random_variable(tape, {2, 5, 12}, 1);
  const Tensor lengths = tape.constant<int32_t>({2}, {5, 5});
  CHECK(same_bits(values_of<double>(attention(x, {.heads = 2}, {.lengths = lengths})),
                  values_of<double>(attention(x, {.heads = 2}))));
}

TEST_CASE("ops: attention weights under dropout average to the weights without") {
  Context context({.threads = 2});
  Tape tape(context);
  constexpr int64_t kTime = 64;
  const Tensor zero = tape.constant<double>({8, kTime, 4}, std::vector<double>(8 * kTime * 4, 0.0));
  const Tensor ones = tape.constant<double>({8, kTime, 4}, std::vector<double>(8 * kTime * 4, 1.0));
  const double average = mean(attention(zero, zero, ones, {.heads = 4, .dropout = 0.3})).item();
  // Each row is a mean of 64 numbers that are 0 or 1/0.7.
  CHECK(std::fabs(average - 1) < 4.5 * std::sqrt(0.3 / 0.7 / (8 * 4 * kTime * kTime)));
}

TEST_CASE("ops: attention in f32 agrees with its composition in f64 over odd sizes") {
  Context context({.threads = 2});
  for (const int64_t head : {1, 3, 8, 17, 32})
    for (const int64_t time : {1, 5, 31, 33, 66})
      for (const bool causal : {false, true}) {
        const int64_t width = 2 * head;
        const std::vector<double> numbers = noise<double>(time * 3 * width, static_cast<uint64_t>(time + head));
        const std::vector<float> rounded(numbers.begin(), numbers.end());
        const std::vector<double> exact(rounded.begin(), rounded.end());
        Tape tape(context);
        const Tensor x = tape.variable<float>({1, time, 3 * width}, rounded);
        const Tensor y = attention(x, {.heads = 2, .causal = causal});
        tape.backward(sum(y * y));
        const std::vector<float> got = values_of<float>(y), gradient = values_of<float>(tape.gradient(x));
        tape.reset();
        const Tensor reference = tape.variable<double>({1, time, 3 * width}, exact);
        std::vector<double> mask(static_cast<size_t>(time * time), 0.0);
        for (int64_t i = 0; i < time; ++i)
          for (int64_t j = i + 1; causal && j < time; ++j) mask[static_cast<size_t>(i * time + j)] = kMinusInfinity;
        const Tensor heads = permute(reshape(reference, {1, time, 3, 2, head}), {2, 0, 3, 1, 4});
        const auto part = [&](int64_t i) { return reshape(slice(heads, 0, i, i + 1), {1, 2, time, head}); };
        const Tensor scores =
            scale(matmul(part(0), part(1), {.transpose_b = true}), 1 / std::sqrt(static_cast<double>(head))) +
            tape.constant<double>({time, time}, mask);
        const Tensor composed = reshape(permute(matmul(softmax(scores), part(2)), {0, 2, 1, 3}), {1, time, width});
        tape.backward(sum(composed * composed));
        INFO("head size " << head << ", time " << time << (causal ? ", causal" : ""));
        CHECK(difference(std::vector<double>(got.begin(), got.end()), values_of<double>(composed)) < 3e-6);
        CHECK(difference(std::vector<double>(gradient.begin(), gradient.end()), gradient_of(tape, reference)) < 3e-5);
      }
}

TEST_CASE("ops: layer_norm of rows without variance gives the bias, with finite gradients") {
  Context context({.threads = 1});
  const auto run = [&](auto type, const Shape& shape, const std::vector<double>& numbers) {
    using T = decltype(type);
    Tape tape(context);
    const int64_t width = shape[-1];
    const Tensor x = tape.variable<T>(shape, std::vector<T>(numbers.begin(), numbers.end()));
    const Tensor weight = tape.variable<T>({width}, noise<T>(width, 1)),
                 bias = tape.variable<T>({width}, noise<T>(width, 2));
    const Tensor y = layer_norm(x, weight, bias);
    tape.backward(sum(y * y));
    for (const Tensor& operand : {x, weight, bias}) CHECK(all_finite(values_of<T>(tape.gradient(operand))));
    for (int64_t i = 0; i < y.count(); ++i) {
      INFO("element " << i);
      CHECK(static_cast<double>(y.ptr<T>()[i]) == Approx(static_cast<double>(bias.ptr<T>()[i % width])).margin(1e-3));
    }
  };
  const std::vector<double> zeros(12, 0.0), constants(12, 1234.0);
  run(double{}, {3, 4}, zeros);
  run(float{}, {3, 4}, zeros);
  run(double{}, {3, 4}, constants);
  run(float{}, {3, 4}, constants);
  run(float{}, {1, 12}, std::vector<double>(12, 0.1));
  run(double{}, {5, 1}, {1, -2, 3e8, 0, 1e-9});
  run(float{}, {5, 1}, {1, -2, 3e8, 0, 1e-9});
}

TEST_CASE("ops: layer_norm keeps small differences on a large mean") {
  Context context({.threads = 1});
  Tape tape(context);
  const Tensor x = tape.variable<double>({1, 4}, {1e8 + 1, 1e8 - 1, 1e8 + 3, 1e8 - 3});
  const Tensor y = layer_norm(x, tape.constant<double>({4}, {1, 1, 1, 1}));
  backward(tape, y);
  const double r = 1 / std::sqrt(5.0 + 1e-5);
  CHECK(difference(values_of<double>(y), {r, -r, 3 * r, -3 * r}) < 1e-7);
  CHECK(all_finite(gradient_of(tape, x)));
  // In f32 the mean of numbers that large is a rounded one, and what comes out is rough but sane.
  const Tensor rough = tape.variable<float>({1, 4}, {1e8f, 1e8f + 8, 1e8f + 16, 1e8f + 24});
  const Tensor normed = layer_norm(rough, tape.constant<float>({4}, {1, 1, 1, 1}));
  tape.backward(sum(normed * normed));
  for (const float value : values_of<float>(normed)) CHECK(std::fabs(value) < 2);
  CHECK(all_finite(values_of<float>(tape.gradient(rough))));
}

TEST_CASE("ops: the gradient of a maximum is shared by all that tie, however many") {
  Context context({.threads = 1});
  constexpr int64_t kCount = 70000;
  {
    Tape tape(context);
    const Tensor x = tape.variable<float>({kCount}, std::vector<float>(kCount, 1.0f));
    tape.backward(max(x));
    const std::vector<float> gradient = values_of<float>(tape.gradient(x));
    double total = 0;
    for (const float g : gradient) total += static_cast<double>(g);
    CHECK(total == Approx(1.0).epsilon(1e-6));
    CHECK(gradient.front() == gradient.back());
  }
  Tape tape(context);
  const Tensor x = tape.variable<double>({2, 3}, {5, 5, 1, 0, 2, 1});
  tape.backward(sum(max(x, {1})));
  CHECK(gradient_of(tape, x) == std::vector<double>{0.5, 0.5, 0, 0, 1, 0});
}

TEST_CASE("ops: NaN comes through, and is not lost in a maximum or a mask") {
  Context context({.threads = 1});
  Tape tape(context);
  const double nan = std::nan("");
  const Tensor x = tape.constant<double>({3}, {1, nan, 2});
  CHECK(std::isnan(max(x).item()));
  CHECK(std::isnan(sum(x).item()));
  CHECK(std::isnan(relu(x).ptr<double>()[1]));
  CHECK(std::isnan(softmax(x).ptr<double>()[0]));
  CHECK(std::isnan(cross_entropy(reshape(x, {1, 3}), tape.constant<int32_t>({1}, {0})).item()));
}

TEST_CASE("ops: derivatives are finite at the ends of the range") {
  Context context({.threads = 1});
  using Function = Tensor (*)(const Tensor&);
  const std::vector<std::pair<const char*, Function>> functions = {
      {"tanh", &tril::tanh},
      {"sigmoid", &sigmoid},
      {"relu", &relu},
      {"silu", &silu},
      {"gelu erf", [](const Tensor& x) { return gelu(x, Gelu::erf); }},
      {"gelu tanh", [](const Tensor& x) { return gelu(x, Gelu::tanh); }},
      {"softmax", [](const Tensor& x) { return softmax(x); }},
      {"log_softmax", [](const Tensor& x) { return log_softmax(x); }},
      {"cross_entropy", [](const Tensor& x) {
         return cross_entropy(reshape(x, {1, 8}), x.tape->constant<int32_t>({1}, {0}));
       }}};
  for (const auto& [name, function] : functions) {
    INFO(name);
    Tape tape(context);
    const Tensor x = tape.variable<float>({8}, {-1e4f, 1e4f, -88, 88, -1e-38f, 0, 300, -300});
    const Tensor y = function(x);
    tape.backward(sum(y));
    CHECK(all_finite(values_of<float>(y)));
    CHECK(all_finite(values_of<float>(tape.gradient(x))));
  }
}

TEST_CASE("ops: cross_entropy of logits far apart is exact, and ignored targets have gradient 0") {
  Context context({.threads = 1});
  Tape tape(context);
  const Tensor x = tape.variable<float>({3, 3}, {1e4f, 0, -1e4f, 1, 2, 3, 0, 0, 0});
  const Tensor loss = cross_entropy(x, tape.constant<int32_t>({3}, {2, -1, 1}));
  tape.backward(loss);
  CHECK(loss.item() == Approx((2e4 + std::log(3.0)) / 2).epsilon(1e-6));
  const std::vector<float> gradient = values_of<float>(tape.gradient(x));
  CHECK(gradient[0] == Approx(0.5));
  CHECK(gradient[2] == Approx(-0.5));
  for (size_t i = 3; i < 6; ++i) CHECK(gradient[i] == 0.0f);
  CHECK(gradient[6] == Approx(1.0 / 6));
  CHECK(gradient[7] == Approx(-1.0 / 3));
  const Tensor none = cross_entropy(x, tape.constant<int32_t>({3}, {-1, -1, -1}));
  CHECK(none.item() == 0);
}

TEST_CASE("ops: the loss of equal logits is ln V") {
  Context context({.threads = 1});
  Tape tape(context);
  for (const int64_t classes : {1, 2, 16, 65}) {
    const Tensor x = tape.constant<float>({4, classes}, std::vector<float>(static_cast<size_t>(4 * classes), 0.7f));
    const double loss = cross_entropy(x, tape.constant<int32_t>({4}, {0, 0, 0, 0})).item();
    CHECK(loss == Approx(std::log(static_cast<double>(classes))).margin(1e-6));
  }
}

TEST_CASE("ops: a broadcast operand's gradient is the sum over its repetitions") {
  Context context({.threads = 2});
  Tape tape(context);
  const Tensor x = random_variable(tape, {2, 3, 4}, 1);
  const Tensor bias = tape.variable<double>({1, 4}, {0, 0, 0, 0}), scalar = tape.variable<double>({}, {2.0});
  tape.backward(sum((x + bias) * scalar));
  CHECK(gradient_of(tape, bias) == std::vector<double>{12, 12, 12, 12});
  CHECK(gradient_of(tape, scalar)[0] == Approx(sum(x).item()));
}

TEST_CASE("ops: the two forms of GELU differ by as much as they should") {
  Context context({.threads = 1});
  Tape tape(context);
  std::vector<double> points;
  for (double x = -5; x <= 5; x += 0.01) points.push_back(x);
  const Tensor x = tape.constant<double>({static_cast<int64_t>(points.size())}, points);
  const double apart = difference(values_of<double>(gelu(x, Gelu::erf)), values_of<double>(gelu(x, Gelu::tanh)));
  CHECK(apart > 1e-4);
  CHECK(apart < 5e-4);
}

TEST_CASE("ops: sums of many f32 numbers are made in f64") {
  Context context({.threads = 2});
  Tape tape(context);
  constexpr int64_t kCount = 3'000'000;
  const Tensor x = tape.constant<float>({kCount}, std::vector<float>(kCount, 0.1f));
  CHECK(sum(x).item() == Approx(0.1f * static_cast<double>(kCount)).epsilon(1e-7));
  CHECK(mean(x).item() == Approx(0.1f).epsilon(1e-7));
}

// The rule of core/ops.h for numbers that are not finite: NaN and infinity spread, forward and backward, exactly as the
// formula says, the same in every op and block. A masked token has no influence, whatever it holds.
#include <cmath>
#include <limits>

#include "core/ops.h"
#include "support/catch.h"
#include "support/tensors.h"

using namespace tril;
using namespace tril::test;

namespace {

const double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <class T>
std::vector<double> doubles(const Tensor& x) {
  std::vector<double> out;
  for (const T value : values_of<T>(x))
    out.push_back(std::is_same_v<T, double> ? static_cast<double>(value)
                                            : static_cast<double>(static_cast<float>(value)));
  return out;
}

template <class T>
std::vector<T> narrowed(const std::vector<double>& x) {
  std::vector<T> out;
  for (const double value : x) {
    if constexpr (std::is_same_v<T, double>) {
      out.push_back(value);
    } else {
      out.push_back(T(static_cast<float>(value)));
    }
  }
  return out;
}

// Which of the numbers are not finite, as a string of marks that a failed check shows.
std::string marks(const double* x, int64_t n) {
  std::string out;
  for (int64_t i = 0; i < n; ++i) out += std::isfinite(x[i]) ? '.' : 'x';
  return out;
}

}  // namespace

TEMPLATE_TEST_CASE("nonfinite: the gradient of relu is that of the side x lies on, and that of NaN passes", "", float,
                   double, bf16) {
  Context context({.threads = 1});
  Tape tape(context);
  const std::vector<double> x = {kNaN, -1, 0, 2, -kInfinity, kInfinity, kNaN, -3},
                            dy = {2, kInfinity, kNaN, kInfinity, kNaN, kNaN, kNaN, kNaN};
  const Tensor in = tape.variable<TestType>({8}, narrowed<TestType>(x));
  tape.backward(relu(in), tape.constant<TestType>({8}, narrowed<TestType>(dy)));
  const std::vector<double> got = doubles<TestType>(tape.gradient(in));
  CHECK(got[0] == 2);
  CHECK(got[1] == 0);
  CHECK(got[2] == 0);
  CHECK(got[3] == kInfinity);
  CHECK(got[4] == 0);
  CHECK(std::isnan(got[5]));
  CHECK(std::isnan(got[6]));
  CHECK(got[7] == 0);
}

TEMPLATE_TEST_CASE("nonfinite: the gradient of a maximum that is NaN goes to what is NaN", "", float, double) {
  Context context({.threads = 1});
  Tape tape(context);
  const Tensor x = tape.variable<TestType>(
      {3, 4}, narrowed<TestType>({1, kNaN, 3, kNaN, 2, 5, 5, 1, kInfinity, -kInfinity, kInfinity, kNaN}));
  tape.backward(max(x, {1}), tape.constant<TestType>({3}, {8, 4, 6}));
  CHECK(doubles<TestType>(tape.gradient(x)) == std::vector<double>{0, 4, 0, 4, 0, 2, 2, 0, 0, 0, 0, 6});
  tape.reset();
  const Tensor all = tape.variable<TestType>({5}, narrowed<TestType>({-kInfinity, 3, kNaN, 1, 9}));
  tape.backward(max(all));
  CHECK(doubles<TestType>(tape.gradient(all)) == std::vector<double>{0, 0, 1, 0, 0});
}

// Causal, and with lengths: a number that is not finite in q, k, v or dO of one token.
TEMPLATE_TEST_CASE("nonfinite: attention takes NaN and infinity to those that see them, and to no other", "", float,
                   double, bf16) {
  Context context({.threads = 2});
  constexpr int64_t kTime = 70, kHeads = 2, kHead = 3, kWidth = kHeads * kHead;
  for (const double bad : {kNaN, kInfinity})
    for (const int operand : {0, 1, 2, 3})             // q, k, v, dO
      for (const int64_t at : {0, 5, 31, 32, 40, 69})  // of head 1, sample 0
        for (const bool packed : {false, true}) {
          std::vector<std::vector<double>> in;
          for (uint64_t i = 0; i < 4; ++i) in.push_back(noise<double>(2 * kTime * kWidth, i + 1));
          in[static_cast<size_t>(operand)][static_cast<size_t>(at * kWidth + kHead)] = bad;
          Tape tape(context);
          const Shape shape{2, kTime, kWidth};
          std::vector<Tensor> x;
          Tensor y;
          if (packed) {
            std::vector<double> all;
            for (int64_t row = 0; row < 2 * kTime; ++row)
              for (size_t i = 0; i < 3; ++i)
                all.insert(all.end(), in[i].begin() + row * kWidth, in[i].begin() + (row + 1) * kWidth);
            x = {tape.variable<TestType>({2, kTime, 3 * kWidth}, narrowed<TestType>(all))};
            y = attention(x[0], {.heads = kHeads, .causal = true});
          } else {
            for (size_t i = 0; i < 3; ++i) x.push_back(tape.variable<TestType>(shape, narrowed<TestType>(in[i])));
            y = attention(x[0], x[1], x[2], {.heads = kHeads, .causal = true});
          }
          tape.backward(y, tape.constant<TestType>(shape, narrowed<TestType>(in[3])));
          const std::vector<double> out = doubles<TestType>(y);
          // One mark a token: of the head and sample concerned; all else must be finite.
          const auto head_marks = [&](const std::vector<double>& numbers, int64_t row, int64_t first) {
            std::string found;
            for (int64_t t = 0; t < 2 * kTime; ++t)
              for (int64_t head = 0; head < kHeads; ++head) {
                const bool finite =
                    marks(&numbers[static_cast<size_t>(t * row + first + head * kHead)], kHead) == "...";
                if (head == 1 && t < kTime)
                  found += finite ? '.' : 'x';
                else
                  REQUIRE(finite);
              }
            return found;
          };
          const auto gradient = [&](int64_t i) {
            return packed ? head_marks(doubles<TestType>(tape.gradient(x[0])), 3 * kWidth, i * kWidth)
                          : head_marks(doubles<TestType>(tape.gradient(x[static_cast<size_t>(i)])), kWidth, 0);
          };
          const auto from = [&](int64_t first, int64_t end) {
            std::string expected(kTime, '.');
            std::fill(expected.begin() + first, expected.begin() + end, 'x');
            return expected;
          };
          INFO("operand " << operand << ", token " << at << ", " << bad << (packed ? ", packed" : ""));
          const std::string y_marks = head_marks(out, kWidth, 0), dq = gradient(0), dk = gradient(1), dv = gradient(2);
          const auto expect = [&](const std::string& got, int64_t first, int64_t end) {
            if (std::isnan(bad)) {
              CHECK(got == from(first, end));
            } else {  // an infinite score may make a row NaN or not; only what it must not reach is certain
              for (int64_t t = 0; t < kTime; ++t)
                if (t < first || t >= end) CHECK(got[static_cast<size_t>(t)] == '.');
            }
          };
          const bool of_query = operand == 0 || operand == 3;  // which sees the keys up to its own
          const int64_t end = of_query ? at + 1 : kTime, seen = of_query ? at + 1 : kTime;
          expect(y_marks, at, operand == 3 ? at : end);
          expect(dq, at, end);
          expect(dk, 0, seen);
          expect(dv, 0, operand == 2 ? 0 : seen);
        }
}

TEMPLATE_TEST_CASE("nonfinite: padded keys have no influence, whatever they hold", "", float, double, bf16) {
  Context context({.threads = 2});
  for (const bool causal : {false, true}) {
    std::vector<double> k = noise<double>(2 * 40 * 4, 1), v = noise<double>(2 * 40 * 4, 2);
    const std::vector<double> q = noise<double>(2 * 50 * 4, 3);
    const auto run = [&] {
      Tape tape(context);
      const Tensor in_q = tape.variable<TestType>({2, 50, 4}, narrowed<TestType>(q)),
                   in_k = tape.variable<TestType>({2, 40, 4}, narrowed<TestType>(k)),
                   in_v = tape.variable<TestType>({2, 40, 4}, narrowed<TestType>(v));
      const Tensor y = attention(in_q, in_k, in_v, {.heads = 2, .causal = causal},
                                 {.lengths = tape.constant<int32_t>({2}, {35, 3})});
      tape.backward(y, tape.constant<TestType>(y.shape, narrowed<TestType>(noise<double>(y.count(), 4))));
      std::vector<double> all = doubles<TestType>(y);
      for (const Tensor& x : {in_q, in_k, in_v})
        for (const double g : doubles<TestType>(tape.gradient(x))) all.push_back(g);
      return all;
    };
    const std::vector<double> before = run();
    for (size_t i = 35 * 4; i < 40 * 4; ++i) k[i] = v[i] = i % 2 == 0 ? kNaN : kInfinity;
    for (size_t i = (40 + 3) * 4; i < 80 * 4; ++i) k[i] = v[i] = i % 2 == 0 ? -kInfinity : kNaN;
    CHECK(same_bits(run(), before));
  }
}

TEST_CASE("nonfinite: a row of softmax, norm or loss that holds NaN is NaN, and no other row") {
  Context context({.threads = 1});
  using Function = Tensor (*)(const Tensor&);
  const std::vector<std::pair<const char*, Function>> functions = {
      {"softmax", [](const Tensor& x) { return softmax(x); }},
      {"log_softmax", [](const Tensor& x) { return log_softmax(x); }},
      {"layer_norm",
       [](const Tensor& x) { return layer_norm(x, x.tape->constant<float>({20}, std::vector<float>(20, 1.0f))); }}};
  for (const auto& [name, function] : functions)
    for (const size_t column : {size_t{0}, size_t{7}, size_t{19}}) {
      std::vector<float> numbers = noise<float>(3 * 20, 1);
      numbers[20 + column] = static_cast<float>(kNaN);
      Tape tape(context);
      const Tensor x = tape.variable<float>({3, 20}, numbers);
      const Tensor y = function(x);
      tape.backward(y, tape.constant<float>(y.shape, noise<float>(60, 2)));
      INFO(name << ", column " << column);
      const std::string expected = std::string(20, '.') + std::string(20, 'x') + std::string(20, '.');
      CHECK(marks(doubles<float>(y).data(), 60) == expected);
      CHECK(marks(doubles<float>(tape.gradient(x)).data(), 60) == expected);
    }
}

// Attention in bf16, on the matrix unit where there is one, against itself in f64 on the same numbers, over sizes
// around the tiles. (f64 is checked against the naive composition by the registry test.)
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/ops.h"
#include "support/catch.h"
#include "support/tensors.h"

using namespace tril;
using namespace tril::test;

namespace {

struct Case {
  int64_t batch, queries, keys, width;
  AttentionOptions options;
  bool lengths = false, packed = false;
};

struct Result {
  std::vector<double> y;
  std::vector<std::vector<double>> gradients;
};

template <class T>
std::vector<double> doubles(const Tensor& x) {
  std::vector<double> out;
  for (const T value : values_of<T>(x)) out.push_back(static_cast<double>(value));
  return out;
}

template <class T>
Result run(const Case& c, int threads) {
  Context context({.threads = threads, .seed = 3});
  context.poison = true;
  Tape tape(context);
  const auto bring = [&](int64_t time, int64_t width, uint64_t seed) {
    std::vector<T> values;
    for (const float x : noise<float>(c.batch * time * width, seed)) values.push_back(T(static_cast<float>(bf16(x))));
    return tape.variable<T>({c.batch, time, width}, values);
  };
  std::vector<Tensor> in;
  const int64_t key_width = c.width / c.options.heads * c.options.key_heads();
  if (c.packed) in = {bring(c.queries, c.width + 2 * key_width, 1)};
  if (!c.packed) in = {bring(c.queries, c.width, 1), bring(c.keys, key_width, 2), bring(c.keys, key_width, 3)};
  AttentionMasks masks;
  std::vector<int32_t> lengths;
  for (int64_t b = 0; b < c.batch; ++b) lengths.push_back(static_cast<int32_t>(b == 0 ? 0 : c.keys - b));
  if (c.lengths) masks.lengths = tape.constant<int32_t>({c.batch}, lengths);
  const Tensor y = c.packed ? attention(in[0], c.options, masks) : attention(in[0], in[1], in[2], c.options, masks);
  std::vector<T> cotangent;
  for (const float x : noise<float>(y.count(), 4)) cotangent.push_back(T(static_cast<float>(bf16(x))));
  tape.backward(y, tape.constant<T>(y.shape, cotangent));
  Result result{doubles<T>(y), {}};
  for (const Tensor& x : in) result.gradients.push_back(doubles<T>(tape.gradient(x)));
  return result;
}

double largest(const std::vector<double>& numbers) {
  double most = 0;
  for (const double value : numbers) most = std::max(most, std::fabs(value));
  return most;
}

void check(const Case& c) {
  INFO(cat(c.batch, " x ", c.queries, " queries, ", c.keys, " keys, width ", c.width, ", ", c.options.heads, " heads",
           c.options.causal ? ", causal" : "", c.lengths ? ", lengths" : "", c.packed ? ", packed" : ""));
  const Result exact = run<double>(c, 1), narrow = run<bf16>(c, 1), several = run<bf16>(c, 3);
  CHECK(difference(narrow.y, exact.y) <= 0.01 * largest(exact.y));
  // Terms that cancel leave rounding errors of their own size, so the unit is the largest of all gradients.
  double unit = 0;
  for (const auto& gradient : exact.gradients) unit = std::max(unit, largest(gradient));
  for (size_t i = 0; i < exact.gradients.size(); ++i)
    CHECK(difference(narrow.gradients[i], exact.gradients[i]) <= 0.01 * unit);
  CHECK((several.y == narrow.y));
  CHECK((several.gradients == narrow.gradients));
}

}  // namespace

TEST_CASE("attention: in bf16 near f64, over lengths and head sizes around the tiles") {
  int turn = 0;
  for (const int64_t time : {1, 2, 31, 32, 33, 64, 65, 130})
    for (const int64_t head : {1, 15, 16, 17, 31, 32, 33, 48, 64, 80}) {
      const int64_t heads = 1 + turn % 2;
      check({.batch = 1 + turn % 3,
             .queries = time,
             .keys = time,
             .width = heads * head,
             .options = {.heads = heads, .causal = turn % 4 != 3, .dropout = turn % 5 == 4 ? 0.3 : 0.0},
             .packed = true});
      ++turn;
    }
}

TEST_CASE("attention: in bf16 near f64, across sequences of unequal lengths, and where nothing may be seen") {
  for (const auto& [queries, keys] :
       {std::pair<int64_t, int64_t>{5, 70}, {70, 5}, {33, 34}, {64, 96}, {1, 1}, {40, 0}, {0, 7}})
    for (const bool causal : {false, true})
      for (const bool lengths : {false, true})
        if (!lengths || keys > 3)
          check({.batch = 3,
                 .queries = queries,
                 .keys = keys,
                 .width = 40,
                 .options = {.heads = 2, .causal = causal, .dropout = causal ? 0.2 : 0.0},
                 .lengths = lengths});
}

TEST_CASE("attention: in bf16 near f64, through windows and with shared heads of keys") {
  for (const int64_t window : {1, 3, 33, 64, 90})
    for (const bool causal : {false, true})
      for (const int64_t kv_heads : {1, 2, 4}) {
        const AttentionOptions options{
            .heads = 4, .kv_heads = kv_heads, .causal = causal, .window = window, .dropout = window == 33 ? 0.2 : 0.0};
        check({.batch = 2, .queries = 101, .keys = 101, .width = 40, .options = options, .packed = true});
        check({.batch = 2, .queries = 40, .keys = 97, .width = 68, .options = options, .lengths = true});
      }
}

TEST_CASE("attention: keys that no query may see change nothing, whatever they hold") {
  for (const bool causal : {false, true}) {
    Context context({.threads = 1});
    Tape tape(context);
    std::vector<bf16> q, k;
    for (const float x : noise<float>(2 * 16, 1)) q.emplace_back(x);
    for (const float x : noise<float>(5 * 16, 2)) k.emplace_back(x);
    for (size_t i = 3 * 16; i < k.size(); ++i) k[i] = bf16(std::numeric_limits<float>::quiet_NaN());
    const Tensor queries = tape.variable<bf16>({1, 2, 16}, q), keys = tape.variable<bf16>({1, 5, 16}, k);
    AttentionMasks masks;
    if (!causal) masks.lengths = tape.constant<int32_t>({1}, {3});
    const Tensor y = attention(queries, keys, keys, {.heads = 1, .causal = causal}, masks);
    tape.backward(y, tape.constant<bf16>(y.shape, q));
    const auto all_finite = [](const std::vector<double>& numbers) {
      return std::all_of(numbers.begin(), numbers.end(), [](double x) { return std::isfinite(x); });
    };
    CHECK(all_finite(doubles<bf16>(y)));
    CHECK(all_finite(doubles<bf16>(tape.gradient(queries))));
    CHECK(all_finite(doubles<bf16>(tape.gradient(keys))));
  }
}

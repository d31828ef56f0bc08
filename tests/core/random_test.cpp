#include "core/base/random.h"

#include <algorithm>
#include <vector>

#include "core/ops.h"
#include "support/catch.h"
#include "support/tensors.h"

using namespace tril;
using namespace tril::test;

namespace {

std::array<uint32_t, 4> words_of(std::array<uint32_t, 4> counter, uint64_t seed) {
  philox(counter.data(), seed);
  return counter;
}

constexpr RandomKey kKey{.seed = 0x0123456789abcdef, .step = 7, .stream = 42};

}  // namespace

TEST_CASE("random: philox with 7 rounds gives what the paper's definition gives") {
  using Words = std::array<uint32_t, 4>;
  CHECK(words_of({0, 0, 0, 0}, 0) == Words{0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48});
  constexpr uint32_t kAll = 0xffffffff;
  CHECK(words_of({kAll, kAll, kAll, kAll}, ~uint64_t{0}) == Words{0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662});
  CHECK(words_of({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822) ==
        Words{0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a});
}

TEST_CASE("random: words, uniform and normal numbers are fixed functions of seed, step, stream, sample and index") {
  CHECK(random_words(kKey, 3, 5) == std::array<uint32_t, 4>{0xe18b5983, 0xf08fc643, 0xf992f4a5, 0x681beae0});
  CHECK(random_uniform(kKey, 3, 5) == 0x1.c316b307e11f8p-1);
  CHECK(random_normal(kKey, 3, 5) == Approx(0.46760890936758714).epsilon(1e-14));
  uint32_t block[kRandomBlock];
  random_block(kKey, 9, 2, block);
  CHECK(block[0] == 0xa092623b);
  CHECK(block[15] == 0xdc022ba2);
  CHECK(block[16] == 0xc297cabe);
  CHECK(block[2 * 16 + 3] == 0x4189a82b);
  CHECK(block[3 * 16 + 15] == 0x5f20341b);
}

TEST_CASE("random: a name's stream number is its FNV-1a hash") {
  CHECK(stream_of("", 0) == 0x811c9dc5);
  CHECK(stream_of("foobar", 6) == 0xbf9cf968);
  CHECK(stream_of("transformer.wte.weight", 22) == 0xdac3ca0e);
}

TEST_CASE("random: words are uniform over their bits and over bins") {
  constexpr int64_t kBlocks = 4096, kCount = kBlocks * kRandomBlock;
  std::vector<int64_t> bins(256), bits(32);
  for (int64_t b = 0; b < kBlocks; ++b) {
    uint32_t block[kRandomBlock];
    random_block({.seed = 3, .step = 1, .stream = 2}, 0, b, block);
    for (const uint32_t word : block) {
      ++bins[word >> 24];
      for (uint32_t bit = 0; bit < 32; ++bit) bits[bit] += word >> bit & 1u;
    }
  }
  double chi_square = 0;
  const double expected = static_cast<double>(kCount) / 256;
  for (const int64_t count : bins) {
    const double off = static_cast<double>(count) - expected;
    chi_square += off * off / expected;
  }
  CHECK(chi_square > 170);  // 255 degrees of freedom: outside these once in 10^5
  CHECK(chi_square < 362);
  const double half = static_cast<double>(kCount) / 2, sigma = std::sqrt(static_cast<double>(kCount)) / 2;
  for (const int64_t count : bits) CHECK(std::fabs(static_cast<double>(count) - half) < 4.5 * sigma);
}

TEST_CASE("random: neighbours in seed, step, stream, sample and index have nothing in common") {
  const auto correlation = [](const RandomKey& a, uint32_t sample_a, const RandomKey& b, uint32_t sample_b,
                              uint32_t shift) {
    constexpr uint32_t kCount = 20000;
    double sum = 0;
    for (uint32_t i = 0; i < kCount; ++i)
      sum += (random_uniform(a, sample_a, i) - 0.5) * (random_uniform(b, sample_b, i + shift) - 0.5);
    return std::fabs(sum / kCount * 12.0) * std::sqrt(static_cast<double>(kCount));  // in standard deviations
  };
  const RandomKey key{.seed = 5, .step = 6, .stream = 7};
  CHECK(correlation(key, 0, {.seed = 6, .step = 6, .stream = 7}, 0, 0) < 4.5);
  CHECK(correlation(key, 0, {.seed = 5, .step = 7, .stream = 7}, 0, 0) < 4.5);
  CHECK(correlation(key, 0, {.seed = 5, .step = 6, .stream = 8}, 0, 0) < 4.5);
  CHECK(correlation(key, 0, key, 1, 0) < 4.5);
  CHECK(correlation(key, 0, key, 0, 1) < 4.5);
  CHECK(correlation(key, 0, {.seed = 5 + (uint64_t{1} << 32), .step = 6, .stream = 7}, 0, 0) < 4.5);
}

TEST_CASE("random: uniform numbers lie from 0 to below 1 and normal ones have the normal's moments") {
  constexpr uint32_t kCount = 200000;
  double mean = 0, second = 0, third = 0, fourth = 0, lowest = 1, highest = 0;
  for (uint32_t i = 0; i < kCount; ++i) {
    const double u = random_uniform({.seed = 11}, 0, i), x = random_normal({.seed = 11}, 1, i);
    lowest = std::min(lowest, u);
    highest = std::max(highest, u);
    mean += x / kCount;
    second += x * x / kCount;
    third += x * x * x / kCount;
    fourth += x * x * x * x / kCount;
  }
  CHECK(lowest >= 0);
  CHECK(lowest < 1e-4);
  CHECK(highest < 1);
  CHECK(highest > 1 - 1e-4);
  const double sigma = 1 / std::sqrt(static_cast<double>(kCount));
  CHECK(std::fabs(mean) < 4.5 * sigma);
  CHECK(std::fabs(second - 1) < 4.5 * std::sqrt(2.0) * sigma);
  CHECK(std::fabs(third) < 4.5 * std::sqrt(15.0) * sigma);
  CHECK(std::fabs(fourth - 3) < 4.5 * std::sqrt(96.0) * sigma);
}

namespace {

using Layer = Tensor (*)(const Tensor&);

// The layer's output for samples [first, first + count) of a batch, and its gradient where the cotangent is all ones.
std::vector<double> run(Layer layer, const std::vector<double>& batch, int64_t length, int64_t first, int64_t count,
                        int64_t step) {
  Context context({.threads = 1, .seed = 9});
  context.set_step(step, first);
  Tape tape(context);
  const std::span part(batch.data() + first * length * 4, static_cast<size_t>(count * length * 4));
  const Tensor x = tape.variable<double>({count, length, 4}, part);
  const Tensor y = layer(x);
  tape.backward(sum(y));
  std::vector<double> both = values_of<double>(y);
  const std::vector<double> gradient = values_of<double>(tape.gradient(x));
  both.insert(both.end(), gradient.begin(), gradient.end());
  return both;
}

// Outputs of all parts and then gradients of all parts, as the whole batch gives them.
std::vector<double> run_in_parts(Layer layer, const std::vector<double>& batch, int64_t length,
                                 const std::vector<int64_t>& counts, int64_t step) {
  std::vector<double> outputs, gradients;
  int64_t first = 0;
  for (const int64_t count : counts) {
    const std::vector<double> both = run(layer, batch, length, first, count, step);
    const auto middle = both.begin() + static_cast<std::ptrdiff_t>(both.size() / 2);
    outputs.insert(outputs.end(), both.begin(), middle);
    gradients.insert(gradients.end(), middle, both.end());
    first += count;
  }
  outputs.insert(outputs.end(), gradients.begin(), gradients.end());
  return outputs;
}

}  // namespace

TEST_CASE("random: dropout does not depend on how a batch is cut, but on the step") {
  constexpr int64_t kLength = 37;
  const std::vector<double> batch = noise<double>(5 * kLength * 4, 1);
  const auto [name, layer] =
      GENERATE(std::pair<const char*, Layer>{"dropout", [](const Tensor& x) { return dropout(x, 0.3); }},
               std::pair<const char*, Layer>{"add_layer_norm",
                                             [](const Tensor& x) {
                                               const Tensor one = x.tape->constant<double>({4}, {1, 2, 3, 4});
                                               const AddLayerNorm both = add_layer_norm(x, scale(x, 2.0), one, {}, 0.3);
                                               return both.sum * both.normed;
                                             }},
               std::pair<const char*, Layer>{"attention", [](const Tensor& x) {
                                               return attention(x, x, x, {.heads = 2, .causal = true, .dropout = 0.3});
                                             }});
  INFO(name);
  const std::vector<double> whole = run(layer, batch, kLength, 0, 5, 3);
  CHECK(same_bits(whole, run_in_parts(layer, batch, kLength, {1, 4}, 3)));
  CHECK(same_bits(whole, run_in_parts(layer, batch, kLength, {2, 2, 1}, 3)));
  CHECK_FALSE(same_bits(whole, run(layer, batch, kLength, 0, 5, 4)));
}

TEST_CASE("random: dropout keeps as many as it should, scaled, and backward drops the same ones") {
  Context context({.threads = 2, .seed = 4});
  for (const double p : {0.1, 0.5, 0.9}) {
    Tape tape(context);
    constexpr int64_t kCount = 100000;
    const Tensor x = tape.variable<float>({kCount}, std::vector<float>(kCount, 1.0f));
    const Tensor y = dropout(x, p);
    tape.backward(sum(y));
    const std::vector<float> kept = values_of<float>(y);
    CHECK(same_bits(kept, values_of<float>(tape.gradient(x))));
    const auto zeros = static_cast<double>(std::count(kept.begin(), kept.end(), 0.0f));
    CHECK(std::fabs(zeros - p * kCount) < 4.5 * std::sqrt(p * (1 - p) * kCount));
    for (const float value : kept) REQUIRE((value == 0.0f || value == static_cast<float>(1 / (1 - p))));
  }
}

TEST_CASE("random: each dropout on a tape has its own mask, and an evaluating tape none") {
  Context context({.threads = 1});
  const std::vector<float> ones(1000, 1.0f);
  {
    Tape tape(context);
    const Tensor x = tape.constant<float>({1000}, ones);
    CHECK_FALSE(same_bits(values_of<float>(dropout(x, 0.5)), values_of<float>(dropout(x, 0.5))));
  }
  Tape tape(context, Tape::Mode::evaluate);
  const Tensor x = tape.constant<float>({1000}, ones);
  CHECK(same_bits(values_of<float>(dropout(x, 0.5)), ones));
}

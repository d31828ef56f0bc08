#include "nn/attention.h"

#include "support/catch.h"
#include "support/tensors.h"

namespace tril::test {
namespace {

// The attention weights themselves: with the identity as values the output is the weights. One head.
// q (1, Tq, n), k (1, n, n) -> (Tq, n).
std::vector<double> weights_of(int64_t queries, int64_t n, bool causal, int32_t length) {
  Context context;
  Tape tape(context);
  std::vector<double> identity(static_cast<size_t>(n * n), 0.0);
  for (int64_t i = 0; i < n; ++i) identity[static_cast<size_t>(i * n + i)] = 1.0;
  const Tensor q = tape.constant<double>({1, queries, n}, noise<double>(queries * n, 1)),
               k = tape.constant<double>({1, n, n}, noise<double>(n * n, 2)),
               v = tape.constant<double>({1, n, n}, identity);
  return values_of<double>(attention(q, k, v, {.causal = causal}, {.lengths = tape.constant<int32_t>({1}, {length})}));
}

// The same weights as the softmax of the products, plus `hidden` where query i may not see key j.
std::vector<double> softmax_of_scores(int64_t queries, int64_t n, const std::vector<bool>& seen, double hidden) {
  Context context;
  Tape tape(context);
  const Tensor q = tape.constant<double>({queries, n}, noise<double>(queries * n, 1)),
               k = tape.constant<double>({n, n}, noise<double>(n * n, 2));
  std::vector<double> mask(seen.size(), 0.0);
  for (size_t i = 0; i < mask.size(); ++i) mask[i] = seen[i] ? 0.0 : hidden;
  const Tensor scores = scale(matmul(q, k, {.transpose_b = true}), 1.0 / std::sqrt(static_cast<double>(n)));
  return values_of<double>(softmax(scores + tape.constant<double>({queries, n}, mask)));
}

std::vector<double> renormalised(std::vector<double> weights, const std::vector<bool>& seen, int64_t columns) {
  for (size_t row = 0; row < weights.size(); row += static_cast<size_t>(columns)) {
    double total = 0.0;
    for (size_t i = row; i < row + static_cast<size_t>(columns); ++i) total += weights[i] *= seen[i] ? 1.0 : 0.0;
    for (size_t i = row; i < row + static_cast<size_t>(columns); ++i) weights[i] /= total;
  }
  return weights;
}

std::vector<float> self_attention(const std::vector<float>& x, int64_t time, bool causal,
                                  const std::vector<int32_t>& lengths = {}) {
  ParamStore store(DType::f32, 3);
  const SelfAttention attend(Scope(store), {.width = 8, .attention = {.heads = 2, .causal = causal}});
  store.freeze();
  for (const ParamInfo& param : store.params())
    for (int64_t i = 0; i < param.value.count(); ++i) param.value.ptr<float>()[i] *= 20.0f;
  Context context;
  Tape tape(context);
  const int64_t batch = static_cast<int64_t>(x.size()) / time / 8;
  return values_of<float>(attend(tape.constant<float>({batch, time, 8}, x),
                                 lengths.empty() ? Tensor{} : tape.constant<int32_t>({batch}, lengths)));
}

std::vector<float> changed(std::vector<float> x, int64_t from, int64_t to) {
  for (int64_t i = from; i < to; ++i) x[static_cast<size_t>(i)] = 3.0f - 2.0f * x[static_cast<size_t>(i)];
  return x;
}

std::vector<float> part(const std::vector<float>& x, int64_t begin, int64_t end) {
  return {x.begin() + begin, x.begin() + end};
}

}  // namespace

TEST_CASE("SelfAttention: causal, the future moves no bit of the past") {
  const int64_t time = 70;  // more than two blocks of queries
  const std::vector<float> x = noise<float>(time * 8, 1), y = self_attention(x, time, true);
  for (const int64_t t : {1, 2, 31, 32, 33, 63, 64, 69}) {
    INFO("changed from " << t);
    const std::vector<float> moved = self_attention(changed(x, t * 8, time * 8), time, true);
    CHECK(same_bits(part(y, 0, t * 8), part(moved, 0, t * 8)));
    CHECK(difference(part(y, t * 8, (t + 1) * 8), part(moved, t * 8, (t + 1) * 8)) > 1e-4);
  }
}

TEST_CASE("SelfAttention: full, the future does move the past") {
  const std::vector<float> x = noise<float>(10 * 8, 1);
  CHECK(difference(part(self_attention(x, 10, false), 0, 8),
                   part(self_attention(changed(x, 9 * 8, 10 * 8), 10, false), 0, 8)) > 1e-4);
}

TEST_CASE("SelfAttention: with padding, neither a padded key nor the future moves a bit") {  // pytorch#100709
  const int64_t time = 5, row = 8, sample = time * row;
  const std::vector<float> x = noise<float>(2 * sample, 1), y = self_attention(x, time, true, {3, 5});
  // Sample 0 has 3 real positions: whatever stands in the others, the first 3 outputs stay.
  const std::vector<float> padded = self_attention(changed(x, 3 * row, 5 * row), time, true, {3, 5});
  CHECK(same_bits(part(y, 0, 3 * row), part(padded, 0, 3 * row)));
  CHECK(same_bits(part(y, sample, 2 * sample), part(padded, sample, 2 * sample)));
  const std::vector<float> future = self_attention(changed(x, sample + 4 * row, 2 * sample), time, true, {3, 5});
  CHECK(same_bits(part(y, 0, sample + 4 * row), part(future, 0, sample + 4 * row)));
}

TEST_CASE("SelfAttention: lengths that keep everything change no bit") {  // x-transformers#160
  const std::vector<float> x = noise<float>(2 * 5 * 8, 1);
  CHECK(same_bits(self_attention(x, 5, true, {5, 5}), self_attention(x, 5, true)));
}

TEST_CASE("CrossAttention: causal, query i sees the memory up to i and no bit beyond") {
  ParamStore store(DType::f32, 3);
  const CrossAttention attend(Scope(store), {.width = 4, .attention = {.heads = 2, .causal = true}});
  store.freeze();
  Context context;
  Tape tape(context);
  const std::vector<float> x = noise<float>(3 * 4, 1), memory = noise<float>(6 * 4, 2);
  const auto run = [&](const std::vector<float>& values) {
    return values_of<float>(attend(tape.constant<float>({1, 3, 4}, x), tape.constant<float>({1, 6, 4}, values)));
  };
  const std::vector<float> y = run(memory);
  CHECK(same_bits(y, run(changed(memory, 3 * 4, 6 * 4))));
  const std::vector<float> moved = run(changed(memory, 2 * 4, 3 * 4));
  CHECK(same_bits(part(y, 0, 2 * 4), part(moved, 0, 2 * 4)));
  CHECK_FALSE(same_bits(y, moved));
}

TEST_CASE("attention: weights are a convex combination") {
  const int64_t queries = 40, n = 9;
  for (const bool causal : {false, true})
    for (const int32_t length : {1, 5, 9}) {
      INFO("causal " << causal << ", length " << length);
      const std::vector<double> weights = weights_of(queries, n, causal, length);
      for (int64_t i = 0; i < queries; ++i) {
        double total = 0.0;
        for (int64_t j = 0; j < n; ++j) {
          const double weight = weights[static_cast<size_t>(i * n + j)];
          CHECK(weight >= 0.0);
          CHECK(weight <= 1.0);
          if (j >= length || (causal && j > i)) CHECK(weight == 0.0);
          total += weight;
        }
        CHECK(std::abs(total - 1.0) < 1e-14);
      }
    }
}

TEST_CASE("attention: masking by minus infinity equals multiplying by the mask and renormalising") {
  const int64_t queries = 12, n = 12;
  for (const bool causal : {false, true})
    for (const int32_t length : {3, 12}) {
      INFO("causal " << causal << ", length " << length);
      std::vector<bool> seen;
      for (int64_t i = 0; i < queries; ++i)
        for (int64_t j = 0; j < n; ++j) seen.push_back(j < length && (!causal || j <= i));
      const std::vector<double> multiplied =
          renormalised(softmax_of_scores(queries, n, seen, 0.0), seen, n);  // of the unmasked weights
      CHECK(difference(weights_of(queries, n, causal, length), multiplied) < 1e-14);
      CHECK(difference(softmax_of_scores(queries, n, seen, -HUGE_VAL), multiplied) < 1e-14);
    }
}

TEST_CASE("attention: a query that may see nothing gives 0 with gradient 0") {  // pytorch#41508
  Context context;
  Tape tape(context);
  const Tensor qkv = tape.variable<double>({2, 4, 6}, noise<double>(48, 1));
  const Tensor y = attention(qkv, {.heads = 2, .causal = true}, {.lengths = tape.constant<int32_t>({2}, {0, 4})});
  tape.backward(y, tape.constant<double>({2, 4, 2}, noise<double>(16, 2)));
  const std::vector<double> values = values_of<double>(y), slopes = values_of<double>(tape.gradient(qkv));
  for (size_t i = 0; i < 8; ++i) CHECK(values[i] == 0.0);
  for (size_t i = 0; i < 24; ++i) CHECK(slopes[i] == 0.0);
  for (size_t i = 24; i < 48; ++i) CHECK(std::isfinite(slopes[i]));
}

TEST_CASE("attention: the scale is 1 over the root of the head's size unless set") {
  Context context;
  Tape tape(context);
  const auto make = [&](uint64_t seed) { return tape.constant<double>({2, 5, 12}, noise<double>(120, seed)); };
  const Tensor q = make(1), k = make(2), v = make(3);
  const auto run = [&](const Tensor& queries, std::optional<double> scale) {
    return values_of<double>(attention(queries, k, v, {.heads = 3, .scale = scale}));  // D = 4
  };
  const std::vector<double> y = run(q, {});
  CHECK(same_bits(y, run(q, 0.5)));
  CHECK(difference(y, run(scale(q, 0.5), 1.0)) < 1e-14);
  CHECK(difference(y, run(q, 1.0)) > 1e-2);
}

TEST_CASE("attention: heads are segments of the width and look apart from one another") {
  const int64_t batch = 2, time = 5, heads = 3, head = 2, width = heads * head;
  const std::array<int64_t, 3> order = {2, 0, 1};
  // Moves the heads of every third of a row of `thirds` widths to their new places.
  const auto permuted = [&](const std::vector<double>& x, int64_t thirds) {
    std::vector<double> out(x.size());
    for (size_t row = 0; row < x.size(); row += static_cast<size_t>(thirds * width))
      for (int64_t third = 0; third < thirds; ++third)
        for (int64_t h = 0; h < heads; ++h)
          std::copy_n(x.begin() + static_cast<int64_t>(row) + third * width + order[static_cast<size_t>(h)] * head,
                      head, out.begin() + static_cast<int64_t>(row) + third * width + h * head);
    return out;
  };
  Context context;
  Tape tape(context);
  const auto run = [&](const std::vector<double>& qkv) {
    return values_of<double>(
        attention(tape.constant<double>({batch, time, 3 * width}, qkv), {.heads = heads, .causal = true}));
  };
  const std::vector<double> qkv = noise<double>(batch * time * 3 * width, 1);
  CHECK(same_bits(run(permuted(qkv, 3)), permuted(run(qkv), 1)));
  // One head as wide as all heads together gives another result.
  CHECK(difference(run(qkv), values_of<double>(attention(tape.constant<double>({batch, time, 3 * width}, qkv),
                                                         {.heads = 1, .causal = true}))) > 1e-2);
}

TEST_CASE("SelfAttention: permuting the heads of the packed weights permutes segments of what c_proj reads") {
  const int64_t head = 2, width = 6;
  const std::array<int64_t, 3> order = {1, 2, 0};
  const std::vector<double> x = noise<double>(2 * 4 * width, 1);
  const auto run = [&](bool permute_heads) {
    ParamStore store(DType::f64, 9);
    const SelfAttention attend(Scope(store), {.width = width, .attention = {.heads = 3, .causal = true}});
    store.freeze();
    double* const packed = store.find("c_attn.weight")->value.ptr<double>();
    double* const project = store.find("c_proj.weight")->value.ptr<double>();
    const std::vector<double> packed_before(packed, packed + 3 * width * width),
        project_before(project, project + width * width);
    if (permute_heads)
      for (int64_t i = 0; i < width; ++i) {
        const int64_t from = order[static_cast<size_t>(i / head)] * head + i % head;
        // Rows of queries, keys and values; columns of the projection.
        for (int64_t third = 0; third < 3; ++third)
          std::copy_n(packed_before.begin() + (third * width + from) * width, width,
                      packed + (third * width + i) * width);
        for (int64_t row = 0; row < width; ++row)
          project[row * width + i] = project_before[static_cast<size_t>(row * width + from)];
      }
    Context context;
    Tape tape(context);
    return values_of<double>(attend(tape.constant<double>({2, 4, width}, x)));
  };
  CHECK(difference(run(true), run(false)) < 1e-15);
  CHECK(difference(run(false), std::vector<double>(x.size(), 0.0)) > 1e-6);
}

TEST_CASE("SelfAttention: an encoder's and a decoder's differ by one mask") {
  const auto make = [](bool causal) {
    auto store = std::make_unique<ParamStore>(DType::f64, 4);
    const SelfAttention attend(Scope(*store), {.width = 6, .attention = {.heads = 2, .causal = causal}});
    store->freeze();
    return std::pair(std::move(store), attend);
  };
  const auto [encoder_store, encoder] = make(false);
  const auto [decoder_store, decoder] = make(true);
  REQUIRE(std::vector<std::string>(encoder_store->names().begin(), encoder_store->names().end()) ==
          std::vector<std::string>(decoder_store->names().begin(), decoder_store->names().end()));
  const int64_t time = 7;
  Context context;
  Tape tape(context);
  const std::vector<double> x = noise<double>(time * 6, 1);
  const std::vector<double> decoded = values_of<double>(decoder(tape.constant<double>({1, time, 6}, x)));
  // The decoder's position t is the encoder's last position on a text that ends there.
  for (int64_t t = 0; t < time; ++t) {
    const std::vector<double> prefix(x.begin(), x.begin() + (t + 1) * 6),
        encoded = values_of<double>(encoder(tape.constant<double>({1, t + 1, 6}, prefix)));
    CHECK(difference(std::vector<double>(encoded.end() - 6, encoded.end()),
                     std::vector<double>(decoded.begin() + t * 6, decoded.begin() + (t + 1) * 6)) < 1e-15);
  }
}

TEST_CASE("attention: dropout of the weights keeps their mean and is off on an evaluating tape") {
  // Values are all 1, so each output is the sum of the weights that stay, divided by 1 - p.
  const int64_t time = 200;
  const std::vector<double> noisy = noise<double>(time * 4, 1), ones(static_cast<size_t>(time * 4), 1.0);
  const auto run = [&](Tape::Mode mode) {
    Context context;
    Tape tape(context, mode);
    const Tensor q = tape.constant<double>({1, time, 4}, noisy);
    return values_of<double>(attention(q, q, tape.constant<double>({1, time, 4}, ones), {.heads = 2, .dropout = 0.4}));
  };
  const std::vector<double> trained = run(Tape::Mode::train), evaluated = run(Tape::Mode::evaluate);
  CHECK(difference(evaluated, ones) < 1e-13);
  CHECK(difference(trained, ones) > 0.05);
  double mean = 0.0;
  for (const double value : trained) mean += value / static_cast<double>(trained.size());
  CHECK(std::abs(mean - 1.0) < 0.05);
}

TEST_CASE(
    "MultiHeadAttention: heads that do not divide the width are refused with both numbers") {  // keras-transformer#1
  ParamStore store;
  for (const int64_t heads : {3, 0, -4, 256}) {
    INFO(heads);
    const MultiHeadAttentionOptions options{.width = 128, .attention = {.heads = heads}};
    const std::string expected = "heads: expected a number that divides the width 128, got " + std::to_string(heads);
    REQUIRE_THROWS_WITH(SelfAttention(Scope(store) / "self" / heads, options), contains(expected));
    REQUIRE_THROWS_WITH(CrossAttention(Scope(store) / "cross" / heads, options), contains(expected));
  }
}

TEST_CASE("attention: operands that do not fit are refused with both shapes") {
  Context context;
  Tape tape(context);
  const auto make = [&](const Shape& shape) { return tape.constant<float>(shape, noise<float>(shape.count(), 1)); };
  const Tensor q = make({2, 3, 4});
  REQUIRE_THROWS_WITH(attention(q, make({2, 5, 6}), make({2, 5, 6})),
                      contains("attention: expected k (2, Tk, 4) for q (2, 3, 4), got (2, 5, 6)"));
  REQUIRE_THROWS_WITH(attention(q, make({1, 5, 4}), make({1, 5, 4})), contains("got (1, 5, 4)"));
  REQUIRE_THROWS_WITH(attention(q, make({2, 5, 4}), make({2, 6, 4})),
                      contains("attention: expected v (2, 5, 4) as k, got (2, 6, 4)"));
  REQUIRE_THROWS_WITH(attention(make({2, 3, 4})), contains("attention: expected qkv (B, T, 3C), got shape (2, 3, 4)"));
  REQUIRE_THROWS_WITH(attention(q, q, q, {}, {.lengths = tape.constant<int32_t>({2}, {3, 4})}),
                      contains("attention: expected lengths from 0 to 3, got 4 for sample 1"));
}

}  // namespace tril::test

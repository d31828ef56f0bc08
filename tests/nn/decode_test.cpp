// Decoding with a cache against the full forward pass over the same window.
#include "nn/decode.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/base/random.h"
#include "core/kernels/convert.h"
#include "nn/gpt.h"
#include "support/catch.h"

namespace tril::test {
namespace {

constexpr double kTolerance = 1e-5;

// A Gpt with weights large enough that its logits differ.
struct SmallGpt {
  explicit SmallGpt(const GptConfig& wanted, uint64_t seed = 1) : config(wanted), gpt(store, wanted) {
    store.freeze();
    const RandomKey key{.seed = seed};
    for (const ParamInfo& param : store.params()) {
      const double deviation = param.decays() ? 1.5 / std::sqrt(static_cast<double>(param.value.shape.last())) : 0.3;
      for (int64_t i = 0; i < param.value.count(); ++i)
        param.value.ptr<float>()[i] = static_cast<float>(
            param.init.constant +
            deviation * random_normal(key, static_cast<uint32_t>(param.value.slot), static_cast<uint32_t>(i)));
    }
  }
  // The logits after the window's last token, from a pass over all of it.
  [[nodiscard]] std::vector<float> full_logits(const std::vector<int32_t>& window) {
    return full_logits(window, context);
  }
  [[nodiscard]] std::vector<float> full_logits(const std::vector<int32_t>& window, Context& in) {
    Tape tape(in, Tape::Mode::evaluate);
    const auto T = static_cast<int64_t>(window.size());
    const Tensor logits = gpt(tape.constant<int32_t>({1, T}, window));
    std::vector<float> last(static_cast<size_t>(config.vocabulary));
    const int64_t first = (T - 1) * config.vocabulary;
    if (logits.dtype == DType::bf16)
      convert(logits.ptr<bf16>() + first, last.data(), config.vocabulary);
    else
      std::copy_n(logits.ptr<float>() + first, config.vocabulary, last.begin());
    return last;
  }
  [[nodiscard]] std::vector<int32_t> random_tokens(int64_t count) const {
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < count; ++i)
      tokens.push_back(static_cast<int32_t>(random_uniform({.seed = 7}, 0, static_cast<uint32_t>(i)) *
                                            static_cast<double>(config.vocabulary)));
    return tokens;
  }

  GptConfig config;
  ParamStore store;
  Gpt gpt;
  Context context{{.threads = 1}};
};

// The documented rule, spelled out: a full window keeps its last half when another token comes.
void slide(std::vector<int32_t>& window, int32_t token, int64_t context) {
  if (static_cast<int64_t>(window.size()) == context) window.erase(window.begin(), window.end() - context / 2);
  window.push_back(token);
}

[[nodiscard]] double distance(std::span<const float> a, const std::vector<float>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double most = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    const double apart = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(apart <= most)) most = apart;  // NaN too
  }
  return most;
}

[[nodiscard]] std::vector<float> copy(std::span<const float> values) { return {values.begin(), values.end()}; }

[[nodiscard]] int32_t likeliest(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

const GptConfig kConfigs[] = {
    {.vocabulary = 65, .context = 20, .layers = 2, .heads = 4, .width = 128},
    {.vocabulary = 11, .context = 8, .layers = 3, .heads = 3, .width = 33, .bias = true},
    {.vocabulary = 130, .context = 7, .layers = 2, .heads = 5, .width = 5, .bias = true, .gelu = Gelu::tanh},
    {.vocabulary = 17, .context = 70, .layers = 2, .heads = 1, .width = 40, .gelu = Gelu::tanh},
    {.vocabulary = 5, .context = 140, .layers = 1, .heads = 2, .width = 34, .bias = true},
    {.vocabulary = 3, .context = 1, .layers = 2, .heads = 2, .width = 16},
    {.vocabulary = 9, .context = 2, .layers = 1, .heads = 1, .width = 1, .bias = true},
    {.vocabulary = 1, .context = 4, .layers = 1, .heads = 2, .width = 24},
    {.vocabulary = 40, .context = 36, .layers = 1, .heads = 3, .width = 264, .bias = true},
    {.vocabulary = 300, .context = 5, .layers = 1, .heads = 8, .width = 536},
    {.vocabulary = 21, .context = 40, .layers = 2, .heads = 4, .width = 64, .window = 7},
    {.vocabulary = 21, .context = 33, .layers = 2, .heads = 6, .width = 60, .kv_heads = 3, .bias = true},
    {.vocabulary = 13, .context = 24, .layers = 2, .heads = 4, .width = 52, .kv_heads = 1, .window = 1},
    {.vocabulary = 19, .context = 20, .layers = 1, .heads = 8, .width = 264, .kv_heads = 4, .window = 30, .bias = true},
};

constexpr std::array kWeights = {DType::f32, DType::bf16};

[[nodiscard]] std::string label(const GptConfig& c) {
  return cat("vocabulary ", c.vocabulary, ", context ", c.context, ", heads ", c.heads, " (", c.kv_heads,
             " of keys), width ", c.width, ", attention's window ", c.window);
}

}  // namespace

TEST_CASE("decode: logits equal those of the full forward pass, up to the context and past it", "[decode]") {
  for (const GptConfig& config : kConfigs) {
    INFO(label(config));
    SmallGpt model(config);
    Decoder decoder(model.gpt);
    std::vector<int32_t> window;
    double most = 0;
    for (const int32_t token : model.random_tokens(2 * config.context + config.context / 2 + 3)) {
      slide(window, token, config.context);
      const double apart = distance(decoder.feed(token), model.full_logits(window));
      if (!(apart <= most)) most = apart;
      REQUIRE(decoder.window() == static_cast<int64_t>(window.size()));
    }
    CHECK(most < kTolerance);
  }
}

TEST_CASE("decode: weights in the test give logits that tell tokens apart", "[decode]") {
  SmallGpt model(kConfigs[0]);
  const std::vector<float> a = model.full_logits({1, 2, 3}), b = model.full_logits({1, 2, 4});
  CHECK(distance(a, b) > 0.1);
  CHECK(*std::max_element(a.begin(), a.end()) - *std::min_element(a.begin(), a.end()) > 1.0f);
}

TEST_CASE("decode: greedy text over five contexts is the one made without a cache", "[decode]") {
  const GptConfig config{.vocabulary = 23, .context = 9, .layers = 2, .heads = 2, .width = 32};
  SmallGpt model(config, 3);
  Decoder decoder(model.gpt);
  std::vector<int32_t> window;
  int32_t cached = 4, uncached = 4;
  for (int i = 0; i < 5 * 9; ++i) {
    slide(window, uncached, config.context);
    uncached = likeliest(model.full_logits(window));
    cached = likeliest(decoder.feed(cached));
    REQUIRE(cached == uncached);
  }
}

TEST_CASE("decode: tokens fed together give what they give one by one", "[decode]") {
  for (const GptConfig& config : kConfigs) {
    SmallGpt model(config);
    for (const DType weights : kWeights) {
      INFO(label(config) << ", " << name_of(weights));
      Decoder single(model.gpt, 1, 1, weights), grouped(model.gpt, 1, 1, weights);
      const std::vector<int32_t> tokens = model.random_tokens(config.width > 200 ? 36 : 7 * config.context + 80);
      size_t fed = 0;
      for (const size_t count : {1u, 2u, 3u, 5u, 8u, 13u, 34u, 1u, 60u}) {
        if (fed == tokens.size()) break;
        const size_t end = std::min(fed + count, tokens.size());
        std::vector<float> expected;
        const std::span<const float> logits = grouped.feed(std::span(tokens).subspan(fed, end - fed));
        for (; fed < end; ++fed) expected = copy(single.feed(tokens[fed]));
        REQUIRE(distance(logits, expected) < 1e-6);
        REQUIRE(grouped.window() == single.window());
        REQUIRE(grouped.position() == static_cast<int64_t>(fed));
      }
    }
  }
}

TEST_CASE("decode: the number of threads does not change a bit", "[decode]") {
  for (const GptConfig& config : kConfigs) {
    SmallGpt model(config);
    for (const DType weights : kWeights) {
      INFO(label(config) << ", " << name_of(weights));
      Decoder one(model.gpt, 1, 1, weights);
      for (const int threads : {2, 3, 8}) {
        Decoder several(model.gpt, threads, 1, weights);
        one.reset();
        REQUIRE(several.threads() >= 2);
        const std::vector<int32_t> tokens = model.random_tokens(config.context + 6);
        REQUIRE(distance(several.feed(std::span(tokens).first(4)), copy(one.feed(std::span(tokens).first(4)))) == 0.0);
        for (size_t i = 4; i < tokens.size(); ++i)
          REQUIRE(distance(several.feed(tokens[i]), copy(one.feed(tokens[i]))) == 0.0);
      }
    }
  }
}

TEST_CASE("decode: with weights of bf16, logits are as near to those of f32 as the forward pass in bf16", "[decode]") {
  for (const GptConfig& config : kConfigs) {
    INFO(label(config));
    SmallGpt model(config);
    Context narrow_context({.threads = 1, .precision = DType::bf16});
    const std::vector<int32_t> tokens = model.random_tokens(config.context);
    const std::vector<float> exact = model.full_logits(tokens);
    Decoder decoder(model.gpt, 2, 20, DType::bf16);
    const double off = distance(decoder.feed(tokens), exact);
    const double off_in_training = distance(model.full_logits(tokens, narrow_context), exact);
    CHECK(off <= 3 * off_in_training + 1e-6);
    CHECK((off > 0 || config.vocabulary == 1));
  }
  SmallGpt model(kConfigs[0]);
  CHECK_THROWS_WITH(Decoder(model.gpt, 1, 1, DType::f64),
                    contains("decoder: expected weights of f32 or bf16, got f64"));
  for (const int64_t threads : {int64_t{0}, int64_t{-1}, -(int64_t{1} << 32), -(int64_t{1} << 32) + 1})
    CHECK_THROWS_WITH(Decoder(model.gpt, threads),
                      contains("decoder: expected at least 1 thread, got " + std::to_string(threads)));
}

TEST_CASE("decode: a stream's logits are to the bit what they are alone, whatever the others do", "[decode]") {
  for (const GptConfig& config : kConfigs) {
    SmallGpt model(config);
    for (const DType weights : kWeights) {
      INFO(label(config) << ", " << name_of(weights));
      const int64_t streams = config.width > 200 ? 9 : 70;  // more than one pass takes (kDecodeRows), if that is quick
      Decoder together(model.gpt, 1, streams, weights), shared(model.gpt, 2, streams, weights);
      std::vector<std::unique_ptr<Decoder>> alone;
      for (int64_t i = 0; i < streams; ++i) alone.push_back(std::make_unique<Decoder>(model.gpt, 1, 1, weights));
      const std::vector<int32_t> tokens = model.random_tokens(2000);
      const std::span<const int32_t> all(tokens);
      // Some streams begin with a prompt, of different lengths, and reach the context at different times.
      for (int64_t i = 0; i < streams; i += 3) {
        const auto prompt = all.subspan(static_cast<size_t>(i), static_cast<size_t>(i % 5 + 1));
        const std::vector<float> own = copy(alone[static_cast<size_t>(i)]->feed(prompt));
        REQUIRE(distance(together.feed(i, prompt), own) == 0.0);
        REQUIRE(distance(shared.feed(i, prompt), own) == 0.0);
      }
      size_t at = 0;
      for (int64_t turn = 0; turn < (config.width > 200 ? 6 : std::min<int64_t>(config.context + 3, 23)); ++turn) {
        std::vector<Decoder::Next> next;
        for (int64_t i = 0; i < streams; ++i)
          if ((i + turn) % 7 != 0) next.push_back({i, tokens[at++ % tokens.size()]});
        together.feed_each(next);
        shared.feed_each(next);
        for (const auto& [stream, token] : next) {
          Decoder& own = *alone[static_cast<size_t>(stream)];
          const std::vector<float> logits = copy(own.feed(token));
          REQUIRE(distance(together.logits(stream), logits) == 0.0);
          REQUIRE(distance(shared.logits(stream), logits) == 0.0);
          REQUIRE(together.window(stream) == own.window());
          REQUIRE(together.position(stream) == own.position());
        }
      }
    }
  }
}

TEST_CASE("decode: a copied stream goes on as the one it was copied from", "[decode]") {
  for (const GptConfig& config : kConfigs) {
    SmallGpt model(config);
    for (const DType weights : kWeights) {
      INFO(label(config) << ", " << name_of(weights));
      Decoder decoder(model.gpt, 1, 3, weights);
      const std::vector<int32_t> tokens = model.random_tokens(2 * config.context + 9);
      const std::span<const int32_t> other(tokens.data(), static_cast<size_t>(config.context) + 2);
      for (size_t i = 0; i < tokens.size(); ++i) {
        (void)decoder.feed(2, {&tokens[i], 1});
        if (i % 3 == 0) {
          (void)decoder.feed(0, other);  // to be overwritten
          decoder.copy(2, 0);
          REQUIRE(distance(decoder.logits(0), copy(decoder.logits(2))) == 0.0);
        } else {
          REQUIRE(distance(decoder.feed(0, {&tokens[i], 1}), copy(decoder.logits(2))) == 0.0);
        }
      }
      CHECK(decoder.position(1) == 0);
      decoder.reset();
      CHECK(decoder.position(0) == 0);
      CHECK(decoder.position(2) == 0);
    }
  }
}

TEST_CASE("decode: refuses streams that are not there, twice or out of order, and logits before a token", "[decode]") {
  SmallGpt model(kConfigs[1]);
  Decoder decoder(model.gpt, 1, 2);
  const int32_t token = 1;
  REQUIRE_THROWS_WITH(decoder.feed(2, {&token, 1}), contains("decoder: expected streams from 0 to 1, got 2"));
  REQUIRE_THROWS_WITH(decoder.copy(0, -1), contains("got -1"));
  REQUIRE_THROWS_WITH(decoder.logits(0), contains("a stream that has seen a token, got stream 0"));
  for (const auto& [first, second] : {std::pair<int64_t, int64_t>{0, 0}, {1, 0}}) {
    const std::vector<Decoder::Next> next = {{first, 1}, {second, 1}};
    REQUIRE_THROWS_WITH(decoder.feed_each(next), contains("each stream once, in ascending order"));
  }
  const std::vector<Decoder::Next> foreign = {{0, 1}, {1, 11}};
  REQUIRE_THROWS_WITH(decoder.feed_each(foreign), contains("tokens from 0 to 10, got 11"));
  CHECK(decoder.position(0) == 0);  // nothing was taken in
  REQUIRE_THROWS_WITH(Decoder(model.gpt, 1, 0), contains("streams, got 0"));
  decoder.feed_each({});
}

TEST_CASE("decode: a reset forgets everything, and the logits stay at their address", "[decode]") {
  SmallGpt model(kConfigs[1]);
  Decoder decoder(model.gpt);
  const std::span<const float> first = decoder.feed(3);
  const std::vector<float> expected = copy(first);
  for (const int32_t token : model.random_tokens(30)) {
    const std::span<const float> logits = decoder.feed(token);
    REQUIRE(logits.data() == first.data());
    REQUIRE(logits.size() == 11);
  }
  CHECK(decoder.position() == 31);
  decoder.reset();
  CHECK(decoder.position() == 0);
  CHECK(decoder.window() == 0);
  CHECK(distance(decoder.feed(3), expected) == 0.0);
}

TEST_CASE("decode: the weights are a copy of the store's", "[decode]") {
  SmallGpt model(kConfigs[1]);
  Decoder decoder(model.gpt);
  const std::vector<float> expected = copy(decoder.feed(3));
  for (const ParamInfo& param : model.store.params())
    std::fill_n(param.value.ptr<float>(), param.value.count(), std::numeric_limits<float>::quiet_NaN());
  decoder.reset();
  CHECK(distance(decoder.feed(3), expected) == 0.0);
}

TEST_CASE("decode: a NaN in the weights comes out as NaN, not as a number", "[decode]") {
  SmallGpt model(kConfigs[1]);
  model.store.find("transformer.h.1.attn.c_attn.weight")->value.ptr<float>()[40] =
      std::numeric_limits<float>::quiet_NaN();
  Decoder decoder(model.gpt);
  CHECK(std::isnan(decoder.feed(3)[0]));
}

TEST_CASE("decode: refuses tokens outside the vocabulary, and none at all", "[decode]") {
  SmallGpt model(kConfigs[1]);
  Decoder decoder(model.gpt);
  REQUIRE_THROWS_WITH(decoder.feed(11), contains("decoder: expected tokens from 0 to 10, got 11"));
  REQUIRE_THROWS_WITH(decoder.feed(int64_t{1} << 32), contains("from 0 to 10, got 4294967296"));
  REQUIRE_THROWS_WITH(decoder.feed(-1), contains("got -1"));
  REQUIRE_THROWS_WITH(decoder.feed(std::span<const int32_t>{}), contains("at least one token"));
  CHECK(decoder.position() == 0);
}

TEST_CASE("decode: an attention of any scale, alone, decodes as it forwards", "[decode]") {
  constexpr int64_t kContext = 21, kWidth = 12, kShares = 2;
  for (const double scale : {1.0, 0.3, 0.0, -0.7})
    for (const int64_t kv_heads : {0, 1}) {
      INFO(cat("scale ", scale, ", heads of keys ", kv_heads));
      ParamStore store;
      const SelfAttention attention(
          Scope(store), {.width = kWidth,
                         .attention = {.heads = 3, .kv_heads = kv_heads, .causal = true, .window = 9, .scale = scale}});
      store.freeze();
      for (const ParamInfo& param : store.params())
        for (int64_t i = 0; i < param.value.count(); ++i)
          param.value.ptr<float>()[i] = static_cast<float>(
              random_normal({.seed = 3}, static_cast<uint32_t>(param.value.slot), static_cast<uint32_t>(i)));
      std::vector<float> x(kContext * kWidth);
      for (size_t i = 0; i < x.size(); ++i)
        x[i] = static_cast<float>(random_normal({.seed = 5}, 0, static_cast<uint32_t>(i)));
      Context context({.threads = 1});
      Tape tape(context, Tape::Mode::evaluate);
      const Tensor expected = attention(tape.constant<float>({1, kContext, kWidth}, x));

      Arena arena;
      DecodeMemory memory(arena, {.shares = kShares, .context = kContext});
      std::vector<std::unique_ptr<ShareStep>> shares;
      for (int64_t share = 0; share < kShares; ++share) shares.push_back(attention.decode_share(memory, share));
      const float* const bias = memory.copy(attention.output_bias());
      const int64_t stride = PackedWeight::padded(kWidth);
      auto* const row = memory.room<float>(stride);
      auto* const out = memory.room<float>(stride);
      auto* const scratch = memory.room<std::byte>(std::max(shares[0]->scratch_bytes(), shares[1]->scratch_bytes()));
      for (int64_t t = 0; t < kContext; ++t) {
        std::copy_n(&x[static_cast<size_t>(t * kWidth)], kWidth, row);
        std::vector<float> y(bias, bias + kWidth);
        const DecodeRow token{.stream = 0, .at = t, .token = 0};
        const PackedProducts multiply(DType::f32, 1, nullptr);
        for (const auto& share : shares) {
          (*share)({{&token, 1}, multiply, stride, scratch}, row, out);
          for (int64_t c = 0; c < kWidth; ++c) y[static_cast<size_t>(c)] += out[c];
        }
        const float* const full = expected.ptr<float>() + t * kWidth;
        CHECK(distance({full, static_cast<size_t>(kWidth)}, y) < 1e-4);
      }
    }
}

TEST_CASE("decode: refuses a model whose weights it cannot read", "[decode]") {
  const GptConfig& config = kConfigs[1];
  ParamStore growing, wide(DType::f64), planned;
  const Gpt unfinished(growing, config), of_f64(wide, config), without(planned, config);
  wide.freeze();
  planned.freeze(ParamStore::Fill::planned);
  REQUIRE_THROWS_WITH(Decoder(unfinished), contains("got one that still grows"));
  REQUIRE_THROWS_WITH(Decoder(without), contains("got one that only plans"));
  REQUIRE_THROWS_WITH(Decoder(of_f64), contains("decoder: expected parameters of f32, got f64"));
}

}  // namespace tril::test

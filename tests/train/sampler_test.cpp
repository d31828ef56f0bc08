// From logits to tokens, and from tokens to text.
#include "train/model/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "nn/gpt.h"
#include "support/catch.h"
#include "train/base/utf8.h"

namespace tril::test {
namespace {

[[nodiscard]] std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

// The tokens that can be drawn.
[[nodiscard]] std::set<int> support(const SamplerOptions& options, const std::vector<float>& logits) {
  Sampler sampler(options, static_cast<int64_t>(logits.size()));
  const std::span<const double> weights = sampler.weights(logits);
  std::set<int> tokens;
  for (size_t i = 0; i < weights.size(); ++i)
    if (weights[i] > 0.0) tokens.insert(static_cast<int>(i));
  return tokens;
}

// The tokens of positions 0, 1, 2, … under the same logits.
[[nodiscard]] std::vector<int32_t> picks(const SamplerOptions& options, const std::vector<float>& logits,
                                         uint32_t stream = 0, int64_t count = 200) {
  Sampler sampler(options, static_cast<int64_t>(logits.size()));
  std::vector<int32_t> tokens;
  for (int64_t position = 0; position < count; ++position) tokens.push_back(sampler.pick(logits, stream, position));
  return tokens;
}

// What a StopText lets through of a text that comes in pieces of `size` bytes, and whether it stopped.
struct Cut {
  std::string text;
  bool stopped = false;
};
[[nodiscard]] Cut cut(const std::string& stop, const std::string& text, size_t size) {
  StopText filter(stop);
  Cut result;
  for (size_t at = 0; at < text.size() && !result.stopped; at += size)
    result.stopped = filter.push(std::string_view(text).substr(at, size), result.text);
  if (!result.stopped) filter.flush(result.text);
  return result;
}

// A model of a text's characters whose weights are as they start: it writes anything.
struct Writer {
  explicit Writer(Tokenizer its_tokenizer, int64_t context = 8)
      : tokenizer(std::move(its_tokenizer)),
        config{.vocabulary = tokenizer.size(), .context = context, .layers = 1, .heads = 2, .width = 16},
        gpt(store, config) {
    store.freeze();
    decoder.emplace(gpt);
  }
  std::string write(const std::string& prompt, const WriteOptions& options, const SamplerOptions& sampling = {}) {
    Sampler sampler(sampling, config.vocabulary);
    std::string text;
    write_text(*decoder, sampler, tokenizer, tokenizer.encode(prompt, "prompt"), options, [&](std::string_view piece) {
      CHECK(is_utf8(piece));
      text += piece;
      return true;
    });
    return text;
  }

  Tokenizer tokenizer;
  GptConfig config;
  ParamStore store;
  Gpt gpt;
  std::optional<Decoder> decoder;
};

[[nodiscard]] int64_t characters_of(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char byte) { return (byte & 0xC0) != 0x80; });
}

}  // namespace

TEST_CASE("draw: never takes what has no weight, whatever the random number", "[sampler]") {
  const std::vector<double> weights{0.0, 0.3, 0.0, 0.7, 0.0};
  for (const double u : {0.0, 0.29, 0.31, 0.5, 1.0 - 0x1p-24, 1.0 - 0x1p-53}) {
    const int64_t token = draw(weights, u);
    CHECK(token == (u < 0.3 ? 1 : 3));
  }
  CHECK(draw(std::vector<double>{0.0, 0.0, 1e-300, 0.0}, 0.0) == 2);
  CHECK(draw(std::vector<double>{0.0, 0.0, 1e-300, 0.0}, 1.0 - 0x1p-53) == 2);
  REQUIRE_THROWS_WITH(draw(std::vector<double>{0.0, 0.0}, 0.5), contains("a weight above 0"));
}

TEST_CASE("draw: takes in proportion to the weights", "[sampler]") {
  const std::vector<double> weights{1.0, 2.0, 5.0};
  std::vector<int> taken(3);
  for (int i = 0; i < 800; ++i) ++taken[static_cast<size_t>(draw(weights, i / 800.0))];
  CHECK(taken == std::vector<int>{100, 200, 500});
}

TEST_CASE("sampler: temperature 0 takes the likeliest token, and the first of equal ones", "[sampler]") {
  const SamplerOptions greedy{.temperature = 0.0, .top_k = 1};
  CHECK(picks(greedy, {1.0f, 3.0f, 2.0f, 3.0f}, 0, 3) == std::vector<int32_t>{1, 1, 1});
  CHECK(picks(greedy, {-5.0f, -5.0f, -5.0f}, 0, 1) == std::vector<int32_t>{0});
  CHECK(picks(greedy, {7.0f}, 0, 1) == std::vector<int32_t>{0});
}

TEST_CASE("sampler: a tiny temperature is nearly greedy, a huge one nearly even, neither is NaN", "[sampler]") {
  const std::vector<float> logits{-3e38f, 1.0f, 1.5f, 3e38f};
  CHECK(picks({.temperature = 1e-300}, logits, 0, 20) == std::vector<int32_t>(20, 3));
  CHECK(picks({.temperature = std::numeric_limits<double>::denorm_min()}, logits, 0, 20) ==
        std::vector<int32_t>(20, 3));
  Sampler hot({.temperature = 1e300}, 4);
  for (const double weight : hot.weights(logits)) CHECK(weight == Approx(1.0));
}

TEST_CASE("sampler: probabilities follow the temperature", "[sampler]") {
  Sampler sampler({.temperature = 0.5}, 2);
  const std::span<const double> weights = sampler.weights(logits_of({0.2, 0.8}));
  CHECK(weights[1] / weights[0] == Approx(16.0));
}

TEST_CASE("sampler: top-k keeps the k likeliest, of equal ones the first", "[sampler]") {
  const std::vector<float> logits{0.1f, 0.9f, 0.5f, 0.9f, 0.5f};
  CHECK(support({.top_k = 1}, logits) == std::set<int>{1});
  CHECK(support({.top_k = 2}, logits) == std::set<int>{1, 3});
  CHECK(support({.top_k = 3}, logits) == std::set<int>{1, 2, 3});
  CHECK(support({.top_k = 4}, logits) == std::set<int>{1, 2, 3, 4});
}

TEST_CASE("sampler: top-k of the vocabulary's size and above is as good as none", "[sampler]") {
  const std::vector<float> logits{0.1f, 0.9f, 0.5f, 0.9f, 0.5f};
  const std::vector<int32_t> expected = picks({.top_k = 0}, logits);
  for (const int64_t k : {int64_t{5}, int64_t{6}, int64_t{1'000'000'000}, std::numeric_limits<int64_t>::max()})
    CHECK(picks({.top_k = k}, logits) == expected);
  CHECK(std::set<int32_t>(expected.begin(), expected.end()).size() == 5);
}

TEST_CASE("sampler: top-p keeps the fewest tokens whose probabilities reach it", "[sampler]") {
  const std::vector<float> logits = logits_of({0.5, 0.25, 0.25});
  const auto kept = [&](double p) { return support({.temperature = 1.0, .top_p = p}, logits); };
  CHECK(kept(0.5) == std::set<int>{0});
  CHECK(kept(0.501) == std::set<int>{0, 1});
  CHECK(kept(0.75) == std::set<int>{0, 1});
  CHECK(kept(0.76) == std::set<int>{0, 1, 2});
  CHECK(kept(1.0) == std::set<int>{0, 1, 2});
  CHECK(kept(1e-300) == std::set<int>{0});
}

TEST_CASE("sampler: top-p counts among what top-k left", "[sampler]") {
  const std::vector<float> logits = logits_of({0.4, 0.3, 0.2, 0.1});
  CHECK(support({.temperature = 1.0, .top_p = 0.7}, logits) == std::set<int>{0, 1});
  CHECK(support({.temperature = 1.0, .top_k = 3, .top_p = 0.4}, logits) == std::set<int>{0});  // 0.4 of 0.9
  CHECK(support({.temperature = 1.0, .top_k = 2, .top_p = 0.99}, logits) == std::set<int>{0, 1});
}

TEST_CASE("sampler: refuses options that mean nothing", "[sampler]") {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  const auto error = [](const SamplerOptions& options) {
    try {
      options.check();
    } catch (const Error& e) { return std::string(e.what()); }
    return std::string();
  };
  CHECK(error({}).empty());
  CHECK(error({.temperature = -1.0}) == "temperature: expected 0 or more, got -1");
  CHECK(error({.temperature = nan}) != "");
  CHECK(error({.temperature = infinity}) != "");
  CHECK(error({.top_k = -3}) == "top-k: expected 0 (off) or more, got -3");
  CHECK(error({.top_p = 1.5}) ==
        "top-p: expected more than 0 and at most 1, got 1.5; temperature 0 always takes the likeliest");
  CHECK(error({.top_p = 0.0}) != "");
  CHECK(error({.top_p = -0.5}) != "");
  CHECK(error({.top_p = nan}) != "");
}

TEST_CASE("sampler: logits that are not finite are an error that says where", "[sampler]") {
  for (const double temperature : {0.0, 1.0})
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()}) {
      Sampler sampler({.temperature = temperature}, 3);
      const std::vector<float> logits{0.0f, bad, 1.0f};
      REQUIRE_THROWS_WITH(sampler.pick(logits, 0, 7), contains("non-finite logits at position 7"));
    }
}

TEST_CASE("sampler: a token depends on seed, stream and position, and on nothing before", "[sampler]") {
  const std::vector<float> logits(50, 0.0f);
  const std::vector<int32_t> expected = picks({.seed = 5}, logits, 2);
  CHECK(picks({.seed = 6}, logits, 2) != expected);
  CHECK(picks({.seed = 5}, logits, 3) != expected);
  CHECK(std::set<int32_t>(expected.begin(), expected.end()).size() > 40);
  Sampler sampler({.seed = 5}, 50);
  (void)sampler.pick(logits, 9, 3);
  CHECK(sampler.pick(logits, 2, 100) == expected[100]);
  CHECK(sampler.pick(logits, 2, 4) == expected[4]);
  CHECK_NOTHROW((void)sampler.pick(logits, 2, int64_t{1} << 40));
}

TEST_CASE("sampler: a text cut at the stop text ends before it, however the pieces fall", "[sampler]") {
  struct Case {
    std::string stop, text, expected;
    bool stopped;
  };
  const Case cases[] = {{"END", "one END two", "one ", true},
                        {"END", "one EN", "one EN", false},
                        {"aab", "aaab", "a", true},
                        {"abab", "abaabab", "aba", true},
                        {"abac", "abababac!", "abab", true},
                        {"\n\n", "a\nb\n\nc", "a\nb", true},
                        {"x", "x", "", true},
                        {"é", "caf\xC3\xA8 caf\xC3\xA9", "caf\xC3\xA8 caf", true},
                        {"", "anything", "anything", false}};
  for (const Case& c : cases)
    for (const size_t size : {1u, 2u, 3u, 100u}) {
      INFO(c.stop << " in " << c.text << ", pieces of " << size);
      const Cut result = cut(c.stop, c.text, size);
      CHECK(result.text == c.expected);
      CHECK(result.stopped == c.stopped);
    }
}

TEST_CASE("sampler: what cannot begin the stop text is not held back", "[sampler]") {
  StopText stop("END");
  std::string out;
  CHECK_FALSE(stop.push("the E", out));
  CHECK(out == "the ");
  CHECK_FALSE(stop.push("EN", out));
  CHECK(out == "the E");
  CHECK_FALSE(stop.push("d", out));
  CHECK(out == "the EENd");
}

TEST_CASE("write_text: writes as many characters as asked, the prompt only where wanted", "[sampler]") {
  Writer writer(Tokenizer::characters_of("abcdé\xF0\x9F\x91\xA9\n", "text"));
  const std::string plain = writer.write("ab", {.length = 40});
  CHECK(characters_of(plain) == 40);
  CHECK(writer.write("ab", {.length = 40, .echo = true}) == "ab" + plain);
  CHECK(writer.write("ab", {.length = 0, .echo = true}) == "ab");
  CHECK(writer.write("ab", {.length = 0}).empty());
  CHECK(writer.write("ab", {.length = 15}) == plain.substr(0, writer.write("ab", {.length = 15}).size()));
}

TEST_CASE("write_text: streams differ, and are what they are alone", "[sampler]") {
  Writer writer(Tokenizer::characters_of("abcdefgh", "text"));
  const std::string zero = writer.write("ab", {.length = 60}), one = writer.write("ab", {.length = 60, .stream = 1});
  CHECK(zero != one);
  CHECK(writer.write("ab", {.length = 60}) == zero);
  Writer fresh(Tokenizer::characters_of("abcdefgh", "text"));
  CHECK(fresh.write("ab", {.length = 60, .stream = 1}) == one);
}

TEST_CASE("write_text: of a prompt longer than the context the last part is seen", "[sampler]") {
  Writer writer(Tokenizer::characters_of("abcdefgh", "text"), 8);
  const std::string end = "hgfedcba";
  const std::string expected = writer.write(end, {.length = 30});
  for (const size_t more : {1u, 3u, 8u, 992u}) {
    const std::string prompt = std::string(more, 'b') + end;
    CHECK(writer.write(prompt, {.length = 30}) == expected);
    CHECK(writer.write(prompt, {.length = 30, .echo = true}) == prompt + expected);
  }
}

TEST_CASE("write_text: ends before the stop text, which may be in the prompt", "[sampler]") {
  Writer writer(Tokenizer::characters_of("abc", "text"));
  const std::string whole = writer.write("a", {.length = 200});
  for (const std::string stop : {"a", "bc", "cab", "abca"}) {
    INFO(stop);
    const size_t at = whole.find(stop);
    CHECK(writer.write("a", {.length = 200, .stop = stop}) == whole.substr(0, at));
    CHECK(writer.write(stop, {.length = 0, .stop = stop, .echo = true}) == stop);
  }
  CHECK(writer.write("a", {.length = 200, .stop = "never"}) == whole);
}

TEST_CASE("write_text: a model of bytes writes whole characters, and U+FFFD for what is none", "[sampler]") {
  Writer writer(Tokenizer::bytes());
  const std::string text = writer.write("x", {.length = 10'000});
  CHECK(is_utf8(text));
  CHECK(text.find("\xEF\xBF\xBD") != std::string::npos);
  // A prompt that ends within a character.
  CHECK(writer.write("a\xC3", {.length = 0, .echo = true}) == "a\xEF\xBF\xBD");
  CHECK(is_utf8(writer.write("a\xF0\x9F", {.length = 100, .echo = true})));
  CHECK(writer.write("\xFF", {.length = 0, .echo = true}) == "\xEF\xBF\xBD");
}

TEST_CASE("write_text: goes on only as long as its reader wants", "[sampler]") {
  Writer writer(Tokenizer::characters_of("abc", "text"));
  Sampler sampler({}, 3);
  int pieces = 0;
  const std::vector<int32_t> prompt{0};
  write_text(*writer.decoder, sampler, writer.tokenizer, prompt, {.length = 1'000'000},
             [&](std::string_view) { return ++pieces < 5; });
  CHECK(pieces == 5);
  REQUIRE_THROWS_WITH(
      write_text(*writer.decoder, sampler, writer.tokenizer, {}, {}, [](std::string_view) { return true; }),
      contains("a prompt of at least one token"));
}

TEST_CASE("write_texts: each of many is what it is alone, ends with its last piece, and may end early", "[sampler]") {
  for (const bool bytes : {false, true}) {
    Writer writer(bytes ? Tokenizer::bytes() : Tokenizer::characters_of("abc", "text"));
    Decoder decoder(writer.gpt, 2, 9);
    for (const WriteOptions& options : {WriteOptions{.length = 50, .stop = "ab", .stream = 3, .echo = true},
                                        {.length = 1},
                                        {.length = 0, .echo = true}}) {
      Sampler sampler({}, writer.config.vocabulary);
      std::vector<std::string> texts(9);
      std::vector<int> ends(9);
      write_texts(decoder, sampler, writer.tokenizer, writer.tokenizer.encode("ca", "prompt"), 9, options,
                  [&](const Piece& piece) {
                    const auto at = static_cast<size_t>(piece.text);
                    CHECK(ends[at] == 0);
                    CHECK(is_utf8(piece.characters));
                    texts[at] += piece.characters;
                    ends[at] += piece.last;
                    return true;
                  });
      for (size_t i = 0; i < texts.size(); ++i) {
        WriteOptions own = options;
        own.stream += static_cast<uint32_t>(i);
        CHECK(texts[i] == writer.write("ca", own));
        CHECK(ends[i] == 1);
      }
    }
  }
}

TEST_CASE("write_texts: all end when the reader has enough, and no more than the decoder's streams are made",
          "[sampler]") {
  Writer writer(Tokenizer::characters_of("abc", "text"));
  Decoder decoder(writer.gpt, 1, 3);
  Sampler sampler({}, 3);
  const std::vector<int32_t> prompt{0};
  std::vector<int> pieces(3), ends(3);
  write_texts(decoder, sampler, writer.tokenizer, prompt, 3, {.length = 1'000'000}, [&](const Piece& piece) {
    const auto at = static_cast<size_t>(piece.text);
    ends[at] += piece.last;
    return ++pieces[at] < 4;
  });
  CHECK(ends == std::vector<int>{1, 1, 1});
  for (const int count : pieces) CHECK(count <= 6);
  const auto write = [&](int64_t count) {
    write_texts(decoder, sampler, writer.tokenizer, prompt, count, {}, [](const Piece&) { return true; });
  };
  REQUIRE_THROWS_WITH(write(4), contains("expected 1 to 3 texts together, got 4"));
  REQUIRE_THROWS_WITH(write(0), contains("got 0"));
}

TEST_CASE("texts_together: no more than asked, than 64, and than memory is for", "[sampler]") {
  const auto together = [](const GptConfig& config, int64_t count, int64_t length) {
    ParamStore store;
    return texts_together(Gpt(store, config), count, length);
  };
  const GptConfig small{.vocabulary = 65, .context = 64, .layers = 4, .heads = 4, .width = 128};
  CHECK(together(small, 1, 500) == 1);
  CHECK(together(small, 10, 500) == 10);
  CHECK(together(small, 1000, 500) == 64);
  CHECK(together(small, 1000, int64_t{1} << 40) == 1);
  CHECK(together(small, 1000, 1 << 20) == 16);
  GptConfig large = small;
  large.context = 4096;
  large.width = 1024;  // 128 MiB of keys and values each
  CHECK(together(large, 1000, 500) == 2);
  large.layers = 48;
  CHECK(together(large, 1000, 500) == 1);
}

}  // namespace tril::test

#include "train/data/dataset.h"

#include <algorithm>
#include <limits>
#include <set>

#include "core/base/check.h"
#include "support/catch.h"
#include "train/temp_folder.h"

namespace tril::test {
namespace {

Text text_of(std::string bytes) {
  Text text;
  text.name = "t.txt";
  text.bytes = std::move(bytes);
  return text;
}

// Numbered text: token i of it is i mod 251, as bytes.
std::string counting(int64_t size) {
  std::string out;
  for (int64_t i = 0; i < size; ++i) out += static_cast<char>(i % 251);
  return out;
}

Dataset dataset_of(int64_t size, double val_fraction, int64_t context) {
  return Dataset(text_of(counting(size)), Tokenizer::bytes(), val_fraction, context);
}

struct Batch {
  std::vector<int32_t> inputs, targets;
  Batch(int64_t rows, int64_t context)
      : inputs(static_cast<size_t>(rows * context), 12345), targets(static_cast<size_t>(rows * context), 12345) {}
};

Batch batch_of(const Dataset& data, uint64_t seed, int64_t first, int64_t rows, int64_t context) {
  Batch out(rows, context);
  data.batch(seed, first, rows, context, out.inputs.data(), out.targets.data());
  return out;
}

}  // namespace

TEST_CASE("tokens: every width of vocabulary gives the text back") {
  for (const size_t size : {1u, 2u, 255u, 256u, 257u, 300u, 65536u, 65537u, 70000u}) {
    std::string text;
    char32_t c = 0;
    for (size_t i = 0; i < size; ++i, ++c) {
      if (!is_unicode_scalar(c)) c = 0xE000;
      append_utf8(text, c);
    }
    text += text.substr(0, 1) + text;
    const Tokenizer tokenizer = Tokenizer::characters_of(text, "t");
    REQUIRE(tokenizer.size() == static_cast<int64_t>(size));
    const std::vector<int32_t> expected = tokenizer.encode(text, "t");
    const Tokens tokens(text, tokenizer, "t");
    REQUIRE(tokens.size() == static_cast<int64_t>(expected.size()));
    std::vector<int32_t> found(expected.size());
    tokens.copy(0, tokens.size(), found.data());
    CHECK((found == expected));  // in brackets, lest a failure print it all
    CHECK((tokenizer.decode(found) == text));
    tokens.copy(tokens.size() - 1, 1, found.data());
    CHECK(found[0] == expected.back());
  }
}

TEST_CASE("tokens: no range outside them can be copied") {
  const Tokens tokens("abc", Tokenizer::bytes(), "t");
  int32_t out[4];
  tokens.copy(3, 0, out);
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const auto& [begin, count] : std::vector<std::pair<int64_t, int64_t>>{
           {-1, 1}, {0, 4}, {3, 1}, {4, 0}, {0, -1}, {kMost, kMost}, {1, kMost}, {kMost, 1}}) {
    const int64_t from = begin, size = count;
    CHECK_THAT(error_of([&] { tokens.copy(from, size, out); }), contains("tokens: expected a range within 3"));
  }
}

TEST_CASE("dataset: a text with characters that the model does not know is refused") {
  const Tokenizer tokenizer = Tokenizer::characters_of("ab", "t");
  CHECK_THAT(error_of([&] { Dataset(text_of("abcab"), tokenizer, 0, 2); }), contains("t.txt: expected only the 2"));
  CHECK_THAT(error_of([&] { Dataset(text_of("abéabé"), tokenizer, 0, 2); }), contains("'é' (U+00E9) at position 2;"));
}

TEST_CASE("dataset: the split is contiguous, and nanoGPT's for a tenth") {
  const Dataset data = dataset_of(1'115'394, 0.1, 64);
  CHECK(data.train_size() == 1'003'854);
  CHECK(data.val_size() == 111'540);
  CHECK(dataset_of(100, 0, 64).val_size() == 0);
  CHECK(dataset_of(100, 0.5, 9).train_size() == 50);
  CHECK(dataset_of(1000, 0.9, 9).train_size() == 100);
  CHECK(dataset_of(1000, 0.9, 9).val_size() == 900);

  const Batch first(1, 2);
  data.validation(2).fill(0, 1, const_cast<int32_t*>(first.inputs.data()), const_cast<int32_t*>(first.targets.data()));
  CHECK(first.inputs[0] == 1'003'854 % 251);
}

TEST_CASE("dataset: a fraction counts as the decimal number that it is written as") {
  for (int64_t hundredths = 1; hundredths < 100; ++hundredths)
    for (const int64_t total :
         std::vector<int64_t>{1, 7, 10, 99, 100, 1000, 4095, 65530, 1'115'394, 999'999'999, 4'503'599'627'370'490}) {
      INFO(hundredths << " hundredths of " << total);
      CHECK(Split(static_cast<double>(hundredths) / 100).train_size(total) ==
            total / 100 * (100 - hundredths) + total % 100 * (100 - hundredths) / 100);
    }
  for (int64_t power = 10; power <= 1'000'000'000; power *= 10) {
    const double part = 1 / static_cast<double>(power),
                 rest = static_cast<double>(power - 1) / static_cast<double>(power);
    CHECK(Split(part).train_size(power) == power - 1);
    CHECK(Split(rest).train_size(power) == 1);
    CHECK(Split(rest).train_size(1'000'000'000) == 1'000'000'000 / power);
  }
  constexpr int64_t kMany = int64_t{1} << 53;
  CHECK(Split(0).train_size(kMany) == kMany);
  CHECK(Split(0.125).train_size(kMany) == kMany / 8 * 7);
  CHECK(Split(0.123456789).train_size(1'000'000'000) == 876'543'211);
  for (const double tiny : {1e-9, 1e-40, 1e-300, std::numeric_limits<double>::min()})
    CHECK(Split(tiny).train_size(1000) == 999);
  CHECK(Split(0.99).train_size(0) == 0);
}

TEST_CASE("dataset: a run of before keeps its parts, and those of a tenth are the same") {
  CHECK(Split(0.9, true).train_size(1000) == 99);
  for (int64_t total = 0; total < 200'000; total += 7)
    CHECK(Split(0.1).train_size(total) == Split(0.1, true).train_size(total));
  CHECK(Split(0.1, true).train_size(1'115'394) == 1'003'854);
}

TEST_CASE("dataset: tokens as characters and bytes, whichever the model has") {
  const std::string text = "aé€😀b";  // 1, 2, 3, 4 and 1 bytes
  const auto amount = [](const std::string& of, const Tokenizer& tokenizer, int64_t begin) {
    const Tokens tokens(of, tokenizer, "t");
    return amount_of(tokens, tokenizer, begin, tokens.size());
  };
  const TextAmount chars = amount(text, Tokenizer::characters_of(text, "t"), 1);
  CHECK(chars.bytes == 10);
  CHECK(chars.chars == 4);
  const std::vector<int64_t> begun = {5, 4, 3, 3, 2, 2, 2, 1, 1, 1, 1};
  for (size_t begin = 0; begin < begun.size(); ++begin) {
    const TextAmount bytes = amount(text, Tokenizer::bytes(), static_cast<int64_t>(begin));
    CHECK(bytes.bytes == static_cast<int64_t>(text.size() - begin));
    CHECK(bytes.chars == begun[begin]);
  }
  for (const char* wrong : {"a\x92z", "ab\xC3", "\x80\x80\x80\x80z", "a\xC0\xAF"}) {
    const TextAmount bytes = amount(wrong, Tokenizer::bytes(), 0);
    CHECK(bytes.bytes == static_cast<int64_t>(std::string(wrong).size()));
    CHECK_FALSE(bytes.chars.has_value());
  }
  std::string long_text;  // characters that every size of piece cuts somewhere
  for (int i = 0; i < 40'000; ++i) long_text += i % 3 == 0 ? "€" : "é";
  CHECK(amount(long_text, Tokenizer::bytes(), 0).chars == 40'000);
  CHECK(amount("a" + long_text, Tokenizer::bytes(), 0).chars == 40'001);
}

TEST_CASE("dataset: texts too short for the context are refused with both numbers and the name") {
  CHECK(
      error_of([] { dataset_of(10, 0.1, 64); }) ==
      "t.txt: expected a training part of at least 64 + 1 tokens (context + 1), got 9 (of 10, with val-fraction 0.1); "
      "give more text, or a smaller context");
  CHECK(error_of([] { dataset_of(10, 0, 64); }) ==
        "t.txt: expected a training part of at least 64 + 1 tokens (context + 1), got 10; give more text, or a smaller "
        "context");
  CHECK(error_of([] { dataset_of(19, 0.1, 8); }).empty());
  CHECK_THAT(error_of([] { dataset_of(8, 0, 8); }), contains("at least 8 + 1 tokens (context + 1), got 8;"));
  CHECK(error_of([] { dataset_of(9, 0, 8); }).empty());
  CHECK_THAT(error_of([] { dataset_of(10, 0.1, 8); }),
             contains("a validation part of at least 2 tokens, got 1 (of 10, "));
  CHECK_THAT(error_of([] { dataset_of(1000, 1e-9, 8); }), contains("a validation part of at least 2 tokens, got 1"));
  for (const double fraction : {-0.1, 1.0, 2.0, std::numeric_limits<double>::quiet_NaN()}) {
    CHECK_THAT(error_of([&] { dataset_of(1000, fraction, 8); }), contains("val-fraction: expected 0 or more"));
  }
  for (const int64_t context : {int64_t{0}, int64_t{-1}, std::numeric_limits<int64_t>::min()}) {
    CHECK_THAT(error_of([&] { dataset_of(1000, 0.1, context); }), contains("context: expected at least 1"));
  }
  CHECK_THAT(error_of([] { dataset_of(1000, 0.1, std::numeric_limits<int64_t>::max()); }),
             contains("9223372036854775807 + 1 tokens"));
}

TEST_CASE("dataset: every size up to the context and two either trains or is refused") {
  constexpr int64_t kContext = 8;
  for (const double fraction : {0.0, 0.1, 0.5}) {
    for (int64_t size = 0; size <= 2 * (kContext + 2); ++size) {
      const auto train = static_cast<int64_t>(static_cast<double>(size) * (1 - fraction));
      const bool fits = train >= kContext + 1 && (fraction == 0 || size - train >= 2);
      const std::string error = error_of([&] {
        const Dataset data = dataset_of(size, fraction, kContext);
        const Batch batch = batch_of(data, 1, 0, 5, kContext);
        CHECK(
            std::all_of(batch.targets.begin(), batch.targets.end(), [&](int32_t t) { return t < data.train_size(); }));
        if (fraction > 0) {
          Batch eval(2, kContext);
          CHECK(data.validation(kContext).fill(0, 2, eval.inputs.data(), eval.targets.data()) == data.val_size() - 1);
        }
      });
      INFO(size << " " << fraction << ": " << error);
      CHECK(error.empty() == fits);
    }
  }
}

TEST_CASE("dataset: remembers the text it was made from") {
  const Dataset data(text_of("123456789"), Tokenizer::characters_of("123456789", "t"), 0, 2);
  CHECK(data.text_bytes() == 9);
  CHECK(data.text_crc32() == 0xCBF43926);
}

TEST_CASE("batches: targets are the inputs one further on, all from the training part") {
  const Dataset data = dataset_of(200, 0.1, 16);
  REQUIRE(data.train_size() == 180);
  const Batch batch = batch_of(data, 7, 1500, 500, 16);
  for (size_t i = 0; i < batch.inputs.size(); ++i) {
    CHECK(batch.targets[i] == batch.inputs[i] + 1);
    if (i % 16 != 0) CHECK(batch.inputs[i] == batch.inputs[i - 1] + 1);
  }
  CHECK(*std::max_element(batch.targets.begin(), batch.targets.end()) == 179);
  CHECK(*std::min_element(batch.inputs.begin(), batch.inputs.end()) == 0);
}

TEST_CASE("batches: however many samples were drawn, every start was drawn equally often") {
  const Dataset data = dataset_of(26, 0, 16);
  for (const uint64_t seed : {1u, 2u, 3u}) {
    std::vector<int> drawn(10, 0);
    for (int64_t sample = 0; sample < 10'000; ++sample) {
      ++drawn.at(static_cast<size_t>(batch_of(data, seed, sample, 1, 16).inputs[0]));
      for (const int count : drawn) REQUIRE(std::abs(count - static_cast<double>(sample + 1) / 10) < 4);
    }
  }

  const Batch only = batch_of(dataset_of(17, 0, 16), 1, 0, 4, 16);
  CHECK(only.inputs[3 * 16] == 0);
  CHECK(only.targets.back() == 16);
}

TEST_CASE("batches: a text is seen once as a whole before much of it is seen twice") {
  const Dataset data = dataset_of(240, 0, 4);
  for (const uint64_t seed : {1u, 2u, 3u}) {
    const Batch epoch = batch_of(data, seed, 0, 60, 4);
    const std::set<int32_t> seen(epoch.inputs.begin(), epoch.inputs.end());
    CHECK(seen.size() > 195);  // independent draws see 151
  }
}

TEST_CASE("batches: cut into micro-batches they are the same samples") {
  const Dataset data = dataset_of(5000, 0.1, 16);
  const Batch whole = batch_of(data, 42, 108, 12, 16);
  Batch parts(12, 16);
  for (const auto& [first, rows] : std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {1, 4}, {5, 7}}) {
    data.batch(42, 108 + first, rows, 16, parts.inputs.data() + first * 16, parts.targets.data() + first * 16);
  }
  CHECK(parts.inputs == whole.inputs);
  CHECK(parts.targets == whole.targets);
  CHECK(batch_of(data, 42, 108, 12, 16).inputs == whole.inputs);
  CHECK(batch_of(data, 43, 108, 12, 16).inputs != whole.inputs);
  CHECK(batch_of(data, 42, 120, 12, 16).inputs != whole.inputs);
}

TEST_CASE("batches: sample numbers beyond 32 bits are samples of their own") {
  const Dataset data = dataset_of(5000, 0.1, 16);
  const int64_t far = int64_t{70'000} * 65'536;
  CHECK(batch_of(data, 1, far, 8, 16).inputs != batch_of(data, 1, far % (int64_t{1} << 32), 8, 16).inputs);
}

TEST_CASE("batches: arguments out of range are refused") {
  const Dataset data = dataset_of(50, 0, 16);
  CHECK_THAT(error_of([&] { batch_of(data, 1, 0, 1, 50); }),
             contains("batch: expected a context from 1 to 49, got 50"));
  CHECK_THAT(error_of([&] { data.batch(1, 0, 1, 0, nullptr, nullptr); }), contains("a context from 1 to 49, got 0"));
}

TEST_CASE("evaluation: every token but the first is a target once, predicted from its window") {
  for (int64_t size = 2; size <= 40; ++size) {
    for (int64_t context = 1; context <= 12; ++context) {
      const Tokens tokens(counting(size + 5), Tokenizer::bytes(), "t");
      const EvalWindows windows(tokens, 3, 3 + size, context);
      REQUIRE(windows.targets() == size - 1);
      REQUIRE(windows.count() == (size - 1 + context - 1) / context);
      const int64_t rows = windows.count() + 2;  // rows past the last are padding
      Batch all(rows, context);
      REQUIRE(windows.fill(0, rows, all.inputs.data(), all.targets.data()) == size - 1);
      int64_t next = 0;
      for (size_t i = 0; i < all.targets.size(); ++i) {
        const bool counts = next < size - 1;
        CHECK(all.inputs[i] == (counts ? 3 + next : 0));
        CHECK(all.targets[i] == (counts ? 3 + next + 1 : EvalWindows::kIgnored));
        ++next;
      }
    }
  }
}

TEST_CASE("evaluation: rows cut differently hold the same windows") {
  const Tokens tokens(counting(200), Tokenizer::bytes(), "t");
  const EvalWindows windows(tokens, 0, 200, 7);
  Batch whole(30, 7), parts(30, 7);
  windows.fill(0, 30, whole.inputs.data(), whole.targets.data());
  int64_t counted = 0;
  for (int64_t first = 0; first < 30; first += 5) {
    counted += windows.fill(first, 5, parts.inputs.data() + first * 7, parts.targets.data() + first * 7);
  }
  CHECK(counted == windows.targets());
  CHECK(parts.inputs == whole.inputs);
  CHECK(parts.targets == whole.targets);
}

TEST_CASE("evaluation: a limit takes whole windows, spread evenly over the part") {
  const Tokens tokens(counting(251), Tokenizer::bytes(), "t");
  const auto starts = [&](int64_t limit) {
    const EvalWindows windows(tokens, 0, 251, 10, limit);
    Batch all(windows.count(), 10);
    CHECK(windows.fill(0, windows.count(), all.inputs.data(), all.targets.data()) == windows.targets());
    std::vector<int32_t> out;
    for (size_t i = 0; i < all.inputs.size(); i += 10) out.push_back(all.inputs[i]);
    return out;
  };
  CHECK(starts(0).size() == 25);
  CHECK(starts(1'000'000) == starts(0));
  CHECK(starts(250) == starts(0));
  CHECK(starts(50) == std::vector<int32_t>{20, 70, 120, 170, 220});
  CHECK(starts(59) == starts(50));
  CHECK(starts(10) == std::vector<int32_t>{120});
  CHECK(starts(1) == std::vector<int32_t>{120});
  CHECK(starts(std::numeric_limits<int64_t>::max()) == starts(0));
  for (int64_t limit = 10; limit <= 250; limit += 10) {
    const std::vector<int32_t> chosen = starts(limit);
    CHECK(chosen.size() == static_cast<size_t>(limit / 10));
    CHECK(std::set<int32_t>(chosen.begin(), chosen.end()).size() == chosen.size());
    CHECK(std::is_sorted(chosen.begin(), chosen.end()));
  }
  CHECK(EvalWindows(tokens, 0, 248, 10, 240).targets() == 237);  // the short window among them
  CHECK(EvalWindows(tokens, 0, 248, 10, 250).targets() == 247);
}

TEST_CASE("evaluation: refuses a part with nothing to predict") {
  const Tokens tokens("abc", Tokenizer::bytes(), "t");
  CHECK_THAT(error_of([&] { EvalWindows(tokens, 0, 1, 4); }),
             contains("evaluation: expected a text of at least 2 tokens"));
  CHECK_THAT(error_of([&] { EvalWindows(tokens, 0, 0, 4); }), contains("got 0"));
  CHECK_THAT(error_of([&] { EvalWindows(tokens, 0, 4, 4); }), contains("evaluation: expected"));
  CHECK_THAT(error_of([&] { EvalWindows(tokens, 0, 3, 0); }), contains("context: expected at least 1, got 0"));
  CHECK_THAT(error_of([&] { (void)dataset_of(100, 0, 8).validation(8); }), contains("at least 2 tokens, one to begin"));
  CHECK(EvalWindows(tokens, 0, 3, std::numeric_limits<int64_t>::max()).targets() == 2);
}

}  // namespace tril::test

#include "train/dataset.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <set>

#include "core/check.h"
#include "support/catch.h"
#include "train/temp_folder.h"

namespace tril::test {
namespace {

using namespace std::string_literals;

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

std::string load_refusal(const std::vector<std::string>& paths, TokenKind tokens = TokenKind::kChar) {
  return error_of([&] { (void)load_texts(paths, tokens); });
}

Text load(const std::vector<std::string>& paths, TokenKind tokens = TokenKind::kChar) {
  return load_texts(paths, tokens);
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

TEST_CASE("texts: one file is its bytes, and its line ends are counted") {
  const TempFolder folder;
  const std::string contents = "a\nb\r\nc\rd\r\r\n\0é"s;
  const std::string path = folder.put("t.txt", contents);
  const Text text = load({path});
  CHECK(text.name == path);
  CHECK(text.bytes == contents);
  CHECK(text.files == 1);
  CHECK(text.line_ends.lf == 1);
  CHECK(text.line_ends.crlf == 2);
  CHECK(text.line_ends.cr == 2);
  REQUIRE(text.warnings.size() == 1);
  CHECK_THAT(text.warnings[0], contains(path + ": line ends are 2 CR alone, 2 CRLF, 1 LF;"));
  CHECK(text.notes.empty());
}

TEST_CASE("texts: CRLF is noted, LF is not") {
  const TempFolder folder;
  const Text windows = load({folder.put("w", "a\r\nb\r\n")});
  CHECK(windows.bytes == "a\r\nb\r\n");
  CHECK(windows.warnings.empty());
  REQUIRE(windows.notes.size() == 1);
  CHECK_THAT(windows.notes[0], contains("0 CR alone, 2 CRLF, 0 LF"));
  const Text plain = load({folder.put("u", "a\nb\n")});
  CHECK(plain.notes.empty());
  CHECK(plain.warnings.empty());
  CHECK(count_line_ends("\r").cr == 1);
  CHECK(count_line_ends("").lf == 0);
}

TEST_CASE("texts: a byte order mark at the start goes, and offsets still count it") {
  const TempFolder folder;
  const std::string path = folder.put("t", "\xEF\xBB\xBFhi\xEF\xBB\xBF");
  const Text text = load({path});
  CHECK(text.bytes == "hi\xEF\xBB\xBF");
  REQUIRE(text.notes.size() == 1);
  CHECK_THAT(text.notes[0], contains(path + ": a byte order mark"));
  CHECK(load({path}, TokenKind::kByte).bytes == "\xEF\xBB\xBFhi\xEF\xBB\xBF");
  CHECK_THAT(load_refusal({folder.put("bad", "\xEF\xBB\xBFhi\x92")}), contains("byte 0x92 at offset 5"));
}

TEST_CASE("texts: folders are read below, in order, without what is hidden or no file") {
  const TempFolder folder;
  folder.put("d/b.txt", "b\n");
  folder.put("d/a/z.txt", "az");
  folder.put("d/a/.hidden", "no");
  folder.put("d/.git/x", "no");
  folder.put("d/c", "c");
  folder.put("d/empty", "");
  REQUIRE(::mkfifo((folder / "d/pipe").c_str(), 0666) == 0);
  std::filesystem::create_directory_symlink("..", folder / "d/loop");
  std::filesystem::create_symlink("c", folder / "d/link");
  const Text text = load({folder / "d"});
  CHECK(text.bytes == "az\nb\nc\nc");
  CHECK(text.files == 4);
  CHECK(text.name == folder / "d");
  REQUIRE(text.notes.size() == 3);
  CHECK_THAT(text.notes[0], contains("2 hidden left out"));
  CHECK_THAT(text.notes[1], contains("2 left out that are no regular files"));
  CHECK_THAT(text.notes[2], contains("d/empty: empty"));
}

TEST_CASE("texts: several come in the order given, joined by a new line where one is missing") {
  const TempFolder folder;
  const std::string a = folder.put("a", "a"), b = folder.put("b", "b\n"),
                    c = folder.put("c",
                                   "\xEF\xBB\xBF"
                                   "c\r"),
                    d = folder.put("d", "d");
  const Text text = load({d, c, b, a, d});
  CHECK(text.bytes == "d\nc\rb\na\nd");
  CHECK(text.name == d + " and 4 more");
  CHECK(text.files == 5);
}

TEST_CASE("texts: what cannot be read as text is refused by name") {
  const TempFolder folder;
  CHECK_THAT(load_refusal({}), contains("at least one file"));
  CHECK_THAT(load_refusal({folder / "none"}), contains(folder / "none: expected a file, got none of that name"));
  CHECK(load_refusal({folder.put("e", "")}) == folder / "e: expected a text, got an empty file");
  CHECK_THAT(load_refusal({folder.put("m", "\xEF\xBB\xBF")}), contains("only a byte order mark"));
  CHECK_THAT(load_refusal({folder.put("ok", "x"), folder / "e"}), contains(folder / "e: expected a text"));
  folder.put("d/.hidden", "x");
  CHECK_THAT(load_refusal({folder / "d"}), contains("d: expected a folder with text files, got one with none"));
  folder.put("f/empty", "");
  CHECK_THAT(load_refusal({folder / "f"}), contains("only empty files"));
  folder.put("g/a.txt", "fine");
  folder.put("g/b.txt", std::string(7047, 'x') + '\x92');
  CHECK_THAT(load_refusal({folder / "g"}), contains(folder / "g/b.txt: expected UTF-8 text, got byte 0x92 at offset "
                                                             "7047"));
  CHECK(load({folder / "g"}, TokenKind::kByte).bytes.size() == 4 + 1 + 7048);
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0666) == 0);
  CHECK_THAT(load_refusal({folder / "pipe"}), contains("got a pipe"));
  CHECK_THAT(load_refusal({"/dev/null"}), contains("got a device"));
  CHECK_THAT(load_refusal({"-", "-"}), contains("standard input (-) once"));

  folder.put("locked/x", "x");
  REQUIRE(::chmod((folder / "locked").c_str(), 0) == 0);
  {
    const Unprivileged nobody;
    CHECK_THAT(load_refusal({folder / "locked"}),
               contains("locked: expected a folder that can be read, got Permission"));
  }
  REQUIRE(::chmod((folder / "locked").c_str(), 0755) == 0);
}

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

  const Batch first(1, 2);
  data.validation(2).fill(0, 1, const_cast<int32_t*>(first.inputs.data()), const_cast<int32_t*>(first.targets.data()));
  CHECK(first.inputs[0] == 1'003'854 % 251);
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

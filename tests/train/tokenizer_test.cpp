#include "train/data/tokenizer.h"

#include <random>

#include "core/base/check.h"
#include "support/catch.h"
#include "train/base/utf8.h"
#include "train/temp_folder.h"

namespace tril::test {
namespace {

using namespace std::string_literals;

std::string refusal(std::string_view text) {
  return error_of([&] { check_utf8(text, "corpus.txt"); });
}

std::string json_refusal(std::string_view json) {
  return error_of([&] { (void)Tokenizer::from_json(json, "model"); });
}

// The text through a Utf8Stream, cut into pieces of `size`.
std::string streamed(std::string_view text, size_t size) {
  Utf8Stream stream;
  std::string out;
  for (size_t at = 0; at < text.size(); at += size) {
    stream.push(text.substr(at, size), out);
    CHECK(is_utf8(out));
  }
  stream.flush(out);
  stream.flush(out);  // nothing is left for a second time
  return out;
}

}  // namespace

TEST_CASE("utf8: every code point comes back from its bytes") {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (!is_unicode_scalar(c)) continue;
    std::string bytes;
    append_utf8(bytes, c);
    const Utf8Char back = decode_utf8(bytes, 0);
    if (back.code_point != c || back.fault != Utf8Fault::kNone || static_cast<size_t>(back.length) != bytes.size()) {
      FAIL(code_point_name(c));
    }
  }
}

TEST_CASE("utf8: exactly the code points from two bytes on are accepted") {
  // All sequences of two bytes, and all leads of longer ones with all second bytes.
  int two = 0, three = 0, four = 0;
  for (int first = 0x80; first < 0x100; ++first) {
    for (int second = 0; second < 0x100; ++second) {
      const std::string start{static_cast<char>(first), static_cast<char>(second)};
      two += is_utf8(start) ? 1 : 0;
      three += is_utf8(start + "\x80") && !is_utf8(start) ? 1 : 0;
      four += is_utf8(start + "\x80\x80") && !is_utf8(start + "\x80") && !is_utf8(start) ? 1 : 0;
    }
  }
  CHECK(two == (0x800 - 0x80));
  CHECK(three == (0x10000 - 0x800 - 0x800) / 64);
  CHECK(four == 0x100000 / 4096);
}

TEST_CASE("utf8: an invalid byte is named with file, offset, value and reason") {
  std::string corpus(7047, 'a');
  CHECK(refusal(corpus + "\x92 etc.") ==
        "corpus.txt: expected UTF-8 text, got byte 0x92 at offset 7047 (a continuation byte with no lead byte); "
        "convert it to UTF-8 (iconv) or leave it out; models trained with --tokens byte take bytes as they are");
  CHECK_THAT(refusal("é\x80"), contains("byte 0x80 at offset 2 (a continuation byte"));
  CHECK_THAT(refusal("a\xC0\xAF"), contains("byte 0xc0 at offset 1 (an overlong form)"));
  CHECK_THAT(refusal("\xC1\xBF"), contains("an overlong form"));
  CHECK_THAT(refusal("\xE0\x9F\xBF"), contains("byte 0xe0 at offset 0 (an overlong form)"));
  CHECK_THAT(refusal("\xF0\x8F\xBF\xBF"), contains("an overlong form"));
  CHECK_THAT(refusal("\xED\xA0\x80"), contains("byte 0xed at offset 0 (a surrogate)"));
  CHECK_THAT(refusal("\xED\xBF\xBF"), contains("a surrogate"));
  CHECK_THAT(refusal("\xF4\x90\x80\x80"), contains("byte 0xf4 at offset 0 (above U+10FFFF)"));
  CHECK_THAT(refusal("\xF5\x80\x80\x80"), contains("above U+10FFFF"));
  CHECK_THAT(refusal("\xFF"), contains("byte 0xff at offset 0 (never part of UTF-8)"));
  CHECK_THAT(refusal("\xE9t\xE9"), contains("byte 0xe9 at offset 0 (a lead byte with no continuation"));
  CHECK_THAT(refusal("\xFF\xFEh\0"s), contains("this is UTF-16"));
  for (const char* cut : {"\xC3", "\xE2\x82", "\xE2", "\xF0\x9F\x98", "\xF0\x9F", "\xF0"}) {
    CHECK_THAT(refusal("ab"s + cut), contains("at offset 2 (the text ends inside a character)"));
  }
  CHECK(refusal("\0é€😀\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF"s).empty());
  CHECK(refusal("").empty());
}

TEST_CASE("utf8: a stream never splits a character and replaces what is none") {
  const std::string text = "a é € 😀 👩‍👩‍👧\0."s;
  for (size_t size = 1; size < 8; ++size) {
    CHECK(streamed(text, size) == text);
    CHECK(streamed("\x92", size) == "\uFFFD");
    CHECK(streamed("a\xC0\xAF"
                   "b",
                   size) == "a\uFFFD\uFFFDb");
    CHECK(streamed("\xED\xA0\x80", size) == "\uFFFD\uFFFD\uFFFD");
    CHECK(streamed("\xF4\x90\x80\x80", size) == "\uFFFD\uFFFD\uFFFD\uFFFD");
    CHECK(streamed("\xE2\x82x\xE2\x82\xAC", size) == "\uFFFDx€");
    CHECK(streamed("\xF0\x9F\x98", size) == "\uFFFD");
    CHECK(streamed("\xC3\xC3\xA9", size) == "\uFFFDé");
  }
  Utf8Stream stream;
  std::string out;
  stream.push("\xF0\x9F\x98", out);
  CHECK(out.empty());
  stream.push("\x80!", out);
  CHECK(out == "😀!");
}

TEST_CASE("utf8: any bytes stream out as valid UTF-8, the same however they are cut") {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::string bytes;
    for (int i = 0; i < 50; ++i)
      bytes += static_cast<char>(random() % 4 != 0 ? 0x80 + random() % 0x80 : random() % 0x80);
    const std::string whole = streamed(bytes, bytes.size());
    CHECK(streamed(bytes, 1) == whole);
    CHECK(streamed(bytes, 3) == whole);
  }
}

TEST_CASE("utf8: a terminal gets text and line ends, and nothing that steers it") {
  CHECK(without_controls("a\tb\r\nc") == "a\tb\r\nc");
  CHECK(without_controls("\x1b[31m\x0e\x7f") == "\\u001b[31m\\u000e\\u007f");
  CHECK(without_controls(std::string_view("\0", 1)) == "\\u0000");
  CHECK(without_controls("\xC2\x9B") == "\\u009b");
  CHECK(without_controls("\xC2\xA0\xE2\x80\x8D\xF0\x9F\x98\x80") == "\xC2\xA0\xE2\x80\x8D\xF0\x9F\x98\x80");
  CHECK(without_controls("a\rb\n\r\r\n\r") == "a\\u000db\n\\u000d\r\n\\u000d");
  CHECK(without_controls("\x9B\xC2") == "\\x9b\\xc2");
  const auto shown = [](char32_t c) {
    std::string text;
    append_utf8(text, c);
    return without_controls(text) == text;
  };
  for (char32_t c : U"\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u0080\u0085\u009f")
    CHECK_FALSE(shown(c));
  for (char32_t c : {U'a', U'\u00a0', U'\u200c', U'\u200d', U'\u0627', U'\u05d0', U'\u2065', U'\u202f', U'\U0001f600'})
    CHECK(shown(c));
}

TEST_CASE("utf8: errors show invisible characters") {
  CHECK(printable("größe 😀 'x'") == "größe 😀 'x'");
  CHECK(printable("\u202adir\u200b\uFEFF\n\x7F\x1B\u0085\U000E0041") ==
        "\\u202adir\\u200b\\ufeff\\u000a\\u007f\\u001b\\u0085\\U000e0041");
  CHECK(printable("a\x92\xE2\x82"
                  "b") == "a\\x92\\xe2\\x82b");
  CHECK(printable("abcdef", 3) == "abc…");
  CHECK(printable("abc", 3) == "abc");
  CHECK(code_point_name('d') == "U+0064");
  CHECK(code_point_name(0x1F600) == "U+1F600");
  CHECK(code_point_name(0x10FFFF) == "U+10FFFF");
}

TEST_CASE("tokenizer: characters are numbered by code point") {
  const Tokenizer tokenizer = Tokenizer::characters_of("hello é\n😀\0é"s, "t");
  CHECK(tokenizer.kind() == TokenKind::kChar);
  CHECK(tokenizer.size() == 9);
  CHECK(tokenizer.find(0) == 0);
  CHECK(tokenizer.find(U'\n') == 1);
  CHECK(tokenizer.find(U' ') == 2);
  CHECK(tokenizer.find(U'e') == 3);
  CHECK(tokenizer.find(U'é') == 7);
  CHECK(tokenizer.find(U'😀') == 8);
  CHECK_FALSE(tokenizer.find(U'z').has_value());
  CHECK_FALSE(tokenizer.find(0x10FFFF).has_value());
  CHECK(tokenizer.start_token() == 1);
  CHECK(Tokenizer::characters_of("baba", "t").start_token() == 0);
  CHECK(Tokenizer::characters_of("aaa", "t").size() == 1);

  CHECK(tokenizer.encode("é\n😀", "t") == std::vector<int32_t>{7, 1, 8});
  CHECK(tokenizer.encode("", "t").empty());
  const std::string text = "hello\0😀éé \n"s;
  CHECK(tokenizer.decode(tokenizer.encode(text, "t")) == text);
  CHECK_THAT(error_of([] { (void)Tokenizer::characters_of("", "empty.txt"); }), contains("empty.txt: expected a text"));
  CHECK_THAT(error_of([] { (void)Tokenizer::characters_of("ab\x92", "t"); }), contains("byte 0x92 at offset 2"));
}

TEST_CASE("tokenizer: bytes are their own tokens and none is unknown") {
  const Tokenizer tokenizer = Tokenizer::make(TokenKind::kByte, "", "t");
  CHECK(tokenizer.size() == 256);
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  const std::vector<int32_t> tokens = tokenizer.encode(all, "t");
  for (int byte = 0; byte < 256; ++byte) CHECK(tokens[static_cast<size_t>(byte)] == byte);
  CHECK(tokenizer.decode(tokens) == all);
  CHECK(tokenizer.start_token() == 10);
  const std::string family = "👩‍👩‍👧 hi";
  CHECK(tokenizer.decode(tokenizer.encode(family, "t")) == family);
}

TEST_CASE("tokenizer: unknown characters end in one error that names them") {
  const Tokenizer tokenizer = Tokenizer::characters_of("abab", "t");
  const auto unknown = [&](std::string_view text) {
    return error_of([&] { (void)tokenizer.encode(text, "--prompt"); });
  };
  CHECK(unknown("abd") ==
        "--prompt: expected only the 2 characters that the model was trained on, got 'd' (U+0064) at position 2; leave "
        "them out or replace them; a model trained with --tokens byte takes any text");
  CHECK_THAT(unknown("éabé"), contains("got 'é' (U+00E9) at position 0;"));
  CHECK_THAT(unknown("ae\u0301b"), contains("'e' (U+0065) at position 1, '\u0301' (U+0301) at position 2;"));
  CHECK_THAT(unknown("a\n"), contains("'\\u000a' (U+000A) at position 1;"));
  const std::string many = unknown("azyxzwvut😀a");
  CHECK_THAT(many, contains("'z' (U+007A) at position 1, 'y' (U+0079) at position 2, 'x' (U+0078) at position 3, "
                            "'w' (U+0077) at position 5, 'v' (U+0076) at position 6 and 3 other;"));
  CHECK_THAT(unknown("aé\x92"), contains("'é' (U+00E9) at position 1;"));
  CHECK_THAT(unknown("ab\x92"), contains("--prompt: expected UTF-8 text, got byte 0x92 at offset 2"));
}

TEST_CASE("tokenizer: decoding refuses a token out of range") {
  const Tokenizer tokenizer = Tokenizer::characters_of("ab", "t");
  std::string out;
  for (const int32_t token : {-1, 2, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()}) {
    CHECK_THAT(error_of([&] { tokenizer.decode(token, out); }), contains("decode: expected a token from 0 to 1, got "));
  }
  CHECK(out.empty());
}

TEST_CASE("tokenizer: goes into the model's file and comes back") {
  for (const std::string& text : {"hello é\n\"\\\t\0\x7F\u2028😀"s, "a"s, "\U0010FFFF"s}) {
    const Tokenizer tokenizer = Tokenizer::characters_of(text, "t");
    const std::string json = tokenizer.to_json();
    CHECK(Tokenizer::from_json(json, "model") == tokenizer);
    CHECK(Tokenizer::from_json(json, "model").to_json() == json);
  }
  CHECK(Tokenizer::characters_of("ba\n", "t").to_json() == R"({"tokens":"char","chars":"\nab"})");
  CHECK(Tokenizer::bytes().to_json() == R"({"tokens":"byte"})");
  CHECK(Tokenizer::from_json(R"({"tokens":"byte"})", "model") == Tokenizer::bytes());
  const Tokenizer unsorted = Tokenizer::from_json(R"( {"chars": "ba\u00e9", "tokens": "char"} )", "model");
  CHECK(unsorted.encode("éab", "t") == std::vector<int32_t>{2, 1, 0});
  CHECK_FALSE(unsorted == Tokenizer::characters_of("abé", "t"));
  CHECK_FALSE(Tokenizer::bytes() == Tokenizer::characters_of("abé", "t"));
}

TEST_CASE("tokenizer: refuses a vocabulary that is damaged or hostile") {
  CHECK_THAT(json_refusal(""), contains("model: expected '{' at byte 0"));
  CHECK_THAT(json_refusal("{}"), contains("model: expected tokens, which is char or byte, got none"));
  CHECK_THAT(json_refusal(R"({"tokens":"bpe"})"), contains("expected char or byte, got 'bpe'"));
  CHECK_THAT(json_refusal(R"({"tokens":"char"})"), contains("the characters of the vocabulary, got none"));
  CHECK_THAT(json_refusal(R"({"tokens":"char","chars":""})"), contains("the characters of the vocabulary, got none"));
  CHECK_THAT(json_refusal(R"({"tokens":"char","chars":"aba"})"), contains("each character once, U+0061 too"));
  CHECK_THAT(json_refusal(R"({"tokens":"char","chars":"a\u0061"})"), contains("each character once"));
  CHECK_THAT(json_refusal(R"({"tokens":"char","chars":["a"]})"), contains("expected '\"'"));
  CHECK_THAT(json_refusal(R"({"tokens":"char","chars":"\ud800"})"), contains("surrogates"));
  CHECK_THAT(json_refusal("{\"tokens\":\"char\",\"chars\":\"\xED\xA0\x80\"}"), contains("expected UTF-8"));
  CHECK_THAT(json_refusal(R"({"tokens":"byte","chars":"a"})"), contains("no chars beside bytes"));
  CHECK_THAT(json_refusal(R"({"tokens":"char","tokens":"byte"})"), contains("one tokens, got two"));
  CHECK_THAT(json_refusal(R"({"tokens":"byte","merges":[]})"), contains("tokens and chars, got 'merges'"));
  CHECK_THAT(json_refusal(R"({"tokens":"byte"}x)"), contains("nothing after the object"));
  CHECK_THAT(json_refusal(std::string(100'000, '[')), contains("expected '{'"));
}

TEST_CASE("tokenizer: kinds have the names of the flag") {
  for (const TokenKind kind : {TokenKind::kChar, TokenKind::kByte}) {
    CHECK(parse_token_kind(token_kind_name(kind), "--tokens") == kind);
  }
  CHECK_THAT(error_of([] { (void)parse_token_kind("word", "--tokens"); }), contains("--tokens: expected char or byte"));
}

}  // namespace tril::test

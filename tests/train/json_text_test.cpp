#include "train/base/json_text.h"

#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "train/base/utf8.h"
#include "train/tiny_shell.h"

namespace tril::test {
namespace {

// Whether a character breaks lines or steers terminals for someone who reads JSON line by line.
bool breaks(char32_t c) { return c < 0x20 || (c >= 0x7F && c <= 0x9F) || c == 0x2028 || c == 0x2029; }

// How many of them a text holds that is more than line ends.
int64_t breaks_in(std::string_view text) {
  int64_t found = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    found += c.code_point != '\n' && breaks(c.code_point) ? 1 : 0;
    at += static_cast<size_t>(c.length);
  }
  return found;
}

// Every character that is escaped, their neighbours, and some of each length.
std::string telling_characters() {
  std::string all;
  for (char32_t c = 0; c <= 0x180; ++c) append_utf8(all, c);
  for (char32_t c = 0x2000; c <= 0x2080; ++c) append_utf8(all, c);
  for (const char32_t c : {0x0A28, 0x2828, 0xFFFD, 0xFEFF, 0x1F600, 0x10FFFF}) append_utf8(all, c);
  return all;
}

}  // namespace

TEST_CASE("JSON: what breaks lines or steers terminals is escaped, nothing else, and it is the same text") {
  for (const char32_t c : {0x20, 0x7E, 0x7F, 0x80, 0x85, 0x9B, 0x9F, 0xA0, 0xE9, 0x2027, 0x2028, 0x2029, 0x202A}) {
    std::string character;
    append_utf8(character, c);
    const std::string json = json_text(character);
    INFO(code_point_name(c));
    CHECK((json == '"' + character + '"') == !breaks(c));
    CHECK(nlohmann::json::parse(json) == character);
  }
  const std::string json = json_text(telling_characters());
  CHECK(breaks_in(json) == 0);
  CHECK(nlohmann::json::parse(json) == telling_characters());
  JsonReader reader(json, "j");
  CHECK(reader.string() == telling_characters());
  const nlohmann::ordered_json value = {{telling_characters(), {telling_characters(), 1.5, nullptr}}};
  const std::string indented = json_text(value, 2);
  CHECK(breaks_in(value.dump(2)) > 0);
  CHECK(breaks_in(indented) == 0);
  CHECK(nlohmann::ordered_json::parse(indented) == value);
}

TEST_CASE("JSON: what is no UTF-8 becomes the replacement character") {
  for (const char* cut : {"\xC2", "\xE2", "\xE2\x80", "\xFF"})
    CHECK(nlohmann::json::parse(json_text(std::string("a") + cut)) == "a\xEF\xBF\xBD");
}

TEST_CASE("tril: no JSON that it writes holds a character that breaks its lines") {
  const Shell shell;
  const std::string strange = "a\u007f\u0080\u0085\u009b\u2028\u2029é漢", name = "bo\u2028\u0085ok.txt";
  std::string text;
  while (text.size() < 600) text += strange + "\n";
  shell.put(name, text);
  REQUIRE(shell.run("tril train '" + name + "' --layers 1 --heads 2 --width 8 --context 8 --steps 1 --out r").code ==
          0);
  const std::string log = shell.read("r/log.jsonl"), model = shell.read("r/model.safetensors"),
                    info = shell.run("tril info r --json").out,
                    sample = shell.run("tril sample r --json --prompt '" + strange + "' --length 300").out;
  const std::string header = model.substr(8, static_cast<size_t>(static_cast<unsigned char>(model[0])) |
                                                 static_cast<size_t>(static_cast<unsigned char>(model[1])) << 8);
  for (const std::string& json : {log, header, info, sample, shell.read("r/config.json")}) {
    INFO(json);
    CHECK(breaks_in(json) == 0);
  }
  CHECK(nlohmann::json::parse(info).at("characters") == "\na\u007f\u0080\u0085\u009bé\u2028\u2029漢");
  CHECK_THAT(nlohmann::json::parse(info).at("trained_on").at(0).get<std::string>(), contains(name));
  CHECK(nlohmann::json::parse(sample).at("prompt") == strange);
  CHECK_THAT(nlohmann::json::parse(sample).at("text").get<std::string>(), contains("\u2028") && contains("\u0085"));
  CHECK_THAT(log, contains("\\u2028") && contains("\\u0085"));
  CHECK(breaks_in(shell.run("tril info r").out) == 0);
  CHECK(shell.run("tril eval r").code == 0);
}

}  // namespace tril::test

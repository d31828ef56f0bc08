// Files that are damaged or made to harm: each is refused with one line, or loads to what it held.
#include <nlohmann/json.hpp>
#include <random>

#include "core/base/check.h"
#include "support/catch.h"
#include "train/model/safetensors.h"
#include "train/safetensors_files.h"
#include "train/temp_folder.h"

namespace tril::test {
namespace {

using namespace std::string_literals;

// One tensor "x" with these texts in its header, and the data.
std::string tensor_file(const std::string& dtype, const std::string& shape, const std::string& offsets, size_t bytes) {
  return file_of(R"({"x":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}",
                 std::string(bytes, '\0'));
}

// Every maximal run of digits in the header that is a JSON number, as [begin, end).
std::vector<std::pair<size_t, size_t>> numbers_in(const std::string& header) {
  std::vector<std::pair<size_t, size_t>> out;
  bool in_string = false;
  for (size_t i = 0; i < header.size(); ++i) {
    if (header[i] == '"') in_string = !in_string;
    if (in_string || header[i] < '0' || header[i] > '9') continue;
    const size_t begin = i;
    while (header[i] >= '0' && header[i] <= '9') ++i;
    out.emplace_back(begin, i--);
  }
  return out;
}

}  // namespace

TEST_CASE("safetensors: refuses lengths that do not fit the file") {
  const std::string good = "<\0\0\0\0\0\0\0"s + kTestHeader + std::string(16, '\0');
  CHECK_THAT(refusal(good + "x"), contains("expected 16 bytes of data after the header, got 17"));
  CHECK_THAT(refusal(good.substr(0, good.size() - 2)), contains("got 14; the file is cut short"));
  CHECK_THAT(refusal("<\0\0\0\0\xFF\xFF\0"s + kTestHeader), contains("at most 100000000 bytes"));
  CHECK_THAT(refusal("<\0\0\0\0\0\0"s), contains("at least 8 bytes, got 7"));
  CHECK_THAT(refusal(""), contains("at least 8 bytes, got 0"));
  CHECK_THAT(refusal("<\0\0\0\0\0\0\0"s), contains("cut short"));
  CHECK_THAT(refusal("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"s), contains("does not begin with a header's length"));
  CHECK_THAT(refusal("\xF9\xFF\xFF\xFF\xFF\xFF\xFF\xFF"s + good), contains("at most 100000000"));
}

TEST_CASE("safetensors: refuses headers that are not JSON of the format's shape") {
  const auto header_refusal = [](const std::string& header) { return refusal(file_of(header, "")); };
  CHECK_THAT(header_refusal("\xFF"), contains("expected UTF-8, got an invalid byte at offset 0"));
  CHECK_THAT(header_refusal("{"), contains("expected '\"' at byte 1, got the end of the text"));
  CHECK_THAT(header_refusal(""), contains("expected '{' at byte 0"));
  CHECK_THAT(header_refusal("[]"), contains("expected '{' at byte 0"));
  CHECK_THAT(header_refusal("\xEF\xBB\xBF{}"), contains("expected '{' at byte 0, got '\\ufeff{}'"));
  CHECK_THAT(header_refusal("{}x"), contains("nothing after the object"));
  CHECK_THAT(header_refusal("{}{}"), contains("nothing after the object"));
  CHECK_THAT(header_refusal("{}\0"s), contains("nothing after the object"));
  CHECK_THAT(header_refusal("{,}"), contains("expected '\"'"));
  CHECK_THAT(header_refusal(R"({"a":1})"), contains("expected '{'"));
  CHECK_THAT(header_refusal(R"({"a":{},})"), contains("no dtype"));
  CHECK_THAT(header_refusal(R"({"a":{"dtype":"F32"}})"), contains("got no shape"));
  CHECK_THAT(header_refusal(R"({"a":{"dtype":"F32","shape":[0]}})"), contains("got no data_offsets"));
  CHECK_THAT(header_refusal(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0]}})"), contains("two data_offsets"));
  CHECK_THAT(header_refusal(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0,0]}})"),
             contains("two data_offsets for tensor 'a', got more"));
  CHECK_THAT(header_refusal(R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0],"stride":[1]}})"),
             contains("got 'stride'"));
  CHECK_THAT(header_refusal(R"({"a":{"dtype":"F32","shape":[[0]],"data_offsets":[0,0]}})"),
             contains("expected an unsigned integer"));
  CHECK_THAT(header_refusal(R"({"__metadata__":{"a":1}})"), contains("expected '\"'"));
  CHECK_THAT(header_refusal(R"({"__metadata__":{"a":{"b":"c"}}})"), contains("expected '\"'"));
  CHECK_THAT(header_refusal(R"({"__metadata__":[]})"), contains("expected '{'"));
  CHECK_THAT(header_refusal(std::string(100'000, '[')), contains("expected '{'"));
  CHECK_THAT(header_refusal(R"({"a":)" + std::string(100'000, '[')), contains("expected '{'"));
  std::string deep;
  for (int i = 0; i < 65; ++i) deep += R"({"a":)";
  CHECK_THAT(header_refusal(deep), contains("dtype, shape and data_offsets"));
}

TEST_CASE("safetensors: white space around the header, and no metadata or empty metadata, are fine") {
  for (const char* header : {"{}", "{}\r \t\n", "\t\n{}\r ", " { } ", R"({"__metadata__":{}})", "{} "}) {
    const Safetensors file = parse(file_of(header, ""));
    CHECK(file.entries.empty());
    CHECK(file.metadata.empty());
  }
  CHECK_THAT(refusal(file_of("{}\v", "")), contains("nothing after the object"));
}

TEST_CASE("safetensors: strings hold what JSON allows and nothing else") {
  const auto value = [](const std::string& json) {
    return parse(file_of(R"({"__metadata__":{"k":")" + json + R"("}})", "")).metadata.at("k");
  };
  const auto value_refusal = [](const std::string& json) {
    return refusal(file_of(R"({"__metadata__":{"k":")" + json + R"("}})", ""));
  };
  CHECK(value(R"(\"\\\/\b\f\n\r\t)") == "\"\\/\b\f\n\r\t");
  CHECK(value(R"(\u0041\u00e9\u20AC\uD83D\ude00)") == "Aé€😀");
  CHECK(value(R"(\u0000)") == "\0"s);
  CHECK(value("é€😀\u2028") == "é€😀\u2028");
  for (const char* lone : {R"(\ud800)", R"(\udfff)", R"(\ud83d\u0041)", R"(\ud83dx)", R"(\ude00\ud83d)"}) {
    CHECK_THAT(value_refusal(lone), contains("surrogates in pairs"));
  }
  for (const char* wrong : {R"(\u12)", R"(\u12G4)", R"(\u+123)", R"(\u 123)"}) {
    CHECK_THAT(value_refusal(wrong), contains("four hexadecimal digits"));
  }
  CHECK_THAT(value_refusal(R"(\x41)"), contains("an escape that JSON knows"));
  CHECK_THAT(value_refusal("a\nb"), contains("a control character written as an escape"));
  CHECK_THAT(value_refusal("a\0b"s), contains("a control character written as an escape"));
  for (const char* bytes : {"\x80", "\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82"}) {
    CHECK_THAT(value_refusal(bytes), contains("expected UTF-8"));
  }
}

TEST_CASE("safetensors: numbers are unsigned integers of at most 2^53") {
  const auto shape_refusal = [](const std::string& shape) { return refusal(tensor_file("U8", shape, "[0,0]", 0)); };
  CHECK(shape_refusal("[0]").empty());
  CHECK(shape_refusal("[9007199254740992,0]").empty());
  for (const char* shape : {"[-1]", "[-0]", "[+1]", "[0.0]", "[1e0]", "[1E2]", "[01]", "[00]", "[1.]", "[\"1\"]",
                            "[null]", "[true]", "[,0]"}) {
    INFO(shape);
    CHECK_THAT(shape_refusal(shape), contains("expected an unsigned integer"));
  }
  for (const char* shape : {"[9007199254740993,0]", "[9223372036854775807]", "[18446744073709551615]",
                            "[100000000000000000000000000000]"}) {
    INFO(shape);
    CHECK_THAT(shape_refusal(shape), contains("at most 2^53"));
  }
  CHECK_THAT(shape_refusal("[0,]"), contains("expected an unsigned integer"));
  CHECK_THAT(shape_refusal("[0 0]"), contains("expected ']'"));
  CHECK_THAT(shape_refusal("[0x1]"), contains("expected ']'"));
}

TEST_CASE("safetensors: a size that wraps is an overflow, whatever it wraps to") {
  CHECK_THAT(refusal(tensor_file("F32", "[2,18446744073709551614]", "[0,16]", 16)), contains("at most 2^53"));
  CHECK_THAT(refusal(tensor_file("F32", "[2,9223372036854775807]", "[0,16]", 16)), contains("at most 2^53"));
  CHECK_THAT(refusal(tensor_file("F32", "[4194305,4194305,211106198978564]", "[0,16]", 16)), contains("overflow"));
  CHECK_THAT(refusal(tensor_file("F32", "[4294967296,4294967296]", "[0,0]", 0)), contains("overflow"));
  CHECK_THAT(refusal(tensor_file("F32", "[4294967296,4294967296,0]", "[0,0]", 0)), contains("overflow"));
  CHECK_THAT(refusal(tensor_file("U8", "[9007199254740992,2]", "[0,0]", 0)), contains("at most 2^53 bytes"));
}

TEST_CASE("safetensors: ranges neither overlap nor leave holes, and fit dtype and shape") {
  std::string overlap = "{";
  for (int i = 0; i < 10; ++i) {
    overlap +=
        (i > 0 ? ",\"t" : "\"t") + std::to_string(i) + R"(":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]})";
  }
  CHECK_THAT(refusal(file_of(overlap + "}", std::string(16, '\0'))),
             contains("expected tensor 't1' to begin at data byte 16, got 0"));
  const auto two = [](const std::string& a, const std::string& b) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + a +
           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + b + "}}";
  };
  CHECK_THAT(refusal(file_of(two("[0,4]", "[5,9]"), "123456789")), contains("'b' to begin at data byte 4, got 5"));
  CHECK_THAT(refusal(file_of(two("[1,5]", "[5,9]"), "123456789")), contains("'a' to begin at data byte 0, got 1"));
  CHECK_THAT(refusal(file_of(two("[0,4]", "[4,7]"), "1234567")), contains("4 bytes for tensor 'b'"));
  CHECK_THAT(refusal(tensor_file("U8", "[0]", "[0,16]", 16)), contains("0 bytes for tensor 'x'"));
  CHECK_THAT(refusal(file_of(R"({"x":{"dtype":"U8","shape":[],"data_offsets":[1,0]}})", "1")), contains("to begin at"));
  CHECK_THAT(refusal(file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                             R"("b":{"dtype":"U8","shape":[],"data_offsets":[2,1]}})",
                             "12")),
             contains("or later"));
  CHECK_THAT(refusal(file_of("{}", "1")), contains("expected 0 bytes of data after the header, got 1"));

  const Safetensors swapped = parse(file_of(two("[4,8]", "[0,4]"), "bbbbaaaa"));
  CHECK(swapped.entries[0].name == "b");
  CHECK(swapped.entries[1].begin == 4);
}

TEST_CASE("safetensors: a repeated name or key is refused") {
  const std::string tensor = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[)";
  CHECK_THAT(refusal(file_of("{" + tensor + "0,1]}," + tensor + "1,2]}}", "12")),
             contains("expected one tensor named 'a', got two"));
  CHECK_THAT(refusal(file_of(R"({"__metadata__":{},"__metadata__":{}})", "")), contains("one __metadata__, got two"));
  CHECK_THAT(refusal(file_of(R"({"__metadata__":{"k":"1","\u006b":"2"}})", "")), contains("value for 'k', got two"));
  for (const char* repeated : {R"("dtype":"U8")", R"("shape":[0])", R"("data_offsets":[0,0])"}) {
    const std::string all = R"("dtype":"U8","shape":[0],"data_offsets":[0,0])";
    CHECK_THAT(refusal(file_of("{\"a\":{" + all + "," + repeated + "}}", "")), contains("for tensor 'a', got two"));
  }
}

TEST_CASE("safetensors: names have a length and no control characters") {
  const auto name_refusal = [](const std::string& name) {
    return refusal(file_of("{\"" + name + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", ""));
  };
  CHECK(name_refusal("transformer.h.0.attn.c_attn.weight").empty());
  CHECK(name_refusal("größe 😀").empty());
  CHECK(name_refusal(std::string(1024, 'n')).empty());
  CHECK_THAT(name_refusal(std::string(1025, 'n')), contains("at most 1024 bytes"));
  for (const char* control : {R"(a\u0000)", R"(\n)", R"(\u001b[31m)", R"(\u007f)", R"(\u009f)"}) {
    CHECK_THAT(name_refusal(control), contains("without control characters"));
  }
}

TEST_CASE("safetensors: dtypes are those of the format, parts of bytes included") {
  CHECK_THAT(refusal(tensor_file("F33", "[1]", "[0,4]", 4)),
             contains("a dtype that safetensors has for tensor 'x', got"));
  CHECK_THAT(refusal(tensor_file("f32", "[1]", "[0,4]", 4)), contains("'f32'"));
  CHECK(refusal(tensor_file("F4", "[4]", "[0,2]", 2)).empty());
  CHECK_THAT(refusal(tensor_file("F4", "[3]", "[0,2]", 2)), contains("whole bytes for tensor 'x', got 12 bits"));
  CHECK(refusal(tensor_file("F6_E2M3", "[4]", "[0,3]", 3)).empty());
  CHECK(refusal(tensor_file("C64", "[2]", "[0,16]", 16)).empty());
  CHECK(refusal(tensor_file("F8_E8M0", "[2]", "[0,2]", 2)).empty());
  CHECK_THAT(refusal(tensor_file("U8", "[" + std::string(64, '1') + "]", "[0,1]", 1)), contains("at most 2^53"));
  std::string ones = "1";
  for (int i = 1; i < 64; ++i) ones += ",1";
  CHECK(refusal(tensor_file("U8", "[" + ones + "]", "[0,1]", 1)).empty());
  CHECK_THAT(refusal(tensor_file("U8", "[" + ones + ",1]", "[0,1]", 1)), contains("at most 64 dimensions"));
}

TEST_CASE("safetensors: more than a million tensors are refused") {
  std::string header = "{";
  for (int i = 0; i <= 1'000'000; ++i) {
    header += (i > 0 ? ",\"" : "\"") + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  }
  CHECK_THAT(refusal(file_of(header + "}", "")), contains("at most 1000000 tensors"));
}

TEST_CASE("safetensors: a file cut at any byte is refused") {
  for (const std::string& file : {known_file(), written_file()}) {
    for (size_t length = 0; length < file.size(); ++length) {
      INFO(length);
      CHECK_FALSE(refusal(std::string_view(file).substr(0, length)).empty());
    }
    CHECK_FALSE(refusal(file + '\0').empty());
  }
}

TEST_CASE("safetensors: with any bit flipped, our files are refused or load to the same values") {
  const std::string file = written_file();
  const Safetensors original = parse(file);
  int accepted = 0;
  for (size_t bit = 0; bit < std::min<size_t>(file.size(), 1024) * 8; ++bit) {
    std::string damaged = file;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ 1 << bit % 8);
    try {
      const Safetensors loaded = parse(damaged);
      ++accepted;
      INFO("bit " << bit);
      CHECK(same_values(loaded, original));
    } catch (const Error& error) { CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos); }
  }
  CHECK(accepted > 0);    // the checksum's own key may change its name
  CHECK(accepted < 100);  // and hardly more
}

TEST_CASE("safetensors: damaged data are found by the checksum, and the way out is named") {
  std::string file = written_file();
  file.back() = '\x0A';
  CHECK_THAT(refusal(file), contains("f: checksum mismatch, the file is damaged: expected "));
  CHECK_THAT(refusal(file), contains("drop the metadata key tril.crc32"));
  std::string other = written_file();
  const size_t dtype = other.find("F32");
  other[dtype] = 'I';
  CHECK_THAT(refusal(other), contains("checksum mismatch"));
}

TEST_CASE("safetensors: with any number replaced, a file is refused or loads to the same values") {
  const std::array<std::string, 9> values{"0",
                                          "1",
                                          "-1",
                                          "2147483647",
                                          "2147483648",
                                          "4294967296",
                                          "9007199254740993",
                                          "9223372036854775807",
                                          "18446744073709551615"};
  for (const std::string& file : {known_file(), written_file()}) {
    const Safetensors original = parse(file);
    const std::string header = file.substr(8, file.size() - 8 - 19), data = file.substr(file.size() - 19);
    const auto numbers = numbers_in(header);
    REQUIRE(numbers.size() == 7);
    for (const auto& [begin, end] : numbers) {
      for (const std::string& value : values) {
        const std::string changed = header.substr(0, begin) + value + header.substr(end);
        INFO(changed);
        std::string error;
        try {
          const Safetensors loaded = parse(file_of(changed, data));
          CHECK(same_values(loaded, original));
        } catch (const Error& refused) { error = refused.what(); }
        CHECK(error.empty() == (value == header.substr(begin, end - begin)));
      }
    }
    for (const uint64_t length :
         {uint64_t{0}, uint64_t{1}, uint64_t{0xFFFFFFFFFFFFFFFF}, uint64_t{0x7FFFFFFF}, uint64_t{0x80000000},
          uint64_t{1} << 32, (uint64_t{1} << 53) + 1, (uint64_t{1} << 63) - 1, header.size() - 1, header.size() + 1}) {
      CHECK_FALSE(refusal(little_endian(length) + header + data).empty());
    }
  }
}

TEST_CASE("safetensors: whatever header is accepted is JSON to another parser, too") {
  const std::string header = written_file().substr(8, written_file().size() - 8 - 19);
  const std::string data = known_file().substr(152);
  std::mt19937 random(7);  // the same mutations each time
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string changed = header;
    for (auto edits = random() % 3 + 1; edits > 0; --edits) {
      const size_t at = random() % changed.size();
      const char byte = "{}[]\",:\\ 0159ue\n-.F\x80\0tx"[random() % 24];
      switch (random() % 3) {
        case 0: changed[at] = byte; break;
        case 1: changed.insert(at, 1, byte); break;
        default: changed.erase(at, 1);
      }
    }
    if (!refusal(file_of(changed, data)).empty()) continue;
    ++accepted;
    INFO(changed);
    CHECK(nlohmann::json::accept(changed));
  }
  CHECK(accepted > 0);
}

}  // namespace tril::test

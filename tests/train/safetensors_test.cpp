#include "train/model/safetensors.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <set>

#include "support/catch.h"
#include "train/base/crc32.h"
#include "train/safetensors_files.h"
#include "train/temp_folder.h"

namespace tril::test {

using namespace std::string_literals;

TEST_CASE("crc32: agrees with the published check values") {
  const auto crc32 = [](std::string_view text) {
    Crc32 crc;
    crc.add(text.data(), text.size());
    return crc.value();
  };
  CHECK(crc32("") == 0);
  CHECK(crc32("123456789") == 0xCBF43926);
  CHECK(crc32("The quick brown fox jumps over the lazy dog") == 0x414FA339);
  Crc32 pieces;
  for (const std::string_view piece : {"The", " quick brown fox", " jumps over the lazy do", "g"}) {
    pieces.add(piece.data(), piece.size());
  }
  CHECK(pieces.value() == 0x414FA339);
}

TEST_CASE("safetensors: reads the reference's smallest file") {
  const Safetensors file = parse("<\0\0\0\0\0\0\0"s + kTestHeader + std::string(16, '\0'));
  REQUIRE(file.entries.size() == 1);
  CHECK(file.entries[0].name == "test");
  CHECK(file.entries[0].dtype == "I32");
  CHECK(file.entries[0].shape == std::vector<int64_t>{2, 2});
  CHECK(file.find("test") == &file.entries[0]);
  CHECK(file.find("Test") == nullptr);
  CHECK(file.data.size() == 16);
  CHECK(file.metadata.empty());
  CHECK_FALSE(file.verified);
}

TEST_CASE("safetensors: reads the known 171 bytes") {
  REQUIRE(known_file().size() == 171);
  const Safetensors file = parse(known_file());
  CHECK(file.metadata == std::map<std::string, std::string>{{"format", "pt"}});
  REQUIRE(file.entries.size() == 2);
  std::array<float, 4> a{};
  load_as_f32(file, *file.find("a"), a);
  CHECK(a == kFloats);
  const SafetensorsEntry& b = *file.find("b");
  CHECK(b.shape == std::vector<int64_t>{3});
  CHECK(std::memcmp(file.data.data() + b.begin, kBytes.data(), 3) == 0);
  CHECK_THAT(error_of([&] {
               std::array<float, 3> out{};
               load_as_f32(file, b, out);
             }),
             contains("f: tensor 'b': expected F32, F64, F16 or BF16, got U8"));
}

TEST_CASE("safetensors: writes the known bytes, but for the checksum it adds") {
  const std::string file = written_file();
  const std::string added = R"(,"tril.crc32":")";
  const size_t at = file.find(added);
  REQUIRE(at != std::string::npos);
  std::string header = file.substr(8, file.size() - 8 - 19);
  header.erase(at - 8, added.size() + 8 + 1);
  header.resize(header.find_last_not_of(' ') + 1);
  header.resize((header.size() + 7) / 8 * 8, ' ');
  CHECK(file_of(header, file.substr(file.size() - 19)) == known_file());
  CHECK(file.substr(0, 8) == little_endian(file.size() - 8 - 19));
  CHECK((file.size() - 19) % 8 == 0);

  const Safetensors back = parse(file);
  CHECK(back.verified);
  CHECK(same_values(back, parse(known_file())));
  CHECK(back.metadata.size() == 1);
}

TEST_CASE("safetensors: the checksum is the one the header file describes") {
  std::string canonical;
  const auto number = [&](uint64_t value) { canonical += little_endian(value); };
  const auto text = [&](const std::string& value) {
    number(value.size());
    canonical += value;
  };
  number(1), text("format"), text("pt");
  number(2);
  text("a"), text("F32"), number(2), number(2), number(2), number(0), number(16);
  text("b"), text("U8"), number(1), number(3), number(16), number(19);
  canonical += known_file().substr(152);
  Crc32 crc;
  crc.add(canonical.data(), canonical.size());
  char digits[9];
  std::snprintf(digits, sizeof digits, "%08x", crc.value());
  CHECK_THAT(written_file(), contains("\"tril.crc32\":\""s + digits + '"'));
}

TEST_CASE("safetensors: rank 0 is one value, and zero-sized tensors may lie anywhere") {
  const std::string header = R"({"z":{"dtype":"F32","shape":[0,5],"data_offsets":[4,4]},)"
                             R"("s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                             R"("a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})";
  const Safetensors file = parse(file_of(header, "\0\0\x80\x3F"s));
  float value = 0;
  load_as_f32(file, *file.find("s"), {&value, 1});
  CHECK(value == 1.0F);
  load_as_f32(file, *file.find("z"), {});
  CHECK(file.entries[0].name == "a");
  CHECK(file.entries[2].name == "z");
}

TEST_CASE("safetensors: values of every float type arrive as f32") {
  const auto load = [](const std::string& dtype, const std::string& data, size_t count) {
    const std::string header = R"({"pad":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"x":{"dtype":")" + dtype +
                               R"(","shape":[)" + std::to_string(count) + R"(],"data_offsets":[1,)" +
                               std::to_string(1 + data.size()) + "]}}";
    const Safetensors file = parse(file_of(header, "_" + data));
    std::vector<float> out(count);
    load_as_f32(file, *file.find("x"), out);
    return out;
  };
  const auto raw = [](auto... values) {
    std::string out;
    (out.append(reinterpret_cast<const char*>(&values), sizeof values), ...);
    return out;
  };
  const float inf = std::numeric_limits<float>::infinity();
  CHECK(load("F32", raw(1.5F, -0.0F, inf), 3) == std::vector<float>{1.5F, -0.0F, inf});
  CHECK(load("F64", raw(0.1, -2.0, 1e300, 1e-300), 4) == std::vector<float>{0.1F, -2.0F, inf, 0.0F});
  CHECK(load("BF16", raw(uint16_t{0x3F80}, uint16_t{0xC049}, uint16_t{0x7F80}), 3) ==
        std::vector<float>{1.0F, -3.140625F, inf});
  CHECK(load("F16",
             raw(uint16_t{0x3C00}, uint16_t{0xC000}, uint16_t{0x7BFF}, uint16_t{0x0400}, uint16_t{0x03FF},
                 uint16_t{0x0001}, uint16_t{0x8001}, uint16_t{0xFC00}),
             8) == std::vector<float>{1.0F, -2.0F, 65504.0F, 0x1p-14F, 0x1.FF8p-15F, 0x1p-24F, -0x1p-24F, -inf});
  CHECK(std::signbit(load("F16", raw(uint16_t{0x8000}), 1)[0]));
  CHECK(std::isnan(load("F16", raw(uint16_t{0x7E00}), 1)[0]));
  CHECK(std::isnan(load("F16", raw(uint16_t{0xFC01}), 1)[0]));
  CHECK(std::isnan(load("BF16", raw(uint16_t{0x7FC0}), 1)[0]));
  CHECK(std::isnan(load("F32", raw(std::nanf("")), 1)[0]));
  CHECK_THAT(error_of([] {
               const Safetensors file = parse(known_file());
               std::array<float, 3> out{};
               load_as_f32(file, *file.find("a"), out);
             }),
             contains("expected 3 values, got 4"));
}

TEST_CASE("safetensors: files on disk come back, with their metadata, through the writer and reader") {
  const TempFolder folder;
  const std::string path = folder / "model.safetensors";
  std::vector<double> wide{1, 2};
  std::vector<uint16_t> narrow{0x3F80};
  const std::vector<SafetensorsTensor> tensors{
      {"z", "BF16", {1, 1}, narrow.data()},   {"h.10", "F32", {4}, kFloats.data()},
      {"h.2", "F32", {2, 2}, kFloats.data()}, {"none", "F32", {3, 0}, nullptr},
      {"w", "F64", {2}, wide.data()},         {"step", "U8", {}, kBytes.data()}};
  const std::map<std::string, std::string> metadata{
      {"tril.tokenizer", "{\"chars\":\"\\n\\u0000\"}\n\t\x1F é😀"}, {"nul", "a\0b"s}, {"tril.crc32", "forged"}};
  write_safetensors(path, tensors, metadata);
  const Safetensors file = read_safetensors(path);
  CHECK(file.verified);
  CHECK(file.where == path);
  CHECK(file.metadata.at("format") == "pt");
  CHECK(file.metadata.at("tril.tokenizer") == metadata.at("tril.tokenizer"));
  CHECK(file.metadata.at("nul") == metadata.at("nul"));
  CHECK(file.metadata.size() == 3);
  std::vector<std::string> order;
  for (const SafetensorsEntry& entry : file.entries) order.push_back(entry.name);
  CHECK(order == std::vector<std::string>{"w", "h.10", "h.2", "none", "z", "step"});
  std::array<float, 4> values{};
  load_as_f32(file, *file.find("h.2"), values);
  CHECK(values == kFloats);

  const std::string bytes = contents_of(path);
  write_safetensors(path, tensors, metadata);
  CHECK(contents_of(path) == bytes);

  write_safetensors(path, {});
  CHECK(read_safetensors(path).entries.empty());
}

TEST_CASE("safetensors: the data begin at a multiple of 8 whatever the header holds") {
  const TempFolder folder;
  for (size_t length = 0; length < 9; ++length) {
    write_safetensors(folder / "f", {}, {{"k", std::string(length, 'x')}});
    const std::string file = contents_of(folder / "f");
    CHECK(file.size() % 8 == 0);
    CHECK(parse(file).metadata.at("k").size() == length);
  }
}

TEST_CASE("safetensors: the writer refuses what could not be read back, and keeps the old file") {
  const TempFolder folder;
  const std::string path = folder.put("f", "old");
  const auto write_refusal = [&](std::vector<SafetensorsTensor> tensors,
                                 std::map<std::string, std::string> metadata = {}) {
    return error_of([&] { write_safetensors(path, tensors, std::move(metadata)); });
  };
  const float one = 1;
  CHECK_THAT(write_refusal({{"__metadata__", "F32", {1}, &one}}), contains("which the format keeps for itself"));
  CHECK_THAT(write_refusal({{"a", "F32", {1}, &one}, {"a", "F32", {1}, &one}}), contains("one tensor named 'a'"));
  CHECK_THAT(write_refusal({{"a", "F64", {}, kFloats.data()}, {"a", "F32", {1}, &one}}), contains("tensor named 'a'"));
  CHECK_THAT(write_refusal({{"a\n", "F32", {1}, &one}}), contains("without control characters"));
  CHECK_THAT(write_refusal({{"a\x92", "F32", {1}, &one}}), contains("names in UTF-8, got 'a\\x92'"));
  CHECK_THAT(write_refusal({{"a", "float", {1}, &one}}), contains("a dtype that safetensors has"));
  CHECK_THAT(write_refusal({{"a", "F32", {-1}, &one}}), contains("overflow at dimension -1"));
  CHECK_THAT(write_refusal({{"a", "F32", {int64_t{1} << 32, int64_t{1} << 32}, &one}}), contains("overflow"));
  CHECK_THAT(write_refusal({{"a", "F32", {1}, nullptr}}), contains("data for tensor 'a', got none"));
  CHECK_THAT(write_refusal({{"a", "F32", {1}, &one}}, {{"k", "\xFF"}}), contains("metadata in UTF-8 for 'k'"));
  CHECK_THAT(write_refusal({}, {{"k", std::string(100'000'000, 'x')}}), contains("a header of at most 100000000"));
  CHECK(contents_of(path) == "old");
  CHECK(folder.names() == std::set<std::string>{"f"});
}

TEST_CASE("safetensors: reading from disk refuses what is not there, no file, or cut short") {
  const TempFolder folder;
  const auto read_refusal = [](const std::string& path) { return error_of([&] { (void)read_safetensors(path); }); };
  CHECK_THAT(read_refusal(folder / "none"), contains("none of that name"));
  CHECK_THAT(read_refusal(folder.path()), contains("got a folder"));
  CHECK_THAT(read_refusal(folder.put("empty", "")), contains("at least 8 bytes, got 0"));
  const std::string whole = written_file();
  CHECK_THAT(read_refusal(folder.put("cut", whole.substr(0, whole.size() - 1))), contains("cut short"));
  CHECK_THAT(read_refusal(folder.put("text", "This is a text, no model.")), contains("at most 100000000 bytes"));
  CHECK(same_values(read_safetensors(folder.put("whole", whole)), parse(known_file())));
}

}  // namespace tril::test

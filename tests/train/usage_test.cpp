#include "train/base/usage.h"

#include <array>
#include <limits>
#include <utility>

#include "support/catch.h"
#include "train/temp_folder.h"

namespace tril::test {
namespace {

constexpr std::array<std::string_view, 6> kNames = {"layers", "lr", "min-lr", "weight-decay", "beta1", "beta2"};

}  // namespace

TEST_CASE("usage: the nearest name is few edits away, or begins alike") {
  CHECK(nearest("layer", kNames) == "layers");
  CHECK(nearest("layres", kNames) == "layers");
  CHECK(nearest("lyers", kNames) == "layers");
  CHECK(nearest("weight", kNames) == "weight-decay");
  CHECK(nearest("weight_decay", kNames) == "weight-decay");
  CHECK(nearest("minlr", kNames) == "min-lr");
  CHECK(nearest("bta2", kNames) == "beta2");
  CHECK(nearest("lr", kNames) == "lr");
}

TEST_CASE("usage: what is near no name gets none") {
  for (const std::string_view name : {"", "x", "zz", "dropout", "verbose"}) {
    INFO(name);
    CHECK(nearest(name, kNames).empty());
  }
  CHECK(nearest(std::string(100'000, 'l'), kNames).empty());
  CHECK(nearest("lr", {}).empty());
  CHECK(did_you_mean("layer", kNames, "see the list") == "did you mean layers?");
  CHECK(did_you_mean("dropout", kNames, "see the list") == "see the list");
}

TEST_CASE("usage: numbers are whole texts, within their range, and decimals have a point") {
  CHECK(parse_integer("n", "-5", -5, 5) == -5);
  CHECK(parse_integer("n", "9223372036854775807", 0, std::numeric_limits<int64_t>::max()) ==
        std::numeric_limits<int64_t>::max());
  CHECK(parse_number("x", "1e-3", 0, 1) == 0.001);
  CHECK(parse_number("x", ".5", 0, 1) == 0.5);
  CHECK(error_of([] { (void)parse_integer("n", "6", -5, 5); }) == "n: expected a whole number from -5 to 5, got 6");
  CHECK(error_of([] { (void)parse_integer("n", "9223372036854775808", 0, 5); }) ==
        "n: expected a whole number from 0 to 5, got '9223372036854775808'");
  CHECK(error_of([] { (void)parse_number("x", "0,5", 0, 1); }) ==
        "x: expected a number from 0 to 1, got '0,5'; decimals are written with a point, without separators");
  CHECK(error_of([] { (void)parse_number("x", "nan", 0, 1); }) == "x: expected a number from 0 to 1, got nan");
  CHECK(error_of([] { (void)parse_number("x", "", 0, 1); }) == "x: expected a number from 0 to 1, got nothing");
  CHECK_THROWS_AS(parse_number("x", "2", 0, 1), UsageError);
  CHECK(parse_switch("s", "true"));
  CHECK_FALSE(parse_switch("s", "false"));
  CHECK(error_of([] { (void)parse_switch("s", "1"); }) == "s: expected true or false, got '1'");
}

TEST_CASE("usage: a whole number is exact, however it is written") {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max(), kLeast = std::numeric_limits<int64_t>::min();
  const std::pair<const char*, int64_t> right[] = {{"3", 3},
                                                   {"3.0", 3},
                                                   {"3.", 3},
                                                   {"03", 3},
                                                   {"1e3", 1000},
                                                   {"1E+3", 1000},
                                                   {"30e-1", 3},
                                                   {"0.003e3", 3},
                                                   {".5e1", 5},
                                                   {"-7.00", -7},
                                                   {"-0", 0},
                                                   {"-0.0e-9", 0},
                                                   {"0e999999999999999999999", 0},
                                                   {"1.25e2", 125},
                                                   {"9007199254740993.0", 9007199254740993},
                                                   {"9223372036854775807.000", kMost},
                                                   {"9.223372036854775807e18", kMost},
                                                   {"-9223372036854775808", kLeast},
                                                   {"-922337203685477580.8e1", kLeast},
                                                   {"0000000000000000000000000001", 1}};
  for (const auto& [text, value] : right) {
    INFO(text);
    CHECK(whole_number(text) == value);
  }
  CHECK(whole_number("1" + std::string(400, '0') + "e-400") == 1);
  CHECK(whole_number("0." + std::string(400, '0') + "1e401") == 1);
  for (const char* text : {"",
                           "-",
                           ".",
                           "-.",
                           "e3",
                           ".e3",
                           "3.5",
                           "1e-1",
                           "30e-2",
                           "+3",
                           " 3",
                           "3 ",
                           "1e",
                           "1e+",
                           "1e3.0",
                           "1e3x",
                           "0x10",
                           "nan",
                           "inf",
                           "-inf",
                           "infinity",
                           "1,000",
                           "1_000",
                           "1.0.0",
                           "--3",
                           "3-",
                           "9223372036854775808",
                           "-9223372036854775809",
                           "1e19",
                           "9.3e18",
                           "1e99999999999999999999",
                           "9223372036854775807.5",
                           "3.00000000000000000000000001"}) {
    INFO(text);
    CHECK_FALSE(whole_number(text).has_value());
  }
}

TEST_CASE("usage: what cannot be seen is shown escaped") {
  CHECK_THAT(error_of([] {
               (void)parse_integer("n",
                                   "\xE2\x80\xAA"
                                   "5",
                                   0, 9);
             }),
             contains("got '\\u202a5'"));
}

}  // namespace tril::test

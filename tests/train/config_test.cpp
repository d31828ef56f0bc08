#include "train/model/config.h"

#include <limits>

#include "support/catch.h"
#include "train/base/usage.h"
#include "train/temp_folder.h"

namespace tril::test {
namespace {

TrainConfig with(std::string_view name, std::string_view text) {
  TrainConfig config;
  set_field(config, field_named(name, "test"), text);
  return config;
}

// The text of the UsageError, or nothing; any other error fails the test.
template <class Call>
std::string usage_error_of(Call&& call) {
  try {
    call();
  } catch (const UsageError& error) { return error.what(); }
  return {};
}

std::string refusal(std::string_view name, std::string_view text) {
  return usage_error_of([&] { (void)with(name, text); });
}

}  // namespace

TEST_CASE("config: the presets are nanoGPT's published numbers") {
  const TrainConfig small = preset("small");
  CHECK(small == TrainConfig{});
  CHECK(small.layers == 4);
  CHECK(small.heads == 4);
  CHECK(small.width == 128);
  CHECK(small.context == 64);
  CHECK(small.batch == 12);
  CHECK(small.steps == 2000);
  CHECK(small.dropout == 0.0);
  const TrainConfig baby = preset("baby");
  CHECK(baby.layers == 6);
  CHECK(baby.heads == 6);
  CHECK(baby.width == 384);
  CHECK(baby.context == 256);
  CHECK(baby.batch == 64);
  CHECK(baby.steps == 5000);
  CHECK(baby.dropout == 0.2);
  for (const TrainConfig& config : {small, baby}) {
    CHECK(config.lr == 1e-3);
    CHECK(config.min_lr == 1e-4);
    CHECK(config.warmup == 100);
    CHECK(config.beta1 == 0.9);
    CHECK(config.beta2 == 0.99);
    CHECK(config.weight_decay == 0.1);
    CHECK(config.clip == 1.0);
    CHECK(config.eval_every == 250);
    CHECK(config.val_fraction == 0.1);
    CHECK_FALSE(config.bias);
    CHECK(config.gelu == Gelu::erf);
  }
  CHECK(usage_error_of([] { (void)preset("smal"); }) ==
        "preset: expected small or baby, got 'smal'; did you mean small?");
}

TEST_CASE("config: every field is set from text, and its text sets it again") {
  for (const Field& field : fields()) {
    INFO(field.name);
    const std::string text = field_text(preset("baby"), field);
    TrainConfig config;
    set_field(config, field, text);
    CHECK(field_text(config, field) == text);
    CHECK_FALSE(field.help.empty());
  }
  CHECK(with("lr", "3e-4").lr == 3e-4);
  CHECK(with("seed", "9007199254740992").seed == int64_t{1} << 53);
  CHECK(with("bias", "true").bias);
  CHECK(with("tokens", "byte").tokens == TokenKind::kByte);
  CHECK(with("gelu", "tanh").gelu == Gelu::tanh);
}

TEST_CASE("config: what is no number, or out of range, is refused by the field's name") {
  CHECK(refusal("layers", "0") == "layers: expected a whole number from 1 to 4096, got 0");
  CHECK(refusal("layers", "-1") == "layers: expected a whole number from 1 to 4096, got -1");
  CHECK(refusal("layers", "1.5") == "layers: expected a whole number from 1 to 4096, got '1.5'");
  CHECK(refusal("layers", "99999999999999999999") ==
        "layers: expected a whole number from 1 to 4096, got '99999999999999999999'");
  CHECK(refusal("layers", "") == "layers: expected a whole number from 1 to 4096, got nothing");
  CHECK_THAT(refusal("lr", "0,001"), contains("got '0,001'; decimals are written with a point"));
  for (const char* text : {"nan", "-1", "inf", "1e400", "0x10", " 1", "1 ", "+1", "1e-3x", "one"}) {
    INFO(text);
    CHECK_THAT(refusal("lr", text), contains("lr: expected a number from 0 to"));
  }
  CHECK_THAT(refusal("val-fraction", "1"), contains("val-fraction: expected a number from 0 to 0.99, got 1"));
  CHECK_THAT(refusal("beta2", "1"), contains("beta2: expected a number from 0 to 0.999999, got 1"));
  CHECK_THAT(refusal("dropout", "1"), contains("dropout: "));
  CHECK_THAT(refusal("threads", "100000"),
             contains("threads: expected auto, or a whole number from 0 to 1024, got '100000'"));
  CHECK_THAT(refusal("threads", "-1"), contains("threads: expected auto, or a whole number from 0 to 1024, got '-1'"));
  CHECK_THAT(refusal("bias", "yes"), contains("bias: expected true or false, got 'yes'"));
  CHECK_THAT(refusal("tokens", "word"), contains("tokens: "));
  CHECK_THAT(refusal("gelu", "relu"), contains("gelu: expected erf or tanh, got 'relu'"));
}

TEST_CASE("config: fields that do not fit together are refused with both numbers") {
  TrainConfig config;
  config.heads = 3;
  CHECK(usage_error_of([&] { check_config(config); }) == "heads: expected a number that divides the width 128, got 3");
  config = {};
  config.kv_heads = 3;
  CHECK(usage_error_of([&] { check_config(config); }) ==
        "kv-heads: expected a number that divides the 4 heads, or 0 for as many, got 3");
  config = {};
  config.lr = 1e-5;
  CHECK_THAT(usage_error_of([&] { check_config(config); }), contains("min-lr: expected at most lr, 1e-05, got 1e-04"));
  CHECK(usage_error_of([] { check_config(preset("baby")); }).empty());
}

TEST_CASE("config: a whole number is one however it is written, in a file, on the command line, for every field") {
  const auto read = [](const std::string& json) { return config_from_json(json, "c.json", {}); };
  CHECK(read(R"({"steps": 3.0, "layers": 1e1, "heads": 20e-1, "width": 3.0E2, "threads": 2.0, "warmup": -0.0})") ==
        read(R"({"steps": 3, "layers": 10, "heads": 2, "width": 300, "threads": 2, "warmup": 0})"));
  int64_t whole = 0;
  for (const Field& field : fields()) {
    if (!std::holds_alternative<int64_t TrainConfig::*>(field.member)) continue;
    INFO(field.name);
    ++whole;
    for (const char* ten : {"10", "10.0", "1e1", "1.0e+1", "100e-1", "0.1E2"})
      CHECK(read(cat("{\"", field.name, "\": ", ten, "}")) == with(field.name, "10"));
    CHECK_THAT(refusal(field.name, "1.5"), contains("a whole number from "));
  }
  CHECK(whole == 16);
  // Beyond 2^53 a double would round: what is written counts.
  CHECK(read(R"({"seed": 9007199254740992.0})").seed == int64_t{1} << 53);
  for (const char* seed :
       {"9007199254740993.0", "9007199254740993", "9007199254740992.5", "4503599627370496.3", "3.0000000000000000001",
        "1e16", "1e300", "18446744073709551617", "-1.0", "\"nan\"", "null"}) {
    INFO(seed);
    CHECK_THAT(usage_error_of([&] { (void)read(cat("{\"seed\": ", seed, "}")); }), contains("c.json: seed: expected "));
  }
}

TEST_CASE("config: an unknown name gets the nearest one") {
  const auto hint = [](std::string_view name) { return usage_error_of([&] { (void)field_named(name, "a.json"); }); };
  CHECK(hint("layer") == "a.json: expected the names of fields, got layer; did you mean layers?");
  CHECK_THAT(hint("weight_decay"), contains("did you mean weight-decay?"));
  CHECK_THAT(hint("n-heads"), contains("did you mean heads?"));
  CHECK_THAT(hint("warmpu"), contains("did you mean warmup?"));
  CHECK_THAT(hint("learning-speed"), contains("tril train --help lists them"));
  CHECK_THAT(hint(std::string(1000, 'x')), contains("…"));
}

TEST_CASE("config: JSON gives back what it was made from") {
  TrainConfig config = preset("baby");
  config.lr = 1.0 / 3.0;
  config.seed = int64_t{1} << 53;
  config.tokens = TokenKind::kByte;
  config.gelu = Gelu::tanh;
  config.bias = true;
  for (const bool one_line : {false, true})
    CHECK(config_from_json(config_to_json(config, one_line), "c.json", {}, true) == config);
  CHECK(config_to_json(config, true).find('\n') == std::string::npos);
}

TEST_CASE("config: a file may hold some of the fields, and a preset that they go on top of") {
  const auto read = [](std::string_view json) { return config_from_json(json, "c.json", {}); };
  TrainConfig expected = preset("baby");
  expected.lr = 0.5;
  CHECK(read(R"({"lr": 0.5, "preset": "baby"})") == expected);
  CHECK(read(R"({"lr": "0.5"})").lr == 0.5);
  CHECK(read("{}") == TrainConfig{});

  const auto refused = [&](std::string_view json) { return usage_error_of([&] { (void)read(json); }); };
  CHECK_THAT(refused(R"({"layer": 3})"), contains("c.json: expected the names of fields, got layer; did you mean"));
  CHECK_THAT(refused(R"({"layers": 0})"), contains("c.json: layers: expected a whole number from 1 to 4096, got 0"));
  CHECK_THAT(refused(R"({"layers": 4.5})"), contains("layers: expected a whole number from 1 to 4096, got '4.5'"));
  CHECK_THAT(refused(R"({"layers": null})"), contains("layers: expected a number, true, false or a text, got null"));
  CHECK_THAT(refused(R"({"layers": [4]})"), contains("got array"));
  CHECK_THAT(refused(R"({"lr": 1, "lr": 2})"), contains("c.json: expected each name once, got lr twice"));
  CHECK_THAT(refused(R"({"preset": "big"})"), contains("preset: expected small or baby, got 'big'"));
  CHECK_THAT(refused("[]"), contains("c.json: expected a JSON object, got array"));
  CHECK_THAT(refused("{"), contains("c.json: expected a configuration in JSON"));
  CHECK_THAT(refused(""), contains("c.json: expected a configuration in JSON"));
  CHECK_THAT(refused("{\"lr\": 0,5}"), contains("c.json: expected a configuration in JSON"));
  CHECK(refused(std::string(1'000'000, '[')).size() < 300);
  CHECK_THAT(usage_error_of([] { (void)config_from_json("{}", "m", {}, true); }),
             contains("m: expected tokens, got none"));
}

}  // namespace tril::test

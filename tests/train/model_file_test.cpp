#include "train/model/model_file.h"
#include "train/base/files.h"

#include <cmath>
#include <functional>
#include <limits>

#include "support/catch.h"
#include "train/base/usage.h"
#include "train/model/safetensors.h"
#include "train/model_state.h"
#include "train/temp_folder.h"
#include "train/tiny_model.h"

namespace tril::test {
namespace {

Model tiny_model(const TrainConfig& config = tiny_config()) {
  return make_model(config, Tokenizer::characters_of(tiny_text(), "tiny.txt"));
}

std::vector<float> weights(const Model& model) {
  const auto* const values = reinterpret_cast<const float*>(model.params->data());
  return {values, values + model.params->elements()};
}

// What a model file consists of, to be written again with something changed.
struct Parts {
  explicit Parts(const Model& model) {
    const TempFolder folder;
    save_model(folder / "m", model);
    file = read_safetensors(folder / "m");
    metadata = file.metadata;
    for (const SafetensorsEntry& entry : file.entries)
      tensors.push_back({entry.name, entry.dtype, entry.shape, file.data.data() + entry.begin});
  }
  [[nodiscard]] SafetensorsTensor& tensor(std::string_view name) {
    return *std::find_if(tensors.begin(), tensors.end(), [&](const auto& each) { return each.name == name; });
  }
  // The error of loading it.
  [[nodiscard]] std::string refusal() const {
    const TempFolder folder;
    write_safetensors(folder / "m", tensors, metadata);
    try {
      (void)load_model(folder / "m");
    } catch (const UsageError&) { return "a usage error, which a damaged file is not"; } catch (const Error& error) {
      return error.what();
    }
    return {};
  }
  [[nodiscard]] std::string refusal(const std::string& key, const std::string& from, const std::string& to) {
    std::string& text = metadata.at(key);
    const size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    text.replace(at, from.size(), to);
    return refusal();
  }

  Safetensors file;
  std::map<std::string, std::string> metadata;
  std::vector<SafetensorsTensor> tensors;
};

}  // namespace

TEST_CASE("model file: gives back the model, bit for bit, with all that belongs to it") {
  const TempFolder folder;
  TrainConfig config = tiny_config();
  config.dropout = 0.1;
  config.bias = true;
  config.gelu = Gelu::tanh;
  config.lr = 1.0 / 3;
  Model model = tiny_model(config);
  model.state.step = 7;
  model.state.samples = 61;
  model.state.loss = 1.0 / 3;
  model.state.rule = LossRule{.eval_tokens = 500, .precision = DType::bf16};
  model.state.best_loss = 0.1;
  model.state.best_step = 5;
  model.state.text = {.names = {"a \"quoted\" é", "-"},
                      .paths = {"/where/a \"quoted\" é", "-"},
                      .bytes = 123,
                      .crc32 = 0xFFFFFFFFu,
                      .all_files = true};
  model.state.isa = "AVX2";
  save_model(folder / "m", model);
  const Model back = load_model(folder / "m");
  CHECK(same_bits(weights(back), weights(model)));
  CHECK(back.training == config);
  CHECK(back.lm->vocabulary() == 9);
  CHECK(back.tokenizer == model.tokenizer);
  CHECK(back.state.step == 7);
  CHECK(back.state.samples == 61);
  CHECK(back.state.loss == model.state.loss);
  CHECK(back.state.rule == model.state.rule);
  CHECK(back.state.best_loss == 0.1);
  CHECK(back.state.best_step == 5);
  CHECK(back.state.text.names == model.state.text.names);
  CHECK(back.state.text.paths.empty());
  CHECK(contents_of(folder / "m").find("/where") == std::string::npos);
  CHECK(back.state.text.all_files);
  CHECK_FALSE(back.state.text.old_split);
  CHECK(back.state.text.bytes == 123);
  CHECK(back.state.text.crc32 == 0xFFFFFFFFu);
  CHECK(back.state.isa == "AVX2");
  CHECK(back.where == folder / "m");
  CHECK(back.warnings.empty());

  save_model(folder / "again", back);
  CHECK(contents_of(folder / "again") == contents_of(folder / "m"));
}

TEST_CASE("model file: of an older version's the text is known by its paths, its files and its split as they were") {
  Parts parts(tiny_model());
  parts.metadata["tril.state"] =
      R"({"step":7,"isa":"AVX2","text":{"bytes":600,"crc32":5,"paths":["/home/ann/book.txt","/notes","-"]}})";
  const TempFolder folder;
  write_safetensors(folder / "m", parts.tensors, parts.metadata);
  const Model old = load_model(folder / "m");
  CHECK(old.state.text.paths == std::vector<std::string>{"/home/ann/book.txt", "/notes", "-"});
  CHECK(old.state.text.names == std::vector<std::string>{"book.txt", "notes", "-"});
  CHECK(old.state.text.all_files);
  CHECK(old.state.text.old_split);
  save_model(folder / "again", old);
  CHECK(contents_of(folder / "again").find("/home") == std::string::npos);
  const Model again = load_model(folder / "again");
  CHECK(again.state.text.names == old.state.text.names);
  CHECK(again.state.text.all_files);
  CHECK(again.state.text.old_split);
}

TEST_CASE("model file: a loss that is not known stays so") {
  const TempFolder folder;
  save_model(folder / "m", tiny_model());
  const Model back = load_model(folder / "m");
  CHECK(std::isnan(back.state.loss));
  CHECK(std::isnan(back.state.best_loss));
}

TEST_CASE("model file: an older one's samples and rule of measuring are those of its configuration") {
  for (const Precision dtype : {Precision::kF32, Precision::kBf16, Precision::kAuto}) {
    const TempFolder folder;
    TrainConfig config = tiny_config();
    config.accumulate = 3;
    config.eval_tokens = 16;
    config.dtype = dtype;
    Model model = tiny_model(config);
    model.state.step = 7;
    model.state.loss = 2;
    save_model(folder / "m", model);
    rewrite_state(folder / "m", std::regex(",\"samples\":0"), "");
    const ModelState state = load_model(folder / "m").state;
    CHECK(state.samples == 7 * config.batch * 3);
    CHECK(state.rule.has_value() == (dtype != Precision::kAuto));
    if (state.rule) CHECK(state.rule == LossRule{16, dtype == Precision::kBf16 ? DType::bf16 : DType::f32});
  }
}

TEST_CASE("model file: names and shapes are nanoGPT's, and the tied head is stored once") {
  const TempFolder folder;
  TrainConfig config = tiny_config();
  config.bias = true;
  const Model model = tiny_model(config);
  save_model(folder / "m", model);
  const Safetensors file = read_safetensors(folder / "m");
  const std::map<std::string, std::vector<int64_t>> expected = {{"transformer.wte.weight", {9, 8}},
                                                                {"transformer.wpe.weight", {8, 8}},
                                                                {"transformer.h.0.ln_1.weight", {8}},
                                                                {"transformer.h.0.ln_1.bias", {8}},
                                                                {"transformer.h.0.attn.c_attn.weight", {24, 8}},
                                                                {"transformer.h.0.attn.c_attn.bias", {24}},
                                                                {"transformer.h.0.attn.c_proj.weight", {8, 8}},
                                                                {"transformer.h.0.attn.c_proj.bias", {8}},
                                                                {"transformer.h.0.ln_2.weight", {8}},
                                                                {"transformer.h.0.ln_2.bias", {8}},
                                                                {"transformer.h.0.mlp.c_fc.weight", {32, 8}},
                                                                {"transformer.h.0.mlp.c_fc.bias", {32}},
                                                                {"transformer.h.0.mlp.c_proj.weight", {8, 32}},
                                                                {"transformer.h.0.mlp.c_proj.bias", {8}},
                                                                {"transformer.ln_f.weight", {8}},
                                                                {"transformer.ln_f.bias", {8}}};
  std::map<std::string, std::vector<int64_t>> found;
  for (const SafetensorsEntry& entry : file.entries) {
    found[entry.name] = entry.shape;
    CHECK(entry.dtype == "F32");
  }
  CHECK(found == expected);
  CHECK(static_cast<int64_t>(file.data.size()) == 4 * model.params->count());
  CHECK(file.metadata.at("format") == "pt");
  CHECK(file.metadata.at("lm_head.weight") == "transformer.wte.weight");
}

TEST_CASE("model file: a run folder stands for its best model, or else its last") {
  const TempFolder folder;
  CHECK_THAT(
      error_of([&] { (void)load_model(folder.path()); }),
      contains(": expected a run folder, with model.safetensors or last.safetensors, got a folder without them"));
  save_model(folder / "last.safetensors", tiny_model());
  CHECK(load_model(folder.path()).where == folder / "last.safetensors");
  save_model(folder / "model.safetensors", tiny_model());
  CHECK(load_model(folder.path()).where == folder / "model.safetensors");
  CHECK(load_model(folder / "last.safetensors").where == folder / "last.safetensors");
  CHECK_THAT(error_of([&] { (void)load_model(folder / "none"); }),
             contains("none: expected a run folder or a model file, got none of that name"));
}

TEST_CASE("model file: missing, unexpected and mis-shaped tensors are named in one error") {
  Parts parts(tiny_model());
  parts.tensor("transformer.h.0.ln_1.weight").name = "transformer.h.0.ln_1.gain";
  parts.tensor("transformer.ln_f.weight").name = "transformer.h.1.ln_1.weight";
  parts.tensor("transformer.wpe.weight").shape = {4, 16};
  parts.tensor("transformer.wte.weight").dtype = "I32";
  CHECK_THAT(
      parts.refusal(),
      contains("m: expected the tensors of the model that its configuration describes, got missing "
               "transformer.h.0.ln_1.weight, transformer.ln_f.weight; unexpected ") &&
          contains("transformer.h.0.ln_1.gain") && contains("transformer.h.1.ln_1.weight") &&
          contains("mis-shaped transformer.wte.weight (9, 8) is I32 (9, 8), transformer.wpe.weight (8, 8) is F32 "
                   "(4, 16)"));
  Parts square(tiny_model());
  square.tensor("transformer.h.0.mlp.c_fc.weight").shape = {8, 32};
  CHECK_THAT(square.refusal(), contains("got mis-shaped transformer.h.0.mlp.c_fc.weight (32, 8) is F32 (8, 32)"));
}

TEST_CASE("model file: a configuration that the tensors do not back is refused before a model is laid out") {
  const auto refused = [](const std::string& from, const std::string& to) {
    return Parts(tiny_model()).refusal("tril.config", from, to);
  };
  CHECK_THAT(refused("\"layers\":1", "\"layers\":4096"),
             contains("m: expected the tensors of the model that its configuration describes, got missing "
                      "transformer.h.1.ln_1.weight, ") &&
                 contains(" and 24564 more"));
  CHECK_THAT(refused("\"layers\":1", "\"layers\":-1"),
             contains("layers: expected a whole number from 1 to 4096, got -1"));
  CHECK_THAT(refused("\"layers\":1", "\"layers\":1e99"), contains("layers: expected a whole number"));
  CHECK_THAT(refused("\"width\":8", "\"width\":65536"), contains("mis-shaped"));
  CHECK_THAT(refused("\"width\":8", "\"width\":9"),
             contains("heads: expected a number that divides the width 9, got 2"));
  CHECK_THAT(refused("\"context\":8", "\"context\":1048576"),
             contains("mis-shaped transformer.wpe.weight (1048576, 8)"));
  CHECK_THAT(refused("\"bias\":false", "\"bias\":true"), contains("missing transformer.h.0.ln_1.bias"));
  CHECK_THAT(refused("\"gelu\":\"erf\"", "\"gelu\":\"relu\""), contains("gelu: expected erf or tanh"));
  CHECK_THAT(refused("\"layers\":1,", ""), contains("m: expected layers, got none"));
  CHECK_THAT(refused("\"layers\":1", "\"layers\":1,\"lauers\":1"), contains("did you mean layers?"));
  CHECK_THAT(refused("{", "{{"), contains("m: expected a configuration in JSON"));
}

TEST_CASE("model file: one of an older version, which does not tell what is newer, loads with what held then") {
  Parts parts(tiny_model());
  CHECK(parts.refusal("tril.config", "\"kv-heads\":0,\"window\":0,", "").empty());
}

TEST_CASE("model file: a vocabulary of another size than the embedding's is refused") {
  Parts parts(tiny_model());
  CHECK_THAT(parts.refusal("tril.vocabulary", "abcdefgh", "abcdefg"),
             contains("mis-shaped transformer.wte.weight (8, 8) is F32 (9, 8)"));
}

TEST_CASE("model file: without the metadata of a model it is none") {
  for (const char* key : {"tril.config", "tril.vocabulary"}) {
    Parts parts(tiny_model());
    parts.metadata.erase(key);
    CHECK_THAT(parts.refusal(), contains(cat("m: expected a model of tril, with \"", key,
                                             "\" in its metadata, got a safetensors file without it; ")));
  }
  Parts parts(tiny_model());
  parts.metadata.erase("tril.state");
  CHECK(parts.refusal().empty());
}

TEST_CASE("model file: without a state nothing is said of one, and it is written again as it came") {
  Parts parts(tiny_model());
  parts.metadata.erase("tril.state");
  const TempFolder folder;
  write_safetensors(folder / "m", parts.tensors, parts.metadata);
  const Model weights_alone = load_model(folder / "m");
  CHECK_FALSE(weights_alone.state.known);
  CHECK_FALSE(is_untrained(weights_alone));
  save_model(folder / "again", weights_alone);
  CHECK_FALSE(load_model(folder / "again").state.known);
  CHECK_FALSE(read_safetensors(folder / "again").metadata.contains("tril.state"));
}

TEST_CASE("model file: untrained are weights as training begins with them, whatever step the file tells") {
  Parts parts(tiny_model());
  const auto untrained = [&] {
    const TempFolder folder;
    write_safetensors(folder / "m", parts.tensors, parts.metadata);
    return is_untrained(load_model(folder / "m"));
  };
  CHECK(untrained());
  std::vector<float> changed(9 * 8, 0.5f);
  parts.tensor("transformer.wte.weight").data = changed.data();  // as another program trains, and keeps the state
  CHECK_FALSE(untrained());
}

TEST_CASE("model file: the embedding may have the name of the head that is tied to it, and masks are no weights") {
  const Model model = tiny_model();
  Parts parts(model);
  parts.tensor("transformer.wte.weight").name = "lm_head.weight";  // as safetensors' save_model leaves it
  parts.metadata["transformer.wte.weight"] = "lm_head.weight";
  const std::vector<float> mask(8 * 8, 1.0f);
  parts.tensors.push_back({"transformer.h.0.attn.bias", "F32", {1, 1, 8, 8}, mask.data()});
  const TempFolder folder;
  write_safetensors(folder / "m", parts.tensors, parts.metadata);
  CHECK(same_bits(weights(load_model(folder / "m")), weights(model)));
  parts.tensors.back().shape = {64};
  CHECK_THAT(parts.refusal(), contains("unexpected transformer.h.0.attn.bias"));
  parts.tensors.pop_back();
  parts.tensor("lm_head.weight").name = "head.weight";
  CHECK_THAT(parts.refusal(), contains("missing transformer.wte.weight; unexpected head.weight"));
}

TEST_CASE("model file: a state that makes no sense is refused") {
  const auto refused = [](const std::string& from, const std::string& to) {
    return Parts(tiny_model()).refusal("tril.state", from, to);
  };
  for (const char* step : {"5.0", "5e0", "50e-1"}) CHECK(refused("\"step\":0", cat("\"step\":", step)).empty());
  for (const char* step :
       {"-1", "-1.0", "1.5", "9007199254740992.0", "1e300", "99999999999999999999", "null", "\"1\"", "[]"}) {
    INFO(step);
    CHECK_THAT(refused("\"step\":0", cat("\"step\":", step)),
               contains("m: expected the state of a run in \"tril.state\""));
  }
  CHECK_THAT(refused("\"samples\":0", "\"samples\":-1"), contains("m: expected the state of a run"));
  for (const char* rule : {"1", "{}", R"({"eval_tokens":1})", R"({"eval_tokens":-1,"dtype":"f32"})",
                           R"({"eval_tokens":0,"dtype":"i32"})", R"({"eval_tokens":0,"dtype":7})"}) {
    INFO(rule);
    CHECK_THAT(refused("\"samples\":0", cat("\"samples\":0,\"loss\":1,\"measured\":", rule)),
               contains("m: expected the state of a run"));
  }
  CHECK(refused("\"step\":0,\"samples\":0", "\"step\":9007199254740992").empty());  // counted as far as numbers go
  CHECK_THAT(refused("\"crc32\":0", "\"crc32\":4294967296"), contains("m: expected the state of a run"));
  CHECK(refused("\"crc32\":0", "\"crc32\":4294967295.0").empty());
  CHECK_THAT(refused("\"step\":0", "\"loss\":1e999,\"step\":0"), contains("m: expected the state of a run"));
  CHECK_THAT(refused("\"isa\"", "\"asi\""), contains("got something else; drop that key of the metadata"));
  CHECK_THAT(refused("\"names\":[]", "\"names\":[1]"), contains("m: expected the state of a run"));
  CHECK_THAT(refused("\"names\":[]", std::string(100'000, '[')), contains("m: expected the state of a run"));
}

TEST_CASE("model file: a head of its own must equal the embedding it is tied to") {
  Parts parts(tiny_model());
  SafetensorsTensor head = parts.tensor("transformer.wte.weight");
  head.name = "lm_head.weight";
  parts.metadata.erase("lm_head.weight");
  parts.tensors.push_back(head);
  CHECK(parts.refusal().empty());
  parts.tensors.back().data = parts.tensor("transformer.h.0.mlp.c_fc.weight").data;
  CHECK_THAT(parts.refusal(), contains("m: expected lm_head.weight to equal transformer.wte.weight"));
}

TEST_CASE("model file: weights that are not finite are loaded with a warning") {
  const TempFolder folder;
  const Model model = tiny_model();
  model.params->find("transformer.ln_f.weight")->value.ptr<float>()[2] = std::numeric_limits<float>::infinity();
  model.params->find("transformer.wte.weight")->value.ptr<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  save_model(folder / "m", model);
  const Model back = load_model(folder / "m");
  REQUIRE(back.warnings.size() == 1);
  CHECK_THAT(back.warnings[0], contains("m: 2 weights are not finite, the first in transformer.wte.weight"));
}

TEST_CASE("model file: where it cannot be written, the old one stays") {
  const TempFolder folder;
  save_model(folder / "m", tiny_model());
  const std::string before = contents_of(folder / "m");
  TrainConfig other = tiny_config();
  other.seed = 2;
  REQUIRE(::chmod(folder.path().c_str(), 0555) == 0);
  {
    const Unprivileged nobody;
    CHECK_THROWS_AS(save_model(folder / "m", tiny_model(other)), WriteError);
  }
  REQUIRE(::chmod(folder.path().c_str(), 0777) == 0);
  CHECK(contents_of(folder / "m") == before);
  CHECK(folder.names() == std::set<std::string>{"m"});
}

}  // namespace tril::test

#include "train/model/model_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "train/base/files.h"
#include "train/base/json_text.h"
#include "train/base/usage.h"
#include "train/base/utf8.h"
#include "train/data/text_place.h"
#include "train/model/architecture.h"
#include "train/model/safetensors.h"

namespace tril {
namespace {

constexpr const char *kConfigKey = "tril.config", *kVocabularyKey = "tril.vocabulary", *kStateKey = "tril.state";
constexpr const char* kOptimizerStepKey = "tril.step";  // as train/run/checkpoint.cpp writes it
constexpr const char* kVersionKey = "tril.version";     // of the program that wrote the file; only for people
constexpr const char *kHead = "lm_head.weight", *kHeadIs = "transformer.wte.weight";

const std::string& metadata_of(const Safetensors& file, const char* key) {
  const auto found = file.metadata.find(key);
  if (found == file.metadata.end()) refuse_foreign_model(file.where, key, file.metadata.contains(kOptimizerStepKey));
  return found->second;
}

// The entry of a parameter. A program that stores the tied embedding and head once may use either name: safetensors'
// save_model uses the head's.
const SafetensorsEntry* find_entry(const Safetensors& file, std::string_view name) {
  const SafetensorsEntry* const entry = file.find(name);
  return entry == nullptr && name == kHeadIs ? file.find(kHead) : entry;
}

// nanoGPT's causal mask, which it keeps as a tensor if PyTorch has no attention of its own.
bool is_mask(const SafetensorsEntry& entry) {
  return entry.name.ends_with(".attn.bias") && entry.shape.size() == 4 && entry.shape[0] == 1 && entry.shape[1] == 1;
}

std::string state_to_json(const ModelState& state) {
  nlohmann::ordered_json json = {{"step", state.step}, {"samples", state.samples}};
  if (!std::isnan(state.loss)) json["loss"] = state.loss;
  if (!std::isnan(state.loss) && state.rule)
    json["measured"] = {{"eval_tokens", state.rule->eval_tokens}, {"dtype", name_of(state.rule->precision)}};
  if (!std::isnan(state.best_loss)) {
    json["best_loss"] = state.best_loss;
    json["best_step"] = state.best_step;
  }
  json["isa"] = state.isa;
  const TextIdentity& text = state.text;
  auto names = nlohmann::ordered_json::array();
  for (const std::string& name : text.names) names.push_back(is_utf8(name) ? name : printable(name));
  json["text"] = {{"bytes", text.bytes},
                  {"crc32", text.crc32},
                  {"all_files", text.all_files},
                  {"old_split", text.old_split},
                  {"names", names}};
  return json_text(json);
}

constexpr int64_t kMostWhole = int64_t{1} << 53;  // every reader holds integers up to this exactly

// Reads a whole number from 0 to `most`. One that is written as a fraction must be below kMostWhole, as a larger one
// may have been rounded down to it.
int64_t whole(const nlohmann::json& value, int64_t most = kMostWhole) {
  const auto number = value.is_number() ? whole_number(value.dump()) : std::nullopt;
  const bool fits = number && *number >= 0 && *number <= most && !(value.is_number_float() && *number >= kMostWhole);
  if (!fits) throw Error("a number that is not whole, or out of range");
  return *number;
}

double finite(const nlohmann::json& value) {
  const double number = value.get<double>();
  if (!std::isfinite(number)) throw Error("a loss that is not finite");
  return number;
}

// The count of samples for older files, which do not store it, as if the batch size had always been the present one.
int64_t samples_of(int64_t steps, const TrainConfig& training) {
  const double a_step = static_cast<double>(training.batch) * static_cast<double>(training.accumulate);
  return static_cast<int64_t>(std::min(static_cast<double>(steps) * a_step, static_cast<double>(kMostWhole)));
}

LossRule rule_from_json(const nlohmann::json& json) {
  if (!json.is_object()) throw Error("a rule of measuring that is no JSON object");
  const std::string dtype = json.at("dtype").get<std::string>();
  for (const DType known : {DType::f32, DType::bf16})
    if (dtype == name_of(known)) return {whole(json.at("eval_tokens")), known};
  throw Error(cat("a loss measured in ", printable(dtype, 20)));
}

// The rule of a loss in an older file, which does not store one. The configuration tells it, except what `auto` meant
// on that machine.
std::optional<LossRule> rule_of(const TrainConfig& training) {
  if (training.dtype == Precision::kAuto) return std::nullopt;
  return LossRule{training.eval_tokens, training.dtype == Precision::kBf16 ? DType::bf16 : DType::f32};
}

TextIdentity text_from_json(const nlohmann::json& json) {
  if (!json.is_object()) throw Error("a text that is no JSON object");
  TextIdentity text;
  text.bytes = whole(json.at("bytes"));
  text.crc32 = static_cast<uint32_t>(whole(json.at("crc32"), std::numeric_limits<uint32_t>::max()));
  text.all_files = !json.contains("all_files") || json.at("all_files").get<bool>();
  text.old_split = !json.contains("old_split") || json.at("old_split").get<bool>();
  if (json.contains("names")) {
    for (const nlohmann::json& name : json.at("names")) text.names.push_back(name.get<std::string>());
  } else {
    for (const nlohmann::json& path : json.at("paths")) text.paths.push_back(path.get<std::string>());
    text.names = text_names(text.paths);
  }
  return text;
}

ModelState state_from_json(const std::string& text, const std::string& where, const TrainConfig& training) {
  ModelState state;
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    if (!json.is_object()) throw Error("no JSON object");
    state.step = whole(json.at("step"));
    state.samples = json.contains("samples") ? whole(json.at("samples")) : samples_of(state.step, training);
    if (json.contains("loss")) {
      state.loss = finite(json.at("loss"));
      state.rule = json.contains("measured") ? std::optional(rule_from_json(json.at("measured"))) : rule_of(training);
    }
    if (json.contains("best_loss")) state.best_loss = finite(json.at("best_loss"));
    if (json.contains("best_step")) state.best_step = whole(json.at("best_step"));
    state.isa = json.at("isa").get<std::string>();
    state.text = text_from_json(json.at("text"));
  } catch (const nlohmann::json::exception&) {
    fail(where, cat("the state of a run in \"", kStateKey, "\""), "something else",
         "drop that key of the metadata to use the weights alone");
  } catch (const Error& error) { fail(where, cat("the state of a run in \"", kStateKey, "\""), error.what()); }
  return state;
}

TrainConfig read_config(const Safetensors& file) {
  try {
    const TrainConfig config = config_from_json(metadata_of(file, kConfigKey), file.where, {}, true);
    try {
      check_config(config);
    } catch (const Error& error) { throw Error(cat(file.where, ": ", error.what())); }
    return config;
  } catch (const UsageError& error) {  // a wrong file is not wrong usage of the program
    throw Error(error.what());
  }
}

std::string shape_text(std::span<const int64_t> dims) {
  std::string text = "(";
  for (size_t i = 0; i < dims.size(); ++i) text += cat(i == 0 ? "" : ", ", dims[i]);
  return text + ")";
}

// Joins names by commas, but shows only the first few.
class NameList {
 public:
  void add(std::string_view name) {
    constexpr int64_t kShown = 6;
    if (++count_ <= kShown) text_ += cat(count_ == 1 ? "" : ", ", name);
  }
  void append_to(std::string& all, std::string_view what) const {
    constexpr int64_t kShown = 6;
    if (count_ == 0) return;
    all += cat(all.empty() ? "" : "; ", what, " ", text_);
    if (count_ > kShown) all += cat(" and ", count_ - kShown, " more");
  }

 private:
  std::string text_;
  int64_t count_ = 0;
};

bool is_floating(const SafetensorsEntry& entry) {
  return entry.dtype == "F32" || entry.dtype == "F64" || entry.dtype == "F16" || entry.dtype == "BF16";
}

// Throws unless the file holds exactly the store's tensors; one error names all that differ.
void check_tensors(const Safetensors& file, const ParamStore& params) {
  NameList missing, unexpected, wrong;
  std::set<std::string_view> expected;
  for (const ParamInfo& param : params.params()) {
    expected.insert(param.name);
    const SafetensorsEntry* const entry = find_entry(file, param.name);
    const auto dims = param.value.shape.dims();
    if (entry == nullptr) {
      missing.add(param.name);
    } else if (!is_floating(*entry) ||
               !std::equal(dims.begin(), dims.end(), entry->shape.begin(), entry->shape.end())) {
      wrong.add(cat(param.name, " ", shape_text(dims), " is ", entry->dtype, " ", shape_text(entry->shape)));
    }
  }
  for (const SafetensorsEntry& entry : file.entries)
    if (!expected.contains(entry.name) && entry.name != kHead && !is_mask(entry))
      unexpected.add(printable(entry.name, 80));
  std::string all;
  missing.append_to(all, "missing");
  unexpected.append_to(all, "unexpected");
  wrong.append_to(all, "mis-shaped");
  TRIL_CHECK(all.empty(), file.where, "the tensors of the model that its configuration describes", all);
}

// If a file also holds the tied head, it must equal the embedding: to choose one of two silently would be a guess.
void check_head(const Safetensors& file, const ParamStore& params) {
  const SafetensorsEntry* const head = file.find(kHead);
  if (head == nullptr) return;
  const ParamInfo& embedding = *params.find(kHeadIs);
  const auto dims = embedding.value.shape.dims();
  bool equal = is_floating(*head) && std::equal(dims.begin(), dims.end(), head->shape.begin(), head->shape.end());
  if (equal) {
    std::vector<float> values(static_cast<size_t>(embedding.value.count()));
    load_as_f32(file, *head, values);
    equal = std::equal(values.begin(), values.end(), embedding.value.ptr<float>());
  }
  TRIL_CHECK(equal, file.where, cat(kHead, " to equal ", kHeadIs, ", which it is tied to"), "another");
}

Model lay_out(const TrainConfig& training, const Tokenizer& tokenizer, ParamStore::Fill fill) {
  Model model{.training = training,
              .tokenizer = tokenizer,
              .state = {},
              .params = std::make_unique<ParamStore>(DType::f32, static_cast<uint64_t>(training.seed)),
              .lm = nullptr,
              .as_written = true,
              .where = {},
              .warnings = {}};
  model.lm = make_language_model(*model.params, training, tokenizer.size());
  model.params->freeze(fill);
  return model;
}

void load_weights(const Safetensors& file, Model& model) {
  int64_t bad = 0;
  std::string first;
  for (const ParamInfo& param : model.params->params()) {
    float* const values = param.value.ptr<float>();
    load_as_f32(file, *find_entry(file, param.name), {values, static_cast<size_t>(param.value.count())});
    const int64_t here =
        std::count_if(values, values + param.value.count(), [](float value) { return !std::isfinite(value); });
    if (bad == 0 && here > 0) first = param.name;
    bad += here;
  }
  if (bad > 0)
    model.warnings.push_back(
        cat(file.where, ": ", bad, bad == 1 ? " weight is" : " weights are", " not finite, the first in ", first));
  check_head(file, *model.params);
}

}  // namespace

TextRules reading_rules(const Model& model, bool all_files) {
  return {
      .tokens = model.training.tokens, .all_files = all_files, .line_feed = model.tokenizer.find(U'\n').has_value()};
}

TextRules training_rules(const Model& model) { return reading_rules(model, model.state.text.all_files); }

Split training_split(const Model& model) { return {model.training.val_fraction, model.state.text.old_split}; }

Model make_model(const TrainConfig& training, const Tokenizer& tokenizer) {
  return lay_out(training, tokenizer, ParamStore::Fill::initial);
}

Model with_training(Model model, const TrainConfig& training) {
  Model made = lay_out(training, model.tokenizer, ParamStore::Fill::zero);
  TRIL_CHECK(made.params->elements() == model.params->elements(), "training", "a configuration of the same shape",
             "another shape");
  std::memcpy(made.params->data(), model.params->data(),
              static_cast<size_t>(made.params->elements() * size_of(DType::f32)));
  made.state = std::move(model.state);
  made.as_written = model.as_written;
  made.where = std::move(model.where);
  made.warnings = std::move(model.warnings);
  return made;
}

bool is_untrained(const Model& model) {
  if (!model.state.known || model.state.step > 0) return false;
  const Model initial = make_model(model.training, model.tokenizer);
  return std::memcmp(initial.params->data(), model.params->data(),
                     static_cast<size_t>(model.params->elements() * size_of(DType::f32))) == 0;
}

Model load_model(const std::string& path) {
  const std::string whole_path = model_path(path);
  expect_model_file(whole_path);
  const Safetensors file = read_safetensors(whole_path);
  const TrainConfig training = read_config(file);
  const Tokenizer tokenizer = Tokenizer::from_json(metadata_of(file, kVocabularyKey), file.where);
  {  // check before memory for a model of this size is allocated
    ParamStore expected;
    (void)make_language_model(expected, training, tokenizer.size());
    check_tensors(file, expected);
  }
  Model model = lay_out(training, tokenizer, ParamStore::Fill::zero);
  model.where = file.where;
  model.as_written = file.verified;
  load_weights(file, model);
  model.state.known = file.metadata.contains(kStateKey);
  if (model.state.known) model.state = state_from_json(file.metadata.at(kStateKey), file.where, training);
  return model;
}

void save_model(const std::string& path, const Model& model) {
  std::vector<SafetensorsTensor> tensors;
  for (const ParamInfo& param : model.params->params()) {
    const auto dims = param.value.shape.dims();
    tensors.push_back({param.name, "F32", {dims.begin(), dims.end()}, param.value.data});
  }
  std::map<std::string, std::string> metadata = {{kConfigKey, config_to_json(model.training, true)},
                                                 {kVocabularyKey, model.tokenizer.to_json()},
                                                 {kVersionKey, TRIL_VERSION},
                                                 {kHead, kHeadIs}};
  if (model.state.known) metadata.emplace(kStateKey, state_to_json(model.state));
  write_safetensors(path, tensors, std::move(metadata));
}

}  // namespace tril

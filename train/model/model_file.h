// The room train/model: a model with its configuration and vocabulary, in memory, in a file, and sampled from.

// A model in one file: a safetensors file with the weights under nanoGPT's names, the tied head stored once. Its
// metadata say, as JSON, what the weights mean: "tril.config" is the configuration (train/model/config.h),
// "tril.vocabulary" the tokens, "tril.state" how far training had come and on what text. A Model is owned by whoever
// loaded it. Any thread may read its weights; changing them is not thread-safe.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "nn/language_model.h"
#include "train/data/dataset.h"
#include "train/data/text.h"
#include "train/data/tokenizer.h"
#include "train/model/config.h"

namespace tril {

// What a validation loss depends on besides the weights and the text: only losses of one rule can be compared.
struct LossRule {
  int64_t eval_tokens = 0;  // of the validation part; 0: all
  DType precision = DType::f32;
  bool operator==(const LossRule&) const = default;
};

// How far training had come when the weights were stored.
struct ModelState {
  bool known = true;  // false: the file holds weights alone, and all below is unknown
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  int64_t step = 0;              // updates made
  int64_t samples = 0;           // samples drawn for these updates; training goes on with the next one
  double loss = kUnknown;        // of these weights on the validation part, in nats; NaN: not evaluated
  std::optional<LossRule> rule;  // how `loss` was measured; none: not known, in an older file
  double best_loss = kUnknown;   // the lowest of the run up to here
  int64_t best_step = 0;         // the step of best_loss
  TextIdentity text;
  std::string isa;  // instruction set of its matrix products
};

struct Model {
  TrainConfig training;  // the whole configuration, with the shape of `lm`
  Tokenizer tokenizer;
  ModelState state;
  std::unique_ptr<ParamStore> params;  // frozen, f32
  std::unique_ptr<LanguageModel> lm;
  bool as_written = true;  // false: the file has no checksum, so another program may have changed its weights
  std::string where;       // the file it came from, as messages name it
  std::vector<std::string> warnings;  // found while loading, worth a line of the log
};

// The rules by which files became the text that a model was trained on.
[[nodiscard]] TextRules training_rules(const Model& model);
// The rules for other texts that the model reads: they must fit its vocabulary.
[[nodiscard]] TextRules reading_rules(const Model& model, bool all_files);
// The split of the text that it was trained on.
[[nodiscard]] Split training_split(const Model& model);

// A model with initial values that depend on the configuration's seed.
[[nodiscard]] Model make_model(const TrainConfig& training, const Tokenizer& tokenizer);

// The same model, weights and state, to be trained as `training` says from here on. `training` must describe the same
// shape.
[[nodiscard]] Model with_training(Model model, const TrainConfig& training);

// `path` is a model file, or a run folder: its model.safetensors, the best of the run, else its last.safetensors.
// Everything is checked before it is used; missing, unexpected and mis-shaped tensors are named in one error.
[[nodiscard]] Model load_model(const std::string& path);
// The file that load_model would read, and the folder that it lies in.
[[nodiscard]] std::string model_path(const std::string& path);
[[nodiscard]] std::string folder_of_model(const std::string& path);
// Throws if the file's first bytes show that it is no model. The error says what it is, and what the user may have
// meant.
void expect_model_file(const std::string& path);
// The error for a safetensors file without this key.
[[noreturn]] void refuse_foreign_model(const std::string& path, std::string_view missing, bool is_optimizer);

// Whether the weights are still the initial ones. The state alone cannot tell, since other programs change weights and
// leave the state, so every weight is compared.
[[nodiscard]] bool is_untrained(const Model& model);

// Atomically: whatever happens, `path` holds the old model or the new one. Throws WriteError (train/base/files.h).
void save_model(const std::string& path, const Model& model);

}  // namespace tril

// One file is a model: a safetensors file with the weights under nanoGPT's names, the tied head stored once, and in its
// metadata, as JSON, what the weights mean: "tril.config" the configuration (train/model/config.h), "tril.vocabulary"
// the tokens, "tril.state" how far training had come and on what text. A Model is owned by whoever loaded it. Reading
// its weights is safe from any thread, changing them is not.
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
  bool known = true;  // false: the file does not tell, as one of weights alone, and the rest means nothing
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  int64_t step = 0;              // updates made,
  int64_t samples = 0;           // and samples drawn for them: where in the order of the data training goes on
  double loss = kUnknown;        // of these weights on the validation part, in nats; NaN: not evaluated
  std::optional<LossRule> rule;  // by which that was measured; none: an older file does not tell
  double best_loss = kUnknown;   // the best of the run up to here, and the step of it
  int64_t best_step = 0;
  TextIdentity text;
  std::string isa;  // instruction set of its matrix products
};

struct Model {
  TrainConfig training;  // and the model's shape, from which `lm` is made
  Tokenizer tokenizer;
  ModelState state;
  std::unique_ptr<ParamStore> params;  // frozen, f32
  std::unique_ptr<LanguageModel> lm;
  bool as_written = true;             // false: it has no checksum, as where another program has changed its weights
  std::string where;                  // the file it came from, as messages name it
  std::vector<std::string> warnings;  // found while loading, worth a line of the log
};

// By which files become the text that a model was trained on,
[[nodiscard]] TextRules training_rules(const Model& model);
// and any text for it: by its vocabulary.
[[nodiscard]] TextRules reading_rules(const Model& model, bool all_files);
// The split of the text that it was trained on.
[[nodiscard]] Split training_split(const Model& model);

// A model with initial values that depend on the configuration's seed.
[[nodiscard]] Model make_model(const TrainConfig& training, const Tokenizer& tokenizer);

// The model with its weights and state, to be trained as `training` says from here on; the model's shape is the same.
[[nodiscard]] Model with_training(Model model, const TrainConfig& training);

// `path` is a model file, or a run folder: its model.safetensors, the best of the run, else its last.safetensors.
// Everything is checked before it is believed; missing, unexpected and mis-shaped tensors are named in one error.
[[nodiscard]] Model load_model(const std::string& path);
// The file that load_model would read, and the folder that it lies in.
[[nodiscard]] std::string model_path(const std::string& path);
[[nodiscard]] std::string folder_of_model(const std::string& path);
// Throws where the file is, by its beginning, no model: what it is, and what its giver may have meant.
void expect_model_file(const std::string& path);
// The error for a safetensors file without this key.
[[noreturn]] void refuse_foreign_model(const std::string& path, std::string_view missing, bool is_optimizer);

// Whether the weights are those that training begins with: by the model's state and, since other programs change
// weights and leave the state, by each of them.
[[nodiscard]] bool is_untrained(const Model& model);

// Atomically: whatever happens, `path` holds the old model or the new one. Throws WriteError (train/base/files.h).
void save_model(const std::string& path, const Model& model);

}  // namespace tril

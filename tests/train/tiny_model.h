// A model and a text so small that tests can train it, and how what it learned is compared.
#pragma once

#include <string>
#include <vector>

#include "support/tensors.h"
#include "train/run/trainer.h"

namespace tril::test {

[[nodiscard]] inline TrainConfig tiny_config() {
  TrainConfig config;
  config.layers = 1;
  config.heads = 2;
  config.width = 8;
  config.context = 8;
  config.batch = 4;
  config.steps = 8;
  config.warmup = 2;
  config.lr = 1e-2;
  config.threads = 1;
  return config;
}

// Letters that repeat with a little disorder.
[[nodiscard]] inline std::string tiny_text(size_t size = 600) {
  std::string text;
  for (size_t i = 0; i < size; ++i) text += static_cast<char>("abcdefgh\n"[(i + i * i / 7) % 9]);
  return text;
}

[[nodiscard]] inline Text text_of(const std::string& bytes) {
  Text text;
  text.name = "tiny.txt";
  text.bytes = bytes;
  text.files = 1;
  return text;
}

// All that a step needs.
struct Tiny {
  explicit Tiny(const TrainConfig& config = tiny_config(), const std::string& text = tiny_text())
      : Tiny(make_model(config, Tokenizer::make(config.tokens, text, "tiny.txt")), text) {}
  Tiny(Model loaded, const std::string& text)
      : context({.threads = static_cast<int>(loaded.training.threads),
                 .seed = static_cast<uint64_t>(loaded.training.seed)}),
        model(std::move(loaded)),
        data(text_of(text), model.tokenizer, model.training.val_fraction, model.training.context),
        trainer(context, model, data) {}

  [[nodiscard]] std::vector<float> weights() const { return flat(model.params->data()); }
  [[nodiscard]] std::vector<float> mean() const { return flat(trainer.optimizer().state()[0].data); }
  [[nodiscard]] std::vector<float> square() const { return flat(trainer.optimizer().state()[1].data); }
  [[nodiscard]] std::vector<float> flat(const std::byte* data_) const {
    const auto* const values = reinterpret_cast<const float*>(data_);
    return {values, values + model.params->elements()};
  }

  Context context;
  Model model;
  Dataset data;
  Trainer trainer;
};

inline constexpr auto never = [] { return false; };

}  // namespace tril::test

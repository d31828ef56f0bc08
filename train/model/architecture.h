// Which model a configuration describes. Here alone the models that can be trained are named; whoever trains, evaluates
// or samples knows a LanguageModel.
#pragma once

#include <memory>

#include "nn/language_model.h"
#include "train/model/config.h"

namespace tril {

// Adds its parameters to the store. Throws, naming the field, where a model cannot be made.
[[nodiscard]] std::unique_ptr<LanguageModel> make_language_model(ParamStore& store, const TrainConfig& config,
                                                                 int64_t vocabulary);

}  // namespace tril

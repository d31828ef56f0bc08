// Makes the model that a configuration describes. Only this file and its source name the models that can be trained;
// training, evaluation and sampling know a LanguageModel.
#pragma once

#include <memory>

#include "nn/language_model.h"
#include "train/model/config.h"

namespace tril {

// Adds the model's parameters to the store. Throws, naming the field, if no model can be made.
[[nodiscard]] std::unique_ptr<LanguageModel> make_language_model(ParamStore& store, const TrainConfig& config,
                                                                 int64_t vocabulary);

}  // namespace tril

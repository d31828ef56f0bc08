// The loss on a text that is not trained on, by one rule whatever the batch size of training: the text is cut into
// windows of the context's length, and every target weighs the same (train/data/dataset.h: EvalWindows).
// Runs on the context's thread, between training steps, and changes nothing that they use.
#pragma once

#include <optional>

#include "core/machine/parallel.h"
#include "nn/language_model.h"
#include "train/data/dataset.h"

namespace tril {

// The mean loss of all targets, in nats a token; nothing if `stopped` returned true before the end. Throws if the
// windows do not have the length of the model's context.
[[nodiscard]] std::optional<double> evaluate(Context& context, const LanguageModel& model, const EvalWindows& windows,
                                             FunctionRef<bool()> stopped);

}  // namespace tril

// The room train/run: training itself: optimizer, schedule, steps, evaluation, and the run that can be resumed.

// What a run needs to go on as if it had never stopped: last.safetensors, a model like any other, and beside it the
// optimizer's state. Two files, but never a torn pair: the state is written first under a name with its step, then
// last.safetensors is renamed into place, which is the moment of the commit, and then older states go. Each state also
// knows the checksum of the weights it belongs to. For the main thread, with the folder held by a RunFolder.
#pragma once

#include <string>

#include "train/model/model_file.h"
#include "train/run/optimizer.h"

namespace tril {

// Throws WriteError: either what was there before is still whole, or the error says that all of it was committed.
void save_checkpoint(const std::string& folder, const Model& model, const AdamW& optimizer);

// The model in last.safetensors.
[[nodiscard]] Model load_checkpoint(const std::string& folder);
// The optimizer's state that belongs to it. `optimizer` is over the model's parameters.
void load_optimizer(const std::string& folder, const Model& model, AdamW& optimizer);
// Removes the optimizer's states of all steps but this one.
void remove_other_states(const std::string& folder, int64_t step);

}  // namespace tril

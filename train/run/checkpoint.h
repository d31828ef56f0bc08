// The room train/run: training itself: optimizer, schedule, steps, evaluation, and the run that can be resumed.

// What a run needs to go on as if it had never stopped: last.safetensors, a model like any other, and beside it the
// optimizer's state, with further sets of weights, such as averages, if the run keeps any. Two files, but never a torn
// pair: the state is written first under a name with its step, then last.safetensors is renamed into place, which is
// the moment of the commit, and then older states go. Each state also knows the checksum of the weights it belongs to.
// For the main thread, with the folder held by a RunFolder.
#pragma once

#include <span>
#include <string>

#include "train/model/model_file.h"
#include "train/run/optimizer.h"

namespace tril {

// `others`: sets of weights besides the model's own, by names that no optimizer uses. Throws WriteError: either what
// was there before is still whole, or the error says that all of it was committed.
void save_checkpoint(const std::string& folder, const Model& model, const Optimizer& optimizer,
                     std::span<const NamedBuffer> others = {});

// The model in last.safetensors.
[[nodiscard]] Model load_checkpoint(const std::string& folder);
// What was saved beside it: the state of `optimizer`, which is over the model's parameters, and just these other sets.
void load_optimizer(const std::string& folder, const Model& model, Optimizer& optimizer,
                    std::span<const NamedBuffer> others = {});
// Removes the optimizer's states of all steps but this one.
void remove_other_states(const std::string& folder, int64_t step);

}  // namespace tril

// A checkpoint: what a run needs to go on as if it had never stopped. It has two files: last.safetensors, a model file
// like any other, and the optimizer's state, with further sets of weights, such as averages, if the run keeps any. The
// two always match: first the state is written under a name with its step; then last.safetensors is renamed into place,
// which commits the checkpoint; then older states are removed. Each state also stores the checksum of the weights it
// belongs to. For the main thread, while a RunFolder holds the folder.
#pragma once

#include <span>
#include <string>

#include "train/model/model_file.h"
#include "train/run/optimizer.h"

namespace tril {

// `others`: sets of weights besides the model's own, under names that no optimizer uses. Throws WriteError if it fails:
// then the checkpoint before is still whole, unless committed() says that the new one is in place.
void save_checkpoint(const std::string& folder, const Model& model, const Optimizer& optimizer,
                     std::span<const NamedBuffer> others = {});

// The model in last.safetensors.
[[nodiscard]] Model load_checkpoint(const std::string& folder);
// Loads what was saved beside it: the state of `optimizer`, which must be made over the model's parameters, and the
// sets `others`. Throws unless the file belongs to these weights and holds exactly that.
void load_optimizer(const std::string& folder, const Model& model, Optimizer& optimizer,
                    std::span<const NamedBuffer> others = {});
// Removes the optimizer's states of all steps but this one.
void remove_other_states(const std::string& folder, int64_t step);

}  // namespace tril

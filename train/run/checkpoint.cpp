#include "train/run/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <vector>

#include "train/base/crc32.h"
#include "train/base/utf8.h"
#include "train/model/safetensors.h"
#include "train/run/run_folder.h"

namespace tril {
namespace {

constexpr const char *kStepKey = "tril.step", *kWeightsKey = "tril.weights", *kOptimizerKey = "tril.optimizer";
constexpr const char* kFirstOptimizer = "AdamW";  // the optimizer of older files, which do not name it

std::vector<NamedBuffer> all_buffers(const Optimizer& optimizer, std::span<const NamedBuffer> others) {
  std::vector<NamedBuffer> all(optimizer.state().begin(), optimizer.state().end());
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

void expect_optimizer(const Safetensors& file, const Optimizer& optimizer) {
  const auto found = file.metadata.find(kOptimizerKey);
  const std::string theirs = found == file.metadata.end() ? kFirstOptimizer : found->second;
  TRIL_CHECK(theirs == optimizer.name(), file.where, cat("the state of ", optimizer.name()),
             cat("that of ", printable(theirs, 60)),
             "go on with the optimizer that the run began with (--optimizer), or start a new run");
}

std::string weights_checksum(const ParamStore& params) {
  Crc32 crc;
  crc.add(params.data(), static_cast<size_t>(params.elements() * size_of(params.dtype())));
  return cat(crc.value());
}

const std::string& metadata_of(const Safetensors& file, const char* key) {
  const auto found = file.metadata.find(key);
  TRIL_CHECK(found != file.metadata.end(), file.where, cat("an optimizer's state, with \"", key, "\" in its metadata"),
             "none");
  return found->second;
}

// The entry of one parameter's part of a buffer.
const SafetensorsEntry& entry_of(const Safetensors& file, const std::string& name, const ParamInfo& param) {
  const SafetensorsEntry* const entry = file.find(name);
  TRIL_CHECK(entry != nullptr, file.where, name, "no such tensor");
  const auto dims = param.value.shape.dims();
  TRIL_CHECK(entry->dtype == "F32" && std::equal(dims.begin(), dims.end(), entry->shape.begin(), entry->shape.end()),
             file.where, cat(name, " as F32 ", param.value.shape), cat("another shape, or ", entry->dtype));
  return *entry;
}

}  // namespace

void remove_other_states(const std::string& folder, int64_t step) {
  std::vector<std::string> others;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error); !error && at != std::filesystem::directory_iterator();
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (is_optimizer_file(name) && name != optimizer_file(step)) others.push_back(at->path().string());
  }
  for (const std::string& path : others) ::unlink(path.c_str());  // one that cannot be removed does no harm
}

void save_checkpoint(const std::string& folder, const Model& model, const Optimizer& optimizer,
                     std::span<const NamedBuffer> others) {
  std::vector<SafetensorsTensor> tensors;
  for (const auto& [name, data, negative] : all_buffers(optimizer, others))
    for (const ParamInfo& param : model.params->params()) {
      const auto dims = param.value.shape.dims();
      tensors.push_back({cat(name, ".", param.name),
                         "F32",
                         {dims.begin(), dims.end()},
                         data + model.params->offset(param) * size_of(DType::f32)});
    }
  const int64_t step = optimizer.updates();
  const std::string state = folder + "/" + optimizer_file(step);
  std::error_code unknown;
  const bool is_new = !std::filesystem::exists(state, unknown);
  std::optional<WriteError> doubt;  // the new file may not survive a power failure
  const auto put_in_place = [&](auto&& write) {
    try {
      write();
    } catch (const WriteError& error) {
      if (!error.committed()) throw;
      doubt = error;
    }
  };
  put_in_place([&] {
    write_safetensors(
        state, tensors,
        {{kStepKey, cat(step)}, {kWeightsKey, weights_checksum(*model.params)}, {kOptimizerKey, optimizer.name()}});
  });
  try {
    put_in_place([&] { save_model(folder + "/" + kLastFile, model); });
  } catch (const Error&) {  // then the state belongs to no model, and takes space that the next save needs
    if (is_new) ::unlink(state.c_str());
    throw;
  }
  if (doubt) throw *doubt;  // the older state may be needed again
  remove_other_states(folder, step);
}

Model load_checkpoint(const std::string& folder) { return load_model(folder + "/" + kLastFile); }

void load_optimizer(const std::string& folder, const Model& model, Optimizer& optimizer,
                    std::span<const NamedBuffer> others) {
  const std::string path = folder + "/" + optimizer_file(model.state.step);
  TRIL_CHECK(std::filesystem::exists(path), printable(path), "the optimizer's state, which a run needs to go on",
             "no file of that name", "put it back, or start a new run");
  const Safetensors file = read_safetensors(path);
  const bool same_step = metadata_of(file, kStepKey) == cat(model.state.step);
  TRIL_CHECK(same_step && metadata_of(file, kWeightsKey) == weights_checksum(*model.params), file.where,
             cat("the optimizer's state that belongs to ", kLastFile), "that of other weights");
  expect_optimizer(file, optimizer);
  const std::vector<NamedBuffer> buffers = all_buffers(optimizer, others);
  const size_t expected = buffers.size() * model.params->params().size();
  TRIL_CHECK(file.entries.size() == expected, file.where, cat(expected, " tensors"), cat(file.entries.size()));
  for (const auto& [name, data, negative] : buffers)
    for (const ParamInfo& param : model.params->params()) {
      const std::string full_name = cat(name, ".", param.name);
      const std::span values(reinterpret_cast<float*>(data) + model.params->offset(param),
                             static_cast<size_t>(param.value.count()));
      load_as_f32(file, entry_of(file, full_name, param), values);
      const bool sound = std::all_of(values.begin(), values.end(), [may_be_negative = negative](float value) {
        return std::isfinite(value) && (may_be_negative || value >= 0);
      });
      TRIL_CHECK(sound, file.where, cat("finite values in ", full_name, negative ? "" : ", none negative"), "others");
    }
  optimizer.restore(model.state.step);
}

}  // namespace tril

// Names of the files in a run's folder (train/run/run_folder.h), by which any room recognises such a folder.
#pragma once

#include <filesystem>

namespace tril {

inline constexpr const char *kModelFile = "model.safetensors", *kLastFile = "last.safetensors",
                            *kConfigFile = "config.json", *kLogFile = "log.jsonl";

// Whether a run has saved a model there.
[[nodiscard]] inline bool is_run(const std::filesystem::path& folder) {
  std::error_code unreadable;
  return std::filesystem::exists(folder / kModelFile, unreadable) ||
         std::filesystem::exists(folder / kLastFile, unreadable);
}

}  // namespace tril

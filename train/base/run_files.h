// Names of the files in a run's folder (train/run/run_folder.h), by which any room recognises one.
#pragma once

namespace tril {

inline constexpr const char *kModelFile = "model.safetensors", *kLastFile = "last.safetensors",
                            *kConfigFile = "config.json", *kLogFile = "log.jsonl";

}  // namespace tril

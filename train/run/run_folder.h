// The folder of one training run, in which one process at a time trains. For the main thread.
//   model.safetensors              the best model so far
//   last.safetensors               the newest model
//   optimizer-<step>.safetensors   what else is needed to go on from it (train/run/checkpoint.h)
//   config.json                    the configuration (train/model/config.h)
//   log.jsonl                      what happened (train/run/events.h)
//   .text.json                     where its text lies (train/data/text_place.h)
#pragma once

#include <string>

#include "train/base/files.h"
#include "train/base/run_files.h"

namespace tril {

// Makes runs/<name>, or runs/<name>-2, -3 … where that exists.
[[nodiscard]] std::string make_run_folder(const std::string& name);

// Locks a folder for this process as long as the object lives. Temporary files of killed processes are removed.
class RunFolder {
 public:
  enum class For { fresh, resume };
  // fresh: makes the folder if it is missing, and throws if it is not empty; resume: it must hold a run.
  RunFolder(std::string path, For purpose);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }
  [[nodiscard]] bool locked() const { return lock_.held(); }
  // Whether what is at its path is still the same folder.
  [[nodiscard]] bool in_place() const;
  // Locks the folder at its path again if it is no longer locked, and makes it if it is missing. Throws if another
  // process holds it, or if another folder is there that is not empty.
  void hold();

 private:
  std::string path_;
  DirectoryLock lock_;
  uint64_t device_, inode_;  // of the folder
};

[[nodiscard]] std::string optimizer_file(int64_t step);
// Whether a name is one that optimizer_file makes.
[[nodiscard]] bool is_optimizer_file(const std::string& name);

}  // namespace tril

// The folder that one training run lives in, and that one process at a time trains in. For the main thread.
//   model.safetensors        the best model so far
//   last.safetensors         the newest, and optimizer-<step>.safetensors, what is needed besides to go on from it
//   config.json log.jsonl
//   .text.json               where its text lies (train/data/text_place.h)
#pragma once

#include <string>

#include "train/base/files.h"
#include "train/base/run_files.h"

namespace tril {

// Makes runs/<name>, or runs/<name>-2, -3 … where that exists.
[[nodiscard]] std::string make_run_folder(const std::string& name);

// A folder held by this process until the object goes. A stopped process's leftovers in it are removed.
class RunFolder {
 public:
  enum class For { fresh, resume };
  // fresh: makes the folder where it is missing, and throws where it holds anything; resume: it must hold a run.
  RunFolder(std::string path, For purpose);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }
  [[nodiscard]] bool locked() const { return lock_.held(); }
  // Whether what is at its path is still the same folder.
  [[nodiscard]] bool in_place() const;
  // Holds the folder at its path, where it does not; makes it where it is missing. Throws where another process holds
  // it, or where it is another folder and holds anything.
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

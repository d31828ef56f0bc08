#include "train/run/run_folder.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>

#include "core/base/check.h"
#include "train/base/utf8.h"
#include "train/data/text_place.h"

namespace tril {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOptimizerPrefix = "optimizer-", kOptimizerSuffix = ".safetensors";

std::string prepare(std::string path, RunFolder::For purpose) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::exists(status)) {
    const fs::path folder = fs::path(path).parent_path();
    const bool of_run = fs::exists(folder / kLastFile, error);
    TRIL_CHECK(fs::is_directory(status), printable(path),
               purpose == RunFolder::For::resume ? "a run folder" : "a folder", "a file",
               of_run ? cat("give the folder that it lies in: ", printable(folder.string())) : "");
  } else if (purpose == RunFolder::For::resume) {
    fail(printable(path), "a run folder", fs::status_known(status) ? "none of that name" : error.message());
  } else {
    fs::create_directories(path, error);
    TRIL_CHECK(!error, printable(path), "a folder that can be made", error.message());
  }
  check_writable(path);
  return path;
}

// The first entry found in a folder, apart from those that a run leaves if it ends before its first checkpoint.
std::string first_content(const std::string& path) {
  std::error_code error;
  for (fs::directory_iterator at(path, error); !error && at != fs::directory_iterator(); at.increment(error)) {
    const std::string name = at->path().filename().string();
    const bool empty_log = name == kLogFile && at->is_regular_file(error) && at->file_size(error) == 0;
    if (name != ".lock" && name != kTextFile && !empty_log && !is_optimizer_file(name)) return name;
  }
  TRIL_CHECK(!error, printable(path), "a folder that can be read", error.message());
  return {};
}

// Device and inode number of the file at a path; 0 and 0 if there is none.
std::pair<uint64_t, uint64_t> identity(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return {0, 0};
  return {status.st_dev, status.st_ino};
}

}  // namespace

std::string optimizer_file(int64_t step) { return cat(kOptimizerPrefix, step, kOptimizerSuffix); }

bool is_optimizer_file(const std::string& name) {
  if (!name.starts_with(kOptimizerPrefix) || !name.ends_with(kOptimizerSuffix)) return false;
  if (name.size() <= kOptimizerPrefix.size() + kOptimizerSuffix.size()) return false;
  return std::all_of(name.begin() + kOptimizerPrefix.size(), name.end() - kOptimizerSuffix.size(),
                     [](char c) { return c >= '0' && c <= '9'; });
}

std::string make_run_folder(const std::string& name) {
  std::error_code error;
  fs::create_directories("runs", error);
  TRIL_CHECK(!error, "runs", "a folder for runs here", error.message(), "choose another with --out");
  constexpr int kMost = 100'000;
  for (int i = 1; i <= kMost; ++i) {
    const std::string path = i == 1 ? cat("runs/", name) : cat("runs/", name, "-", i);
    if (::mkdir(path.c_str(), 0777) == 0) return path;
    TRIL_CHECK(errno == EEXIST, printable(path), "a folder that can be made", std::generic_category().message(errno),
               "choose another with --out");
  }
  fail("runs", cat("a free name like runs/", name), cat(kMost, " taken ones"), "choose another with --out");
}

// On some network file systems a folder's inode number may change, but that of an open file does not.
bool RunFolder::in_place() const { return lock_.in_place() || identity(path_) == std::pair(device_, inode_); }

void RunFolder::hold() {
  const bool same = in_place();
  if (same && lock_.in_place()) return;
  std::error_code error;
  fs::create_directories(path_, error);
  TRIL_CHECK(!error, printable(path_), "a folder that can be made", error.message());
  DirectoryLock lock(path_);
  const std::string content = same ? std::string() : first_content(path_);
  TRIL_CHECK(content.empty(), printable(path_), "the run's folder", cat("another, with ", printable(content), " in it"),
             "move it away");
  lock_ = std::move(lock);
  std::tie(device_, inode_) = identity(path_);
}

RunFolder::RunFolder(std::string path, For purpose) : path_(prepare(std::move(path), purpose)), lock_(path_) {
  std::tie(device_, inode_) = identity(path_);
  remove_stale_temporaries(path_);
  if (purpose == For::resume) {
    const bool begun = fs::exists(file(kLogFile)), saved = fs::exists(file(kModelFile));
    TRIL_CHECK(fs::exists(file(kLastFile)), printable(path_), cat("a run to resume, with ", kLastFile), "none",
               saved ? cat("it is gone; ", kModelFile, " can still be sampled from, and a new run needs another folder")
               : begun ? cat("nothing was saved yet; start it anew: tril train … --out ", printable(path_))
                       : "give the folder of a run");
    return;
  }
  const std::string content = first_content(path_);
  const bool is_run = content == kLastFile || fs::exists(file(kLastFile));
  TRIL_CHECK(content.empty(), printable(path_), "a new or empty folder",
             is_run ? "one with a run in it" : cat("one with ", printable(content), " in it"),
             is_run ? cat("go on with it by --resume ", printable(path_), ", or choose another") : "choose another");
}

}  // namespace tril

// Finds the file of a model, and the advice for a user who named something else.
#include <algorithm>
#include <filesystem>
#include <vector>

#include "train/base/file_kind.h"
#include "train/base/run_files.h"
#include "train/base/utf8.h"
#include "train/model/model_file.h"

namespace tril {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWanted = "a run folder or a model file";

[[noreturn]] void refuse_folder(const std::string& path) {
  std::vector<std::string> runs;
  std::error_code error;
  bool begun = false;  // a run that has saved nothing yet
  for (fs::directory_iterator at(path, error); !error && at != fs::directory_iterator(); at.increment(error)) {
    if (is_run(at->path())) runs.push_back(at->path().lexically_normal().string());
    begun = begun || at->path().filename() == kLogFile;
  }
  std::sort(runs.begin(), runs.end());
  std::string mend = begun ? "a run saves at its first evaluation" : "tril train makes one";
  if (!runs.empty())
    mend = cat("give ", runs.size() > 1 ? cat("one of the ", runs.size(), " runs") : "the run", " in it, such as ",
               printable(runs.front()));
  if (error) mend = error.message();
  fail(printable(path), cat("a run folder, with ", kModelFile, " or ", kLastFile), "a folder without them", mend);
}

// The advice for a user who gave such a file.
std::string mend_for(const fs::path& path, FileKind kind) {
  const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
  if (is_run(folder)) return cat("give its run: ", printable(folder));
  switch (kind) {
    case FileKind::kText: return cat("to train on it: tril train ", printable(path.string()));
    case FileKind::kPyTorch: return "save its weights by safetensors, under the names and with the metadata of a model";
    case FileKind::kSafetensors:
    case FileKind::kOtherModel: return "tril reads the models that it has made, and safetensors with their metadata";
    default: return "tril train makes a model";
  }
}

}  // namespace

std::string model_path(const std::string& path) {
  std::error_code unreadable;
  const fs::file_status status = fs::symlink_status(path, unreadable);
  TRIL_CHECK(status.type() != fs::file_type::not_found || path.empty(), printable(path), kWanted, "none of that name",
             "tril train makes one");
  if (!fs::is_directory(path, unreadable)) return path;
  for (const char* name : {kModelFile, kLastFile})
    if (const std::string file = cat(path, "/", name); fs::exists(file, unreadable)) return file;
  refuse_folder(path);
}

void expect_model_file(const std::string& path) {
  const KnownFile file = read_kind(path);
  if (file.kind != FileKind::kSafetensors) fail(printable(path), kWanted, file.what, mend_for(path, file.kind));
}

void refuse_foreign_model(const std::string& path, std::string_view missing, bool is_optimizer) {
  if (is_optimizer)
    fail(printable(path), kWanted, "the state of a run's optimizer", mend_for(path, FileKind::kSafetensors));
  fail(printable(path), cat("a model of tril, with \"", missing, "\" in its metadata"), "a safetensors file without it",
       "what saves a model of tril again has to give its metadata back");
}

std::string folder_of_model(const std::string& path) {
  const std::string folder = fs::path(model_path(path)).parent_path().string();
  return folder.empty() ? "." : folder;
}

}  // namespace tril

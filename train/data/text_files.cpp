#include "train/data/text_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "core/base/check.h"
#include "train/base/file_kind.h"
#include "train/base/files.h"
#include "train/base/run_files.h"
#include "train/base/utf8.h"

namespace tril {
namespace {

namespace fs = std::filesystem;

bool is_hidden(const fs::path& path) { return path.filename().native().starts_with('.'); }

// Controls that no text contains in any encoding: C0 except line and page ends, tab, backspace and escape.
bool is_odd_control(uint32_t unit) {
  constexpr uint32_t kBackspace = 8, kCarriageReturn = 13, kEscape = 27;
  return unit < ' ' && (unit < kBackspace || unit > kCarriageReturn) && unit != kEscape;
}

bool is_utf16_text(std::string_view bytes) {
  const bool little = bytes.starts_with("\xFF\xFE");
  if ((!little && !bytes.starts_with("\xFE\xFF")) || bytes.size() % 2 != 0) return false;
  bool has_ascii = false;
  for (size_t at = 2; at < bytes.size(); at += 2) {
    const auto first = static_cast<unsigned char>(bytes[at]), second = static_cast<unsigned char>(bytes[at + 1]);
    const uint32_t unit = little ? first | uint32_t{second} << 8 : second | uint32_t{first} << 8;
    if (is_odd_control(unit)) return false;
    has_ascii |= unit < 0x80;
  }
  return has_ascii;
}

// Looks at the beginning only, so that a binary file need not fit into memory.
bool begins_as_binary(const std::string& path) {
  constexpr int64_t kLooked = 8192;
  InputFile file(path);
  std::string begin(static_cast<size_t>(std::min(file.size(), kLooked)), '\0');
  file.read(begin.data(), static_cast<int64_t>(begin.size()));
  return begin.find('\0') != std::string::npos && !is_utf16_text(begin);
}

class Finder {
 public:
  explicit Finder(const WhichFiles& which) : which_(which) {}

  void add_named(const std::string& path) {
    const std::string* const before = path == "-" ? nullptr : seen_before(path);
    if (before == nullptr)
      found_.files.push_back({path, true});
    else
      found_.warnings.push_back(cat(printable(path), ": counted once, as it is the same file as ", printable(*before),
                                    "; --all-files counts it again"));
  }

  void add_folder(const std::string& folder) {
    std::vector<std::string> below = files_below(folder);
    int64_t again = 0;
    for (std::string& path : below) {
      if (seen_before(path) != nullptr)
        ++again;
      else if (!which_.no_text && begins_as_binary(path))
        found_.no_text.push_back(std::move(path));
      else
        found_.files.push_back({std::move(path), false});
    }
    note(folder, again,
         again == 1 ? "left out, as it is the same file as another (a link, or named before)"
                    : "left out, as they are the same files as others (links, or named before)");
  }

  [[nodiscard]] TextFiles take() { return std::move(found_); }

 private:
  // The path under which this file was found before, or null. A file that cannot be looked at fails when it is read.
  const std::string* seen_before(const std::string& path) {
    struct stat status {};
    if (which_.repeated || ::stat(path.c_str(), &status) != 0) return nullptr;
    const auto [at, is_new] = seen_.try_emplace({status.st_dev, status.st_ino}, path);
    return is_new ? nullptr : &at->second;
  }

  void note(const std::string& folder, int64_t count, std::string_view what) {
    if (count > 0) found_.notes.push_back(cat(printable(folder), ": ", count, " ", what));
  }

  std::vector<std::string> files_below(const std::string& folder) {
    std::error_code error;
    const bool resumable = fs::exists(fs::path(folder) / kLastFile, error);
    TRIL_CHECK(!is_run(folder), printable(folder), "a folder of texts",
               resumable ? "a run's folder" : cat("one with ", kModelFile, " in it"),
               resumable ? cat("to go on with the run: tril train --resume ", printable(folder))
                         : "move the model elsewhere, or name the texts");
    std::vector<std::string> below;
    int64_t others = 0, hidden = 0, runs = 0;
    fs::recursive_directory_iterator at(folder, error);
    std::string current = folder;
    for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
      current = at->path().native();
      std::error_code unreadable;
      const fs::file_status status = at->status(unreadable);
      if (is_hidden(at->path())) {
        ++hidden;
        if (at->is_directory(unreadable)) at.disable_recursion_pending();
      } else if (fs::is_directory(status) && is_run(at->path())) {  // else a run here would change its own text
        ++runs;
        at.disable_recursion_pending();
      } else if (fs::is_regular_file(status)) {
        below.push_back(current);
      } else if (!fs::is_directory(status) || at->is_symlink(unreadable)) {
        ++others;
      }
    }
    TRIL_CHECK(!error, printable(folder), "a folder that can be read",
               cat(error.message(), " at ", printable(current)));
    TRIL_CHECK(!below.empty(), printable(folder), "a folder with text files", "one with none",
               hidden > 0 ? "hidden files are left out" : "");
    note(folder, hidden, "hidden left out");
    note(folder, runs, runs == 1 ? "run left out" : "runs left out");
    note(folder, others, "left out that are no regular files (links to folders, pipes, devices)");
    std::sort(below.begin(), below.end());
    return below;
  }

  WhichFiles which_;
  TextFiles found_;
  std::map<std::pair<dev_t, ino_t>, std::string> seen_;
};

}  // namespace

TextFiles find_text_files(std::span<const std::string> paths, const WhichFiles& which) {
  Finder finder(which);
  for (const std::string& path : paths) {
    std::error_code unreadable;
    if (path != "-" && fs::is_directory(path, unreadable))
      finder.add_folder(path);
    else
      finder.add_named(path);
  }
  return finder.take();
}

bool is_binary(std::string_view bytes) {
  if (is_utf16_text(bytes)) return false;
  if (bytes.find('\0') != std::string_view::npos) return true;
  const auto odd = [](char c) { return is_odd_control(static_cast<unsigned char>(c)); };
  const FileKind kind = kind_of(bytes.substr(0, static_cast<size_t>(kTellingBytes))).kind;
  const bool known = kind != FileKind::kText && kind != FileKind::kUnknown && kind != FileKind::kEmpty;
  return (known || std::any_of(bytes.begin(), bytes.end(), odd)) && !is_utf8(bytes);
}

}  // namespace tril

// Which files a text is made of: those that the user names, and those in the folders among them.
// Pure functions, callable from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tril {

struct TextFile {
  std::string path;  // "-": standard input
  bool named;        // by the user, not found in a folder
};

struct TextFiles {
  std::vector<TextFile> files;        // in their order, each once
  std::vector<std::string> notes;     // on what was left out of folders
  std::vector<std::string> warnings;  // on what the user named and is left out
  std::vector<std::string> no_text;   // binary files in folders, left out
};

struct WhichFiles {
  bool repeated = false;  // read a file as often as it is named, found or linked to
  bool no_text = false;   // take binary files from folders, too
};

// A folder stands for the regular files below it, by rising path; hidden files and folders, runs, pipes and devices are
// left out, and links to folders are not followed. A file that several names or links lead to counts once, at the first
// of them.
[[nodiscard]] TextFiles find_text_files(std::span<const std::string> paths, const WhichFiles& which);

// Whether bytes are not text: they hold a NUL, or they are not UTF-8 and either hold control characters that text never
// contains or begin like a known kind of file. Texts in other encodings do not count as binary, nor does UTF-16 with
// its byte order mark, so that the user can be asked for them as UTF-8.
[[nodiscard]] bool is_binary(std::string_view bytes);

}  // namespace tril

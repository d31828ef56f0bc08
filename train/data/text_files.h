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
  std::vector<std::string> warnings;  // on what the user named in vain
  std::vector<std::string> no_text;   // files of folders that begin as no text does, left out
};

struct WhichFiles {
  bool repeated = false;  // a file counts as often as it is named, found or linked to
  bool no_text = false;   // what is_binary is taken from folders, too
};

// A folder stands for the regular files below it, by rising path; hidden files and folders, runs, pipes and devices are
// left out, and links to folders are not followed. A file counts once, at the first place that it is named or found at,
// by whatever links.
[[nodiscard]] TextFiles find_text_files(std::span<const std::string> paths, const WhichFiles& which);

// Whether bytes are no text: they hold a NUL, or are no UTF-8 and hold control characters that no text has or begin as
// a known kind of file does. Texts in other encodings are text by this, UTF-16 with its mark too, so that they can be
// asked for as UTF-8.
[[nodiscard]] bool is_binary(std::string_view bytes);

}  // namespace tril

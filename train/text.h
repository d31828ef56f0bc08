// Texts as they come from the user: files, folders and standard input become one string.
// A Text belongs to the caller; any thread may call.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "train/tokenizer.h"

namespace tril {

struct LineEnds {
  int64_t lf = 0;    // alone: Unix
  int64_t crlf = 0;  // Windows
  int64_t cr = 0;    // alone: old Mac
};

[[nodiscard]] LineEnds count_line_ends(std::string_view text);

struct Text {
  std::string name;   // for messages: the one path, or "a.txt and 2 more"
  std::string bytes;  // valid UTF-8 where tokens are characters
  int64_t files = 0;
  LineEnds line_ends;
  std::vector<std::string> notes;     // done to the text or noticed in it, worth a line of the log
  std::vector<std::string> warnings;  // likely not what the user meant
};

// Joins the texts at `paths` in their order. A folder stands for all regular files below it, by rising path; hidden
// files and folders are left out, as are pipes and devices, and links to folders are not followed. "-" is standard
// input. Between two files comes a new line where the first does not end in one.
// With characters as tokens, each file must be UTF-8 and loses the byte order mark at its start; bytes stay as they
// are. A file named by the user that is empty is an error, an empty one in a folder a note. Line ends are never
// changed. Takes no more memory than the texts (standard input: twice, while it grows).
[[nodiscard]] Text load_texts(std::span<const std::string> paths, TokenKind tokens);

}  // namespace tril

// Texts as they come from the user: files, folders and standard input become one string.
// A Text belongs to the caller; any thread may call.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "train/data/tokenizer.h"

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
  LineEnds line_ends;                 // of the files
  std::vector<std::string> notes;     // on what was done to the text or noticed in it, for the log
  std::vector<std::string> warnings;  // likely not what the user meant
};

// How files become one text.
struct TextRules {
  TokenKind tokens = TokenKind::kChar;
  // Reads a file as often as it is named, found or linked to, and takes files from folders that are not text, too.
  bool all_files = false;
  // Whether the model's vocabulary has the line feed. Not set: there is no vocabulary yet, and it will have the line
  // feed if the text has it.
  std::optional<bool> line_feed{};
};

// The text a model was trained on, to find and recognise it again.
struct TextIdentity {
  std::vector<std::string> names;  // without folders; "-" is standard input; none: the built-in corpus
  // Absolute. They are not written to the model's file, which is for sharing, but are read from files of older
  // versions.
  std::vector<std::string> paths;
  int64_t bytes = 0;
  uint32_t crc32 = 0;
  // A file of an older version that does not store these two means true.
  bool all_files = false;  // how its files were taken (TextRules)
  bool old_split = false;  // how it was split (train/data/dataset.h: Split)
};

// Joins the texts at `paths` in their order. A folder stands for the files below it (train/data/text_files.h); "-" is
// standard input. Each file is read once. A line feed is put between two files if the first does not end with a line
// end and the vocabulary has the line feed (that of bytes always does). So no character gets into the vocabulary that
// is in no file, and none is added that the vocabulary lacks.
// With characters as tokens, each file must be UTF-8 and loses the byte order mark at its start, and files in folders
// that are not text are left out; as bytes, everything is taken as it is. A file named by the user that is empty or not
// text is an error; one in a folder gets a note. Line ends are never changed. Takes no more memory than the texts
// (standard input: twice, while it grows).
[[nodiscard]] Text load_texts(std::span<const std::string> paths, const TextRules& rules);

}  // namespace tril

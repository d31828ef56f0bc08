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
  LineEnds line_ends;                 // that the files have
  std::vector<std::string> notes;     // done to the text or noticed in it, worth a line of the log
  std::vector<std::string> warnings;  // likely not what the user meant
};

// How files become one text.
struct TextRules {
  TokenKind tokens = TokenKind::kChar;
  // Every file as often as it is named, found or linked to, and of folders those too that are no text.
  bool all_files = false;
  // Whether the vocabulary has the line feed, where there is a vocabulary; else it has it if the text does.
  std::optional<bool> line_feed{};
};

// The text a model was trained on, to find and recognise it again.
struct TextIdentity {
  std::vector<std::string> names;  // without folders; "-" is standard input; none: the built-in corpus
  // Absolute. Not in the model's file, which is for sharing; of files that older versions wrote they are read.
  std::vector<std::string> paths;
  int64_t bytes = 0;
  uint32_t crc32 = 0;
  bool all_files = false;  // how its files were taken (TextRules),
  bool old_split = false;  // and how it was split (train/data/dataset.h: Split); older versions did both the old way
};

// Joins the texts at `paths` in their order. A folder stands for the files below it (train/data/text_files.h); "-" is
// standard input. A file counts once. Between two files comes a line feed where the first does not end in a line's end
// and the vocabulary has the line feed, as that of bytes does; else nothing comes between them. So no character enters
// a vocabulary that is in no file, and none comes that a vocabulary lacks.
// With characters as tokens, each file must be UTF-8 and loses the byte order mark at its start, and what is no text is
// left out of folders; bytes are all taken as they are. A file named by the user that is empty or no text is an error,
// one in a folder a note. Line ends are never changed. Takes no more memory than the texts (standard input: twice,
// while it grows).
[[nodiscard]] Text load_texts(std::span<const std::string> paths, const TextRules& rules);

}  // namespace tril

#include "train/text.h"

#include <algorithm>
#include <filesystem>
#include <new>
#include <system_error>

#include "core/check.h"
#include "train/file_kind.h"
#include "train/files.h"
#include "train/run_folder.h"
#include "train/utf8.h"

namespace tril {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

struct Source {
  std::string path;
  bool named;  // by the user, not found in a folder
};

bool is_hidden(const fs::path& path) { return path.filename().native().starts_with('.'); }

// What a run leaves is no text: without this a run inside the folder that it trains on would change its own text.
bool is_run(const fs::path& folder) {
  std::error_code unreadable;
  return fs::exists(folder / kLastFile, unreadable) || fs::exists(folder / kModelFile, unreadable);
}

void list_folder(const std::string& folder, std::vector<Source>& sources, Text& text) {
  TRIL_CHECK(!is_run(folder), printable(folder), "a folder of texts", "a run's folder",
             cat("to go on with the run: tril train --resume ", printable(folder)));
  std::error_code error;
  std::vector<std::string> found;
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
    } else if (fs::is_directory(status) && is_run(at->path())) {
      ++runs;
      at.disable_recursion_pending();
    } else if (fs::is_regular_file(status)) {
      found.push_back(current);
    } else if (!fs::is_directory(status) || at->is_symlink(unreadable)) {
      ++others;
    }
  }
  TRIL_CHECK(!error, printable(folder), "a folder that can be read", cat(error.message(), " at ", printable(current)));
  TRIL_CHECK(!found.empty(), printable(folder), "a folder with text files", "one with none",
             hidden > 0 ? "hidden files are left out" : "");
  if (hidden > 0) text.notes.push_back(cat(printable(folder), ": ", hidden, " hidden left out"));
  if (runs > 0) text.notes.push_back(cat(printable(folder), ": ", runs, runs == 1 ? " run" : " runs", " left out"));
  if (others > 0) {
    text.notes.push_back(cat(printable(folder), ": ", others,
                             " left out that are no regular files (links to folders, "
                             "pipes, devices)"));
  }
  std::sort(found.begin(), found.end());
  for (std::string& path : found) sources.push_back({std::move(path), false});
}

// Makes room for all at once, so that joining never copies.
void reserve(const std::vector<Source>& sources, Text& text) {
  const auto limit = static_cast<uintmax_t>(usable_memory());
  uintmax_t total = sources.size();
  for (const Source& source : sources) {
    std::error_code unknown;  // the reader will tell
    const uintmax_t size = source.path == "-" ? 0 : fs::file_size(source.path, unknown);
    if (unknown) continue;
    TRIL_CHECK(size <= limit && total + size <= limit, text.name,
               cat("texts of at most ", limit, " bytes, which is all the memory there is"), "more");
    total += size;
  }
  try {
    text.bytes.reserve(static_cast<size_t>(total));
  } catch (const std::bad_alloc&) {
    fail(text.name, "enough memory to read it", cat("too little for ", total, " bytes"));
  }
}

void append_source(const Source& source, TokenKind tokens, Text& text) {
  const bool is_input = source.path == "-" && source.named;
  const std::string where = is_input ? "standard input" : printable(source.path);
  std::string& all = text.bytes;
  const size_t before = all.size();
  if (!all.empty() && all.back() != '\n' && all.back() != '\r') all += '\n';
  const size_t begin = all.size();
  if (is_input && all.empty()) {
    all = read_standard_input();
  } else if (is_input) {
    all += read_standard_input();
  } else {
    InputFile(source.path).read_rest(all, kNoLimit);
  }
  const bool marked = tokens == TokenKind::kChar && std::string_view(all).substr(begin).starts_with(kByteOrderMark);
  if (tokens == TokenKind::kChar) check_text(std::string_view(all).substr(begin), where);
  if (marked) {
    all.erase(begin, kByteOrderMark.size());
    text.notes.push_back(cat(where, ": a byte order mark at the start was left out"));
  }
  if (all.size() == begin) {
    TRIL_CHECK(!source.named, where, "a text", marked ? "an empty file (only a byte order mark)" : "an empty file");
    text.notes.push_back(cat(where, ": empty"));
    all.resize(before);
    return;
  }
  const LineEnds ends = count_line_ends(std::string_view(all).substr(begin));
  text.line_ends.lf += ends.lf;
  text.line_ends.crlf += ends.crlf;
  text.line_ends.cr += ends.cr;
  ++text.files;
}

void report_line_ends(Text& text) {
  const auto [lf, crlf, cr] = text.line_ends;
  const std::string counts = cat(cr, " CR alone, ", crlf, " CRLF, ", lf, " LF");
  if (cr > 0) {
    text.warnings.push_back(cat(text.name, ": line ends are ", counts,
                                "; a CR alone ends no line here but is learned as a character; to change them: "
                                "tr '\\r' '\\n'"));
  } else if (crlf > 0) {
    text.notes.push_back(cat(text.name, ": line ends are ", counts,
                             "; each CR is learned as a character; to take them out: tr -d '\\r'"));
  }
}

}  // namespace

LineEnds count_line_ends(std::string_view text) {
  LineEnds ends{std::count(text.begin(), text.end(), '\n'), 0, 0};
  for (size_t at = text.find('\r'); at != std::string_view::npos; at = text.find('\r', at + 1)) {
    const bool pair = at + 1 < text.size() && text[at + 1] == '\n';
    ends.lf -= pair ? 1 : 0;
    ends.crlf += pair ? 1 : 0;
    ends.cr += pair ? 0 : 1;
  }
  return ends;
}

Text load_texts(std::span<const std::string> paths, TokenKind tokens) {
  TRIL_CHECK(!paths.empty(), "texts", "at least one file, folder or -", "none");
  Text text;
  text.name = paths[0] == "-" ? "standard input" : printable(paths[0]);
  if (paths.size() > 1) text.name += cat(" and ", paths.size() - 1, " more");
  TRIL_CHECK(std::count(paths.begin(), paths.end(), "-") <= 1, "texts", "standard input (-) once", "it twice");

  std::vector<Source> sources;
  for (const std::string& path : paths) {
    std::error_code unreadable;
    if (path != "-" && fs::is_directory(path, unreadable)) {
      list_folder(path, sources, text);
    } else {
      sources.push_back({path, true});
    }
  }
  reserve(sources, text);
  for (const Source& source : sources) append_source(source, tokens, text);
  TRIL_CHECK(!text.bytes.empty(), text.name, "a text", "only empty files");
  report_line_ends(text);
  return text;
}

}  // namespace tril

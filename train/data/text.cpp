#include "train/data/text.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <new>
#include <system_error>
#include <utility>

#include "core/base/check.h"
#include "train/base/file_kind.h"
#include "train/base/files.h"
#include "train/base/utf8.h"
#include "train/data/text_files.h"

namespace tril {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Reserves memory for all texts at once, so that joining them never copies.
void reserve(const std::vector<TextFile>& sources, Text& text) {
  const auto limit = static_cast<uintmax_t>(usable_memory());
  uintmax_t total = sources.size();
  for (const TextFile& source : sources) {
    std::error_code unknown;  // reading the file will report the error
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

// Puts a line feed at each of these offsets, which rise.
void insert_line_feeds(const std::vector<size_t>& offsets, std::string& all) {
  size_t from = all.size();
  all.resize(from + offsets.size());
  size_t to = all.size();
  for (auto offset = offsets.rbegin(); offset != offsets.rend(); ++offset) {
    to -= from - *offset;
    std::memmove(all.data() + to, all.data() + *offset, from - *offset);
    from = *offset;
    all[--to] = '\n';
  }
}

class Joiner {
 public:
  Joiner(const TextRules& rules, TextFiles found, Text& text) : rules_(rules), found_(std::move(found)), text_(text) {}

  void join() {
    reserve(found_.files, text_);
    for (const TextFile& file : found_.files) append(file);
    note_no_text();
    TRIL_CHECK(!text_.bytes.empty(), text_.name, "a text",
               found_.no_text.empty() ? "only empty files" : "only files that are no text",
               found_.no_text.empty() ? "" : "--tokens byte takes any bytes");
    separate();
  }

 private:
  void append(const TextFile& file) {
    const bool is_input = file.path == "-" && file.named;
    const std::string where = is_input ? "standard input" : printable(file.path);
    std::string& all = text_.bytes;
    const size_t begin = all.size();
    if (is_input && all.empty()) {
      all = read_standard_input();
    } else if (is_input) {
      all += read_standard_input();
    } else {
      InputFile(file.path).read_rest(all, kNoLimit);
    }
    const auto added = [&] { return std::string_view(all).substr(begin); };
    const bool chars = rules_.tokens == TokenKind::kChar;
    if (chars && !file.named && !rules_.all_files && is_binary(added())) {
      found_.no_text.push_back(file.path);
      all.resize(begin);
      return;
    }
    const bool marked = chars && added().starts_with(kByteOrderMark);
    if (chars) check_text(added(), where);
    if (marked) {
      all.erase(begin, kByteOrderMark.size());
      text_.notes.push_back(cat(where, ": a byte order mark at the start was left out"));
    }
    if (added().empty()) {
      TRIL_CHECK(!file.named, where, "a text", marked ? "an empty file (only a byte order mark)" : "an empty file");
      text_.notes.push_back(cat(where, ": empty"));
      return;
    }
    if (begin > 0 && all[begin - 1] != '\n' && all[begin - 1] != '\r') open_ends_.push_back(begin);
    const LineEnds ends = count_line_ends(added());
    text_.line_ends.lf += ends.lf;
    text_.line_ends.crlf += ends.crlf;
    text_.line_ends.cr += ends.cr;
    ++text_.files;
  }

  void note_no_text() {
    const size_t count = found_.no_text.size();
    if (count == 0) return;
    const std::string first = printable(found_.no_text.front());
    text_.notes.push_back(
        count == 1 ? cat(first, ": left out, as it is no text; --all-files insists on it")
                   : cat(count, " files left out that are no text, such as ", first, "; --all-files insists on them"));
  }

  void separate() {
    if (open_ends_.empty()) return;
    const bool own = rules_.tokens == TokenKind::kByte || text_.line_ends.lf + text_.line_ends.crlf > 0;
    const bool line_feed = rules_.line_feed.value_or(own);
    if (line_feed) insert_line_feeds(open_ends_, text_.bytes);
    const size_t count = open_ends_.size();
    text_.notes.push_back(
        cat(text_.name, ": ", count, count == 1 ? " file does" : " files do", " not end in a new line and ",
            count == 1 ? "is" : "are", " followed by another; ",
            line_feed ? "a line feed was put between" : "nothing was put between, as the vocabulary has no line feed"));
  }

  const TextRules& rules_;
  TextFiles found_;
  Text& text_;
  std::vector<size_t> open_ends_;  // offsets where a file begins while the one before has not ended its line
};

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

Text load_texts(std::span<const std::string> paths, const TextRules& rules) {
  TRIL_CHECK(!paths.empty(), "texts", "at least one file, folder or -", "none");
  Text text;
  text.name = paths[0] == "-" ? "standard input" : printable(paths[0]);
  TRIL_CHECK(std::count(paths.begin(), paths.end(), "-") <= 1, "texts", "standard input (-) once", "it twice");
  TextFiles found = find_text_files(
      paths, {.repeated = rules.all_files, .no_text = rules.all_files || rules.tokens == TokenKind::kByte});
  const size_t named = paths.size() - found.warnings.size();  // without those that were left out
  if (named > 1) text.name += cat(" and ", named - 1, " more");
  text.notes = std::move(found.notes);
  text.warnings = std::move(found.warnings);
  Joiner(rules, std::move(found), text).join();
  report_line_ends(text);
  return text;
}

}  // namespace tril

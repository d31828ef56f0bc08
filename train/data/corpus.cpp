#include "train/data/corpus.h"

#include <algorithm>
#include <filesystem>

#include "core/base/check.h"
#include "train/base/utf8.h"
#include "train/data/text_place.h"

namespace tril {
namespace {

std::string absolute(const std::string& path) {
  if (path == "-") return path;
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(path, error);
  return error ? path : whole.lexically_normal().string();
}

}  // namespace

Corpus load_corpus(const std::vector<std::string>& paths, const TextRules& rules) {
  Corpus corpus;
  if (paths.empty()) {
    corpus.stories = builtin_corpus();
    corpus.text.name = "the built-in stories";
    corpus.text.bytes = corpus.stories->text;
    corpus.text.files = 1;
    return corpus;
  }
  corpus.text = load_texts(paths, rules);
  corpus.all_files = rules.all_files;
  std::transform(paths.begin(), paths.end(), std::back_inserter(corpus.paths), absolute);
  return corpus;
}

std::vector<std::string> known_paths(const TextIdentity& identity, const std::string& folder) {
  if (identity.names.empty()) return {};  // the built-in stories
  return stored_text_paths(folder).value_or(identity.paths);
}

Corpus find_corpus(const TextIdentity& identity, const TextRules& rules, const std::string& folder,
                   std::string_view give_again) {
  const std::vector<std::string> paths = known_paths(identity, folder);
  const auto is_input = [](const std::string& path) { return path == "-"; };
  const auto& known = paths.empty() ? identity.names : paths;
  TRIL_CHECK(std::none_of(known.begin(), known.end(), is_input), "text", "the text that the model was trained on",
             "standard input, which is over",
             cat("give it again: ", give_again, ", where TEXT is a file or, with - in its place, standard input"));
  TRIL_CHECK(paths.size() == known.size(), printable(known.front()), "the text that the model was trained on",
             "its name alone", cat("give its place: ", give_again));
  for (const std::string& path : paths) {
    std::error_code error;
    TRIL_CHECK(std::filesystem::exists(path, error), printable(path), "the text that the model was trained on",
               "none of that name", cat("give its new place: ", give_again));
  }
  return load_corpus(paths, rules);
}

TextIdentity identity_of(const Corpus& corpus, const Dataset& data, const Split& split) {
  return {.names = text_names(corpus.paths),
          .paths = corpus.paths,
          .bytes = data.text_bytes(),
          .crc32 = data.text_crc32(),
          .all_files = corpus.all_files,
          .old_split = split.old};
}

void expect_same_text(const TextIdentity& identity, const Dataset& data, const std::string& name) {
  TRIL_CHECK(data.text_bytes() == identity.bytes, name,
             cat("the text that the model was trained on, of ", identity.bytes, " bytes"),
             cat(data.text_bytes(), " bytes"), "give that text behind the run");
  TRIL_CHECK(data.text_crc32() == identity.crc32, name, "the text that the model was trained on",
             "another of the same length", "give that text behind the run");
}

std::optional<double> best_possible_loss(const std::optional<BuiltinCorpus>& stories, const Dataset& data,
                                         int64_t context, int64_t limit) {
  if (!stories || data.val_size() < 2) return std::nullopt;
  const EvalWindows windows = data.validation(context, limit);
  double sum = 0;
  for (int64_t i = 0; i < windows.count(); ++i) {
    const auto [begin, length] = windows.window(i);
    sum += mean_nats(*stories, begin + 1, begin + 1 + length) * static_cast<double>(length);
  }
  return sum / static_cast<double>(windows.targets());
}

std::string run_name(const std::vector<std::string>& paths) {
  if (paths.empty()) return "stories";
  if (paths.front() == "-") return "stdin";
  std::filesystem::path path = absolute(paths.front());
  if (!path.has_filename()) path = path.parent_path();
  std::string name = path.stem().string();
  // Makes names plain that would be hidden, taken for a flag, or hard to type.
  if (!is_utf8(name)) return "text";
  std::string plain;
  for (size_t at = 0; at < name.size();) {
    const std::string character = name.substr(at, static_cast<size_t>(decode_utf8(name, at).length));
    plain += character == " " || printable(character) != character ? "_" : character;
    at += character.size();
  }
  plain.erase(0, std::min(plain.find_first_not_of(".-"), plain.size()));
  constexpr size_t kLongest = 100;
  return plain.empty() || plain.size() > kLongest ? "text" : plain;
}

}  // namespace tril

// The room train/data: from texts to tokens, and the stories that need no file.

// What a model is trained on, wherever it comes from: files, folders, standard input, or the built-in stories.
// Belongs to the caller; any thread may call.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "train/data/builtin_corpus.h"
#include "train/data/dataset.h"
#include "train/data/text.h"

namespace tril {

struct Corpus {
  Text text;
  std::vector<std::string> paths;        // absolute, "-" for standard input; none: the built-in stories
  bool all_files = false;                // how they were read (TextRules)
  std::optional<BuiltinCorpus> stories;  // with each character's probability, if the text is the built-in stories
};

[[nodiscard]] Corpus load_corpus(const std::vector<std::string>& paths, const TextRules& rules);

// The paths of the text that a model was trained on, from the model's folder or, for older versions, from the model
// file. Empty if they are not known, or if it is the built-in stories.
[[nodiscard]] std::vector<std::string> known_paths(const TextIdentity& identity, const std::string& folder);
// Reads the text again that a model in this folder was trained on. Throws if it is not there; `give_again` is the
// error's advice on how to give it from another place.
[[nodiscard]] Corpus find_corpus(const TextIdentity& identity, const TextRules& rules, const std::string& folder,
                                 std::string_view give_again);
// What a model stores of the text that it is trained on; `split` is the one of `data`.
[[nodiscard]] TextIdentity identity_of(const Corpus& corpus, const Dataset& data, const Split& split);
// Throws if the dataset is made from another text than `identity` describes.
void expect_same_text(const TextIdentity& identity, const Dataset& data, const std::string& name);

// The lowest loss that any model could reach on the validation part, in nats a character. It is a mean over the same
// targets as the loss of a model: those of windows of `context` characters, about `limit` targets (0: all). None if
// there are no stories or no validation part.
[[nodiscard]] std::optional<double> best_possible_loss(const std::optional<BuiltinCorpus>& stories, const Dataset& data,
                                                       int64_t context, int64_t limit = 0);

// A name for the run on such a text: that of the first file or folder, without its extension.
[[nodiscard]] std::string run_name(const std::vector<std::string>& paths);

}  // namespace tril

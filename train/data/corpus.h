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
  std::optional<BuiltinCorpus> stories;  // with each character's probability, where that is what the text is
};

[[nodiscard]] Corpus load_corpus(const std::vector<std::string>& paths, const TextRules& rules);

// Where that text lies, as the model's folder or, in files of older versions, the model itself knows; else empty.
[[nodiscard]] std::vector<std::string> known_paths(const TextIdentity& identity, const std::string& folder);
// The text that a model in this folder was trained on, once more; throws where it is not there. `give_again`: how to
// give it from another place.
[[nodiscard]] Corpus find_corpus(const TextIdentity& identity, const TextRules& rules, const std::string& folder,
                                 std::string_view give_again);
// What a model is to know of the text that it is trained on; `split` is the one of `data`.
[[nodiscard]] TextIdentity identity_of(const Corpus& corpus, const Dataset& data, const Split& split);
// Throws where the dataset is made from another text than `identity` describes.
void expect_same_text(const TextIdentity& identity, const Dataset& data, const std::string& name);

// The best loss that any model could reach on the validation part, in nats a character: over the targets that count
// where it is cut into windows of `context`, about `limit` of them (0: all), as the loss of a model is.
[[nodiscard]] std::optional<double> best_possible_loss(const std::optional<BuiltinCorpus>& stories, const Dataset& data,
                                                       int64_t context, int64_t limit = 0);

// A name for the run of such a text: the first file's or folder's, without what comes after its dot.
[[nodiscard]] std::string run_name(const std::vector<std::string>& paths);

}  // namespace tril

#include "train/data/builtin_corpus.h"

#include "core/base/check.h"

namespace tril {

BuiltinCorpus builtin_corpus(uint64_t seed, int64_t length) {
  constexpr int64_t kLongest = int64_t{1} << 30;
  TRIL_CHECK(length > 0 && length <= kLongest, "built-in corpus", cat("a length from 1 to ", kLongest), cat(length));
  const auto size = static_cast<size_t>(length);
  const Grammar grammar(builtin_stories());
  SeededChooser chooser(seed);
  BuiltinCorpus corpus;
  constexpr size_t kRoomForAStory = 4096;
  corpus.text.reserve(size + kRoomForAStory);
  corpus.nats.reserve(size + kRoomForAStory);
  while (corpus.text.size() < size) grammar.write(chooser, corpus);
  corpus.text.resize(size);
  corpus.nats.resize(size);
  return corpus;
}

double mean_nats(const BuiltinCorpus& corpus, int64_t begin, int64_t end) {
  const auto size = static_cast<int64_t>(corpus.nats.size());
  TRIL_CHECK(0 <= begin && begin < end && end <= size, "mean_nats", cat("0 <= begin < end <= ", size),
             cat("begin ", begin, " and end ", end));
  double sum = 0;
  for (int64_t i = begin; i < end; ++i) sum += corpus.nats[static_cast<size_t>(i)];
  return sum / static_cast<double>(end - begin);
}

}  // namespace tril

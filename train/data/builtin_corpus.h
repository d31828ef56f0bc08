// The text that tril trains on when it is given none: small stories, made by a grammar of our own that knows the
// probability of each of their characters. The caller owns what it gets; any thread may call.
#pragma once

#include <cstdint>

#include "train/data/grammar.h"

namespace tril {

using BuiltinCorpus = ScoredText;

inline constexpr uint64_t kBuiltinCorpusSeed = 1;
inline constexpr int64_t kBuiltinCorpusLength = 1'000'000;

// Exactly `length` characters, so the last story may be cut. The same bytes on every platform.
[[nodiscard]] BuiltinCorpus builtin_corpus(uint64_t seed = kBuiltinCorpusSeed, int64_t length = kBuiltinCorpusLength);

// The best mean loss, in nats a character, that any model could reach on text[begin..end) with all the text before in
// view. One that reads in windows pays some nats more at the start of each, where it does not know what came before.
[[nodiscard]] double mean_nats(const BuiltinCorpus& corpus, int64_t begin, int64_t end);

// The stories' grammar, for whoever wants to look into it.
[[nodiscard]] const char* builtin_stories();

}  // namespace tril

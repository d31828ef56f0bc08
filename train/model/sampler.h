// From logits to tokens, and from tokens to text. A token is drawn by a random number that is a function of (seed,
// stream, position) alone, so a text does not depend on how many others are made before it or beside it.
// Each object belongs to the one who makes a text, and is used on one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/machine/parallel.h"
#include "nn/decode.h"
#include "train/data/tokenizer.h"

namespace tril {

struct SamplerOptions {
  double temperature = 0.8;  // logits are divided by it; 0: always the likeliest token, of equal ones the first
  int64_t top_k = 0;         // only the k likeliest; 0: all
  double top_p = 1.0;        // of those, the fewest likeliest whose probabilities add up to p
  uint64_t seed = 1;
  // Throws, naming the field.
  void check() const;
};

// The index drawn by u in [0, 1): in proportion to the weights, and never one whose weight is 0.
[[nodiscard]] int64_t draw(std::span<const double> weights, double u);

class Sampler {
 public:
  Sampler(const SamplerOptions& options, int64_t vocabulary);
  // The token at this position of a text, counted from 0; `stream` tells the texts of one seed apart. Logits that are
  // not finite are an error.
  [[nodiscard]] int32_t pick(std::span<const float> logits, uint32_t stream, int64_t position);
  // The weight of each token: pick draws in proportion to it. Valid until the next call. The temperature must not be 0.
  [[nodiscard]] std::span<const double> weights(std::span<const float> logits);

 private:
  [[nodiscard]] size_t keep_likeliest(std::span<const float> logits, size_t most);

  SamplerOptions options_;
  std::vector<double> weights_;
  std::vector<int32_t> order_;
};

// Cuts a text that comes in pieces before the first occurrence of `stop`. What may be the beginning of `stop` is held
// back.
class StopText {
 public:
  explicit StopText(std::string stop);  // empty: never stops
  // Appends to `out` what can no longer belong to the stop text. Returns true once the stop text has come; all that was
  // before it is then in `out`.
  [[nodiscard]] bool push(std::string_view text, std::string& out);
  // For when the text ends without the stop text: appends what was held back.
  void flush(std::string& out);

 private:
  std::string stop_;
  // [n - 1]: the length of the longest beginning of `stop`, less than n bytes, that its first n bytes end with.
  std::vector<size_t> shorter_;
  size_t matched_ = 0;
};

struct WriteOptions {
  int64_t length = 500;   // tokens
  std::string stop = {};  // ends the text, which does not contain it; the prompt is not searched
  uint32_t stream = 0;
  bool echo = false;  // the prompt comes out too
};

// Continues the prompt, which has at least one token; the model sees the last `context` of them. `sink` gets a piece of
// text for each token: whole characters of UTF-8, or an empty piece while a character is unfinished. Bytes that are not
// UTF-8 become U+FFFD. `sink` returns whether to go on.
void write_text(Decoder& decoder, Sampler& sampler, const Tokenizer& tokenizer, std::span<const int32_t> prompt,
                const WriteOptions& options, FunctionRef<bool(std::string_view)> sink);

// Makes `count` texts together, each in a stream of the decoder: those of the random streams options.stream,
// options.stream + 1, …. Each text is the same as if it were made alone.
struct Piece {
  int64_t text;  // from 0
  std::string_view characters;
  bool last;
};
void write_texts(Decoder& decoder, Sampler& sampler, const Tokenizer& tokenizer, std::span<const int32_t> prompt,
                 int64_t count, const WriteOptions& options, FunctionRef<bool(const Piece&)> sink);
// How many texts to make together: at most `count`, and no more than fit into memory with their KV caches and with the
// texts that wait to be printed.
[[nodiscard]] int64_t texts_together(const LanguageModel& model, int64_t count, int64_t length);

}  // namespace tril

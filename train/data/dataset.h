// A text as tokens: its training part, from which batches are drawn, and its validation part, which is cut into
// windows. Immutable once made, so any thread may read it; nothing here allocates after construction.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "train/data/text.h"
#include "train/data/tokenizer.h"

namespace tril {

// Tokens in as few bytes as the vocabulary allows: one up to 256 tokens, then two, then four.
class Tokens {
 public:
  // Takes the text over; one-byte tokens are written into its own memory. `where` names it in errors.
  Tokens(std::string text, const Tokenizer& tokenizer, std::string_view where);
  [[nodiscard]] int64_t size() const;
  void copy(int64_t begin, int64_t count, int32_t* out) const;

 private:
  std::variant<std::string, std::vector<uint16_t>, std::vector<int32_t>> ids_;
};

// The evaluation rule: the part is cut into consecutive windows of `context` tokens, so that every token but the
// part's first is a target exactly once, predicted from those before it in its window. The last window may be short;
// all targets weigh the same. The tokens must outlive the windows.
class EvalWindows {
 public:
  static constexpr int32_t kIgnored = -1;  // a target that does not count

  // Tokens [begin, end). With `limit` > 0 only so many windows as about `limit` targets need (at least one), spread
  // evenly over the part.
  EvalWindows(const Tokens& tokens, int64_t begin, int64_t end, int64_t context, int64_t limit = 0);

  [[nodiscard]] int64_t context() const { return context_; }
  [[nodiscard]] int64_t count() const { return count_; }
  [[nodiscard]] int64_t targets() const { return targets_; }  // that count, over all windows
  // Fills rows x context inputs and targets with windows [first, first + rows). What a short window lacks, and rows
  // past the last window, are inputs of token 0 with ignored targets. Returns how many targets count.
  int64_t fill(int64_t first, int64_t rows, int32_t* inputs, int32_t* targets) const;

  struct Window {
    int64_t begin, length;  // of its inputs; its targets lie one further on
  };
  [[nodiscard]] Window window(int64_t index) const;

 private:
  const Tokens* tokens_;
  int64_t begin_, end_, context_;
  int64_t windows_;  // that the whole part has
  int64_t count_;    // that are used
  int64_t targets_ = 0;
};

// The size of a range of tokens in units that do not depend on the tokenizer.
struct TextAmount {
  int64_t bytes = 0;
  std::optional<int64_t> chars;  // that begin in it; none if the bytes are not UTF-8
};
// The size of tokens [begin, end), which may begin inside a character.
[[nodiscard]] TextAmount amount_of(const Tokens& tokens, const Tokenizer& tokenizer, int64_t begin, int64_t end);

// How a text is split: the first tokens train, the last `val_fraction` of them validate (0: none do).
struct Split {
  Split(double fraction, bool by_doubles = false) : val_fraction(fraction), old(by_doubles) {}

  // How many of `total` tokens train: total x (1 - val_fraction), rounded down. The fraction counts as the decimal
  // number that it is written as. If `old`, it is a product of doubles instead: val_fraction 0.9 then leaves 99 of 1000
  // tokens, not 100.
  [[nodiscard]] int64_t train_size(int64_t total) const;

  double val_fraction;
  bool old;  // for runs that an older version began, which keep their split
};

class Dataset {
 public:
  // Throws unless the training part holds context + 1 tokens and the validation part, where there is one, two.
  Dataset(Text text, const Tokenizer& tokenizer, const Split& split, int64_t context);

  [[nodiscard]] const Tokens& tokens() const { return tokens_; }
  [[nodiscard]] int64_t train_size() const { return train_size_; }
  [[nodiscard]] int64_t val_size() const { return tokens_.size() - train_size_; }
  // Size and checksum of the text before it became tokens, to recognise it on resuming.
  [[nodiscard]] int64_t text_bytes() const { return text_bytes_; }
  [[nodiscard]] uint32_t text_crc32() const { return text_crc32_; }

  // Fills inputs (rows, context) and targets (rows, context), which are the tokens one further on. Row i is the run's
  // sample number first_sample + i. Where a sample begins depends on (seed, its number) alone, however the samples are
  // cut into batches.
  void batch(uint64_t seed, int64_t first_sample, int64_t rows, int64_t context, int32_t* inputs,
             int32_t* targets) const;

  // The validation part's windows; there must be one. They view this dataset.
  [[nodiscard]] EvalWindows validation(int64_t context, int64_t limit = 0) const;

 private:
  int64_t text_bytes_;
  uint32_t text_crc32_;
  Tokens tokens_;
  int64_t train_size_;
};

}  // namespace tril

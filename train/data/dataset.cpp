#include "train/data/dataset.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/base/check.h"
#include "core/base/random.h"
#include "train/base/crc32.h"

namespace tril {
namespace {

constexpr uint32_t kBatchStream = stream_of("batches", 7);

uint32_t crc32_of(std::string_view text) {
  Crc32 crc;
  crc.add(text.data(), text.size());
  return crc.value();
}

template <class Id>
std::vector<Id> encode(std::string_view text, const Tokenizer& tokenizer, std::string_view where) {
  const auto starts_character = [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; };
  std::vector<Id> ids;
  ids.reserve(static_cast<size_t>(std::count_if(text.begin(), text.end(), starts_character)));
  tokenizer.encode_each(text, where, [&](int32_t token) { ids.push_back(static_cast<Id>(token)); });
  return ids;
}

// Where sample number `sample` of a run begins. However many samples there are, multiples of the golden ratio spread
// evenly (three-distance theorem: Swierczkowski 1958), so every part of the text is seen equally often. Independent
// random draws would leave out a third of the text after as many tokens as it has.
int64_t begin_of(int64_t sample, uint64_t seed, int64_t bound) {
  const auto words = random_words({.seed = seed, .step = 0, .stream = kBatchStream}, 0, 0);
  constexpr uint64_t kGoldenRatio = 0x9E3779B97F4A7C15u;  // its fraction, in 64 bits
  const uint64_t place = (uint64_t{words[0]} << 32 | words[1]) + static_cast<uint64_t>(sample) * kGoldenRatio;
  __extension__ using Wide = unsigned __int128;
  return static_cast<int64_t>(static_cast<Wide>(place) * static_cast<uint64_t>(bound) >> 64);
}

// total x fraction, rounded up. The fraction counts as its shortest decimal form, which is how it was written.
int64_t share_rounded_up(int64_t total, double fraction) {
  char text[32];
  const auto written = std::to_chars(text, text + sizeof text, fraction, std::chars_format::scientific);
  const std::string_view number(text, static_cast<size_t>(written.ptr - text));
  const size_t e = number.find('e');
  int power = 0;  // of ten; the fraction is below 1, so its exponent is negative or 0
  std::from_chars(number.data() + e + 1, number.data() + number.size(), power);
  int64_t digits = 0;  // 17 at most
  for (const char c : number.substr(0, e))
    if (c != '.') digits = 10 * digits + (c - '0');
  __extension__ using Wide = __int128;
  Wide product = static_cast<Wide>(total) * digits;
  bool rest = false;
  for (auto places = static_cast<int>(e > 2 ? e - 2 : 0) - power; places > 0; --places, product /= 10)
    rest |= product % 10 != 0;
  return static_cast<int64_t>(product) + (rest ? 1 : 0);
}

// Counts the characters of bytes that come piece by piece.
class CharCounter {
 public:
  void add(std::string_view piece, bool last) {
    constexpr size_t kMostContinuing = 3;
    bytes_ += piece;
    size_t at = 0;
    if (first_)  // the end of a character that began before
      while (at < std::min(bytes_.size(), kMostContinuing) && (static_cast<unsigned char>(bytes_[at]) & 0xC0) == 0x80)
        ++at;
    first_ = false;
    while (valid_ && at < bytes_.size()) {
      const Utf8Char c = decode_utf8(bytes_, at);
      if (c.fault == Utf8Fault::kTruncated && !last) break;
      valid_ = c.fault == Utf8Fault::kNone;
      ++count_;
      at += static_cast<size_t>(c.length);
    }
    bytes_.erase(0, at);
  }
  [[nodiscard]] std::optional<int64_t> count() const { return valid_ ? std::optional(count_) : std::nullopt; }

 private:
  std::string bytes_;
  int64_t count_ = 0;
  bool first_ = true, valid_ = true;
};

}  // namespace

Tokens::Tokens(std::string text, const Tokenizer& tokenizer, std::string_view where) {
  if (tokenizer.size() > 65536) {
    ids_ = encode<int32_t>(text, tokenizer, where);
  } else if (tokenizer.size() > 256) {
    ids_ = encode<uint16_t>(text, tokenizer, where);
  } else {
    size_t count = 0;
    tokenizer.encode_each(text, where, [&](int32_t token) { text[count++] = static_cast<char>(token); });
    text.resize(count);
    ids_ = std::move(text);
  }
}

int64_t Tokens::size() const {
  return std::visit([](const auto& ids) { return static_cast<int64_t>(ids.size()); }, ids_);
}

void Tokens::copy(int64_t begin, int64_t count, int32_t* out) const {
  TRIL_CHECK(begin >= 0 && count >= 0 && count <= size() - begin, "tokens", cat("a range within ", size()),
             cat(count, " from ", begin));
  std::visit(
      [&](const auto& ids) {
        const auto* const from = ids.data() + begin;
        for (int64_t i = 0; i < count; ++i) {
          if constexpr (sizeof *from == 1) {
            out[i] = static_cast<unsigned char>(from[i]);
          } else {
            out[i] = from[i];
          }
        }
      },
      ids_);
}

TextAmount amount_of(const Tokens& tokens, const Tokenizer& tokenizer, int64_t begin, int64_t end) {
  constexpr int64_t kBlock = 1 << 14;
  std::vector<int32_t> block(static_cast<size_t>(kBlock));
  TextAmount amount;
  CharCounter counter;
  for (int64_t at = begin; at < end; at += kBlock) {
    const int64_t count = std::min(kBlock, end - at);
    tokens.copy(at, count, block.data());
    const std::string text = tokenizer.decode(std::span(block).first(static_cast<size_t>(count)));
    amount.bytes += static_cast<int64_t>(text.size());
    counter.add(text, at + count == end);
  }
  amount.chars = counter.count();
  return amount;
}

EvalWindows::EvalWindows(const Tokens& tokens, int64_t begin, int64_t end, int64_t context, int64_t limit)
    : tokens_(&tokens), begin_(begin), end_(end), context_(context) {
  TRIL_CHECK(context > 0, "context", "at least 1", cat(context));
  TRIL_CHECK(begin >= 0 && end <= tokens.size() && end - begin >= 2, "evaluation",
             "a text of at least 2 tokens, one to begin with and one to predict", cat(end - begin));
  windows_ = (end - begin - 2) / context + 1;
  count_ = limit > 0 ? std::min(windows_, std::max<int64_t>(limit / context, 1)) : windows_;
  const int64_t last = window(count_ - 1).length;
  targets_ = (count_ - 1) * context + last;
}

EvalWindows::Window EvalWindows::window(int64_t index) const {
  // The middle of the index-th of count_ equal shares, which for count_ == windows_ is the index itself.
  __extension__ using Wide = __int128;
  const auto chosen = static_cast<int64_t>((2 * static_cast<Wide>(index) + 1) * windows_ / (2 * count_));
  const int64_t begin = begin_ + chosen * context_;
  return {begin, std::min(context_, end_ - 1 - begin)};
}

int64_t EvalWindows::fill(int64_t first, int64_t rows, int32_t* inputs, int32_t* targets) const {
  int64_t counted = 0;
  for (int64_t row = 0; row < rows; ++row, inputs += context_, targets += context_) {
    const Window cut = first + row < count_ ? window(first + row) : Window{begin_, 0};
    tokens_->copy(cut.begin, cut.length, inputs);
    tokens_->copy(cut.begin + 1, cut.length, targets);
    std::fill(inputs + cut.length, inputs + context_, 0);
    std::fill(targets + cut.length, targets + context_, kIgnored);
    counted += cut.length;
  }
  return counted;
}

int64_t Split::train_size(int64_t total) const {
  if (old) return static_cast<int64_t>(static_cast<double>(total) * (1.0 - val_fraction));
  return total - share_rounded_up(total, val_fraction);
}

Dataset::Dataset(Text text, const Tokenizer& tokenizer, const Split& split, int64_t context)
    : text_bytes_(static_cast<int64_t>(text.bytes.size())),
      text_crc32_(crc32_of(text.bytes)),
      tokens_(std::move(text.bytes), tokenizer, text.name) {
  const double val_fraction = split.val_fraction;
  TRIL_CHECK(val_fraction >= 0 && val_fraction < 1, "val-fraction", "0 or more, and less than 1", cat(val_fraction));
  TRIL_CHECK(context > 0, "context", "at least 1", cat(context));
  const int64_t total = tokens_.size();
  train_size_ = split.train_size(total);
  const std::string whole = val_fraction > 0 ? cat(" (of ", total, ", with val-fraction ", val_fraction, ")") : "";
  TRIL_CHECK(train_size_ > context, text.name,
             cat("a training part of at least ", context, " + 1 tokens (context + 1)"), cat(train_size_, whole),
             "give more text, or a smaller context");
  TRIL_CHECK(val_fraction == 0 || val_size() >= 2, text.name, "a validation part of at least 2 tokens",
             cat(val_size(), whole), "give more text, a larger val-fraction, or 0 for none");
}

void Dataset::batch(uint64_t seed, int64_t first_sample, int64_t rows, int64_t context, int32_t* inputs,
                    int32_t* targets) const {
  TRIL_CHECK(context > 0 && context < train_size_, "batch", cat("a context from 1 to ", train_size_ - 1), cat(context));
  for (int64_t row = 0; row < rows; ++row, inputs += context, targets += context) {
    const int64_t begin = begin_of(first_sample + row, seed, train_size_ - context);
    tokens_.copy(begin, context, inputs);
    tokens_.copy(begin + 1, context, targets);
  }
}

EvalWindows Dataset::validation(int64_t context, int64_t limit) const {
  return EvalWindows(tokens_, train_size_, tokens_.size(), context, limit);
}

}  // namespace tril

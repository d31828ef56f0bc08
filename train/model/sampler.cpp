#include "train/model/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/base/random.h"
#include "train/base/utf8.h"

namespace tril {
namespace {

// Logits are f32, so probabilities are exact to about seven digits: a sum this near to top_p counts as having reached
// it.
constexpr double kReached = 1.0 - 1e-6;

constexpr std::string_view kStream = "sample";

}  // namespace

void SamplerOptions::check() const {
  TRIL_CHECK(std::isfinite(temperature) && temperature >= 0.0, "temperature", "0 or more", cat(temperature));
  TRIL_CHECK(top_k >= 0, "top-k", "0 (off) or more", cat(top_k));
  TRIL_CHECK(top_p > 0.0 && top_p <= 1.0, "top-p", "more than 0 and at most 1", cat(top_p),
             "temperature 0 always takes the likeliest");
}

int64_t draw(std::span<const double> weights, double u) {
  const double target = u * std::accumulate(weights.begin(), weights.end(), 0.0);
  int64_t last = -1;  // by rounding the sum may end just below the target
  double sum = 0.0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!(weights[i] > 0.0)) continue;
    sum += weights[i];
    last = static_cast<int64_t>(i);
    if (target < sum) break;
  }
  TRIL_CHECK(last >= 0, "draw", "a weight above 0", "none");
  return last;
}

Sampler::Sampler(const SamplerOptions& options, int64_t vocabulary) : options_(options) {
  options.check();
  weights_.reserve(static_cast<size_t>(vocabulary));
  order_.reserve(static_cast<size_t>(vocabulary));
}

int32_t Sampler::pick(std::span<const float> logits, uint32_t stream, int64_t position) {
  TRIL_CHECK(!logits.empty(), "sample", "logits", "none");
  for (const float logit : logits)
    TRIL_CHECK(std::isfinite(logit), "sample", "finite logits", cat("non-finite logits at position ", position),
               "weights of the model are NaN or infinite, or too large: use an earlier one");
  if (options_.temperature == 0.0)
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  const RandomKey key{.seed = options_.seed,
                      .step = static_cast<uint32_t>(static_cast<uint64_t>(position) >> 32),
                      .stream = stream_of(kStream.data(), kStream.size())};
  return static_cast<int32_t>(draw(weights(logits), random_uniform(key, stream, static_cast<uint32_t>(position))));
}

std::span<const double> Sampler::weights(std::span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  weights_.resize(logits.size());
  // Subtract first: then the likeliest token has weight 1, however small the temperature.
  for (size_t i = 0; i < logits.size(); ++i)
    weights_[i] = std::exp((static_cast<double>(logits[i]) - top) / options_.temperature);

  const size_t V = logits.size();
  const size_t most = options_.top_k == 0 ? V : static_cast<size_t>(std::min(options_.top_k, static_cast<int64_t>(V)));
  if (most < V || options_.top_p < 1.0) {
    const size_t kept = keep_likeliest(logits, most);
    for (size_t i = 0; i < V - kept; ++i) weights_[static_cast<size_t>(order_[i])] = 0.0;
  }
  return weights_;
}

// Returns how many tokens are kept; they are at the end of order_, the likeliest last.
size_t Sampler::keep_likeliest(std::span<const float> logits, size_t most) {
  const auto weight = [&](size_t rank) { return weights_[static_cast<size_t>(order_[order_.size() - 1 - rank])]; };
  // Of equal tokens the first counts as likelier.
  const auto less_likely = [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x < y || (x == y && a > b);
  };
  order_.resize(logits.size());
  std::iota(order_.begin(), order_.end(), 0);
  std::make_heap(order_.begin(), order_.end(), less_likely);
  size_t ranked = 0;  // in a large vocabulary few tokens matter, so only those are sorted
  const auto rank_next = [&] {
    std::pop_heap(order_.begin(), order_.end() - static_cast<std::ptrdiff_t>(ranked), less_likely);
    ++ranked;
  };

  double total = 0.0;
  if (most < logits.size()) {
    while (ranked < most) {
      rank_next();
      total += weight(ranked - 1);
    }
  } else {
    total = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  }
  if (options_.top_p == 1.0) return most;
  size_t kept = 0;
  for (double sum = 0.0; sum < options_.top_p * kReached * total && kept < most; ++kept) {
    if (kept == ranked) rank_next();
    sum += weight(kept);
  }
  return kept;
}

StopText::StopText(std::string stop) : stop_(std::move(stop)), shorter_(stop_.size()) {
  for (size_t i = 1, length = 0; i < stop_.size(); ++i) {
    while (length > 0 && stop_[i] != stop_[length]) length = shorter_[length - 1];
    if (stop_[i] == stop_[length]) ++length;
    shorter_[i] = length;
  }
}

bool StopText::push(std::string_view text, std::string& out) {
  if (stop_.empty()) {
    out += text;
    return false;
  }
  for (const char byte : text) {
    // Release what was held back from its front, until the rest with this byte may begin the stop text again.
    while (matched_ > 0 && byte != stop_[matched_]) {
      const size_t length = shorter_[matched_ - 1];
      out.append(stop_, 0, matched_ - length);
      matched_ = length;
    }
    if (byte != stop_[matched_]) {
      out += byte;
    } else if (++matched_ == stop_.size()) {
      return true;
    }
  }
  return false;
}

void StopText::flush(std::string& out) {
  out.append(stop_, 0, matched_);
  matched_ = 0;
}

namespace {

// Turns the tokens of one text into characters, up to the stop text.
class Decoded {
 public:
  Decoded(const Tokenizer& tokenizer, const std::string& stop) : tokenizer_(tokenizer), stop_(stop) {}

  // A prompt of bytes may end within a character, which the continuation then completes.
  [[nodiscard]] std::string_view begin(std::span<const int32_t> prompt) {
    out_.clear();
    characters_.push(tokenizer_.decode(prompt), out_);
    return out_;
  }
  [[nodiscard]] std::string_view take(int32_t token) {
    bytes_.clear(), free_.clear(), out_.clear();
    tokenizer_.decode(token, bytes_);
    stopped_ = stop_.push(bytes_, free_);
    characters_.push(free_, out_);
    return out_;
  }
  [[nodiscard]] std::string_view finish() {
    free_.clear(), out_.clear();
    if (!stopped_) stop_.flush(free_);
    characters_.push(free_, out_);
    characters_.flush(out_);
    return out_;
  }
  [[nodiscard]] bool stopped() const { return stopped_; }

 private:
  const Tokenizer& tokenizer_;
  StopText stop_;
  Utf8Stream characters_;
  std::string bytes_, free_, out_;
  bool stopped_ = false;
};

}  // namespace

void write_texts(Decoder& decoder, Sampler& sampler, const Tokenizer& tokenizer, std::span<const int32_t> prompt,
                 int64_t count, const WriteOptions& options, FunctionRef<bool(const Piece&)> sink) {
  TRIL_CHECK(!prompt.empty(), "sample", "a prompt of at least one token", "none");
  TRIL_CHECK(count >= 1 && count <= decoder.streams(), "sample", cat("1 to ", decoder.streams(), " texts together"),
             cat(count));
  std::vector<Decoded> texts;
  std::vector<Decoder::Next> next;  // a token for each text that goes on
  bool going = true;
  for (int64_t i = 0; i < count; ++i) {
    const std::string_view begun = texts.emplace_back(tokenizer, options.stop).begin(prompt);
    next.push_back({i, 0});
    going &= !options.echo || sink({i, begun, false});
  }
  const auto finish = [&](int64_t i) { (void)sink({i, texts[static_cast<size_t>(i)].finish(), true}); };
  decoder.reset();
  if (going && options.length > 0) {
    const auto seen = std::min(prompt.size(), static_cast<size_t>(decoder.context()));
    (void)decoder.feed(0, prompt.last(seen));
    for (int64_t i = 1; i < count; ++i) decoder.copy(0, i);
  }
  for (int64_t position = 0; position < options.length && going && !next.empty(); ++position) {
    if (position > 0) decoder.feed_each(next);
    for (auto& [i, token] : next) {
      token = sampler.pick(decoder.logits(i), options.stream + static_cast<uint32_t>(i), position);
      going &= sink({i, texts[static_cast<size_t>(i)].take(token), false});
    }
    std::erase_if(next, [&](const Decoder::Next& one) {
      const bool stopped = texts[static_cast<size_t>(one.stream)].stopped();
      if (stopped) finish(one.stream);
      return stopped;
    });
  }
  for (const Decoder::Next& one : next) finish(one.stream);
}

void write_text(Decoder& decoder, Sampler& sampler, const Tokenizer& tokenizer, std::span<const int32_t> prompt,
                const WriteOptions& options, FunctionRef<bool(std::string_view)> sink) {
  write_texts(decoder, sampler, tokenizer, prompt, 1, options, [&](const Piece& piece) {
    return piece.last && piece.characters.empty() ? true : sink(piece.characters);
  });
}

int64_t texts_together(const LanguageModel& model, int64_t count, int64_t length) {
  constexpr int64_t kMost = 64, kCaches = int64_t{256} << 20, kWaiting = int64_t{64} << 20, kBytesAToken = 4;
  return std::clamp<int64_t>(std::min({count, kCaches / Decoder::stream_bytes(model),
                                       kWaiting / (kBytesAToken * std::max<int64_t>(length, 1))}),
                             1, kMost);
}

}  // namespace tril

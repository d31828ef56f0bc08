// Decoding: a language model forwards only, a token at a time, with the keys and values of earlier tokens kept. For
// each token the weights stream by once, so they are packed once in the order in which they are read, and nothing is
// allocated and no library called between two tokens.
//
//   Decoder decoder(model);
//   std::span<const float> logits = decoder.feed(prompt);  // of what comes after the prompt
//   logits = decoder.feed(next);
//
// Past the context: learned positions belong to places in the window, so when the window is full and another token
// comes, its last half (rounded down) is read anew from position 0 on. The model so sees the last context / 2 + 1 to
// context tokens. What it sees depends only on how many tokens came before, so the logits are those that a full forward
// pass over the window would give.
//
// Several streams, texts of their own, can go on together: for each token the weights then stream by once for all.
//
//   Decoder decoder(model, threads, 8);
//   decoder.feed(0, prompt);
//   for (int i = 1; i < 8; ++i) decoder.copy(0, i);
//   decoder.feed_each(next);                           // a token for each
//   logits = decoder.logits(3);
//
// A stream's logits do not depend on the others, to the bit. A Decoder copies the weights: model and store may change
// or go. It belongs to the thread that made it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/machine/arena.h"
#include "core/machine/team.h"
#include "nn/language_model.h"

namespace tril {

class Decoder {
 public:
  // The model's store is frozen, of f32. `weights`: what the packed matrices and the kept keys and values hold, f32 or
  // bf16, which is half as much to read; a matrix unit (AMX) also takes what it multiplies by them in bf16. The work is
  // cut into shares that depend on the model alone, so the logits have the same bits at any number of threads, at least
  // 1.
  explicit Decoder(const LanguageModel& model, int64_t threads = 1, int64_t streams = 1, DType weights = DType::f32);
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // Forgets all tokens, of all streams.
  void reset();
  // The logits (V) of the token after this one, or after the last of these, in stream 0: valid until its next token,
  // always at the same address.
  std::span<const float> feed(int64_t token) {
    check_token(token);
    const auto id = static_cast<int32_t>(token);
    return feed(std::span<const int32_t>(&id, 1));
  }
  std::span<const float> feed(std::span<const int32_t> tokens) { return feed(0, tokens); }
  std::span<const float> feed(int64_t stream, std::span<const int32_t> tokens);
  // One more token for each of some streams, in ascending order.
  struct Next {
    int64_t stream;
    int32_t token;
  };
  void feed_each(std::span<const Next> next);
  // What feed returned, or would have.
  [[nodiscard]] std::span<const float> logits(int64_t stream) const;
  // Stream `to` has then seen what `from` has.
  void copy(int64_t from, int64_t to);

  [[nodiscard]] int64_t streams() const { return static_cast<int64_t>(streams_.size()); }
  // What it keeps for a stream.
  [[nodiscard]] static int64_t stream_bytes(const LanguageModel& model, DType weights = DType::f32);
  // Tokens fed since the reset, and the last of them, which the model sees.
  [[nodiscard]] int64_t position(int64_t stream = 0) const { return stream_at(stream).position; }
  [[nodiscard]] int64_t window(int64_t stream = 0) const { return stream_at(stream).window; }
  [[nodiscard]] int64_t context() const { return options_.context; }
  [[nodiscard]] int threads() const { return team_.size(); }

 private:
  struct Stream {
    std::vector<int32_t> tokens;  // of the window
    int64_t window = 0, position = 0;
  };
  struct Work {         // what one member of the team computes in
    float *x, *normed;  // the residual stream (rows, stride_), of which each member has its own where rows are few
    std::byte *scratch, *products_scratch;
  };

  [[nodiscard]] const Stream& stream_at(int64_t index) const;
  void check_token(int64_t token) const;
  // Rows, of one stream in order or of different ones, through the whole model; the logits of the last `wanted`.
  void take_in(std::span<const DecodeRow> rows, int64_t wanted);
  void run(int member, int members, std::span<const DecodeRow> rows, int64_t wanted);  // one member's work

  DecodeOptions options_;
  int64_t vocabulary_, width_, stride_;  // V, C, and C in whole groups of lanes
  Arena memory_;
  DecodeSteps steps_;

  Team team_;
  static constexpr int64_t kFirstAlone = 32, kMostAlone = 1024;
  int64_t alone_ = 0, alone_next_ = kFirstAlone;  // passes to make without the team: now, and when it is late again
  std::vector<Work> work_;                        // one a member
  std::vector<float*> partial_;  // of each share, (rows, stride_), twice: the next sum begins while others still read
  float *logits_ = nullptr, *row_logits_ = nullptr;  // by stream, and by row of a pass: rows of logits_stride_
  int64_t logits_stride_ = 0;
  std::vector<Stream> streams_;
  std::vector<DecodeRow> rows_, together_;  // of a pass: of one stream, and of different ones
};

}  // namespace tril

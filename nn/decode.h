// Decoding: runs a language model forward only, a token at a time, and keeps the keys and values of earlier tokens (the
// KV cache). Each token reads all weights from memory once, so they are packed once, in the order in which they are
// read. Between two tokens nothing is allocated and no library is called.
//
//   Decoder decoder(model);
//   std::span<const float> logits = decoder.feed(prompt);  // of the token after the prompt
//   logits = decoder.feed(next);
//
// Past the context: learned positions belong to places in the window. So when the window is full and another token
// comes, only the last half of the window (rounded down) is kept and computed again from position 0 on. The model thus
// sees at least context / 2 + 1 and at most context tokens. How many depends only on how many tokens came before, and
// the logits are those that a full forward pass over the window would give.
//
// Several streams, each a text of its own, can be decoded together: the weights are then read once for all of them.
//
//   Decoder decoder(model, threads, 8);
//   decoder.feed(0, prompt);
//   for (int i = 1; i < 8; ++i) decoder.copy(0, i);
//   decoder.feed_each(next);                           // one token for each stream
//   logits = decoder.logits(3);
//
// A stream's logits have the same bits whatever the other streams do. A Decoder copies the weights, so the model and
// its store may change or be destroyed afterwards. Only the thread that made a Decoder may use it.
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
  // The model's store must be frozen and of f32; `threads` and `streams` are at least 1. `weights` is the type of the
  // packed matrices and of the KV cache: f32, or bf16, which is half as much to read. Where a matrix unit (AMX)
  // multiplies by bf16 weights, it rounds the other operand to bf16, too. The work is cut into shares that depend on
  // the model alone, so the logits have the same bits at any number of threads.
  explicit Decoder(const LanguageModel& model, int64_t threads = 1, int64_t streams = 1, DType weights = DType::f32);
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // Forgets all tokens, of all streams.
  void reset();
  // Takes in one token or several, and returns the logits (V) of the token that follows them. They are valid until the
  // stream's next token, and always at the same address. Without a stream's number: stream 0.
  std::span<const float> feed(int64_t token) {
    check_token(token);
    const auto id = static_cast<int32_t>(token);
    return feed(std::span<const int32_t>(&id, 1));
  }
  std::span<const float> feed(std::span<const int32_t> tokens) { return feed(0, tokens); }
  std::span<const float> feed(int64_t stream, std::span<const int32_t> tokens);
  // Takes in one more token for each of some streams, in ascending order of their numbers.
  struct Next {
    int64_t stream;
    int32_t token;
  };
  void feed_each(std::span<const Next> next);
  // The logits after the stream's last token, as feed returns them.
  [[nodiscard]] std::span<const float> logits(int64_t stream) const;
  // Makes stream `to` a copy of `from`, with its tokens, KV cache and logits.
  void copy(int64_t from, int64_t to);

  [[nodiscard]] int64_t streams() const { return static_cast<int64_t>(streams_.size()); }
  // The bytes of a stream's KV cache.
  [[nodiscard]] static int64_t stream_bytes(const LanguageModel& model, DType weights = DType::f32);
  // How many tokens the stream was fed since the reset, and how many of the last of them the model sees.
  [[nodiscard]] int64_t position(int64_t stream = 0) const { return stream_at(stream).position; }
  [[nodiscard]] int64_t window(int64_t stream = 0) const { return stream_at(stream).window; }
  [[nodiscard]] int64_t context() const { return options_.context; }
  [[nodiscard]] int threads() const { return team_.size(); }

 private:
  struct Stream {
    std::vector<int32_t> tokens;  // of the window
    int64_t window = 0, position = 0;
  };
  struct Work {         // the buffers of one member of the team
    float *x, *normed;  // the residual stream (rows, stride_); each member fills its own where rows are few
    std::byte *scratch, *products_scratch;
  };

  [[nodiscard]] const Stream& stream_at(int64_t index) const;
  void check_token(int64_t token) const;
  // Runs rows through the whole model and makes the logits of the last `wanted` of them. The rows are tokens of one
  // stream in order, or one token each of different streams.
  void take_in(std::span<const DecodeRow> rows, int64_t wanted);
  void run(int member, int members, std::span<const DecodeRow> rows, int64_t wanted);  // one member's work

  DecodeOptions options_;
  int64_t vocabulary_, width_, stride_;  // V, C, and C in whole groups of lanes
  Arena memory_;
  DecodeSteps steps_;

  Team team_;
  static constexpr int64_t kFirstAlone = 32, kMostAlone = 1024;
  int64_t alone_ = 0, alone_next_ = kFirstAlone;  // passes without the team: still to make, and if it is late again
  std::vector<Work> work_;                        // one a member
  // Each share's results (rows, stride_), twice: the next ones are written while others still read the last.
  std::vector<float*> partial_;
  float *logits_ = nullptr, *row_logits_ = nullptr;  // a row of logits_stride_ for each stream; for each row of a pass
  int64_t logits_stride_ = 0;
  std::vector<Stream> streams_;
  std::vector<DecodeRow> rows_, together_;  // rows of a pass: of one stream, and of different streams
};

}  // namespace tril

// Decoding: a Gpt forwards only, a token at a time, with the keys and values of earlier tokens kept. For each token the
// weights stream by once, so they are packed once in the order in which they are read, and nothing is allocated and no
// library called between two tokens.
//
//   Decoder decoder(store, config);
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
//   Decoder decoder(store, config, threads, 8);
//   decoder.feed(0, prompt);
//   for (int i = 1; i < 8; ++i) decoder.copy(0, i);
//   decoder.feed_each(next);                           // a token for each
//   logits = decoder.logits(3);
//
// A stream's logits do not depend on the others, to the bit. A Decoder copies the weights: the store may change or go.
// It belongs to the thread that made it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/machine/arena.h"
#include "core/machine/team.h"
#include "core/matmul/bf16_rows.h"
#include "core/matmul/panels.h"
#include "nn/gpt.h"

namespace tril {

class Decoder {
 public:
  // The store holds a Gpt's parameters in f32. `weights`: what the packed matrices and the kept keys and values hold,
  // f32 or bf16, which is half as much to read; a matrix unit (AMX) also takes what it multiplies by them in bf16. The
  // work is cut into pieces that depend on the configuration alone, so the logits have the same bits at any number of
  // threads, at least 1.
  Decoder(const ParamStore& params, const GptConfig& config, int64_t threads = 1, int64_t streams = 1,
          DType weights = DType::f32);
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
  [[nodiscard]] static int64_t stream_bytes(const GptConfig& config, DType weights = DType::f32);  // of keys and values
  // Tokens fed since the reset, and the last of them, which the model sees.
  [[nodiscard]] int64_t position(int64_t stream = 0) const { return stream_at(stream).position; }
  [[nodiscard]] int64_t window(int64_t stream = 0) const { return stream_at(stream).window; }
  [[nodiscard]] const GptConfig& config() const { return config_; }
  [[nodiscard]] int threads() const { return team_.size(); }

 private:
  // A weight as one of three, the last where there is a matrix unit.
  struct Weight {
    panels::Matrix<float> wide{};
    panels::Matrix<bf16> narrow{};
    bf16_rows::Matrix tiles{};
    int64_t outputs = 0;
  };
  // The keys or values of every stream's window (T, row) in a part of a layer, of one of the two types.
  struct Windows {
    float* wide = nullptr;
    bf16* narrow = nullptr;
  };
  template <class W>
  static W* of(const Windows& windows) {
    if constexpr (std::is_same_v<W, bf16>)
      return windows.narrow;
    else
      return windows.wide;
  }
  struct Norm {
    const float *weight, *bias;
  };
  // A part of a layer that needs nothing of the other parts until its results are added to theirs: some heads, and some
  // units of the MLP.
  struct Part {
    int64_t heads, group;  // heads of keys, and of queries that look at each
    Weight qkv, attention_projection, fc, mlp_projection;
    const float *qkv_bias, *fc_bias;
    Windows keys, values;
    int64_t row;  // of keys and values
  };
  struct Stream {
    std::vector<int32_t> tokens;  // of the window
    int64_t window = 0, position = 0;
  };
  struct Row {           // a token to take in
    int64_t stream, at;  // its place in the stream's window
    int32_t token;
  };
  struct Layer {
    Norm ln_1, ln_2;
    const float *attention_bias, *mlp_bias;
    std::vector<Part> parts;
  };
  struct Head {
    Weight weight;
    int64_t first;  // of the vocabulary
  };
  struct Work {              // what one member of the team computes in, (rows, …) each
    int64_t rows;            // of this pass
    float *stream, *normed;  // the residual stream, of which each member has its own where rows are few
    float *qkv, *mixed, *inner;
    int64_t qkv_row, mixed_row, inner_row;
    float *scores, *query;  // (T), (D)
    bf16* rounded;          // for products on the matrix unit
  };

  class Packer;
  [[nodiscard]] Work make_work(Packer& packer) const;
  [[nodiscard]] const Stream& stream_at(int64_t index) const;
  void check_token(int64_t token) const;
  // Rows, of one stream in order or of different ones, through the whole model; the logits of the last `wanted`.
  void take_in(std::span<const Row> rows, int64_t wanted);
  void run(int member, int members, std::span<const Row> rows, int64_t wanted);  // the work of one of the members
  static void multiply(const Work& work, const float* x, int64_t row_x, const Weight& w, const float* bias, float* y,
                       int64_t row_y);
  void attend(const Part& part, std::span<const Row> rows, const Work& work, float* out) const;
  template <class W>
  void keep(const Part& part, std::span<const Row> rows, const Work& work) const;
  template <class W>
  void look_back(const Part& part, std::span<const Row> rows, const Work& work) const;
  void think(const Part& part, const Work& work, float* out) const;

  static constexpr int64_t kRows = 64;  // tokens taken together where several are known

  GptConfig config_;
  bool narrow_;              // keys and values
  int64_t head_size_, row_;  // D; C rounded up to whole groups of lanes
  std::vector<Layer> layers_;
  Norm ln_f_{};
  std::vector<Head> heads_;
  const float *token_table_ = nullptr, *position_table_ = nullptr;
  Arena memory_;

  Team team_;
  static constexpr int64_t kFirstAlone = 32, kMostAlone = 1024;
  int64_t alone_ = 0, alone_next_ = kFirstAlone;  // passes to make without the team: now, and when it is late again
  std::vector<Work> work_;                        // one a member
  std::vector<float*> partial_;  // of each part, (rows, row_), twice: the next sum begins while others still read
  float *logits_ = nullptr, *row_logits_ = nullptr;  // by stream, and by row of a pass: rows of logits_row_
  int64_t logits_row_ = 0;
  std::vector<Stream> streams_;
  std::vector<Row> rows_, together_;  // of a pass: of one stream, and of different ones
};

}  // namespace tril

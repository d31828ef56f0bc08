// Decode steps: what a module does for a few tokens in decoding, with weights that are packed once and, in attention,
// the KV cache. Each module makes its steps, declared beside its forward; Decoder (nn/decode.h) runs those of a whole
// model.
//
// The work is cut into shares, for the threads: some heads of an attention, some units of an MLP, some tokens of the
// vocabulary. Shares are independent until their results are added up, in order. How many there are depends on the
// model alone, so the number of threads changes no bit.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "core/machine/arena.h"
#include "core/matmul/packed_weight.h"
#include "nn/params.h"

namespace tril {

struct DecodeRow {     // a token to take in
  int64_t stream, at;  // its place in the stream's window
  int32_t token;
};
inline constexpr int64_t kDecodeRows = 64;  // the most rows of one pass

struct Range {
  int64_t begin = 0, end = 0;
  [[nodiscard]] int64_t count() const { return end - begin; }
};

struct DecodeOptions {
  int64_t shares = 1, streams = 1;
  int64_t context = 0;         // tokens of a stream's window
  DType weights = DType::f32;  // of packed matrices, and of kept keys and values: f32 or bf16
  // The share's part of `count` things, in whole groups of `unit`.
  [[nodiscard]] Range share_of(int64_t count, int64_t share, int64_t unit = 1) const;
};

// Allocates what steps hold, while they are made. The Decoder owns the memory.
class DecodeMemory {
 public:
  DecodeMemory(Arena& memory, const DecodeOptions& options) : memory_(memory), options_(options) {}
  [[nodiscard]] const DecodeOptions& options() const { return options_; }
  template <class T>
  [[nodiscard]] T* room(int64_t count) {
    return reinterpret_cast<T*>(memory_.allocate(count * int64_t{sizeof(T)}));
  }
  // Copies parts of a parameter, or all of it, one after the other, and adds zeros up to whole groups of outputs.
  // Returns null if the module has no such parameter.
  [[nodiscard]] const float* copy(const Param& param, std::initializer_list<Range> parts);
  [[nodiscard]] const float* copy(const Param& param);
  // Packs some rows of a matrix (outputs, inputs), one below the other, or some of its columns.
  [[nodiscard]] PackedWeight pack_rows(const Param& weight, std::initializer_list<Range> rows);
  [[nodiscard]] PackedWeight pack_columns(const Param& weight, Range columns);

 private:
  [[nodiscard]] PackedWeight pack(std::span<const PackedWeight::Rows> rows, int64_t inputs);
  Arena& memory_;
  DecodeOptions options_;
};

// One pass of a few tokens through the model, as one thread runs it.
struct DecodePass {
  std::span<const DecodeRow> rows;
  const PackedProducts& multiply;
  int64_t stride;      // from row to row of the residual stream and of what is added to it
  std::byte* scratch;  // for the step that runs
};

// Adds an embedding, of the token or of its position, to the token's row of the residual stream.
class InputStep {
 public:
  virtual ~InputStep() = default;
  virtual void operator()(const DecodeRow& row, float* x) const = 0;
};

enum class TableRow : uint8_t { of_token, of_place };
// Adds a row of a table (…, width), which must outlive the step: the row of the token's id or of its place.
[[nodiscard]] std::unique_ptr<InputStep> table_step(const float* table, int64_t width, TableRow which);
// y += x
void add_row(const float* x, float* y, int64_t n);

// Computes a row y from a row x: a norm.
class RowStep {
 public:
  virtual ~RowStep() = default;
  virtual void operator()(const float* x, float* y) const = 0;
};

// One share of a branch (attention or MLP). From the normalised rows it makes `out`, its part of what is added to the
// residual stream.
class ShareStep {
 public:
  virtual ~ShareStep() = default;
  virtual void operator()(const DecodePass& pass, const float* normed, float* out) const = 0;
  [[nodiscard]] virtual int64_t scratch_bytes() const = 0;
  [[nodiscard]] virtual int64_t most_inputs() const = 0;  // of its matrix products
  // Copies what is kept of the first `tokens` of the window of stream `from` to stream `to`.
  virtual void copy(int64_t /*from*/, int64_t /*to*/, int64_t /*tokens*/) const {}
};

// A whole model's steps, in the order in which they run.
struct DecodeSteps {
  struct Branch {  // x += bias + the sum of shares(norm(x))
    std::unique_ptr<RowStep> norm;
    std::vector<std::unique_ptr<ShareStep>> shares;
    const float* bias = nullptr;
  };
  struct Head {  // logits of the vocabulary from `first` on
    PackedWeight weight;
    int64_t first = 0;
  };
  std::vector<std::unique_ptr<InputStep>> inputs;
  std::vector<Branch> branches;
  std::unique_ptr<RowStep> norm;
  std::vector<Head> head;  // one a share
};

}  // namespace tril

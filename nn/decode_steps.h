// What modules give to decoding, each beside its forward: the step that it makes for a few tokens, from weights that
// are packed once, with what it keeps of earlier tokens. Decoder (nn/decode.h) runs the steps of a whole model.
//
// The work is cut into shares, for the threads: some heads of an attention, some units of an MLP, some tokens of the
// vocabulary. A share needs nothing of the others until their results are added up, in order; how many there are
// depends on the model alone, so the number of threads changes no bit.
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
inline constexpr int64_t kDecodeRows = 64;  // taken in together at most

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

// Where steps put what they hold, while they are made. The memory is the Decoder's.
class DecodeMemory {
 public:
  DecodeMemory(Arena& memory, const DecodeOptions& options) : memory_(memory), options_(options) {}
  [[nodiscard]] const DecodeOptions& options() const { return options_; }
  template <class T>
  [[nodiscard]] T* room(int64_t count) {
    return reinterpret_cast<T*>(memory_.allocate(count * int64_t{sizeof(T)}));
  }
  // Some parts of a parameter, one after the other, followed by zeros up to whole groups of outputs; null for none.
  [[nodiscard]] const float* copy(const Param& param, std::initializer_list<Range> parts);
  [[nodiscard]] const float* copy(const Param& param);
  // Some rows of a matrix (outputs, inputs), one below the other; or some of its columns.
  [[nodiscard]] PackedWeight pack_rows(const Param& weight, std::initializer_list<Range> rows);
  [[nodiscard]] PackedWeight pack_columns(const Param& weight, Range columns);

 private:
  [[nodiscard]] PackedWeight pack(std::span<const PackedWeight::Rows> rows, int64_t inputs);
  Arena& memory_;
  DecodeOptions options_;
};

// Some tokens on their way through the model, in one thread.
struct DecodePass {
  std::span<const DecodeRow> rows;
  const PackedProducts& multiply;
  int64_t stride;      // from row to row of the residual stream and of what is added to it
  std::byte* scratch;  // for the step that runs
};

// Adds what a token brings to its row of the residual stream.
class InputStep {
 public:
  virtual ~InputStep() = default;
  virtual void operator()(const DecodeRow& row, float* x) const = 0;
};

enum class TableRow : uint8_t { of_token, of_place };
// Adds a row of a table (…, width).
[[nodiscard]] std::unique_ptr<InputStep> table_step(const float* table, int64_t width, TableRow which);
// y += x
void add_row(const float* x, float* y, int64_t n);

// Makes a row of another.
class RowStep {
 public:
  virtual ~RowStep() = default;
  virtual void operator()(const float* x, float* y) const = 0;
};

// A share of a branch: out = what is to be added to the residual stream, from normed rows.
class ShareStep {
 public:
  virtual ~ShareStep() = default;
  virtual void operator()(const DecodePass& pass, const float* normed, float* out) const = 0;
  [[nodiscard]] virtual int64_t scratch_bytes() const = 0;
  [[nodiscard]] virtual int64_t most_inputs() const = 0;  // of its products
  // The stream `to` has seen what `from` has in its window's first `tokens`.
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

// The products of one attention head in bf16 on the matrix unit. Keys and values are laid in panels once a head; then
// come blocks of up to 32 queries. For one task of a parallel region: it owns the unit's tiles while it lives.
// All buffers of sums are f32, with rows and columns rounded up as said, and what lies beyond the head is 0.
#pragma once

#include "core/base/dtype.h"
#include "core/machine/arena.h"
#include "core/machine/cpu.h"
#include "core/machine/matrix_unit.h"

namespace tril {

class AttentionTiles {
 public:
  [[nodiscard]] static bool work() { return cpu_has(CpuLevel::amx); }

  AttentionTiles(Scratch& scratch, int64_t head, int64_t keys, bool backward);

  // k and v (keys, head), their rows `row` apart. Only the first `seen` are read; the others count as 0.
  void take_keys(const bf16* k, const bf16* v, int64_t row, int64_t seen);
  // sums (32, columns) = factor · x (count, head) · kᵀ, or · vᵀ. `columns` is a multiple of 32.
  void by_keys(const bf16* x, int64_t row, int64_t count, int64_t columns, float factor, float* sums, int64_t stride);
  void by_values(const bf16* x, int64_t row, int64_t count, int64_t columns, float* sums, int64_t stride);
  // Rounds weights (count, columns) · factor to bf16, for the products below.
  void take_weights(const float* weights, int64_t stride, int64_t count, int64_t columns, float factor);
  // sums (32, head_columns()) = the weights · v, or · k.
  void mix_values(float* sums) { mix(values_across_, sums); }
  void mix_keys(float* sums) { mix(keys_across_, sums); }
  // sums (columns, head_columns()) = [sums +] weightsᵀ · x (count, head).
  void spread(const bf16* x, int64_t row, bool add, float* sums);

  [[nodiscard]] int64_t head_columns() const { return head_columns_; }

 private:
  [[nodiscard]] const bf16* rows_of(const bf16* x, int64_t& row, int64_t count);
  void multiply_by(const bf16* panels, const bf16* x, int64_t row, int64_t count, int64_t columns, float* sums,
                   int64_t stride);
  void mix(const bf16* across, float* sums);

  MatrixUnit unit_;
  int64_t head_, keys_, key_rows_;
  int64_t head_columns_, head_inner_;  // D in whole tiles, as columns of a result and as an inner axis
  // Keys and values as the second operand: along D for scores, across it for mixing.
  bf16 *keys_along_, *values_across_, *values_along_ = nullptr, *keys_across_ = nullptr;
  bf16 *copy_, *weights_, *weights_transposed_ = nullptr, *rows_across_ = nullptr;
  int64_t count_ = 0, columns_ = 0;  // of the weights
};

}  // namespace tril

// The products of one attention head in bf16 on the matrix unit, as core/attention/vectors.h has them on vectors; all
// that weights of 0 meet must be finite. Keys and values are laid in panels once a head. For one task of a parallel
// region: it owns the unit's tiles while it lives.
// All buffers of sums are f32, with rows and columns rounded up, and what lies beyond the head is 0.
#pragma once

#include "core/attention/gradients.h"
#include "core/attention/rows.h"
#include "core/base/dtype.h"
#include "core/machine/arena.h"
#include "core/machine/cpu.h"
#include "core/machine/matrix_unit.h"

namespace tril {

class AttentionTiles {
  using QueryRows = attention_rows::QueryRows;

 public:
  [[nodiscard]] static bool work() { return cpu_has(CpuLevel::amx); }

  AttentionTiles(Scratch& scratch, int64_t head, int64_t keys, bool backward);

  void take_keys(const bf16* k, const bf16* v, int64_t row, int64_t seen, bool finite);
  void by_keys(const QueryRows& queries, const bf16* q, int64_t row, float* scores);
  void by_values(const QueryRows& queries, const bf16* d_o, int64_t row, float* dweights);
  // Rounds the weights times the factor to bf16.
  void take_weights(const QueryRows& queries, const float* weights, float factor);
  void mix(const QueryRows& queries, bf16* out, int64_t row, bool add);
  void spread_keys(const QueryRows& queries, const WrittenPanels& written, const KeyGradient<bf16>& to) {
    if (to.data != nullptr) spread(queries, written, q_, dkeys_);
  }
  void spread_values(const QueryRows& queries, const WrittenPanels& written, const KeyGradient<bf16>& to) {
    if (to.data != nullptr) spread(queries, written, d_o_, dvalues_);
  }
  void finish(const WrittenPanels& written, const KeyGradient<bf16>& dkeys, const KeyGradient<bf16>& dvalues) const {
    finish(written, dkeys, dkeys_);
    finish(written, dvalues, dvalues_);
  }

 private:
  struct HeadRows {  // of queries
    const bf16* data;
    int64_t stride;
  };

  [[nodiscard]] HeadRows whole_rows(const HeadRows& x, int64_t count);
  void multiply_by(const bf16* panels, const QueryRows& queries, const HeadRows& x, float* sums);
  void spread(const QueryRows& queries, const WrittenPanels& written, const HeadRows& x, float* sums);
  void write(const float* rows, int64_t count, bf16* to, int64_t row, bool add) const;
  void finish(const WrittenPanels& written, const KeyGradient<bf16>& gradient, const float* from) const;

  MatrixUnit unit_;
  int64_t head_, keys_, key_rows_;
  int64_t head_columns_, head_inner_;  // D in whole tiles, as columns of a result and as an inner axis
  // Keys and values as the second operand: along D for scores, across it for mixing.
  bf16 *keys_along_ = nullptr, *values_along_ = nullptr, *mixed_across_ = nullptr;
  bf16 *copy_ = nullptr, *weights_ = nullptr, *weights_transposed_ = nullptr, *rows_across_ = nullptr;
  float *mixed_ = nullptr, *dkeys_ = nullptr, *dvalues_ = nullptr;
  HeadRows q_{}, d_o_{};
};

}  // namespace tril

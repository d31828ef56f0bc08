// The layers a transformer is made of. A layer is made once, in a scope that names its parameters, and called as often
// as you like: calling is const and the tape is found in the operand. What a layer does for a token in decoding stands
// beside its call (nn/decode_steps.h). Shapes: B batch, T time, C width.
#pragma once

#include "core/ops.h"
#include "nn/decode_steps.h"
#include "nn/params.h"

namespace tril {

// Weights start normal with this deviation, as in GPT-2; biases at 0.
inline constexpr double kInitDeviation = 0.02;

// x Wᵀ + b. weight (out, in), bias (out).
class Linear {
 public:
  Linear(const Scope& scope, int64_t in, int64_t out, bool bias = true, double deviation = kInitDeviation);
  [[nodiscard]] Tensor operator()(const Tensor& x) const;
  Param weight, bias;
};

// weight (count, width): a row for each id.
class Embedding {
 public:
  Embedding(const Scope& scope, int64_t count, int64_t width);
  [[nodiscard]] Tensor operator()(const Tensor& ids) const;
  [[nodiscard]] std::unique_ptr<InputStep> decode_step(DecodeMemory& memory) const;
  Param weight;
};

class Dropout {
 public:
  explicit Dropout(double p);
  [[nodiscard]] Tensor operator()(const Tensor& x) const { return p == 0.0 ? x : dropout(x, p); }
  double p;
};

// The residual stream of a pre-norm transformer (B, T, C). A branch added to it is kept aside until the next norm,
// which adds and normalises in one pass, and is then discarded (Tape::discard).
class ResidualStream {
 public:
  explicit ResidualStream(const Tensor& x, double branch_dropout = 0.0) : sum_(x), dropout_(branch_dropout) {}
  void add(const Tensor& branch);
  [[nodiscard]] const Tensor& sum() const { return sum_; }
  [[nodiscard]] const Tensor& branch() const { return branch_; }  // not yet added; its data is null if there is none

 private:
  friend class LayerNorm;
  Tensor sum_, branch_;
  double dropout_;
};

// weight (width) starts at 1, bias (width) at 0. In a context of precision bf16 the normed rows are bf16, for linear
// and what follows it; ops on the residual stream itself, add and dropout among them, take f32.
class LayerNorm {
 public:
  LayerNorm(const Scope& scope, int64_t width, bool bias = true, double epsilon = 1e-5);
  [[nodiscard]] Tensor operator()(const Tensor& x) const;
  [[nodiscard]] Tensor operator()(ResidualStream& stream) const;
  [[nodiscard]] std::unique_ptr<RowStep> decode_step(DecodeMemory& memory) const;
  Param weight, bias;

 private:
  double epsilon_;
};

// Two linear layers with a GELU between: c_fc (C to inner), c_proj (inner to C). Where the GELU's result takes
// kRemadeFrom bytes or more, its memory is given back, and backward makes it again; to make less again would take 5 %
// of a step.
class Mlp {
 public:
  static constexpr int64_t kRemadeFrom = int64_t{8} << 20;

  Mlp(const Scope& scope, int64_t width, int64_t inner, bool bias, Gelu form,
      double projection_deviation = kInitDeviation);
  [[nodiscard]] Tensor operator()(const Tensor& x) const;
  // Some units, whose share of c_proj's sums lacks its bias.
  [[nodiscard]] std::unique_ptr<ShareStep> decode_share(DecodeMemory& memory, int64_t share) const;
  [[nodiscard]] const Param& output_bias() const { return c_proj_.bias; }

 private:
  Linear c_fc_, c_proj_;
  Gelu form_;
};

}  // namespace tril

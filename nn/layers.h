// The layers a transformer is made of. A layer is made once, in a scope that names its parameters, and called as often
// as you like: a call is const and finds the tape in its operand. The step that a layer makes for decoding
// (nn/decode_steps.h) is declared beside its call. Shapes: B batch, T time, C width.
#pragma once

#include "core/ops.h"
#include "nn/decode_steps.h"
#include "nn/params.h"

namespace tril {

// Weights start normally distributed with this standard deviation, as in GPT-2; biases start at 0.
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

// The residual stream of a pre-norm transformer (B, T, C). add() only keeps a branch aside: the next LayerNorm adds it
// to the stream and normalises in one pass, and then discards the branch (Tape::discard).
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

// weight (width) starts at 1, bias (width) at 0. In a context of precision bf16 the normalised rows are bf16, for
// linear and what follows it. Ops on the residual stream itself, such as add and dropout, work in f32.
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

// Two linear layers with a GELU between: c_fc (C to inner), c_proj (inner to C). If the GELU's result takes kRemadeFrom
// bytes or more, it is discarded and backward computes it again. Smaller results are kept: to compute them again would
// take 5 % of a step.
class Mlp {
 public:
  static constexpr int64_t kRemadeFrom = int64_t{8} << 20;

  Mlp(const Scope& scope, int64_t width, int64_t inner, bool bias, Gelu form,
      double projection_deviation = kInitDeviation);
  [[nodiscard]] Tensor operator()(const Tensor& x) const;
  // One share of the work in decoding: some of the inner units. Its result lacks c_proj's bias: output_bias() is added
  // once for all shares.
  [[nodiscard]] std::unique_ptr<ShareStep> decode_share(DecodeMemory& memory, int64_t share) const;
  [[nodiscard]] const Param& output_bias() const { return c_proj_.bias; }

 private:
  Linear c_fc_, c_proj_;
  Gelu form_;
};

}  // namespace tril

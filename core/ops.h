// The public function of every op. Each finds the tape in its operands, checks them, computes, and records what
// backward needs. Shapes: B batch, T time, C width, V vocabulary, H heads, D head size. Operands are f32 or f64, all of
// one type; ids are i32. For mixed precision, the elementwise functions of one operand, linear, attention and
// cross_entropy take bf16 too, and what they save and sum is f32. Every function throws tril::Error, naming the op,
// what was expected and what was found.
//
// Special numbers. Subnormal ones (f32 and bf16 under 2^-126, f64 under 2^-1022) count as 0, as operands and as
// results. Otherwise results are IEEE's, and functions have their limits at infinity: gelu(-inf) is 0. A gradient is
// right wherever it is in range, even if a part of its formula is not. NaN and infinity propagate as the formula says,
// forward and backward, as in PyTorch: 0 times infinity is NaN. But relu, max and masks choose: an element that is not
// chosen has no influence, whatever it holds, and its gradient is 0. max chooses NaN if there is one, and relu lets the
// gradient of a NaN pass. (Some kernels of PyTorch's attention let NaN through their masks: here a token's future never
// reaches it.)
#pragma once

#include <concepts>
#include <initializer_list>
#include <optional>
#include <span>

#include "core/attention/options.h"
#include "core/autograd/tape.h"

namespace tril {

// Elementwise, with NumPy's broadcasting: axes are aligned from the end, an axis of 1 is repeated.
[[nodiscard]] Tensor add(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor sub(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor mul(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor div(const Tensor& a, const Tensor& b);
[[nodiscard]] inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
[[nodiscard]] inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
[[nodiscard]] inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
[[nodiscard]] inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }

// Elementwise with a number, which is rounded to x's type. These take bf16.
[[nodiscard]] Tensor scale(const Tensor& x, double factor);
[[nodiscard]] Tensor affine(const Tensor& x, double factor, double offset);  // factor x + offset
[[nodiscard]] Tensor div_by(const Tensor& x, double divisor);                // x / divisor
[[nodiscard]] Tensor reciprocal(const Tensor& x, double numerator = 1.0);    // numerator / x
template <class T>
concept Number = std::integral<T> || std::floating_point<T>;
[[nodiscard]] inline Tensor operator-(const Tensor& x) { return scale(x, -1.0); }
[[nodiscard]] Tensor operator+(const Tensor& x, Number auto c) { return affine(x, 1.0, static_cast<double>(c)); }
[[nodiscard]] Tensor operator+(Number auto c, const Tensor& x) { return affine(x, 1.0, static_cast<double>(c)); }
[[nodiscard]] Tensor operator-(const Tensor& x, Number auto c) { return affine(x, 1.0, -static_cast<double>(c)); }
[[nodiscard]] Tensor operator-(Number auto c, const Tensor& x) { return affine(x, -1.0, static_cast<double>(c)); }
[[nodiscard]] Tensor operator*(const Tensor& x, Number auto c) { return scale(x, static_cast<double>(c)); }
[[nodiscard]] Tensor operator*(Number auto c, const Tensor& x) { return scale(x, static_cast<double>(c)); }
[[nodiscard]] Tensor operator/(const Tensor& x, Number auto c) { return div_by(x, static_cast<double>(c)); }
[[nodiscard]] Tensor operator/(Number auto c, const Tensor& x) { return reciprocal(x, static_cast<double>(c)); }

[[nodiscard]] Tensor exp(const Tensor& x);
[[nodiscard]] Tensor log(const Tensor& x);
[[nodiscard]] Tensor tanh(const Tensor& x);
[[nodiscard]] Tensor sigmoid(const Tensor& x);
[[nodiscard]] Tensor relu(const Tensor& x);  // derivative 0 at 0
[[nodiscard]] Tensor silu(const Tensor& x);  // x sigmoid(x), https://arxiv.org/abs/1702.03118

// https://arxiv.org/abs/1606.08415. erf: x Phi(x), nanoGPT's; tanh: its approximation, GPT-2's. They differ by up to
// 5e-4.
enum class Gelu : uint8_t { erf, tanh };
[[nodiscard]] Tensor gelu(const Tensor& x, Gelu form = Gelu::erf);

// Reductions over some axes, or over all. Negative axes count from the end; keep leaves reduced axes in place with
// extent 1. Where several elements are the maximum, they share its gradient equally. The maximum or mean of nothing is
// an error.
[[nodiscard]] Tensor sum(const Tensor& x);
[[nodiscard]] Tensor sum(const Tensor& x, std::initializer_list<int64_t> axes, bool keep = false);
[[nodiscard]] Tensor mean(const Tensor& x);
[[nodiscard]] Tensor mean(const Tensor& x, std::initializer_list<int64_t> axes, bool keep = false);
[[nodiscard]] Tensor max(const Tensor& x);
[[nodiscard]] Tensor max(const Tensor& x, std::initializer_list<int64_t> axes, bool keep = false);

// (…, m, k) · (…, k, n) -> (…, m, n). With transpose_a, a is given as (…, k, m); with transpose_b, b as (…, n, k). Axes
// before the last two broadcast.
struct MatmulOptions {
  bool transpose_a = false, transpose_b = false;
};
[[nodiscard]] Tensor matmul(const Tensor& a, const Tensor& b, const MatmulOptions& options = {});
// x (…, in) · weightᵀ + bias -> (…, out). weight (out, in) as in PyTorch; bias (out) or left out. With x in bf16 the
// result is bf16, and weight and bias, and their gradients, are f32: the product reads the weight's shadow
// (nn/params.h), or rounds it.
[[nodiscard]] Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

// The same numbers in another shape; one extent may be -1, meaning whatever is left. Shares memory with x.
[[nodiscard]] Tensor reshape(const Tensor& x, std::initializer_list<int64_t> dims);
[[nodiscard]] Tensor reshape(const Tensor& x, std::span<const int64_t> dims);
// Axis i of the result is axis axes[i] of x.
[[nodiscard]] Tensor permute(const Tensor& x, std::initializer_list<int64_t> axes);
// The part [begin, end) of an axis.
[[nodiscard]] Tensor slice(const Tensor& x, int64_t axis, int64_t begin, int64_t end);
[[nodiscard]] Tensor concat(std::span<const Tensor> parts, int64_t axis);
[[nodiscard]] Tensor concat(std::initializer_list<Tensor> parts, int64_t axis);

// Rows of weight (V, C) chosen by ids (…) -> (…, C).
[[nodiscard]] Tensor embedding(const Tensor& ids, const Tensor& weight);

// Over one axis. The softmax of a row that is all -inf (everything is masked) is 0, with gradient 0.
[[nodiscard]] Tensor softmax(const Tensor& x, int64_t axis = -1);
[[nodiscard]] Tensor log_softmax(const Tensor& x, int64_t axis = -1);

// Each element is 0 with probability p, else divided by 1 - p. Which ones is a function of the context's seed and step,
// the op's place on the tape, and the element's place in the step's whole batch (axis 0 counts samples), so nothing is
// stored. On a tape in evaluate mode the result is x.
[[nodiscard]] Tensor dropout(const Tensor& x, double p);

// Over the last axis: (x - mean) / sqrt(variance + epsilon) * weight + bias; bias may be left out.
// https://arxiv.org/abs/1607.06450
// narrow: where x is f32, the result is stored as bf16, for the products that read it.
[[nodiscard]] Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, double epsilon = 1e-5,
                                bool narrow = false);
// The residual step and the norm behind it in one pass: sum = x + dropout(y), normed = layer_norm(sum). y may be bf16
// where x is f32.
struct AddLayerNorm {
  Tensor sum, normed;
};
[[nodiscard]] AddLayerNorm add_layer_norm(const Tensor& x, const Tensor& y, const Tensor& weight,
                                          const Tensor& bias = {}, double dropout = 0.0, double epsilon = 1e-5,
                                          bool narrow = false);

// Negative log-likelihood of targets (…) under softmax(logits (…, V)), in nats. Targets equal to ignore_index do not
// count; if none counts, the loss and its gradient are 0.
enum class Reduction : uint8_t { mean, sum };
struct CrossEntropyOptions {
  Reduction reduction = Reduction::mean;
  int32_t ignore_index = -1;
};
[[nodiscard]] Tensor cross_entropy(const Tensor& logits, const Tensor& targets,
                                   const CrossEntropyOptions& options = {});

// Scaled dot-product attention, https://arxiv.org/abs/1706.03762: each query's output is a convex combination of the
// values, with coefficients softmax(scale · q·k) made at run time. Heads are segments of the last axis, D = C / heads
// wide. q (B, Tq, C), k (B, Tk, Ck), v (B, Tk, Ck) -> (B, Tq, C), Ck = kv_heads D; for self-attention also packed, qkv
// (B, T, C + 2 Ck), which is (B, T, 3C) where kv_heads is heads. What a query sees is what `options` (causal, window)
// and `masks` allow together; one that sees nothing gives 0, with gradient 0. Backward recomputes the weights from each
// row's maximum and sum, the only things saved.
struct AttentionMasks {
  Tensor lengths{};  // (B), i32: of sample b only the first lengths[b] keys are seen
};
[[nodiscard]] Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options = {},
                               const AttentionMasks& masks = {});
[[nodiscard]] Tensor attention(const Tensor& qkv, const AttentionOptions& options = {},
                               const AttentionMasks& masks = {});

}  // namespace tril

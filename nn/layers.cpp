#include "nn/layers.h"

#include <algorithm>

#include "core/kernels/math.h"
#include "core/kernels/norm_rows.h"

namespace tril {
namespace {

bool is_narrow(const Tensor& x) { return x.tape != nullptr && x.tape->context().precision() == DType::bf16; }

// Adds the parameter's name to an op's error: an op knows only the roles of its operands.
template <class Body>
auto in_layer(const Param& weight, Body&& body) {
  try {
    return body();
  } catch (const Error& error) { throw Error(cat(error.what(), " (with ", weight.info().name, ")")); }
}

TRIL_INLINE void norm_row(const float* x, const float* weight, const float* bias, float epsilon, float* y, int64_t n) {
  const auto [mean, r] = norm_rows::statistics(x, n, epsilon);
  norm_rows::normalise(x, mean, r, weight, bias, y, n);
}

TRIL_INLINE void gelu_erf_row(float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = math::gelu_erf(x[i]);
}

TRIL_INLINE void gelu_tanh_row(float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = math::gelu_tanh(x[i]);
}

struct LayerNormStep final : RowStep {
  const float *weight, *bias;
  float epsilon;
  int64_t width;
  LayerNormStep(const float* w, const float* b, double e, int64_t n)
      : weight(w), bias(b), epsilon(static_cast<float>(e)), width(n) {}
  void operator()(const float* x, float* y) const override { cloned<norm_row>(x, weight, bias, epsilon, y, width); }
};

// One share of an MLP: some of its inner units.
struct MlpStep final : ShareStep {
  PackedWeight fc, projection;
  const float* fc_bias;
  Gelu form;
  MlpStep(DecodeMemory& memory, const Linear& c_fc, const Linear& c_proj, Gelu gelu, Range units)
      : fc(memory.pack_rows(c_fc.weight, {units})),
        projection(memory.pack_columns(c_proj.weight, units)),
        fc_bias(memory.copy(c_fc.bias, {units})),
        form(gelu) {}
  [[nodiscard]] int64_t stride() const { return PackedWeight::padded(fc.outputs()); }
  [[nodiscard]] int64_t scratch_bytes() const override { return kDecodeRows * stride() * size_of(DType::f32); }
  [[nodiscard]] int64_t most_inputs() const override { return std::max(fc.inputs(), projection.inputs()); }
  void operator()(const DecodePass& pass, const float* normed, float* out) const override {
    auto* const inner = reinterpret_cast<float*>(pass.scratch);  // (rows, units)
    pass.multiply(normed, pass.stride, fc, fc_bias, inner, stride());
    for (int64_t row = 0; row < pass.multiply.rows(); ++row) {
      float* const x = inner + row * stride();
      form == Gelu::erf ? cloned<gelu_erf_row>(x, fc.outputs()) : cloned<gelu_tanh_row>(x, fc.outputs());
    }
    pass.multiply(inner, stride(), projection, nullptr, out, pass.stride);
  }
};

}  // namespace

Linear::Linear(const Scope& scope, int64_t in, int64_t out, bool with_bias, double deviation)
    : weight(scope.param("weight", {out, in}, Init::normal(deviation))),
      bias(with_bias ? scope.param("bias", {out}, Init::zeros()) : Param()) {}

Tensor Linear::operator()(const Tensor& x) const {
  const Tensor w = weight, b = bias;
  return in_layer(weight, [&] { return linear(x, w, b); });
}

Embedding::Embedding(const Scope& scope, int64_t count, int64_t width)
    : weight(scope.param("weight", {count, width}, Init::normal(kInitDeviation))) {}

Tensor Embedding::operator()(const Tensor& ids) const {
  const Tensor w = weight;
  return in_layer(weight, [&] { return embedding(ids, w); });
}

std::unique_ptr<InputStep> Embedding::decode_step(DecodeMemory& memory) const {
  return table_step(memory.copy(weight), weight.info().value.shape.last(), TableRow::of_token);
}

Dropout::Dropout(double probability) : p(probability) {
  TRIL_CHECK(p >= 0.0 && p < 1.0, "dropout", "0 <= p < 1", cat(p));
}

void ResidualStream::add(const Tensor& branch) {
  TRIL_CHECK(branch_.data == nullptr, "ResidualStream", "a norm between two branches", "two branches in a row");
  branch_ = branch;
}

LayerNorm::LayerNorm(const Scope& scope, int64_t width, bool with_bias, double epsilon)
    : weight(scope.param("weight", {width}, Init::ones())),
      bias(with_bias ? scope.param("bias", {width}, Init::zeros()) : Param()),
      epsilon_(epsilon) {}

Tensor LayerNorm::operator()(const Tensor& x) const {
  const Tensor w = weight, b = bias;
  return in_layer(weight, [&] { return layer_norm(x, w, b, epsilon_, is_narrow(x)); });
}

Tensor LayerNorm::operator()(ResidualStream& stream) const {
  if (stream.branch_.data == nullptr) return (*this)(stream.sum_);
  const Tensor w = weight, b = bias;
  const AddLayerNorm both = in_layer(weight, [&] {
    return add_layer_norm(stream.sum_, stream.branch_, w, b, stream.dropout_, epsilon_, is_narrow(stream.sum_));
  });
  both.sum.tape->discard(stream.branch_);
  stream = ResidualStream(both.sum, stream.dropout_);
  return both.normed;
}

std::unique_ptr<RowStep> LayerNorm::decode_step(DecodeMemory& memory) const {
  return std::make_unique<LayerNormStep>(memory.copy(weight), memory.copy(bias), epsilon_, weight.info().value.count());
}

Mlp::Mlp(const Scope& scope, int64_t width, int64_t inner, bool bias, Gelu form, double projection_deviation)
    : c_fc_(scope / "c_fc", width, inner, bias),
      c_proj_(scope / "c_proj", inner, width, bias, projection_deviation),
      form_(form) {}

Tensor Mlp::operator()(const Tensor& x) const {
  const Tensor hidden = gelu(c_fc_(x), form_);  // (…, inner)
  const Tensor y = c_proj_(hidden);
  if (hidden.bytes() >= kRemadeFrom) y.tape->discard(hidden);
  return y;
}

std::unique_ptr<ShareStep> Mlp::decode_share(DecodeMemory& memory, int64_t share) const {
  const Range units = memory.options().share_of(c_proj_.weight.info().value.shape.last(), share, panels::kLanes);
  return std::make_unique<MlpStep>(memory, c_fc_, c_proj_, form_, units);
}

}  // namespace tril

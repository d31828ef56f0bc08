#include "nn/layers.h"

namespace tril {
namespace {

bool is_narrow(const Tensor& x) { return x.tape != nullptr && x.tape->context().precision() == DType::bf16; }

// An op knows its operands by their roles; whose they are is for the layer to tell.
template <class Body>
auto in_layer(const Param& weight, Body&& body) {
  try {
    return body();
  } catch (const Error& error) { throw Error(cat(error.what(), " (with ", weight.info().name, ")")); }
}

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

}  // namespace tril

#include "nn/params.h"

#include <algorithm>
#include <cstring>

#include "core/kernels/convert.h"
#include "core/random.h"

namespace tril {
namespace {

constexpr int64_t kLine = 64;  // bytes

template <class T>
void fill_initial(T* values, const ParamInfo& param, uint64_t seed) {
  const RandomKey key{.seed = seed, .step = 0, .stream = stream_of(param.name.data(), param.name.size())};
  for (int64_t i = 0; i < param.value.count(); ++i) {
    const double noise =
        param.init.deviation == 0.0 ? 0.0 : param.init.deviation * random_normal(key, 0, static_cast<uint32_t>(i));
    values[i] = static_cast<T>(param.init.constant + noise);
  }
}

}  // namespace

ParamStore::ParamStore(DType dtype, uint64_t seed) : dtype_(dtype), seed_(seed) {
  TRIL_CHECK(dtype == DType::f32 || dtype == DType::f64, "parameters", "f32 or f64", name_of(dtype));
}

const ParamInfo& ParamStore::add(const std::string& name, const Shape& shape, const Init& init) {
  TRIL_CHECK(!frozen(), name, "a store that still grows", "one that is frozen", "make all modules before freeze()");
  TRIL_CHECK(find(name) == nullptr, name, "a name of its own", "one that is taken", "give each module its own scope");
  ParamInfo param{.name = name, .value = {}, .init = init};
  param.value.shape = shape;
  param.value.dtype = dtype_;
  param.value.slot = static_cast<int32_t>(params_.size());
  offsets_.push_back(elements_);
  const int64_t per_line = kLine / size_of(dtype_);
  elements_ += (shape.count() + per_line - 1) / per_line * per_line;
  count_ += shape.count();
  names_.push_back(name);
  return params_.emplace_back(std::move(param));
}

void ParamStore::freeze(Fill fill) {
  TRIL_CHECK(!frozen(), "parameters", "freeze() once", "a store that is frozen");
  values_ = std::make_unique<MemoryBlock>(std::max(elements_, int64_t{1}) * size_of(dtype_));
  std::memset(values_->data(), 0, static_cast<size_t>(values_->bytes()));
  for (ParamInfo& param : params_) {
    param.value.data = values_->data() + offset(param) * size_of(dtype_);
    if (fill == Fill::zero) continue;
    dispatch("parameters", dtype_, [&](auto type) { fill_initial(param.value.ptr<decltype(type)>(), param, seed_); });
  }
}

void ParamStore::keep_shadow() {
  TRIL_CHECK(frozen() && dtype_ == DType::f32, "parameters", "a frozen store of f32",
             frozen() ? name_of(dtype_) : "one that still grows");
  if (shadow_ == nullptr) {
    shadow_ = std::make_unique<MemoryBlock>(values_->bytes() / 2);
    for (ParamInfo& param : params_) param.value.shadow = shadow() + offset(param);
  }
  convert(reinterpret_cast<const float*>(data()), shadow(), elements_);
}

int64_t ParamStore::offset(const ParamInfo& param) const { return offsets_[static_cast<size_t>(param.value.slot)]; }

const ParamInfo* ParamStore::find(std::string_view name) const {
  const auto found =
      std::find_if(params_.begin(), params_.end(), [&](const ParamInfo& param) { return param.name == name; });
  return found == params_.end() ? nullptr : &*found;
}

GradStore::GradStore(const ParamStore& params)
    : params_(params),
      gradients_(std::max(params.elements(), int64_t{1}) * size_of(params.dtype())),
      received_(params.params().size(), 0) {
  TRIL_CHECK(params.frozen(), "gradients", "a frozen store of parameters", "one that still grows",
             "call freeze() first");
  std::memset(gradients_.data(), 0, static_cast<size_t>(gradients_.bytes()));
  for (const ParamInfo& param : params.params()) offsets_.push_back(params.offset(param) * size_of(params.dtype()));
}

ParameterGradients GradStore::binding() {
  return {.values = params_.data(),
          .gradients = gradients_.data(),
          .bytes = params_.elements() * size_of(params_.dtype()),
          .received = received_,
          .offsets = offsets_,
          .names = params_.names()};
}

void GradStore::reset() { std::fill(received_.begin(), received_.end(), uint8_t{0}); }

Tensor GradStore::of(const ParamInfo& param) const {
  Tensor gradient = param.value;
  gradient.slot = -1;
  gradient.shadow = nullptr;
  gradient.data = gradients_.data() + params_.offset(param) * size_of(params_.dtype());
  return gradient;
}

const Tensor& Param::checked() const {
  TRIL_CHECK(info_->value.data != nullptr, info_->name, "a frozen store", "a parameter without values yet",
             "call freeze() before the first pass");
  return info_->value;
}

}  // namespace tril

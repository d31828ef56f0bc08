#include "nn/params.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/base/random.h"
#include "core/kernels/convert.h"

namespace tril {
namespace {

constexpr int64_t kLine = 64;  // bytes
constexpr int64_t kMostElements = int64_t{1} << 48;

template <class T>
void fill_initial(T* values, const ParamInfo& param, uint64_t seed) {
  const RandomKey key{.seed = seed, .step = 0, .stream = stream_of(param.name.data(), param.name.size())};
  for (int64_t i = 0; i < param.value.count(); ++i) {
    const double noise =
        param.init.deviation == 0.0
            ? 0.0
            : param.init.deviation * random_normal(key, static_cast<uint32_t>(i >> 32), static_cast<uint32_t>(i));
    values[i] = static_cast<T>(param.init.constant + noise);
  }
}

}  // namespace

ParamStore::ParamStore(DType dtype, uint64_t seed) : dtype_(dtype), seed_(seed) {
  TRIL_CHECK(dtype == DType::f32 || dtype == DType::f64, "parameters", "f32 or f64", name_of(dtype));
}

const ParamInfo& ParamStore::add(const std::string& name, const Shape& shape, const Init& init) {
  const std::string where = cat("parameter ", name);
  TRIL_CHECK(!frozen(), where, "a store that still grows", "one whose freeze() has laid its parameters out",
             "make all modules before freeze()");
  if (const ParamInfo* const taken = find(name))
    fail(where, "a name of its own", cat("that of another parameter of the store, ", taken->value.shape),
         "give each module its own scope, as in Scope(store) / \"encoder\"");
  TRIL_CHECK(shape.count() <= kMostElements - elements_, where, "a store of at most 2^48 elements in all",
             cat(shape, " more than the ", elements_, " before"));
  TRIL_CHECK(params_.size() < std::numeric_limits<int32_t>::max(), where, "less than 2^31 parameters", "more");
  ParamInfo param{.name = name, .value = {}, .init = init};
  param.value.shape = shape;
  param.value.dtype = dtype_;
  param.value.slot = static_cast<int32_t>(params_.size());
  offsets_.push_back(elements_);
  const int64_t per_line = kLine / size_of(dtype_);
  elements_ += (shape.count() + per_line - 1) / per_line * per_line;
  count_ += shape.count();
  names_.push_back(name);
  const ParamInfo& added = params_.emplace_back(std::move(param));
  by_name_.emplace(added.name, &added);
  return added;
}

void ParamStore::freeze(Fill fill) {
  TRIL_CHECK(!frozen(), "parameters", "freeze() once", cat("a second call on the store of ", some_names()),
             "its parameters have their values and their place");
  memory_ = fill == Fill::planned ? Memory::planned : Memory::real;
  values_ = std::make_unique<MemoryBlock>(std::max(elements_, int64_t{1}) * size_of(dtype_), memory_);
  if (memory_ == Memory::real) std::memset(values_->data(), 0, static_cast<size_t>(values_->bytes()));
  for (ParamInfo& param : params_) {
    param.value.data = values_->data() + offset(param) * size_of(dtype_);
    if (fill != Fill::initial) continue;
    dispatch("parameters", dtype_, [&](auto type) { fill_initial(param.value.ptr<decltype(type)>(), param, seed_); });
  }
}

void ParamStore::keep_shadow() {
  expect_frozen("keep_shadow");
  TRIL_CHECK(dtype_ == DType::f32, "keep_shadow", "a store of f32", cat("one of ", dtype_, " with ", some_names()));
  if (shadow_ == nullptr) {
    shadow_ = std::make_unique<MemoryBlock>(values_->bytes() / 2);
    for (ParamInfo& param : params_) param.value.shadow = shadow() + offset(param);
  }
  convert(reinterpret_cast<const float*>(data()), shadow(), elements_);
}

std::string ParamStore::some_names() const {
  return params_.empty()       ? "no parameters"
         : params_.size() == 1 ? params_[0].name
                               : cat(params_[0].name, " and ", params_.size() - 1, " more");
}

void ParamStore::expect_frozen(std::string_view where) const {
  TRIL_CHECK(frozen() && memory_ == Memory::real, where, "a store whose parameters have their values",
             cat(frozen() ? "one that only plans, with " : "one that still grows, with ", some_names()),
             "call its freeze() when all modules are made: it lays the parameters out and fills them");
}

bool ParamStore::holds(const ParamInfo& param) const {
  const auto index = static_cast<size_t>(param.value.slot);
  return param.value.slot >= 0 && index < params_.size() && names_[index] == param.name &&
         params_[index].value.data == param.value.data;
}

int64_t ParamStore::offset(const ParamInfo& param) const {
  TRIL_CHECK(holds(param), cat("parameter ", param.name), cat("one of the store of ", some_names()),
             "one of another store");
  return offsets_[static_cast<size_t>(param.value.slot)];
}

const ParamInfo* ParamStore::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

GradStore::GradStore(const ParamStore& params)
    : params_(params),
      gradients_(std::max(params.elements(), int64_t{1}) * size_of(params.dtype()), params.memory()),
      received_(params.params().size(), 0) {
  if (params.memory() == Memory::real) params.expect_frozen("gradients");
  if (params.memory() == Memory::real) std::memset(gradients_.data(), 0, static_cast<size_t>(gradients_.bytes()));
  for (const ParamInfo& param : params.params()) offsets_.push_back(params.offset(param) * size_of(params.dtype()));
  binding_ = {.values = params_.data(),
              .gradients = gradients_.data(),
              .bytes = params_.elements() * size_of(params_.dtype()),
              .received = received_,
              .offsets = offsets_,
              .names = params_.names()};
}

size_t GradStore::index_of(const ParamInfo& param) const {
  (void)params_.offset(param);
  return static_cast<size_t>(param.value.slot);
}

void GradStore::reset() { std::fill(received_.begin(), received_.end(), uint8_t{0}); }

Tensor GradStore::of(const ParamInfo& param) const {
  Tensor gradient = param.value;
  gradient.slot = -1;
  gradient.shadow = nullptr;
  gradient.data = gradients_.data() + params_.offset(param) * size_of(params_.dtype());
  return gradient;
}

const ParamInfo& Param::info() const {
  TRIL_CHECK(info_ != nullptr, "parameter", "one that was made", "none: the module was made without it");
  return *info_;
}

const Tensor& Param::checked() const {
  TRIL_CHECK(info_->value.data != nullptr, cat("parameter ", info_->name), "values",
             "none yet, because its store is not frozen",
             "call the store's freeze() when all modules are made: it lays the parameters out and fills them");
  return info_->value;
}

}  // namespace tril

// Named parameters. A ParamStore owns the values of a model in one flat buffer, a GradStore their gradients in another
// of the same layout, so that optimizers, clipping and files see two arrays. Modules name their parameters once, in
// their constructors, by scope:
//
//   ParamStore store(DType::f32, seed);
//   Linear layer(Scope(store) / "head", 4, 2);   // head.weight (2, 4), head.bias (2)
//   store.freeze();                              // lays values out and fills them; now modules can be called
//
// Tied weights are one Param used twice. Initial values depend on (seed, name), not on the order of making. Not
// thread-safe while it grows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/autograd/tape.h"
#include "core/machine/arena.h"

namespace tril {

// Initial values: all the same, or normally distributed with mean 0.
struct Init {
  double constant = 0.0;
  double deviation = 0.0;
  [[nodiscard]] static Init zeros() { return {}; }
  [[nodiscard]] static Init ones() { return {.constant = 1.0}; }
  [[nodiscard]] static Init normal(double deviation) { return {.deviation = deviation}; }
};

struct ParamInfo {
  std::string name;
  Tensor value;  // not on a tape; its data is set when the store is frozen
  Init init;
  [[nodiscard]] bool decays() const { return value.shape.rank() >= 2; }  // matrices decay; biases and norms do not
};

class ParamStore {
 public:
  explicit ParamStore(DType dtype = DType::f32, uint64_t seed = 1);
  ParamStore(const ParamStore&) = delete;
  ParamStore& operator=(const ParamStore&) = delete;

  // Throws, naming the parameter, if the name is taken or the store is frozen.
  const ParamInfo& add(const std::string& name, const Shape& shape, const Init& init);
  // Lays out the values of all parameters in one buffer. `initial` fills them; `zero` leaves them 0, for values that
  // are loaded next; `planned` makes no memory for them, for passes of a context that only plans. Before freeze(),
  // parameters have no values and modules cannot be called; after it, no parameter can be added.
  enum class Fill : uint8_t { initial, zero, planned };
  void freeze(Fill fill = Fill::initial);

  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] bool frozen() const { return values_ != nullptr; }
  [[nodiscard]] Memory memory() const { return memory_; }
  void expect_frozen(std::string_view where) const;  // else throws an error that begins with `where`
  [[nodiscard]] const std::deque<ParamInfo>& params() const { return params_; }
  [[nodiscard]] const ParamInfo* find(std::string_view name) const;
  [[nodiscard]] std::span<const std::string> names() const { return names_; }
  [[nodiscard]] int64_t count() const { return count_; }  // elements, without padding
  // The flat buffer. Each parameter starts on a 64-byte line; the padding between is zero and stays so.
  [[nodiscard]] std::byte* data() const { return values_ == nullptr ? nullptr : values_->data(); }
  [[nodiscard]] int64_t elements() const { return elements_; }  // of the buffer, with padding
  // Fills a second buffer of the same layout with the values rounded to bf16, which matrix products in bf16 read. The
  // first call makes it. Whoever changes the values later must update it too. Throws unless the store is of f32.
  void keep_shadow();
  [[nodiscard]] bf16* shadow() const { return shadow_ == nullptr ? nullptr : reinterpret_cast<bf16*>(shadow_->data()); }
  [[nodiscard]] bool holds(const ParamInfo& param) const;
  [[nodiscard]] int64_t offset(const ParamInfo& param) const;  // in elements; throws for a parameter of another store

 private:
  [[nodiscard]] std::string some_names() const;
  DType dtype_;
  uint64_t seed_;
  std::deque<ParamInfo> params_;  // a deque: modules point at its elements
  std::vector<std::string> names_;
  std::vector<int64_t> offsets_;
  std::unordered_map<std::string_view, const ParamInfo*> by_name_;
  Memory memory_ = Memory::real;
  std::unique_ptr<MemoryBlock> values_, shadow_;
  int64_t count_ = 0, elements_ = 0;
};

class GradStore {
 public:
  explicit GradStore(const ParamStore& params);
  // What a tape is bound to.
  [[nodiscard]] ParameterGradients binding() const { return binding_; }
  // Marks all gradients as missing, without writing to the buffer: the next backward overwrites them, and until then
  // optimizers refuse them. Without reset(), backward adds to what is there, as in PyTorch.
  void reset();
  [[nodiscard]] const ParamStore& params() const { return params_; }
  [[nodiscard]] std::byte* data() const { return gradients_.data(); }
  [[nodiscard]] bool received(const ParamInfo& param) const { return received_[index_of(param)] != 0; }
  // The first names without a gradient, as "a, b and 7 more"; empty: every parameter has one.
  [[nodiscard]] std::string missing() const { return binding_.missing(); }
  // A parameter's gradient as a tensor without a tape. If you write a gradient there by hand, call set_received.
  [[nodiscard]] Tensor of(const ParamInfo& param) const;
  void set_received(const ParamInfo& param) { received_[index_of(param)] = 1; }

 private:
  [[nodiscard]] size_t index_of(const ParamInfo& param) const;

  const ParamStore& params_;
  MemoryBlock gradients_;
  std::vector<uint8_t> received_;
  std::vector<int64_t> offsets_;  // in bytes
  ParameterGradients binding_;    // refers to all of the above
};

// A module's handle on a parameter, or on none (a layer without bias). It converts to the tensor that ops take.
class Param {
 public:
  Param() = default;
  explicit Param(const ParamInfo& info) : info_(&info) {}
  operator Tensor() const { return info_ == nullptr ? Tensor{} : checked(); }  // NOLINT: implicit on purpose
  [[nodiscard]] const ParamInfo& info() const;                                 // throws for none
  [[nodiscard]] explicit operator bool() const { return info_ != nullptr; }

 private:
  [[nodiscard]] const Tensor& checked() const;
  const ParamInfo* info_ = nullptr;
};

// A prefix of parameter names, such as "transformer.h.0".
class Scope {
 public:
  explicit Scope(ParamStore& store, std::string path = {}) : store_(&store), path_(std::move(path)) {}
  [[nodiscard]] Scope operator/(std::string_view child) const { return Scope(*store_, join(child)); }
  [[nodiscard]] Scope operator/(int64_t child) const { return *this / cat(child); }
  [[nodiscard]] Param param(std::string_view name, const Shape& shape, const Init& init) const {
    return Param(store_->add(join(name), shape, init));
  }

 private:
  [[nodiscard]] std::string join(std::string_view child) const {
    return path_.empty() ? std::string(child) : cat(path_, ".", child);
  }
  ParamStore* store_;
  std::string path_;
};

}  // namespace tril

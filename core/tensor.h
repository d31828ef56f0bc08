// A Tensor is a view: where the numbers lie, their shape and type, and the tape that made it. It owns nothing, copies
// freely, and is contiguous and row-major. It is valid until its tape is reset or, if it has no tape, as long as its
// memory. Ops that are given one of an earlier pass throw; ptr() and item() do not know, and read what lies there now.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/dtype.h"
#include "core/shape.h"

namespace tril {

class Tape;

struct Tensor {
  void* data = nullptr;
  Shape shape;
  DType dtype = DType::f32;
  Tape* tape = nullptr;          // null: memory from outside the tape, a parameter or a constant
  int32_t slot = -1;             // on a tape: its place there; without one: the parameter's index, or -1 for a constant
  uint32_t generation = 0;       // the tape's count of resets when this was made
  const bf16* shadow = nullptr;  // of an f32 parameter: its numbers rounded to bf16; null: nobody keeps any

  [[nodiscard]] bool is_parameter() const { return tape == nullptr && slot >= 0; }
  [[nodiscard]] int64_t count() const { return shape.count(); }
  [[nodiscard]] int64_t bytes() const { return shape.count() * size_of(dtype); }

  template <class T>
  [[nodiscard]] T* ptr() const {
    TRIL_CHECK(dtype == kDTypeOf<T>, "tensor", cat("a view as ", dtype), cat("a view as ", kDTypeOf<T>));
    return static_cast<T*>(data);
  }
  // The only element of a tensor of one.
  [[nodiscard]] double item() const {
    TRIL_CHECK(count() == 1 && is_floating(dtype), "item", "a tensor with one floating-point element",
               cat("shape ", shape, " of ", dtype));
    if (dtype == DType::f64) return *ptr<double>();
    return dtype == DType::f32 ? double{*ptr<float>()} : double{static_cast<float>(*ptr<bf16>())};
  }
};
static_assert(std::is_trivially_copyable_v<Tensor>);

}  // namespace tril

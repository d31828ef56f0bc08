// A Tensor is a view: where the numbers lie, their shape and type, and the tape that made it. It owns nothing, copies
// freely, and is contiguous and row-major. It is valid until its tape is reset or destroyed or, if it has no tape, as
// long as its memory. After that ops, ptr() and item() throw, and printing says so. Three misuses are not detected: a
// tensor whose memory is not the tape's (a ParamStore's, or what Tape::view looks at) after that memory was freed; any
// tensor after its Context was destroyed; and ptr() of a tensor that was discarded (Tape::discard).
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <type_traits>

#include "core/base/dtype.h"
#include "core/base/shape.h"
#include "core/machine/tape_life.h"

namespace tril {

struct Tensor {
  void* data = nullptr;
  Shape shape;
  DType dtype = DType::f32;
  int32_t slot = -1;             // on a tape: its place there; without one: the parameter's index; -1: neither
  TapeRef tape;                  // the pass that the memory belongs to; null: it is from outside, such as a parameter's
  const bf16* shadow = nullptr;  // of an f32 parameter: its numbers rounded to bf16; null: there is no such copy

  [[nodiscard]] bool is_parameter() const { return tape == nullptr && slot >= 0; }
  // Made by an op, Tape::variable, constant or view. (A gradient has a tape, too, and no place on it.)
  [[nodiscard]] bool is_on_tape() const { return tape != nullptr && slot >= 0; }
  [[nodiscard]] int64_t count() const { return shape.count(); }
  [[nodiscard]] int64_t bytes() const { return shape.count() * size_of(dtype); }

  // Throws, in the op's name, if the tape was reset or destroyed since.
  void expect_current(const char* op) const {
    if (!tape.is_current()) [[unlikely]]
      refuse_stale(op);
  }
  template <class T>
  [[nodiscard]] T* ptr() const {
    expect_current("tensor");
    TRIL_CHECK(dtype == kDTypeOf<T>, "tensor", cat("a view as ", dtype), cat("a view as ", kDTypeOf<T>));
    return static_cast<T*>(data);
  }
  // The value of a floating-point tensor with one element; throws for any other.
  [[nodiscard]] double item() const {
    expect_current("item");
    TRIL_CHECK(count() == 1 && is_floating(dtype), "item", "a tensor with one floating-point element",
               cat("shape ", shape, " of ", dtype));
    TRIL_CHECK(data != nullptr, "item", "a tensor", "an empty one that was never made");
    if (dtype == DType::f64) return *ptr<double>();
    return dtype == DType::f32 ? double{*ptr<float>()} : double{static_cast<float>(*ptr<bf16>())};
  }

  [[noreturn]] void refuse_stale(const char* op) const;
};
static_assert(std::is_trivially_copyable_v<Tensor>);

// Type, shape and values, as in "f32 (3) [1., 2., 3.]", for streams and for cat(). If there are more than a thousand
// values, those at both ends of each axis are shown. They have four decimals; a scalar is shown in full. A tensor
// without values says why it has none.
void append(std::string& out, const Tensor& tensor);
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);
std::ostream& operator<<(std::ostream& out, const Shape& shape);
std::ostream& operator<<(std::ostream& out, DType dtype);

}  // namespace tril

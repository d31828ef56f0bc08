// The element types of tensors. bf16 is storage only: kernels read it into f32 and round when they write.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "core/base/check.h"

namespace tril {

enum class DType : uint8_t { f32, f64, bf16, i32 };

struct bf16 {
  uint16_t bits = 0;
  bf16() = default;
  // Round to nearest, ties to even; NaN stays NaN.
  explicit bf16(float value) {
    const auto word = std::bit_cast<uint32_t>(value);
    bits = value != value ? uint16_t{0x7fc0} : static_cast<uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
  explicit operator double() const { return double{static_cast<float>(*this)}; }
};

[[nodiscard]] constexpr int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return 8;
    case DType::bf16: return 2;
    case DType::f32:
    case DType::i32: return 4;
  }
  return 0;
}

[[nodiscard]] constexpr const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return "f32";
    case DType::f64: return "f64";
    case DType::bf16: return "bf16";
    case DType::i32: return "i32";
  }
  return "?";
}

[[nodiscard]] constexpr bool is_floating(DType dtype) { return dtype != DType::i32; }

inline void append(std::string& out, DType dtype) { out += name_of(dtype); }

// The type that kernels compute in: f32 for bf16, else the type itself.
template <class T>
using Compute = std::conditional_t<std::is_same_v<T, bf16>, float, T>;
[[nodiscard]] constexpr DType compute_dtype(DType dtype) { return dtype == DType::bf16 ? DType::f32 : dtype; }

template <class T>
inline constexpr DType kDTypeOf = DType::f32;
template <>
inline constexpr DType kDTypeOf<double> = DType::f64;
template <>
inline constexpr DType kDTypeOf<bf16> = DType::bf16;
template <>
inline constexpr DType kDTypeOf<int32_t> = DType::i32;

}  // namespace tril

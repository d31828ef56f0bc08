// The extents of a tensor, outermost first, row-major; at most kMaxRank of them, held in place so that a Shape is a
// plain value.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "core/base/check.h"

namespace tril {

inline constexpr int kMaxRank = 6;

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims) {
    TRIL_CHECK(dims.size() <= kMaxRank, "shape", cat("at most ", kMaxRank, " dimensions"), cat(dims.size()));
    int64_t total = 1;
    for (const int64_t dim : dims) {
      TRIL_CHECK(dim >= 0, "shape", "dimensions of 0 or more", cat(dim));
      // An axis of 0 is left out of the product, so the other axes must stay within the limit too.
      TRIL_CHECK(dim == 0 || (!__builtin_mul_overflow(total, dim, &total) && total <= (int64_t{1} << 48)), "shape",
                 "at most 2^48 elements", "a product that is larger");
      dims_[static_cast<size_t>(rank_++)] = dim;
    }
  }

  [[nodiscard]] int rank() const { return rank_; }
  // The extent of an axis, counted from 0 or, if negative, from the end. Throws if there is no such axis.
  [[nodiscard]] int64_t operator[](int64_t axis) const { return dims_[checked(axis)]; }
  [[nodiscard]] std::span<const int64_t> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }
  // Number of elements in the axes [from, to).
  [[nodiscard]] int64_t count(int64_t from, int64_t to) const {
    int64_t total = 1;
    for (int64_t axis = from; axis < to; ++axis) total *= (*this)[axis];
    return total;
  }
  [[nodiscard]] int64_t count() const { return count(0, rank_); }
  // Number of rows, if a row runs along the last axis: the product of all other extents. A scalar is one row of one
  // element.
  [[nodiscard]] int64_t rows() const { return rank_ == 0 ? 1 : count(0, rank_ - 1); }
  [[nodiscard]] int64_t last() const { return rank_ == 0 ? 1 : (*this)[-1]; }

  [[nodiscard]] Shape with(int64_t axis, int64_t dim) const {
    std::array<int64_t, kMaxRank> changed = dims_;
    changed[checked(axis)] = dim;
    return Shape(std::span<const int64_t>(changed.data(), static_cast<size_t>(rank_)));
  }

  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.rank_ != b.rank_) return false;
    for (int axis = 0; axis < a.rank_; ++axis)
      if (a[axis] != b[axis]) return false;
    return true;
  }

  friend void append(std::string& out, const Shape& shape) {
    out += '(';
    for (int axis = 0; axis < shape.rank_; ++axis) {
      if (axis > 0) out += ", ";
      append(out, shape[axis]);
    }
    out += ')';
  }

 private:
  [[nodiscard]] size_t checked(int64_t axis) const {
    TRIL_CHECK(axis >= -rank_ && axis < rank_, "shape", cat("an axis of ", *this), cat(axis));
    return static_cast<size_t>(axis < 0 ? axis + rank_ : axis);
  }

  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

}  // namespace tril

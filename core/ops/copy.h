// Moving blocks of rows between a tensor and a part of one of its axes: what slice and concat share. Seen from the
// axis, a tensor is (outer, axis, inner).
#pragma once

#include "core/ops/broadcast.h"

namespace tril {

struct AxisView {
  int64_t outer, extent, inner;
  AxisView(const Shape& shape, int axis)
      : outer(shape.count(0, axis)), extent(shape[axis]), inner(shape.count(axis + 1, shape.rank())) {}
};

// copy_from_axis: part (outer, n, inner) = whole[:, begin : begin + n, :]; copy_to_axis the reverse. Both add if
// accumulate.
template <class T>
void copy_from_axis(const T* whole, const AxisView& view, int64_t begin, int64_t n, T* part, bool accumulate) {
  for (int64_t i = 0; i < view.outer; ++i)
    cloned<broadcast::store<T>>(whole + (i * view.extent + begin) * view.inner, part + i * n * view.inner,
                                n * view.inner, accumulate);
}

template <class T>
void copy_to_axis(const T* part, const AxisView& view, int64_t begin, int64_t n, T* whole, bool accumulate) {
  for (int64_t i = 0; i < view.outer; ++i)
    cloned<broadcast::store<T>>(part + i * n * view.inner, whole + (i * view.extent + begin) * view.inner,
                                n * view.inner, accumulate);
}

}  // namespace tril

// Small things that tests of tensors share.
#pragma once

#include <cstring>
#include <vector>

#include "core/autograd/tape.h"
#include "core/base/random.h"

namespace tril::test {

template <class T>
[[nodiscard]] std::vector<T> values_of(const Tensor& x) {
  return {x.ptr<T>(), x.ptr<T>() + x.count()};
}

// Standard normal numbers, different for each seed.
template <class T>
[[nodiscard]] std::vector<T> noise(int64_t count, uint64_t seed) {
  std::vector<T> out(static_cast<size_t>(count));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<T>(random_normal({.seed = seed}, 0, static_cast<uint32_t>(i)));
  return out;
}

// Uniform token ids below `vocabulary`.
[[nodiscard]] inline std::vector<int32_t> random_ids(int64_t count, int32_t vocabulary, uint64_t seed) {
  std::vector<int32_t> out(static_cast<size_t>(count));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<int32_t>(random_uniform({.seed = seed}, 0, static_cast<uint32_t>(i)) * vocabulary);
  return out;
}

// Compares bit for bit: -0 differs from 0, and NaN equals itself.
template <class T>
[[nodiscard]] bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// The largest difference; infinite where sizes differ or a number is NaN.
template <class T>
[[nodiscard]] double difference(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return HUGE_VAL;
  double largest = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double here = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (std::isnan(here)) return HUGE_VAL;
    largest = std::max(largest, here);
  }
  return largest;
}

}  // namespace tril::test

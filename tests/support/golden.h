// The files of tests/golden, which hold what PyTorch computed in float64 (make_golden.py says what is in them), and
// checks of our results against them. Values here are owned by the test that reads them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "core/autograd/tape.h"
#include "nn/params.h"
#include "support/catch.h"
#include "train/model/safetensors.h"

namespace tril::test {

class Golden {
 public:
  // TRIL_GOLDEN is the folder, given by the build.
  explicit Golden(const std::string& name) : file_(read_safetensors(cat(TRIL_GOLDEN, "/", name))) {}

  [[nodiscard]] Shape shape(const std::string& name) const { return Shape(entry(name).shape); }
  [[nodiscard]] std::vector<double> values(const std::string& name) const {
    if (entry(name).dtype == "F64") return stored<double>(name);
    const std::vector<float> narrow = stored<float>(name);
    return {narrow.begin(), narrow.end()};
  }
  [[nodiscard]] std::vector<int32_t> ids(const std::string& name) const { return stored<int32_t>(name); }

  // A golden tensor on a tape, with a gradient.
  template <class T>
  [[nodiscard]] Tensor variable(Tape& tape, const std::string& name) const {
    const std::vector<double> wide = values(name);
    return tape.variable<T>(shape(name), std::vector<T>(wide.begin(), wide.end()));
  }
  // A golden tensor on a tape, without a gradient.
  template <class T>
  [[nodiscard]] Tensor constant(Tape& tape, const std::string& name) const {
    const std::vector<double> wide = values(name);
    return tape.constant<T>(shape(name), std::vector<T>(wide.begin(), wide.end()));
  }

  // Sets every parameter to weight.<its name>; both must have the same names and shapes.
  template <class T>
  void load_weights(ParamStore& store) const {
    const auto weights = std::count_if(file_.entries.begin(), file_.entries.end(),
                                       [](const auto& each) { return each.name.starts_with("weight."); });
    REQUIRE(static_cast<size_t>(weights) == store.params().size());
    for (const ParamInfo& param : store.params()) {
      INFO(param.name);
      REQUIRE(shape("weight." + param.name) == param.value.shape);
      const std::vector<double> wide = values("weight." + param.name);
      std::transform(wide.begin(), wide.end(), param.value.ptr<T>(),
                     [](double value) { return static_cast<T>(value); });
    }
  }

 private:
  [[nodiscard]] const SafetensorsEntry& entry(const std::string& name) const {
    const SafetensorsEntry* const found = file_.find(name);
    INFO(name);
    REQUIRE(found != nullptr);
    return *found;
  }
  template <class T>
  [[nodiscard]] std::vector<T> stored(const std::string& name) const {
    const SafetensorsEntry& found = entry(name);
    REQUIRE(found.dtype == (std::is_same_v<T, double> ? "F64" : std::is_same_v<T, float> ? "F32" : "I32"));
    std::vector<T> out(static_cast<size_t>(found.end - found.begin) / sizeof(T));
    std::memcpy(out.data(), file_.data.data() + found.begin, out.size() * sizeof(T));
    return out;
  }

  Safetensors file_;
};

// The tolerance of a type: the largest difference allowed, relative to the tensor's largest golden value, or to 1 if
// that is larger, since some gradients are 0 up to rounding (such as a key's bias, which does not change a softmax).
template <class T>
inline constexpr double kGoldenTolerance = std::is_same_v<T, double> ? 1e-10 : 1e-5;

template <class T>
[[nodiscard]] double largest_difference(const T* ours, const std::vector<double>& golden) {
  double largest = 1.0, difference = 0.0;
  for (size_t i = 0; i < golden.size(); ++i) {
    largest = std::max(largest, std::abs(golden[i]));
    const double here = std::abs(static_cast<double>(ours[i]) - golden[i]);
    if (!(here <= difference)) difference = here;
    if (std::isnan(difference)) return difference;
  }
  return difference / largest;
}

// Checks that a tensor equals the golden one of that name, in shape and values.
template <class T>
void check_golden(const Golden& golden, const std::string& name, const Tensor& ours) {
  INFO(name);
  REQUIRE(ours.shape == golden.shape(name));
  CHECK(largest_difference(ours.ptr<T>(), golden.values(name)) <= kGoldenTolerance<T>);
}

}  // namespace tril::test

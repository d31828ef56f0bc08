// Inside of the gradient checker: the derivative by one element from values of the function alone.
#pragma once

#include "core/gradcheck/pass.h"

namespace tril::gradchecks {

class Differences {
 public:
  // `cotangent` belongs to the elements of all outputs, one after the other.
  Differences(Runner& runner, Numbers cotangent);
  // Compares with what backward gave. The element is put back afterwards.
  [[nodiscard]] ElementCheck check(size_t input, int64_t element, double analytic);

 private:
  struct Step;
  [[nodiscard]] Step measure(size_t input, int64_t element, double x, double h);
  // Differences at h, h/2 and h/4, and what they make in the limit.
  void extrapolate(size_t input, double x, double h, ElementCheck& check);
  static void judge(ElementCheck& check);

  Runner& runner_;
  Numbers cotangent_, middle_, above_, below_;
  std::vector<uint8_t> depends_;  // outputs that the element was seen to move
  double largest_ = 0;            // |cotangent times value| of an output
};

}  // namespace tril::gradchecks

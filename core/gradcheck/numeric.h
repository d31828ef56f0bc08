// Inside of the gradient checker: the derivative with respect to one element, from values of the function alone.
#pragma once

#include "core/gradcheck/pass.h"

namespace tril::gradchecks {

class Differences {
 public:
  // `cotangent` holds a number for each element of all outputs, one output after the other.
  Differences(Runner& runner, Numbers cotangent);
  // Compares the numeric derivative with `analytic`, which is backward's. The element is put back afterwards.
  [[nodiscard]] ElementCheck check(size_t input, int64_t element, double analytic);

 private:
  struct Step;
  [[nodiscard]] Step measure(size_t input, int64_t element, double x, double h);
  // Takes differences at steps h, h/2 and h/4 and extrapolates them to step 0.
  void extrapolate(size_t input, double x, double h, ElementCheck& check);
  static void judge(ElementCheck& check);

  Runner& runner_;
  Numbers cotangent_, middle_, above_, below_;
  std::vector<uint8_t> depends_;  // for each element of the outputs: varying the input has changed it
  double largest_ = 0;            // the largest |cotangent times value| of the outputs
};

}  // namespace tril::gradchecks

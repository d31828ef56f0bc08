// Inside of the gradient checker: what wrong gradients have in common, and the texts.
#pragma once

#include "core/gradcheck/gradcheck.h"

namespace tril::gradchecks {

// "+3.1415926e-02": never through the locale.
[[nodiscard]] std::string number(double value, int digits = 7);

struct Facts {
  bool ignores_cotangent = false;  // the gradient does not change with the cotangent
};

// What is wrong with the gradient of `inputs[at]`, in one line: a factor, a sign, a transpose, a shift, a swap, … Empty
// if nothing is.
[[nodiscard]] std::string diagnose(const std::vector<InputCheck>& inputs, size_t at, const Facts& facts);
// Where the wrong elements lie: "all have column > row".
[[nodiscard]] std::string pattern(const InputCheck& input);
// The middle of a report: the worst element in full, the pattern, the worst five.
[[nodiscard]] std::string element_report(const std::vector<InputCheck>& inputs, size_t at, const Facts& facts);

}  // namespace tril::gradchecks

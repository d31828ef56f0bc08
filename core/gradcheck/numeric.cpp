#include "core/gradcheck/numeric.h"

#include <algorithm>
#include <cmath>

namespace tril::gradchecks {
namespace {

constexpr double kFirstStep = 0x1p-5;
constexpr int kAttempts = 6;            // each with steps an eighth of the one before
constexpr double kRounding = 0x1p-49;   // of the function's values, relative; eight times f64's own
constexpr double kTolerance = 1e-9;     // of an element's scale, on top of the estimated error
constexpr double kInconclusive = 1e-6;  // above this part of the scale, an estimated error decides nothing
// The scale is the sum of the absolute values of the derivative's terms, plus these parts of the function's values: of
// the outputs that the element moves, and of the largest output. A derivative that is tiny against those values is lost
// in their rounding, in backward too.
constexpr double kMovingValues = 1e-3, kLargestValue = 1e-4;

}  // namespace

// What f(x + h), f(x) and f(x - h) give at one step h: difference quotients, weighted by the cotangent and summed.
struct Differences::Step {
  double central = 0, left = 0, right = 0;
  double scale = 0;  // sum of |terms| of the central difference
  double size = 0;   // sum of |values| of the outputs that depend on the element
};

Differences::Differences(Runner& runner, Numbers cotangent) : runner_(runner), cotangent_(std::move(cotangent)) {
  runner_.evaluate(middle_);
  TRIL_CHECK(middle_.size() == cotangent_.size(), "gradcheck", "the same outputs in every pass",
             cat(middle_.size(), " elements after ", cotangent_.size()));
  for (size_t k = 0; k < middle_.size(); ++k) largest_ = std::max(largest_, std::fabs(cotangent_[k] * middle_[k]));
}

Differences::Step Differences::measure(size_t input, int64_t element, double x, double h) {
  const double up = x + h, down = x - h;
  runner_.set(input, element, up);
  runner_.evaluate(above_);
  runner_.set(input, element, down);
  runner_.evaluate(below_);
  runner_.set(input, element, x);
  Step step;
  // Outputs are subtracted one by one, so that those that never move add no rounding error. One that moved at a larger
  // step but not at this one still counts: its movement was rounded away.
  for (size_t k = 0; k < cotangent_.size(); ++k) {
    const double y = middle_[k], moved_up = above_[k] - y, moved_down = y - below_[k], moved = above_[k] - below_[k];
    depends_[k] |= moved_up != 0 || moved_down != 0;
    if (depends_[k] == 0) continue;
    step.central += cotangent_[k] * moved / (up - down);
    step.right += cotangent_[k] * moved_up / (up - x);
    step.left += cotangent_[k] * moved_down / (x - down);
    step.scale += std::fabs(cotangent_[k] * moved / (up - down));
    step.size += std::fabs(cotangent_[k]) * std::max(std::fabs(above_[k]), std::fabs(below_[k]));
  }
  return step;
}

// Sets all but the verdict. A central difference is D(h) = f' + a h² + b h⁴ + …; two rounds of Richardson extrapolation
// eliminate a and b. The right difference minus the left one is g(h) = jump + c h + d h³ + …; c and d are eliminated in
// the same way.
void Differences::extrapolate(size_t input, double x, double h, ElementCheck& check) {
  std::array<double, 3> gaps{};
  double size = 0;
  for (size_t i = 0; i < 3; ++i, h /= 2) {
    const Step step = measure(input, check.element, x, h);
    check.steps[i] = h;
    check.differences[i] = step.central;
    check.left = step.left;
    check.right = step.right;
    check.scale = step.scale;
    gaps[i] = step.right - step.left;
    size = step.size;
  }
  const auto& d = check.differences;
  const double first = (4 * d[1] - d[0]) / 3, second = (4 * d[2] - d[1]) / 3;
  const double rounding = kRounding * size / check.steps[2];
  check.numeric = (16 * second - first) / 15;
  check.error = std::fabs(check.numeric - second) + rounding;
  const double near = 2 * gaps[1] - gaps[0], nearer = 2 * gaps[2] - gaps[1], jump = (8 * nearer - near) / 7;
  const double doubt = 3 * std::fabs(jump - nearer) + 16 * rounding + 1e-4 * check.scale;
  check.jump = std::fabs(jump) > doubt ? jump : 0.0;
  check.scale += kMovingValues * size + kLargestValue * largest_;
}

void Differences::judge(ElementCheck& check) {
  const auto unclear = [&](const char* reason) {
    check.verdict = Verdict::inconclusive;
    check.reason = reason;
  };
  if (!std::isfinite(check.numeric) || !std::isfinite(check.error)) return unclear("the function is not finite nearby");
  if (check.jump != 0) return unclear("a kink: the derivatives from the left and the right differ");
  if (!(check.error <= kInconclusive * check.scale)) return unclear("the differences do not settle");
  const double tolerance = 2 * check.error + kTolerance * check.scale;
  // Written so that NaN fails.
  check.verdict = std::fabs(check.analytic - check.numeric) <= tolerance ? Verdict::passed : Verdict::failed;
}

ElementCheck Differences::check(size_t input, int64_t element, double analytic) {
  const double x = runner_.get(input, element);
  depends_.assign(cotangent_.size(), 0);
  ElementCheck best;
  double h = kFirstStep;
  for (int attempt = 0; attempt < kAttempts; ++attempt, h /= 8) {
    ElementCheck check{.element = element, .analytic = analytic};
    extrapolate(input, x, h, check);
    if (attempt == 0 || !std::isfinite(best.error) || check.error < best.error) best = check;
    if (best.error <= 0.1 * kTolerance * best.scale) break;
  }
  judge(best);
  return best;
}

}  // namespace tril::gradchecks

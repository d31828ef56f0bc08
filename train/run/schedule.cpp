#include "train/run/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tril {

int64_t Schedule::rise() const { return std::min(warmup, steps / 2); }

double Schedule::rate(int64_t step) const {
  const int64_t top = rise();
  if (step < top) return lr * static_cast<double>(step + 1) / static_cast<double>(top + 1);
  if (step >= steps) return min_lr;
  const double done = static_cast<double>(step - top) / static_cast<double>(steps - top);
  return min_lr + 0.5 * (1.0 + std::cos(std::numbers::pi * done)) * (lr - min_lr);
}

}  // namespace tril

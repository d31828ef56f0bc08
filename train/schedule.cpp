#include "train/schedule.h"

#include <cmath>
#include <numbers>

namespace tril {

double Schedule::rate(int64_t step) const {
  if (step < warmup) return lr * static_cast<double>(step + 1) / static_cast<double>(warmup + 1);
  if (step >= steps) return min_lr;
  const double done = static_cast<double>(step - warmup) / static_cast<double>(steps - warmup);
  return min_lr + 0.5 * (1.0 + std::cos(std::numbers::pi * done)) * (lr - min_lr);
}

}  // namespace tril

// The learning rate of each step: a linear rise, then half a cosine down to the minimum. A pure function.
#pragma once

#include <cstdint>

namespace tril {

struct Schedule {
  double lr = 1e-3, min_lr = 1e-4;
  int64_t warmup = 100, steps = 2000;

  // Of the step with this number, counted from 0. It is lr (step + 1) / (warmup + 1) while step < warmup, lr at
  // `warmup`, and min_lr from `steps` on.
  [[nodiscard]] double rate(int64_t step) const;
};

}  // namespace tril

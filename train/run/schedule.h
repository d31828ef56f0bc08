// The learning rate of each step: a linear rise, then half a cosine down to the minimum. A pure function.
#pragma once

#include <cstdint>

namespace tril {

struct Schedule {
  double lr = 1e-3, min_lr = 1e-4;
  int64_t warmup = 100, steps = 2000;

  // The steps over which it rises: `warmup`, but at most half of all, so that also a short run learns at its full rate
  // and then at a falling one.
  [[nodiscard]] int64_t rise() const;
  // Of the step with this number, counted from 0. It is lr (step + 1) / (rise + 1) while step < rise, lr at `rise`, and
  // min_lr from `steps` on.
  [[nodiscard]] double rate(int64_t step) const;
};

}  // namespace tril

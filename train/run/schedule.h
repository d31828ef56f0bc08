// The learning rate schedule: linear warm-up, then cosine decay to the minimum. A pure function.
#pragma once

#include <cstdint>

namespace tril {

struct Schedule {
  double lr = 1e-3, min_lr = 1e-4;
  int64_t warmup = 100, steps = 2000;

  // The steps of the warm-up: `warmup`, but at most half of all steps, so that a short run also reaches the full rate
  // and then decays.
  [[nodiscard]] int64_t rise() const;
  // The learning rate of a step, counted from 0: lr (step + 1) / (rise + 1) while step < rise, lr at `rise`, and min_lr
  // from `steps` on.
  [[nodiscard]] double rate(int64_t step) const;
};

}  // namespace tril

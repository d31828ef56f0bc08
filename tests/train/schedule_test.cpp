#include "train/run/schedule.h"

#include <algorithm>
#include <cmath>

#include "support/catch.h"

namespace tril::test {

TEST_CASE("schedule: rises in equal steps from above zero, and reaches lr after the warm-up") {
  const Schedule schedule{.lr = 1.0, .min_lr = 0.1, .warmup = 4, .steps = 20};
  for (int64_t step = 0; step < 4; ++step)
    CHECK(schedule.rate(step) == Approx(0.2 * static_cast<double>(step + 1)).epsilon(1e-15));
  CHECK(schedule.rate(4) == 1.0);
  for (int64_t step = 5; step <= 20; ++step) CHECK(schedule.rate(step) < schedule.rate(step - 1));
}

TEST_CASE("schedule: ends at the minimum exactly, and stays there") {
  const Schedule schedule{.lr = 1e-3, .min_lr = 1e-4, .warmup = 100, .steps = 2000};
  CHECK(schedule.rate(2000) == 1e-4);
  CHECK(schedule.rate(2'000'000'000) == 1e-4);
  CHECK(schedule.rate(1999) == Approx(1e-4).epsilon(1e-4));
  CHECK(schedule.rate(1050) == Approx(5.5e-4).epsilon(1e-12));  // half way, half of both
}

TEST_CASE("schedule: no warm-up, and nothing to fall") {
  const Schedule none{.lr = 1.0, .min_lr = 0.5, .warmup = 0, .steps = 10};
  CHECK(none.rate(0) == 1.0);
  CHECK(none.rate(5) == Approx(0.75).epsilon(1e-15));
  CHECK(none.rate(10) == 0.5);
  const Schedule flat{.lr = 0.3, .min_lr = 0.3, .warmup = 0, .steps = 10};
  for (int64_t step = 0; step < 12; ++step) CHECK(flat.rate(step) == 0.3);
}

TEST_CASE("schedule: a warm-up takes half of the steps at most, so that lr is reached and then falls") {
  for (const int64_t steps : {1, 2, 3, 10, 50, 199, 200, 2000})
    for (const int64_t warmup :
         {int64_t{0}, int64_t{1}, steps / 2, steps / 2 + 1, steps - 1, steps, 2 * steps, int64_t{4'000'000'000}}) {
      INFO(steps << " steps, warm-up " << warmup);
      const Schedule schedule{.lr = 1.0, .min_lr = 0.25, .warmup = warmup, .steps = steps};
      const int64_t rising = std::min(warmup, steps / 2);
      for (int64_t step = 0; step < rising; ++step)
        CHECK(schedule.rate(step) == Approx(static_cast<double>(step + 1) / static_cast<double>(rising + 1)));
      CHECK(schedule.rate(rising) == 1.0);
      for (int64_t step = rising + 1; step <= steps; ++step) CHECK(schedule.rate(step) < schedule.rate(step - 1));
      CHECK(schedule.rate(steps) == 0.25);
    }
}

}  // namespace tril::test

#include "train/thread_choice.h"

#include <cmath>
#include <functional>

#include "support/catch.h"

namespace tril::test {
namespace {

using StepTime = std::function<double(int threads)>;

// Runs steps for so many seconds; returns the seconds a step took on average.
double run(ThreadChoice& choice, double seconds, const StepTime& time) {
  double total = 0;
  int64_t steps = 0;
  for (; total < seconds; ++steps) {
    const double step = time(choice.threads());
    total += step;
    (void)choice.took(step);
  }
  return total / static_cast<double>(steps);
}

// A step that n threads share, each of which costs something.
StepTime shared(double work, double cost) {
  return [=](int threads) { return work / threads + cost * threads; };
}

}  // namespace

TEST_CASE("thread choice: finds the fastest number, whatever it is") {
  for (const int most : {2, 3, 6, 8, 12, 64})
    for (const double best : {0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 8.0, 11.0, 40.0, 100.0}) {
      const StepTime time = shared(0.02, 0.02 / (best * best));  // least at `best` threads
      ThreadChoice choice(most);
      (void)run(choice, 200, time);
      double fastest = HUGE_VAL;
      for (int n = 1; n <= most; ++n) fastest = std::min(fastest, time(n));
      INFO("most " << most << ", best " << best << ", chosen " << choice.chosen());
      CHECK(time(choice.chosen()) <= 1.05 * fastest);
    }
}

TEST_CASE("thread choice: one thread is left alone, and numbers stay within their bounds") {
  ThreadChoice one(1);
  (void)run(one, 500, shared(0.01, 0));
  CHECK(one.chosen() == 1);
  ThreadChoice three(3);
  (void)run(three, 1000, [](int threads) {
    REQUIRE((threads >= 1 && threads <= 3));
    return threads == 1 ? 0.01 : 0.03;
  });
  CHECK(three.chosen() == 1);
}

TEST_CASE("thread choice: trials cost a run little, also where steps are long or the fewer threads very slow") {
  for (const double work : {0.001, 0.02, 0.3, 12.0}) {
    ThreadChoice choice(2);
    const StepTime time = shared(work, 0);
    const double long_run = 300 * std::max(1.0, 60 * work);
    CHECK(run(choice, long_run, time) <= 1.05 * time(2));
  }
}

TEST_CASE("thread choice: follows a machine that becomes busy, soon, and one that becomes quiet again") {
  ThreadChoice choice(2);
  const StepTime quiet = shared(0.04, 0), busy = [](int threads) { return threads == 2 ? 0.4 : 0.06; };
  (void)run(choice, 60, quiet);
  CHECK(choice.chosen() == 2);
  (void)run(choice, 20, busy);
  CHECK(choice.chosen() == 1);
  (void)run(choice, 100, quiet);
  CHECK(choice.chosen() == 2);
}

TEST_CASE("thread choice: noise of a tenth does not make it change") {
  ThreadChoice choice(2);
  int changes = 0;
  uint32_t noise = 1;
  for (int i = 0; i < 100000; ++i) {
    noise = noise * 1664525u + 1013904223u;
    const double step =
        (choice.threads() == 2 ? 0.020 : 0.030) * (0.9 + 0.2 * static_cast<double>(noise >> 8) / (1 << 24));
    changes += choice.took(step);
  }
  CHECK(changes == 0);
}

}  // namespace tril::test

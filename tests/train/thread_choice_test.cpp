#include "train/run/thread_choice.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "support/catch.h"

namespace tril::test {
namespace {

using StepTime = std::function<double(int threads)>;

// A simulated machine with its own clock: its processors, other processes that want some of them, and a run whose step
// is shared by n threads, each of which costs something.
struct Machine {
  int processors = 2;
  double work = 0.04, cost = 0;  // seconds a step, and a thread of it
  double others = 0;             // how many processors other processes want
  double damage = 1.7;  // how many times slower a team is if it lacks a processor, besides having fewer of them
  double noise = 0, phases = 0;  // of each step, and of the host for some seconds; up to 1
  bool shows_waits = true, shows_idle = true;

  double now = 0, waited = 0, idled = 0, last_now = 0, last_waited = 0, last_idled = 0;
  double luck = 1;  // of the last step
  uint32_t random = 1;

  [[nodiscard]] double share(int threads) const { return std::min(1.0, processors / (threads + others)); }
  [[nodiscard]] double step(int threads) const {
    const double lacks = share(threads) < 1 && threads > 1 ? damage : 1.0;
    return (work / threads + cost * threads) / share(threads) * lacks;
  }
  [[nodiscard]] double best() const {
    double least = HUGE_VAL;
    for (int n = 1; n <= processors; ++n) least = std::min(least, step(n));
    return least;
  }
  double vary(double most) {
    random = random * 1664525u + 1013904223u;
    return most * (2 * static_cast<double>(random >> 8) / (1 << 24) - 1);
  }
  double run_step(int threads) {
    constexpr double kPhase = 7;
    const bool slow_phase = std::fmod(now, 2 * kPhase) < kPhase;
    luck = (1 + vary(noise)) * (1 + (slow_phase ? phases : -phases));
    const double took = step(threads) * luck;
    now += took;
    waited += took * threads * (1 - share(threads)) * (1 + vary(0.5));
    idled += took * std::max(0.0, processors - threads - others);
    return took;
  }
  MachineLoad look() {
    MachineLoad load{.seconds = now - last_now, .waiting = {}, .idle = {}};
    if (shows_waits && load.seconds > 0) load.waiting = (waited - last_waited) / load.seconds;
    if (shows_idle && load.seconds > 0) load.idle = (idled - last_idled) / load.seconds;
    last_now = now;
    last_waited = waited;
    last_idled = idled;
    return load;
  }
};

struct Simulation {
  explicit Simulation(const Machine& how) : machine(how) {}
  Machine machine;
  ThreadChoice choice{machine.processors, [this] { return machine.look(); }};
  int changes = 0;

  // Runs steps for so many seconds; returns the seconds a step took on average, relative to the best there is.
  double run(double seconds) {
    const double end = machine.now + seconds;
    double total = 0, best = 0;
    while (machine.now < end) {
      const double took = machine.run_step(choice.threads());
      total += took;
      best += machine.best() * machine.luck;
      changes += choice.took(took);
    }
    return total / best;
  }
};

MachineLoad nothing() { return {}; }

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

StepTime shared(double work, double cost) {
  return [=](int threads) { return work / threads + cost * threads; };
}

}  // namespace

TEST_CASE("thread choice: finds the fastest number, whatever it is, with and without knowing of idle processors") {
  for (const bool shows : {true, false})
    for (const int most : {2, 3, 6, 8, 12, 64})
      for (const double best : {0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 8.0, 11.0, 40.0, 100.0}) {
        Simulation free({.processors = most, .work = 0.02, .cost = 0.02 / (best * best), .shows_idle = shows});
        (void)free.run(200);
        INFO("most " << most << ", best " << best << ", chosen " << free.choice.chosen() << ", idle known " << shows);
        CHECK(free.machine.step(free.choice.chosen()) <= 1.05 * free.machine.best());
      }
}

TEST_CASE("thread choice: one thread is left alone, and numbers stay within their bounds") {
  ThreadChoice one(1, nothing);
  (void)run(one, 500, shared(0.01, 0));
  CHECK(one.chosen() == 1);
  ThreadChoice three(3, nothing);
  (void)run(three, 1000, [](int threads) {
    REQUIRE((threads >= 1 && threads <= 3));
    return threads == 1 ? 0.01 : 0.03;
  });
  CHECK(three.chosen() == 1);
}

TEST_CASE("thread choice: follows a load that comes and goes within two seconds, or a few steps") {
  for (const int processors : {2, 4, 64})
    for (const double step : {0.005, 0.02, 0.1, 5.0})
      for (const double others : {0.5, 1.0, 2.0})
        for (const double noise : {0.0, 0.15}) {
          // So many of a few processors, or half of many.
          const double busy = processors == 64 && others == 2.0 ? 32 : others;
          Simulation here(
              {.processors = processors, .work = step * processors, .cost = step / processors / 50, .noise = noise});
          INFO(processors << " processors, steps of " << step << " s, " << busy << " busy, noise " << noise);
          const double soon = 2 + 6 * step, long_after = 20 + 20 * step;
          (void)here.run(long_after);
          for (int round = 0; round < 2; ++round) {
            CHECK(here.run(long_after) <= 1.05);
            here.machine.others = busy;
            (void)here.run(soon * here.machine.step(processors) / step);
            INFO("busy: " << here.choice.chosen());
            CHECK(here.run(long_after) <= 1.2);
            here.machine.others = 0;
            (void)here.run(soon * here.machine.step(here.choice.chosen()) / here.machine.best());
            INFO("free: " << here.choice.chosen());
            CHECK(here.run(long_after) <= 1.1);
          }
        }
}

TEST_CASE("thread choice: follows by the time of steps alone where nothing else is known") {
  for (const double step : {0.005, 0.02, 0.1})
    for (const bool shows_idle : {false, true}) {
      Simulation here({.work = 2 * step, .shows_waits = false, .shows_idle = shows_idle});
      INFO("steps of " << step << " s, idle known " << shows_idle);
      CHECK(here.run(60) <= 1.05);
      here.machine.others = 1;
      (void)here.run(4);
      CHECK(here.choice.chosen() == 1);
      CHECK(here.run(60) <= 1.05);
      here.machine.others = 0;
      (void)here.run(shows_idle ? 2 : 16);
      CHECK(here.choice.chosen() == 2);
      CHECK(here.run(60) <= 1.05);
    }
}

TEST_CASE("thread choice: trials cost a run three hundredths at most, on any machine, free or busy, noisy or not") {
  for (const int processors : {2, 4, 64})
    for (const double step : {0.005, 0.05, 0.4, 5.0})
      for (const double others : {0.0, 1.0, 3.0})
        for (const bool shows : {true, false}) {
          Simulation here({.processors = processors,
                           .work = step * processors,
                           .others = others,
                           .shows_waits = shows,
                           .shows_idle = shows});
          INFO(processors << " processors, steps of " << step << " s, " << others << " busy, load known " << shows);
          (void)here.run(60 + 150 * step);
          // The number that it settles on may be a little worse than the best; this measures what trials cost besides.
          const double rests = here.machine.step(here.choice.chosen()) / here.machine.best();
          CHECK(here.run(200 + 200 * step) <= 1.03 * rests);
          CHECK(rests <= 1.1);
        }
}

TEST_CASE("thread choice: phases of a shared host and noise cost little") {
  for (const double step : {0.005, 0.05, 2.0})
    for (const bool shows : {true, false}) {
      Simulation here({.work = 2 * step, .noise = 0.1, .phases = 0.35, .shows_waits = shows, .shows_idle = shows});
      INFO("steps of " << step << " s, load known " << shows);
      (void)here.run(30);
      CHECK(here.run(1000) <= 1.05);
      CHECK(here.choice.chosen() == 2);
    }
}

TEST_CASE("thread choice: noise of a tenth does not make it change") {
  Simulation here({.work = 0.04, .noise = 0.1});
  (void)here.run(2000);
  CHECK(here.changes == 0);
}

TEST_CASE("thread choice: idle processors seen while a run did something else say nothing") {
  int looks = 0;
  ThreadChoice choice(2, [&]() -> MachineLoad {
    ++looks;
    return {.seconds = 10, .waiting = 0, .idle = 1};
  });
  const StepTime one_is_best = [](int threads) { return threads == 1 ? 0.02 : 0.03; };
  (void)run(choice, 5, one_is_best);
  REQUIRE(choice.chosen() == 1);
  for (double total = 0; total < 20; total += 0.02) {
    CHECK(choice.threads() == 1);
    (void)choice.took(0.02);
  }
  CHECK(looks > 10);
}

}  // namespace tril::test

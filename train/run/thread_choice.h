// Chooses how many threads a run's next step uses, by timing the real steps. The search starts with all threads, halves
// them as long as fewer are faster, and then tries numbers between the best and those that lost to it. After that the
// machine's load says when to try others: if threads wait for a processor, fewer may be faster; if processors are idle,
// more may be; if steps become slow, something has changed. A better number is in use about a second later. Trials
// that lose cost one or two hundredths of a run's time. Results do not depend on the number of threads, so a run may
// change it between any two steps. For one thread of control.
#pragma once

#include <functional>

#include "train/base/load.h"

namespace tril {

class ThreadChoice {
 public:
  // `look` returns the load since its last call.
  ThreadChoice(int most, std::function<MachineLoad()> look) : most_(most), look_(std::move(look)), chosen_(most) {}

  [[nodiscard]] int threads() const { return trying_ && challenger_turn_ ? challenger_ : chosen_; }
  // Call it after each step with the seconds that it took. Returns true if another number was chosen.
  bool took(double seconds);

  [[nodiscard]] int chosen() const { return chosen_; }
  // Mean seconds of a step with the chosen number, when it was last compared; 0 before that.
  [[nodiscard]] double chosen_seconds() const { return settled_seconds_; }

 private:
  struct Times {
    double total = 0;
    int steps = 0;
    void add(const Times& more) { total += more.total, steps += more.steps; }
    [[nodiscard]] double mean() const { return steps == 0 ? 0.0 : total / steps; }
  };
  struct Side {                  // trials of fewer threads, or of more
    double pause = 0, left = 0;  // seconds to wait after a trial that lost, and how many are left
    double level = 0;            // of the load that asked for the trial (Signs), when it lost
    void lost(double level_then);
  };
  struct Signs {
    double waiting = 0, idle = 0;
  };

  void begin_trial(int challenger, bool prompted);
  bool end_block(const Times& block, const Times& all);
  bool end_trial();
  void watch(const Times& block, double seconds);
  void look_around(double step, double seconds);
  bool follow_signs();
  bool search(int challenger);
  void go_on();
  [[nodiscard]] bool affordable(int challenger) const;
  [[nodiscard]] int fewer() const;

  int most_;
  std::function<MachineLoad()> look_;
  int chosen_;
  int below_ = 0, above_ = 0;  // the nearest numbers that lost to the choice; 0: none is known
  int warm_up_ = 2;            // steps in which memory grows and is laid out

  Times block_;  // of steps with one number
  double block_seconds_ = 0;
  int block_steps_ = 0;

  bool trying_ = false, prompted_ = false, challenger_turn_ = false, upwards_ = false, searching_ = true;
  int challenger_ = 0, blocks_left_ = 0;
  Times mine_, theirs_, their_all_;  // of the choice and of the challenger; `all`: with steps that do not count

  double settled_seconds_ = 0;  // a step, when the choice was last compared
  int slow_blocks_ = 0;
  Signs seen_;
  bool blind_ = false;      // whether processors are idle is not known
  double credit_ = 0;       // seconds that trials may lose
  double since_trial_ = 0;  // seconds
  Side down_, up_;
};

}  // namespace tril

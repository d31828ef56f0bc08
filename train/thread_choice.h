// How many threads a run's next step takes, found by timing the real steps: all, then half of them, and so on while
// fewer are faster, then numbers between the best and those that lost to it. Later half and twice the choice are tried
// again now and then, and soon where steps have become much slower, for what else runs on a machine changes. Results do
// not depend on threads, so a run may change them between any two steps. For one thread of control.
#pragma once

namespace tril {

class ThreadChoice {
 public:
  explicit ThreadChoice(int most) : most_(most), chosen_(most) {}

  [[nodiscard]] int threads() const { return trying_ && challenger_turn_ ? challenger_ : chosen_; }
  // What the step that has ended took. True: another number was chosen.
  bool took(double seconds);

  [[nodiscard]] int chosen() const { return chosen_; }
  // Mean seconds of a step with the chosen number, when it was last compared; 0 before that.
  [[nodiscard]] double chosen_seconds() const { return settled_seconds_; }

 private:
  struct Times {
    double total = 0;
    int steps = 0;
    void add(double seconds) { total += seconds, ++steps; }
    [[nodiscard]] double mean() const { return steps == 0 ? 0.0 : total / steps; }
  };

  void begin_trial(int challenger);
  void go_on();
  bool end_trial();
  void end_block();
  void watch(double seconds);

  int most_, chosen_;
  int below_ = 0, above_ = 0;  // the nearest numbers that lost to the choice; 0: none is known
  int warm_up_ = 2;            // steps in which memory grows and is laid out

  bool trying_ = false, challenger_turn_ = false, upwards_ = false, searching_ = false;
  int challenger_ = 0, blocks_left_ = 0, block_steps_ = 0;
  double block_seconds_ = 0;
  Times mine_, theirs_;

  double settled_seconds_ = 0;         // a step, when the choice was last compared
  double since_trial_ = 0, rest_ = 0;  // seconds; how long to leave the choice alone
  Times lately_;
};

}  // namespace tril

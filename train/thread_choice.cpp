#include "train/thread_choice.h"

#include <algorithm>

namespace tril {
namespace {

constexpr double kBlock = 0.25;            // seconds of steps with one number before the other's turn
constexpr double kLongStep = 0.5;          // seconds: such steps are compared one with one
constexpr double kBetter = 0.97;           // of the time: less gain is no reason to change
constexpr double kRest = 60;               // seconds between trials, and
constexpr double kRestPerCost = 30;        // at least so many times what the last one took
constexpr double kSlower = 1.5;            // times as slow as when last compared: a trial is due,
constexpr double kSoon = 10, kLately = 1;  // after so many seconds, over so many

}  // namespace

bool ThreadChoice::took(double seconds) {
  if (most_ == 1) return false;
  if (warm_up_ > 0) {
    if (--warm_up_ == 0) go_on();
    return false;
  }
  if (!trying_) {
    watch(seconds);
    return false;
  }
  // A team that has slept is slow to wake: of several steps the first of a block does not count.
  if (block_steps_ > 0 || seconds >= kBlock) (challenger_turn_ ? theirs_ : mine_).add(seconds);
  ++block_steps_;
  block_seconds_ += seconds;
  const bool counted = (challenger_turn_ ? theirs_ : mine_).steps > 0;
  if (block_seconds_ < kBlock || !counted) return false;
  end_block();
  return blocks_left_ == 0 && end_trial();
}

void ThreadChoice::begin_trial(int challenger) {
  challenger_ = challenger;
  trying_ = true;
  challenger_turn_ = false;
  blocks_left_ = 4;
  block_steps_ = 0;
  block_seconds_ = 0;
  mine_ = theirs_ = {};
}

void ThreadChoice::end_block() {
  --blocks_left_;
  if (blocks_left_ == 2 && std::min(mine_.mean(), theirs_.mean()) >= kLongStep) blocks_left_ = 0;
  challenger_turn_ = !challenger_turn_;
  block_steps_ = 0;
  block_seconds_ = 0;
}

bool ThreadChoice::end_trial() {
  const bool won = theirs_.mean() < kBetter * mine_.mean();
  const int before = chosen_;
  settled_seconds_ = won ? theirs_.mean() : mine_.mean();
  trying_ = false;
  since_trial_ = 0;
  rest_ = std::max(kRest, kRestPerCost * theirs_.total);
  lately_ = {};
  if (won) chosen_ = challenger_;
  const int loser = won ? before : challenger_;
  (loser < chosen_ ? below_ : above_) = loser;
  if (won || searching_) go_on();
  return won;
}

// Further in the direction that won; then into the wider gap to a number that lost, until it is narrow.
void ThreadChoice::go_on() {
  searching_ = true;
  const int down = chosen_ - below_, up = (above_ == 0 ? most_ + 1 : above_) - chosen_;
  const int narrow = std::max(1, chosen_ / 8);
  if (below_ == 0 && chosen_ > 1)
    begin_trial(chosen_ / 2);
  else if (above_ == 0 && chosen_ < most_)
    begin_trial(std::min(2 * chosen_, most_));
  else if (std::max(down, up) > narrow)
    begin_trial(down >= up ? chosen_ - down / 2 : chosen_ + up / 2);
  else
    searching_ = false;
}

void ThreadChoice::watch(double seconds) {
  since_trial_ += seconds;
  lately_.add(seconds);
  const bool slow = lately_.total >= kLately && lately_.mean() > kSlower * settled_seconds_;
  if (lately_.total >= kLately) lately_ = {};
  if (since_trial_ < (slow ? std::min(kSoon, rest_) : rest_)) return;
  below_ = above_ = 0;
  upwards_ = chosen_ == 1 || (chosen_ < most_ && !upwards_);
  begin_trial(upwards_ ? std::min(2 * chosen_, most_) : chosen_ / 2);
}

}  // namespace tril

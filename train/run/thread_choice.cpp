#include "train/run/thread_choice.h"

#include <algorithm>
#include <utility>

namespace tril {
namespace {

constexpr double kBlock = 0.25;    // seconds of steps with one number before the other's turn
constexpr double kLongStep = 0.5;  // seconds: such steps are compared one with one
constexpr double kBetter = 0.97;   // a challenger must take less than this part of the time

// Ratios of time at which the first pair of blocks decides the trial.
constexpr double kClearlyBetter = 0.75, kClearlyWorse = 1.3;

constexpr double kShare = 0.015;                 // the part of a run's time that may be lost to trials
constexpr double kAtOnce = 1, kStepsAtOnce = 2;  // at most so many seconds and steps of it are saved up

constexpr double kCrowded = 0.1;               // threads without a processor
constexpr double kRoom = 0.75;                 // idle processors
constexpr double kSlower = 1.35;               // times as slow as when last compared
constexpr double kPause = 1, kLongPause = 10;  // seconds until a direction that lost is tried again for the same load
constexpr double kBlindRest = 5, kRest = 60;   // seconds between trials that the load does not ask for

}  // namespace

void ThreadChoice::Side::lost(double level_then) {
  pause = std::clamp(2 * pause, kPause, kLongPause);
  left = pause;
  level = std::max(level, level_then);
}

bool ThreadChoice::took(double seconds) {
  if (most_ == 1) return false;
  if (warm_up_ > 0) {
    if (--warm_up_ == 0) (void)look_();
    credit_ = kAtOnce + seconds;  // a trial of half the threads may cost a step
    return false;
  }
  credit_ = std::min(credit_ + kShare * seconds, kAtOnce + kStepsAtOnce * seconds);
  // Threads that have slept are slow to wake, so the first step of a block does not count, unless it fills the block.
  if (block_steps_ > 0 || seconds >= kBlock) block_.add({seconds, 1});
  ++block_steps_;
  block_seconds_ += seconds;
  if (block_seconds_ < kBlock || block_.steps == 0) return false;
  const Times block = std::exchange(block_, {}), all{std::exchange(block_seconds_, 0), std::exchange(block_steps_, 0)};
  if (trying_) return end_block(block, all);
  watch(block, all.total);
  return false;
}

// The challenger is first compared with the last block of the current choice.
void ThreadChoice::begin_trial(int challenger, bool prompted) {
  challenger_ = challenger;
  prompted_ = prompted;
  trying_ = challenger_turn_ = true;
  blocks_left_ = mine_.mean() >= kLongStep ? 1 : 3;
  theirs_ = their_all_ = {};
}

bool ThreadChoice::end_block(const Times& block, const Times& all) {
  (challenger_turn_ ? theirs_ : mine_).add(block);
  if (challenger_turn_) {
    their_all_.add(all);
    const double ratio = theirs_.mean() / mine_.mean();
    if (ratio < kClearlyBetter || ratio > kClearlyWorse) blocks_left_ = 1;
  }
  challenger_turn_ = !challenger_turn_;
  return --blocks_left_ == 0 && end_trial();
}

bool ThreadChoice::end_trial() {
  const bool won = theirs_.mean() < kBetter * mine_.mean(), down = challenger_ < chosen_;
  const int loser = won ? chosen_ : challenger_;
  trying_ = challenger_turn_ = false;
  since_trial_ = 0;
  slow_blocks_ = 0;
  if (won) {
    chosen_ = challenger_;
    mine_ = theirs_;
    down_ = up_ = {};
    if (down)
      up_.lost(seen_.idle);
    else
      down_.lost(most_);
  } else {
    credit_ -= std::max(0.0, their_all_.total - their_all_.steps * mine_.mean());
    if (down)
      down_.lost(seen_.waiting);
    else
      up_.lost(seen_.idle);
  }
  settled_seconds_ = mine_.mean();
  (loser < chosen_ ? below_ : above_) = loser;
  if (!prompted_ && (won || searching_)) go_on();
  (void)look_();  // the next look then covers steps with one number of threads
  return won;
}

// Goes on with the search: further in the direction that won; then into the wider gap to a number that lost, until both
// gaps are narrow.
void ThreadChoice::go_on() {
  const int down = chosen_ - below_, up = (above_ == 0 ? most_ + 1 : above_) - chosen_;
  const int narrow = std::max(1, chosen_ / 8);
  int next = 0;
  if (below_ == 0 && chosen_ > 1)
    next = chosen_ / 2;
  else if (above_ == 0 && chosen_ < most_)
    next = std::min(2 * chosen_, most_);
  else if (std::max(down, up) > narrow)
    next = down >= up ? chosen_ - down / 2 : chosen_ + up / 2;
  searching_ = next != 0;
  if (searching_ && affordable(next)) begin_trial(next, false);
}

// Whether the credit covers a likely bad outcome: with half the threads a step takes twice as long; with more threads
// it takes kWaits times as long, as they gain nothing and wait.
bool ThreadChoice::affordable(int challenger) const {
  constexpr double kWaits = 1.5;
  const double ratio = challenger < chosen_ ? static_cast<double>(chosen_) / challenger : kWaits;
  return credit_ >= (ratio - 1) * std::max(mine_.mean(), kBlock);
}

bool ThreadChoice::search(int challenger) {
  if (!affordable(challenger)) return false;
  below_ = above_ = 0;
  begin_trial(challenger, false);
  return true;
}

void ThreadChoice::watch(const Times& block, double seconds) {
  mine_ = block;
  since_trial_ += seconds;
  down_.left -= seconds;
  up_.left -= seconds;
  look_around(block.mean(), seconds);
  if (follow_signs()) return;
  const int half = chosen_ / 2, twice = std::min(2 * chosen_, most_);
  const bool down = half > 0 && down_.left <= 0, up = twice > chosen_ && up_.left <= 0;
  if (searching_) return go_on();
  if (slow_blocks_ >= 2 && ((down && search(half)) || (up && search(twice)))) return;
  if (blind_ && up && since_trial_ >= kBlindRest && search(twice)) return;
  if (since_trial_ < kRest) return;
  upwards_ = half == 0 || (twice > chosen_ && !upwards_);
  (void)search(upwards_ ? twice : half);
}

void ThreadChoice::look_around(double step, double seconds) {
  // A look that covers much more time than the steps took tells little about them.
  constexpr double kMeanwhile = 1.5, kMoment = 0.1;
  const MachineLoad load = look_();
  const bool of_steps = load.seconds <= kMeanwhile * seconds + kMoment;
  seen_ = {.waiting = of_steps ? load.waiting.value_or(0) : 0, .idle = of_steps ? load.idle.value_or(0) : 0};
  blind_ = !load.idle;
  if (settled_seconds_ == 0) settled_seconds_ = step;
  slow_blocks_ = step > kSlower * settled_seconds_ ? slow_blocks_ + 1 : 0;
  if (step < settled_seconds_) settled_seconds_ += (step - settled_seconds_) / 8;

  constexpr double kMoreWaiting = 1.5;
  const bool new_crowd = seen_.waiting > kMoreWaiting * down_.level + kRoom / 3,
             new_room = seen_.idle > up_.level + kRoom;
  if (new_crowd || new_room) {  // what decided the last trial has changed, so allow one whatever earlier ones cost
    (new_crowd ? down_ : up_) = {};
    (new_crowd ? below_ : above_) = 0;
    credit_ = std::max(credit_, kBlock);
  }
  if (seen_.waiting < kCrowded && slow_blocks_ == 0) down_.pause = 0;
  if (seen_.waiting < kCrowded && seen_.idle < kRoom) up_.pause = 0;
}

// Begins the trial that the machine's load asks for, if any, and returns whether it did.
bool ThreadChoice::follow_signs() {
  const bool crowded = seen_.waiting >= kCrowded, room = seen_.idle >= kRoom;
  const bool down = chosen_ > 1 && down_.left <= 0, up = chosen_ < most_ && up_.left <= 0;
  const int gap = std::max(1, (above_ - chosen_) / 2);
  int challenger = 0;
  if (crowded && down && credit_ > 0)
    challenger = fewer();
  else if (room && up && credit_ > 0)
    challenger = chosen_ + (above_ == 0 ? static_cast<int>(seen_.idle + 1 - kRoom) : gap);
  else if (crowded && up)  // all threads wait; but more threads get a larger share of the processors
    challenger = chosen_ + (above_ == 0 ? std::max(1, chosen_ / 4) : gap);
  if (challenger == 0 || (!room && challenger > chosen_ && !affordable(challenger))) return false;
  searching_ = false;
  begin_trial(std::min(challenger, most_), true);
  return true;
}

// How many threads would have a processor each, if all threads that want one get equal shares of `most_`. If that
// number lost, it may still have been too many, so go twice as far down. At least half, since other processes may want
// far more processors than there are.
int ThreadChoice::fewer() const {
  constexpr double kMostOfTheTime = 0.9;
  const int least = std::max(1, chosen_ / 2);
  const double part = std::min(seen_.waiting / chosen_, kMostOfTheTime);
  const double fair = chosen_ + most_ - most_ / (1 - part);
  const bool lost = below_ > least;
  return std::clamp(lost ? chosen_ - 2 * (chosen_ - below_) : static_cast<int>(fair), least, chosen_ - 1);
}

}  // namespace tril

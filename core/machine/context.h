// The room core/machine: what the hardware and the system give: processor, memory, threads, oneDNN.

// What a computation runs on: its threads, its memory, its precision, its seed. A Context belongs to one thread of
// control; make one for each if you have several. It must outlive the tapes made on it, and their tensors: use after
// its end is not detected.
//
// Arithmetic on denormals is up to fifty times slower, so everything treats them as zero (FTZ and DAZ). A context sets
// this mode in the threads that it works with and in the thread that makes it, and leaves it set. It also turns off
// OpenMP's dynamic number of threads, for good.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/random.h"
#include "core/machine/arena.h"
#include "core/machine/tape_life.h"

namespace tril {

class Profile;  // core/autograd/profile.h

struct ContextOptions {
  int64_t threads = 0;  // 0: as many as this process may run on; fewer where the system grants fewer
  uint64_t seed = 1;    // of dropout
  // bf16: the layers of nn/ store the activations that matrix products read as bf16. Parameters, sums, statistics, the
  // residual stream and the loss stay f32.
  DType precision = DType::f32;
  // Plan only: ops check their operands and declare their results, but nothing is computed and no memory is taken.
  // memory().bytes() is then what the pass would take, and a Profile counts its operations. Tensors hold no numbers;
  // parameters must come from a store that was frozen to plan, too (nn/params.h).
  bool plan = false;
};

class Context {
 public:
  explicit Context(const ContextOptions& options = {});
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  [[nodiscard]] int threads() const { return threads_; }
  [[nodiscard]] int most_threads() const { return static_cast<int>(scratch_.size()); }
  void use_threads(int64_t threads);  // from here on; 1 to most_threads()
  [[nodiscard]] uint64_t seed() const { return seed_; }
  [[nodiscard]] DType precision() const { return precision_; }
  [[nodiscard]] bool plans() const { return plans_; }
  [[nodiscard]] Pool& memory() { return memory_; }  // of activations and their gradients
  [[nodiscard]] Arena& scratch(int thread = 0) { return scratch_[static_cast<size_t>(thread)]; }

  // Sets where the random numbers of the coming forward passes start: the training step, and the index of the first
  // sample (row 0 of axis 0) in the step's whole batch. So a batch that is cut in several draws the same numbers as the
  // whole one. Random numbers count both in 32 bits: others than 0 to 4294967295 throw.
  void set_step(int64_t step, int64_t first_sample = 0);
  [[nodiscard]] uint32_t step() const { return step_; }
  [[nodiscard]] uint32_t first_sample() const { return first_sample_; }

  // A context's memory serves one tape at a time. The first tensor that a tape makes in a pass takes it; the tape's
  // reset or end releases it. acquire() throws, in the op's name, if another tape holds it.
  void acquire(const void* tape, const char* op);
  void release(const void* tape);
  // Lets tensors ask whether their tape still exists; from a tape's construction to its destruction.
  [[nodiscard]] TapeLife& begin_life(Tape& tape);
  void end_life(TapeLife& life) noexcept;

  // Fill outputs, saved tensors and gradients with NaN before an op writes them. For gradient checks.
  bool poison = false;
  // Where the time of every op is added up; null: ops are not timed.
  Profile* profile = nullptr;

  // How often memory was asked of the system. It no longer grows after the first steps.
  [[nodiscard]] int64_t allocations() const;

 private:
  int threads_;
  uint64_t seed_;
  DType precision_;
  bool plans_;
  uint32_t step_ = 0, first_sample_ = 0;
  Pool memory_;
  std::vector<Arena> scratch_;  // one a thread
  const void* holder_ = nullptr;
  std::deque<TapeLife> lives_;  // a deque: tensors point at its elements
  TapeLife* free_lives_ = nullptr;
};

}  // namespace tril

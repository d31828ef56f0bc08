#include "core/machine/context.h"

#include <algorithm>
#include <limits>

#include "core/base/check.h"
#include "core/machine/onednn.h"
#include "core/machine/parallel.h"

namespace tril {
namespace {

constexpr int kMostThreads = 1024;

}  // namespace

Context::Context(const ContextOptions& options)
    : threads_(available_threads()),
      seed_(options.seed),
      precision_(options.precision),
      plans_(options.plan),
      memory_(options.plan ? Memory::planned : Memory::real) {
  TRIL_CHECK(precision_ == DType::f32 || precision_ == DType::bf16, "precision", "f32 or bf16", name_of(precision_));
  TRIL_CHECK(options.threads >= 0 && options.threads <= kMostThreads, "threads",
             cat("1 to ", kMostThreads, ", or 0 for as many as there are"), cat(options.threads));
  const int asked = options.threads == 0 ? threads_ : static_cast<int>(options.threads);
  threads_ = granted_threads(std::min(asked, kMostThreads));
  onednn_prepare();
  scratch_.resize(static_cast<size_t>(threads_));
}

void Context::use_threads(int64_t threads) {
  TRIL_CHECK(threads >= 1 && threads <= most_threads(), "threads", cat("1 to ", most_threads()), cat(threads));
  threads_ = static_cast<int>(threads);
}

void Context::set_step(int64_t step, int64_t first_sample) {
  constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
  TRIL_CHECK(step >= 0 && step <= kMost, "step", cat("0 to ", kMost), cat(step));
  TRIL_CHECK(first_sample >= 0 && first_sample <= kMost, "first_sample", cat("0 to ", kMost), cat(first_sample));
  step_ = static_cast<uint32_t>(step);
  first_sample_ = static_cast<uint32_t>(first_sample);
}

void Context::acquire(const void* tape, const char* op) {
  TRIL_CHECK(holder_ == nullptr || holder_ == tape, op, "a context that no other tape is using",
             "one in the middle of another tape's pass", "reset the other tape first, or give each its own context");
  holder_ = tape;
}

void Context::release(const void* tape) {
  if (holder_ != tape) return;
  memory_.reset();
  holder_ = nullptr;
}

TapeLife& Context::begin_life(Tape& tape) {
  TapeLife& life = free_lives_ == nullptr ? lives_.emplace_back() : *free_lives_;
  if (free_lives_ != nullptr) free_lives_ = life.next;
  life.tape = &tape;
  life.first = life.pass;
  return life;
}

void Context::end_life(TapeLife& life) noexcept {
  ++life.pass;
  life.tape = nullptr;
  life.next = free_lives_;
  free_lives_ = &life;
}

int64_t Context::allocations() const {
  int64_t total = memory_.system_allocations();
  for (const Arena& arena : scratch_) total += arena.system_allocations();
  return total;
}

}  // namespace tril

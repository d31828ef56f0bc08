#include "core/context.h"

#include "core/check.h"
#include "core/onednn.h"
#include "core/parallel.h"

namespace tril {

Context::Context(const ContextOptions& options)
    : threads_(options.threads == 0 ? available_threads() : options.threads),
      seed_(options.seed),
      precision_(options.precision) {
  TRIL_CHECK(precision_ == DType::f32 || precision_ == DType::bf16, "precision", "f32 or bf16", name_of(precision_));
  TRIL_CHECK(threads_ >= 1 && threads_ <= 1024, "threads", "1 to 1024", cat(threads_));
  threads_ = granted_threads(threads_);
  onednn_prepare();
  scratch_.resize(static_cast<size_t>(threads_));
}

void Context::use_threads(int threads) {
  TRIL_CHECK(threads >= 1 && threads <= most_threads(), "threads", cat("1 to ", most_threads()), cat(threads));
  threads_ = threads;
}

void Context::set_step(int64_t step, int64_t first_sample) {
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

int64_t Context::allocations() const {
  int64_t total = memory_.system_allocations();
  for (const Arena& arena : scratch_) total += arena.system_allocations();
  return total;
}

}  // namespace tril

#include "core/machine/parallel.h"

#include <omp.h>
#if __has_include(<execinfo.h>)
#include <execinfo.h>
#define TRIL_BACKTRACE
#endif

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace tril {
namespace {

// Denormals cost 18 to 50 times a normal number's work: treat them as zero, in every thread that computes.
void flush_denormals() {
#if defined(__SSE2__)
  constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040, kBoth = kFlushToZero | kDenormalsAreZero;
  const unsigned mode = _mm_getcsr();
  if ((mode & kBoth) != kBoth) _mm_setcsr(mode | kBoth);
#elif defined(__aarch64__)
  constexpr uint64_t kFlush = uint64_t{1} << 24;  // FZ: operands and results
  uint64_t mode = 0;
  asm volatile("mrs %0, fpcr" : "=r"(mode));
  if ((mode & kFlush) == 0) asm volatile("msr fpcr, %0" : : "r"(mode | kFlush));
#endif
}

// How many threads, up to `asked`, the system lets this process have. The OpenMP runtime ends the process if it is
// refused a thread, so this tries first.
int startable_threads(int asked) {
  std::atomic<bool> over = false;
  std::vector<std::thread> others;
  try {
    while (static_cast<int>(others.size()) + 1 < asked) others.emplace_back([&] { over.wait(false); });
  } catch (const std::system_error&) {  // the system gives no more
  } catch (const std::bad_alloc&) {}
  int started = static_cast<int>(others.size()) + 1;
  // If the limit was reached, half is left to the rest of the program, which would otherwise be refused what it needs.
  if (started < asked) started = std::clamp(started / 2, 1, omp_get_num_procs());
  over = true;
  over.notify_all();
  for (std::thread& other : others) other.join();
  return started;
}

// Keeps the first exception that a thread's body throws, for the thread that waits: none may leave a parallel region.
class FirstError {
 public:
  template <class Body>
  void guard(Body&& body) noexcept {
    try {
      body();
    } catch (...) {
      if (!taken_.test_and_set()) error_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::atomic_flag taken_;
  std::exception_ptr error_;
};

}  // namespace

// Every region has all the threads, even if some have nothing to do: the OpenMP runtime ends threads that a smaller
// region leaves out, and starts new ones for the next.
void parallel_for(int threads, int64_t count, int64_t grain, FunctionRef<void(int64_t, int64_t, int)> body) {
  const int64_t units = (count + grain - 1) / grain;
  const int parts = static_cast<int>(std::min<int64_t>(threads, units));
  if (parts <= 1) {
    flush_denormals();
    if (count > 0) body(0, count, 0);
    return;
  }
  FirstError error;
#pragma omp parallel num_threads(threads)
  {
    flush_denormals();
    const int64_t part = omp_get_thread_num(), all = std::min(parts, omp_get_num_threads());
    const int64_t begin = units * part / all * grain, end = std::min(units * (part + 1) / all * grain, count);
    if (part < all && begin < end) error.guard([&] { body(begin, end, static_cast<int>(part)); });
  }
  error.rethrow();
}

void parallel_tasks(int threads, int64_t count, FunctionRef<void(int64_t, int)> body) {
  const int parts = static_cast<int>(std::min<int64_t>(threads, count));
  if (parts <= 1) {
    flush_denormals();
    for (int64_t task = 0; task < count; ++task) body(task, 0);
    return;
  }
  struct alignas(64) Share {
    std::atomic<int64_t> next;
    int64_t end;
  };
  constexpr int kMostShares = 64;
  const int shares = std::min(parts, kMostShares);
  std::array<Share, kMostShares> all;
  for (int i = 0; i < shares; ++i) {
    all[static_cast<size_t>(i)].next.store(count * i / shares, std::memory_order_relaxed);
    all[static_cast<size_t>(i)].end = count * (i + 1) / shares;
  }
  FirstError error;
#pragma omp parallel num_threads(threads)
  {
    flush_denormals();
    const int thread = omp_get_thread_num();
    for (int i = 0; i < shares && thread < parts; ++i) {
      Share& share = all[static_cast<size_t>((thread + i) % shares)];
      for (int64_t task = share.next++; task < share.end; task = share.next++) error.guard([&] { body(task, thread); });
    }
  }
  error.rethrow();
}

int granted_threads(int asked) {
#if defined(TRIL_BACKTRACE)
  // The C library loads the code that ends a thread (libgcc_s) when it first needs it, and ends the process if there is
  // no memory for it then. A backtrace makes it load that code now.
  void* frame = nullptr;
  (void)backtrace(&frame, 1);
#endif
  omp_set_dynamic(0);
  if (omp_get_max_active_levels() < 1) omp_set_max_active_levels(1);
  const int possible = startable_threads(std::min(asked, omp_get_thread_limit()));
  flush_denormals();
  int granted = 1;
#pragma omp parallel num_threads(possible)
#pragma omp single
  granted = omp_get_num_threads();
  return granted;
}

int available_threads() { return std::max(1, std::min(omp_get_max_threads(), omp_get_num_procs())); }

AloneScope::AloneScope() : threads_before_(omp_get_max_threads()) {
  omp_set_num_threads(1);
  flush_denormals();
}
AloneScope::~AloneScope() { omp_set_num_threads(threads_before_); }

}  // namespace tril

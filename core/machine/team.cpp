#include "core/machine/team.h"

#include <new>
#include <system_error>

namespace tril {
namespace {

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

Team::Team(int threads, int patience)
    : patience_(patience), places_(std::make_unique<Place[]>(static_cast<size_t>(threads > 1 ? threads : 1))) {
  const AloneScope as_in_serve;  // flushes denormals in the caller, too: as member 0 it must round like the others
  try {
    for (int member = 1; member < threads; ++member) workers_.emplace_back([this, member] { serve(member); });
  } catch (const std::system_error&) {  // the system gives no more
  } catch (const std::bad_alloc&) {}
}

Team::~Team() {
  end_ = true;
  ++round_;
  round_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

bool Team::run(FunctionRef<void(int)> work, int64_t longer) {
  work_ = &work;
  limit_.store(longer * patience_, std::memory_order_relaxed);
  kept_waiting_ = false;
  if (!workers_.empty()) {
    ++round_;
    round_.notify_all();
  }
  work(0);
  wait(0);
  return !kept_waiting_;
}

void Team::serve(int member) {
  const AloneScope alone;  // no regions inside the team
  for (uint32_t done = 0;; ++done) {
    for (int looks = 0; looks < patience_ && round_ == done; ++looks) pause();
    round_.wait(done);
    if (end_) return;
    (*work_)(member);
    wait(member);
  }
}

void Team::wait(int member) {
  if (workers_.empty()) return;
  const auto place = [&](int i) -> std::atomic<uint64_t>& { return places_[static_cast<size_t>(i)].reached; };
  const uint64_t mine = place(member).load(std::memory_order_relaxed) + 1;
  place(member).store(mine, std::memory_order_release);
  const int64_t limit = limit_.load(std::memory_order_relaxed);
  for (int other = 0; other < size(); ++other)
    for (int64_t looks = 0; place(other).load(std::memory_order_acquire) < mine; ++looks) {
      if (looks < limit) {
        pause();
      } else {
        if (member == 0) kept_waiting_ = true;
        std::this_thread::yield();
      }
    }
}

}  // namespace tril

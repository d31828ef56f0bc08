// A few threads that stay up between pieces of work a few microseconds long, such as one token of a small model. They
// wait by spinning, so handing over costs well under a microsecond where a region of parallel.h costs several; a member
// that has waited long gives its processor away, or goes to sleep where there is no work. A Team belongs to the thread
// that made it, which is its member 0; the others end with it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "core/machine/parallel.h"

namespace tril {

class Team {
 public:
  // How often to look before a wait is long: about a tenth of a millisecond.
  static constexpr int kPatience = 2000;

  // Where the system gives fewer threads, the team is smaller. More patience is for parts of the work that take longer.
  explicit Team(int threads, int patience = kPatience);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  [[nodiscard]] int size() const { return static_cast<int>(workers_.size()) + 1; }
  // Every member calls work(member); returns when all are done. The work must not throw. False where a member kept the
  // caller waiting long: it probably has no processor to itself, and working alone is faster. `longer`: how many times
  // longer than usual this work is, and so may the waits be.
  bool run(FunctionRef<void(int)> work, int64_t longer = 1);
  // Inside the work: goes on when every member has come here. What each wrote before, all see after.
  void wait(int member);

 private:
  struct alignas(64) Place {  // a cache line each, so that members do not disturb each other
    std::atomic<uint64_t> reached{0};
  };
  void serve(int member);

  int patience_;
  std::atomic<int64_t> limit_{0};  // of looks at a time, in this piece of work
  std::unique_ptr<Place[]> places_;
  std::atomic<uint32_t> round_{0};  // counts the pieces of work
  std::atomic<bool> end_{false};
  FunctionRef<void(int)>* work_ = nullptr;
  bool kept_waiting_ = false;  // member 0, in this piece of work
  std::vector<std::thread> workers_;
};

}  // namespace tril

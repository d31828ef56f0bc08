// A few threads that stay alive between pieces of work of a few microseconds, such as one token of a small model. They
// wait by spinning, so handing over work costs well under a microsecond; a region of parallel.h costs several. A member
// that has waited long for others yields its processor; one that has waited long for work goes to sleep. A Team belongs
// to the thread that made it, which is its member 0; the destructor ends the others.
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
  // How often a member looks before its wait counts as long: about a tenth of a millisecond.
  static constexpr int kPatience = 2000;

  // If the system gives fewer threads, the team is smaller. A larger patience suits work whose parts take longer.
  explicit Team(int threads, int patience = kPatience);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  [[nodiscard]] int size() const { return static_cast<int>(workers_.size()) + 1; }
  // Every member calls work(member); returns when all are done. The work must not throw. Returns false if another
  // member kept the caller waiting long: that one probably has no processor to itself, and working alone would be
  // faster. `longer` multiplies the patience, for work that takes so many times longer than usual.
  bool run(FunctionRef<void(int)> work, int64_t longer = 1);
  // A barrier, for use inside the work: returns when every member has called it. What each wrote before, all see after.
  void wait(int member);

 private:
  struct alignas(64) Place {  // a cache line each, against false sharing
    std::atomic<uint64_t> reached{0};
  };
  void serve(int member);

  int patience_;
  std::atomic<int64_t> limit_{0};  // looks before a wait counts as long, in this piece of work
  std::unique_ptr<Place[]> places_;
  std::atomic<uint32_t> round_{0};  // counts the pieces of work
  std::atomic<bool> end_{false};
  FunctionRef<void(int)>* work_ = nullptr;
  bool kept_waiting_ = false;  // member 0 waited long in this piece of work
  std::vector<std::thread> workers_;
};

}  // namespace tril

// Work shared between threads. This and parallel.cpp hold all of the project's OpenMP threads.
// Results never depend on the number of threads: either every element is computed on its own, or partial results are
// made for a fixed number of chunks and added in order.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace tril {

// A reference to a callable, for calls that end before the callable does.
template <class Signature>
class FunctionRef;
template <class Result, class... Args>
class FunctionRef<Result(Args...)> {
 public:
  template <class Callable>
  requires(!std::is_same_v<std::remove_cvref_t<Callable>, FunctionRef>)
      FunctionRef(Callable&& callable)  // NOLINT: implicit on purpose
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        call_([](void* object, Args... args) -> Result {
          return (*static_cast<std::remove_reference_t<Callable>*>(object))(args...);
        }) {}
  Result operator()(Args... args) const { return call_(object_, args...); }

 private:
  void* object_;
  Result (*call_)(void*, Args...);
};

// Calls body(begin, end, thread) on consecutive parts of [0, count), at most one for each thread. The length of a part
// is a multiple of `grain`, except for the last. If bodies throw, the first exception is rethrown to the caller after
// all have ended.
void parallel_for(int threads, int64_t count, int64_t grain, FunctionRef<void(int64_t, int64_t, int)> body);

// Calls body(task, thread) for every task in [0, count); for tasks of unequal length. A thread first takes the tasks of
// its own share, which is the part that parallel_for would give it: its cache may hold their data. Then it takes tasks
// from the others' shares. If bodies throw, the first exception is rethrown to the caller.
void parallel_tasks(int threads, int64_t count, FunctionRef<void(int64_t, int)> body);

// Threads worth starting: OMP_NUM_THREADS if set, else the processors this process may run on.
[[nodiscard]] int available_threads();

// How many threads, up to `asked`, the system and the OpenMP runtime really give.
[[nodiscard]] int granted_threads(int asked);

// While it lives, a library that the calling thread calls runs on that thread alone (OpenMP starts one thread). The
// thread also treats denormals as zero, and goes on to do so.
class AloneScope {
 public:
  AloneScope();
  ~AloneScope();
  AloneScope(const AloneScope&) = delete;
  AloneScope& operator=(const AloneScope&) = delete;

 private:
  int threads_before_;
};

// Sums over rows are made in this many chunks of rows, whatever the number of threads.
inline constexpr int64_t kReductionChunks = 16;

}  // namespace tril

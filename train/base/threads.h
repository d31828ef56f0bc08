// How many threads are worth starting here. Any thread may call.
#pragma once

namespace tril {

// The lowest of three: the processors this process may run on, OMP_NUM_THREADS, and the control group's share.
[[nodiscard]] int default_threads();

// How many processors this process may run on.
[[nodiscard]] int processors();

// Threads that wait for each other spin for a quarter of a millisecond and then give up their processor, unless the
// environment sets another time. By default OpenMP's runtime spins far longer: on two processors one busy other process
// then makes a training step of two threads thirty times slower; with a millisecond it is still five times. It must
// not be less than a step's own waits, since a wait that sleeps makes each step slower. The runtime reads its
// environment before main, so this starts the program again, once; if that fails, nothing happens. For the start of
// main.
void limit_spinning(char* const* argv);

// Makes all threads share one heap. Otherwise each reserves 64 MiB of address space when it first allocates. A limit on
// address space (ulimit -v) counts that, and a refusal then may hit a library that does not expect one. For the start
// of main.
void share_heap();

}  // namespace tril

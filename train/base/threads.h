// How many threads are worth starting here. Any thread may call.
#pragma once

namespace tril {

// The least of the processors this process may run on, OMP_NUM_THREADS, and the control group's share.
[[nodiscard]] int default_threads();

// The processors this process may run on.
[[nodiscard]] int processors();

// Lets threads that wait for each other give their processor away after a quarter of a millisecond, unless the
// environment says how long. OpenMP's runtime spins far longer otherwise, and on two processors one busy neighbour then
// makes a training step of two threads thirty times slower; after a millisecond five times, so fewer. A step's
// own waits are shorter: a wait that sleeps makes each step slower. The runtime reads its environment before main, so
// this starts the program anew, once; where that cannot be done nothing happens. For the start of main.
void limit_spinning(char* const* argv);

// Lets all threads share one heap. Else each reserves 64 MiB of addresses when it first asks for memory, which a limit
// on addresses counts, at a moment when a library may be asking that does not expect a refusal. For the start of main.
void share_heap();

}  // namespace tril

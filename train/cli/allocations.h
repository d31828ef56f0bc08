// Counts what the program asks of the C++ heap, to show that a training step asks for nothing. The program's operator
// new is replaced in allocations.cpp; what oneDNN allocates for itself is not counted.
#pragma once

#include <cstdint>

namespace tril::cli {

// Allocations of ours since counting began, on all threads.
void count_allocations(bool on);
[[nodiscard]] int64_t counted_allocations();

}  // namespace tril::cli

// Memory of the engine. All of it grows during the first step and then stays: after warm-up a step asks the system for
// nothing, and every buffer has the address it had the step before. Not thread-safe: a Context and what it owns belong
// to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace tril {

// planned: addresses alone, without memory behind them, for a pass that is only counted (ContextOptions::plan).
enum class Memory : uint8_t { real, planned };
[[nodiscard]] bool is_planned(const void* address);

// Memory from the system, freed by the destructor. A block of 2 MiB or more is aligned to 2 MiB and asks for huge
// pages; a smaller one is aligned to 64 bytes. Throws if the system refuses.
class MemoryBlock {
 public:
  explicit MemoryBlock(int64_t bytes, Memory memory = Memory::real);
  ~MemoryBlock();
  MemoryBlock(MemoryBlock&& other) noexcept : data_(other.data_), bytes_(other.bytes_), memory_(other.memory_) {
    other.data_ = nullptr;
  }
  MemoryBlock& operator=(MemoryBlock&&) = delete;
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_;
  int64_t bytes_;
  Memory memory_;
};

// A bump arena: allocate in order, give all back at once (or back to a mark).
class Arena {
 public:
  explicit Arena(Memory memory = Memory::real) : memory_(memory) {}
  [[nodiscard]] std::byte* allocate(int64_t bytes);  // 64-byte aligned
  // Frees all allocations. One block is kept for reuse; several are returned to the system, and the next allocation
  // asks for one block as large as what they held.
  void reset() noexcept;
  struct Mark {
    size_t block;
    int64_t used, before;
  };
  [[nodiscard]] Mark mark() const { return {current_, used_, before_}; }
  void release(const Mark& mark) noexcept;
  [[nodiscard]] int64_t system_allocations() const { return system_allocations_; }
  [[nodiscard]] int64_t bytes() const;  // asked of the system and kept

 private:
  Memory memory_;
  std::vector<MemoryBlock> blocks_;
  size_t current_ = 0;  // the block in use
  int64_t used_ = 0;    // bytes used of it
  int64_t before_ = 0;  // bytes of the blocks before it
  int64_t most_ = 0;    // most bytes in use at once, in all blocks
  int64_t wanted_ = 0;  // size of the next first block, after several were returned
  int64_t system_allocations_ = 0;
};

// Buffers that are allocated and freed in any order, for activations and gradients. Freed buffers are kept in lists by
// exact size, because the same sizes recur from layer to layer.
class Pool {
 public:
  explicit Pool(Memory memory = Memory::real) : memory_(memory) {}
  [[nodiscard]] std::byte* allocate(int64_t bytes);
  void free(void* buffer, int64_t bytes);
  void reset();  // frees all buffers at once
  [[nodiscard]] int64_t system_allocations() const { return memory_.system_allocations(); }
  [[nodiscard]] int64_t bytes() const { return memory_.bytes(); }

 private:
  Arena memory_;
  std::map<int64_t, std::vector<void*>> free_;
};

// Scratch memory for the length of a scope.
class Scratch {
 public:
  explicit Scratch(Arena& arena) : arena_(arena), mark_(arena.mark()) {}
  ~Scratch() { arena_.release(mark_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  template <class T>
  [[nodiscard]] T* get(int64_t count) {
    return reinterpret_cast<T*>(arena_.allocate(count * static_cast<int64_t>(sizeof(T))));
  }

 private:
  Arena& arena_;
  Arena::Mark mark_;
};

}  // namespace tril

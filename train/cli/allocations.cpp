#include "train/cli/allocations.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

namespace tril::cli {
namespace {

std::atomic<bool> counting{false};
std::atomic<int64_t> count{0};

bool is_in_onednn(void* address) {
  Dl_info info;
  return dladdr(address, &info) != 0 && info.dli_fname != nullptr && std::strstr(info.dli_fname, "libdnnl") != nullptr;
}

void* allocate(std::size_t bytes, std::size_t alignment, void* caller) {
  if (counting.load(std::memory_order_relaxed) && !is_in_onednn(caller)) count.fetch_add(1, std::memory_order_relaxed);
  const std::size_t size = bytes == 0 ? 1 : bytes;
  void* const memory = alignment == 0 ? std::malloc(size)
                                      : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void count_allocations(bool on) {
  count = 0;
  counting = on;
}

int64_t counted_allocations() { return count; }

}  // namespace tril::cli

void* operator new(std::size_t bytes) { return tril::cli::allocate(bytes, 0, __builtin_return_address(0)); }
void* operator new[](std::size_t bytes) { return tril::cli::allocate(bytes, 0, __builtin_return_address(0)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return tril::cli::allocate(bytes, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return tril::cli::allocate(bytes, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

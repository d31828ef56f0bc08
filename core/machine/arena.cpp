#include "core/machine/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

#include "core/base/check.h"

namespace tril {
namespace {

constexpr int64_t kAlign = 64;
constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kSmallestBlock = int64_t{1} << 16;

constexpr uintptr_t kNowhere = uintptr_t{1} << 62;  // no process has memory there

constexpr int64_t round_up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

bool is_planned(const void* address) { return reinterpret_cast<uintptr_t>(address) >= kNowhere; }

MemoryBlock::MemoryBlock(int64_t bytes, Memory memory)
    : bytes_(round_up(bytes, bytes >= kHugePage ? kHugePage : kAlign)), memory_(memory) {
  if (memory_ == Memory::planned) {
    data_ = reinterpret_cast<std::byte*>(kNowhere);  // NOLINT(performance-no-int-to-ptr)
    return;
  }
  const int64_t alignment = bytes_ >= kHugePage ? kHugePage : kAlign;
  data_ = static_cast<std::byte*>(std::aligned_alloc(static_cast<size_t>(alignment), static_cast<size_t>(bytes_)));
  if (data_ == nullptr)
    fail("memory", cat(bytes_ >> 20, " MiB more"), "a refusal from the system",
         "use a smaller batch, context or model");
  if (bytes_ >= kHugePage) (void)madvise(data_, static_cast<size_t>(bytes_), MADV_HUGEPAGE);
}

MemoryBlock::~MemoryBlock() {
  if (memory_ == Memory::real) std::free(data_);
}

std::byte* Arena::allocate(int64_t bytes) {
  bytes = std::max(round_up(bytes, kAlign), kAlign);
  while (current_ < blocks_.size() && used_ + bytes > blocks_[current_].bytes()) {
    before_ += blocks_[current_].bytes();
    ++current_;
    used_ = 0;
  }
  if (current_ == blocks_.size()) {
    const int64_t last = blocks_.empty() ? kSmallestBlock : blocks_.back().bytes();
    const int64_t wanted = blocks_.empty() && wanted_ > 0 ? wanted_ : std::min(2 * last, int64_t{256} << 20);
    blocks_.emplace_back(std::max(bytes, wanted), memory_);
    ++system_allocations_;
  }
  std::byte* const data = blocks_[current_].data() + used_;
  used_ += bytes;
  most_ = std::max(most_, before_ + used_);
  return data;
}

void Arena::reset() noexcept {
  if (blocks_.size() > 1) {
    blocks_.clear();
    wanted_ = most_;
  }
  current_ = 0;
  used_ = 0;
  before_ = 0;
  most_ = 0;
}

int64_t Arena::bytes() const {
  int64_t total = 0;
  for (const MemoryBlock& block : blocks_) total += block.bytes();
  return total;
}

void Arena::release(const Mark& mark) noexcept {
  if (mark.block == 0 && mark.used == 0) return reset();
  current_ = mark.block;
  used_ = mark.used;
  before_ = mark.before;
}

std::byte* Pool::allocate(int64_t bytes) {
  bytes = std::max(round_up(bytes, kAlign), kAlign);
  if (const auto found = free_.find(bytes); found != free_.end() && !found->second.empty()) {
    void* const buffer = found->second.back();
    found->second.pop_back();
    return static_cast<std::byte*>(buffer);
  }
  return memory_.allocate(bytes);
}

void Pool::free(void* buffer, int64_t bytes) { free_[std::max(round_up(bytes, kAlign), kAlign)].push_back(buffer); }

void Pool::reset() {
  for (auto& [bytes, buffers] : free_) buffers.clear();
  memory_.reset();
}

}  // namespace tril

// CRC-32 as in zlib, PNG and Ethernet (reflected polynomial 0xEDB88320). It finds damage, not deliberate changes.
// A Crc32 is a plain value; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tril {

class Crc32 {
 public:
  void add(const void* data, size_t size);
  [[nodiscard]] uint32_t value() const { return ~state_; }

 private:
  uint32_t state_ = ~uint32_t{0};
};

}  // namespace tril

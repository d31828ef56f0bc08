// Where a computation's time goes, op by op: set Context::profile, and every op that runs on the context's tapes is
// timed, forward and backward apart. Work that is not an op, such as an optimizer's, is timed with Timed.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/autograd/tensor.h"

namespace tril {

// All runs of one op on operands of the same shapes.
struct OpTime {
  static constexpr size_t kMostOperands = 4;  // whose shapes tell rows apart
  const char* op = nullptr;
  std::array<Shape, kMostOperands> operands{};
  size_t operand_count = 0;
  int64_t calls = 0;                 // of forward
  double forward = 0, backward = 0;  // seconds
  double flops = 0;                  // of both, as the op's shape rule counts them
  double bytes = 0;                  // of every tensor that it read and wrote, once each
  [[nodiscard]] double seconds() const { return forward + backward; }
  [[nodiscard]] std::string name() const;  // "linear (12, 64, 128) (384, 128)"
};

class Profile {
 public:
  // The row of this op on operands of these shapes; added if there is none. The reference is valid until the next call.
  OpTime& row(const char* op, std::span<const Tensor> operands = {});
  [[nodiscard]] const std::vector<OpTime>& rows() const { return rows_; }  // in the order that they first ran

 private:
  std::vector<OpTime> rows_;
};

// Adds the seconds for which it lives to `*sum`; does nothing if `sum` is null.
class Timed {
 public:
  explicit Timed(double* sum) : sum_(sum) {
    if (sum_ != nullptr) start_ = std::chrono::steady_clock::now();
  }
  ~Timed() {
    if (sum_ != nullptr) *sum_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  double* sum_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace tril

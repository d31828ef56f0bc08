// How a tensor tells whether its tape still holds its numbers. A context owns a TapeLife for each tape that exists,
// keeps it after the tape's end, and gives it to the next tape. So a tensor that outlives its tape reads the context's
// memory, never the tape's: asking is cheap, and safe as long as the context exists.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tril {

class Tape;

struct TapeLife {
  Tape* tape = nullptr;  // null between two tapes
  uint64_t pass = 0;     // grows with every reset and at a tape's end; never falls
  uint64_t first = 0;    // the pass that `tape` began with
  TapeLife* next = nullptr;
};

// A pointer to a tensor's tape that remembers the pass in which it was taken. Null for memory that is no tape's.
class TapeRef {
 public:
  TapeRef() = default;
  TapeRef(std::nullptr_t) {}  // NOLINT: implicit as for any pointer
  explicit TapeRef(const TapeLife& life) : life_(&life), pass_(life.pass) {}

  // There is no tape, or it is still in the same pass.
  [[nodiscard]] bool is_current() const { return life_ == nullptr || life_->pass == pass_; }
  // The tape was destroyed, even if another tape has its TapeLife now.
  [[nodiscard]] bool is_gone() const { return life_ != nullptr && (pass_ < life_->first || life_->tape == nullptr); }
  [[nodiscard]] Tape* get() const { return life_ == nullptr || is_gone() ? nullptr : life_->tape; }
  // These throw if there is no tape, or if it was destroyed.
  Tape* operator->() const { return &**this; }
  Tape& operator*() const {
    Tape* const tape = get();
    if (tape == nullptr) [[unlikely]]
      refuse();
    return *tape;
  }

  // A reference to a tape that is gone is not null.
  friend bool operator==(const TapeRef& a, std::nullptr_t) { return a.life_ == nullptr; }
  friend bool operator==(const TapeRef& a, const Tape* b) { return a.get() == b; }

 private:
  [[noreturn]] void refuse() const;

  const TapeLife* life_ = nullptr;
  uint64_t pass_ = 0;
};

}  // namespace tril

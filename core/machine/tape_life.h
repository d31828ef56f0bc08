// Whether a tensor's numbers are still there, cheap to ask and safe to ask at any time: a context keeps a TapeLife for
// each tape that lives at once, and keeps it after the tape's end, for the next one. So a tensor that outlives its tape
// looks at the context's memory, never at the tape's. Beyond the context's own end nothing is known of its tensors.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tril {

class Tape;

struct TapeLife {
  Tape* tape = nullptr;  // null between two tapes
  uint64_t pass = 0;     // rises with every reset and every end, and never falls
  uint64_t first = 0;    // the pass that `tape` began with
  TapeLife* next = nullptr;
};

// A pointer to the tape of a tensor that remembers the pass it was taken in. Null for memory from outside a tape.
class TapeRef {
 public:
  TapeRef() = default;
  TapeRef(std::nullptr_t) {}  // NOLINT: implicit as for any pointer
  explicit TapeRef(const TapeLife& life) : life_(&life), pass_(life.pass) {}

  // No tape, or one that still is in the same pass.
  [[nodiscard]] bool is_current() const { return life_ == nullptr || life_->pass == pass_; }
  // The tape was destroyed, whether or not another has its place.
  [[nodiscard]] bool is_gone() const { return life_ != nullptr && (pass_ < life_->first || life_->tape == nullptr); }
  [[nodiscard]] Tape* get() const { return life_ == nullptr || is_gone() ? nullptr : life_->tape; }
  // Throw where there is no tape to look at.
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

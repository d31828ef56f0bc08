#include "core/autograd/tensor.h"

namespace tril {

void TapeRef::refuse() const {
  fail("tensor", "one on a tape", life_ == nullptr ? "one without" : "one whose tape was destroyed",
       life_ == nullptr ? "bring it in with Tape::constant or Tape::variable" : "keep a tape as long as its tensors");
}

void Tensor::refuse_stale(const char* op) const {
  const bool gone = tape.is_gone();
  fail(op, "tensors of the current pass",
       cat("one of shape ", shape, gone ? " whose tape was destroyed" : " made before its tape was reset"),
       gone ? "keep a tape as long as its tensors" : "make it again after reset()");
}

}  // namespace tril

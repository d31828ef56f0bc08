// AdamW over the flat buffers of a ParamStore and a GradStore, as PyTorch's: decoupled weight decay first, then the
// update with corrected moments, epsilon outside the root. I. Loshchilov, F. Hutter, "Decoupled weight decay
// regularization", https://arxiv.org/abs/1711.05101. Matrices decay, biases and norms do not.
// It belongs to the trainer's thread. After construction nothing is allocated, and results do not depend on the number
// of threads.
#pragma once

#include <cstdint>
#include <vector>

#include "core/arena.h"
#include "nn/params.h"

namespace tril {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.99, weight_decay = 0.1, epsilon = 1e-8;
};

class AdamW {
 public:
  // The store is frozen, and outlives this.
  AdamW(ParamStore& params, const AdamWOptions& options);

  // The 2-norm of all gradients together. Not finite if one of them is not, or if it is too large for a double.
  [[nodiscard]] double norm(const GradStore& gradients, int threads);
  // One update by the gradients times `gradient_scale`, of the store's shadow too, if it keeps one.
  void update(const GradStore& gradients, double rate, double gradient_scale, int threads);

  [[nodiscard]] int64_t updates() const { return updates_; }
  // State, to store and to restore: flat buffers with the parameters' layout and type.
  [[nodiscard]] std::byte* mean() const { return mean_.data(); }
  [[nodiscard]] std::byte* square() const { return square_.data(); }
  void restore(int64_t updates) { updates_ = updates; }

 private:
  struct Piece {  // of the flat buffer, all of it decaying or none
    int64_t begin, end;
    bool decays;
  };

  ParamStore& params_;
  AdamWOptions options_;
  int64_t updates_ = 0;
  std::vector<Piece> pieces_;     // in order, of fixed length at most
  std::vector<double> partials_;  // one a piece
  MemoryBlock mean_, square_;
};

// What the gradients are multiplied by so that their norm is at most `clip`, as PyTorch does it; 0: no clipping.
[[nodiscard]] double clip_scale(double norm, double clip);

}  // namespace tril

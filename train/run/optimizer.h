// AdamW over the flat buffers of a ParamStore and a GradStore, as PyTorch's: decoupled weight decay first, then the
// update with corrected moments, epsilon outside the root. I. Loshchilov, F. Hutter, "Decoupled weight decay
// regularization", https://arxiv.org/abs/1711.05101. Matrices decay, biases and norms do not.
//
// A gradient counts from the backward that made it to GradStore::reset(), as in PyTorch: a second update in between
// takes the same gradients again, and a backward in between adds to them. Without a gradient for every parameter
// (before backward, after reset(), after a backward that failed or allowed unused ones) norm() and update() throw,
// naming the parameters, and nothing has changed.
//
// It belongs to the trainer's thread. After construction nothing is allocated, and results do not depend on the number
// of threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/machine/arena.h"
#include "nn/params.h"

namespace tril {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.99, weight_decay = 0.1, epsilon = 1e-8;
  // A parameter without a gradient is left as it is, undecayed and its state too, as PyTorch does where grad is None:
  // it counts only the updates that it took part in. That none at all has a gradient stays an error.
  bool allow_unused = false;
};

class AdamW {
 public:
  // The store is frozen, and outlives this.
  AdamW(ParamStore& params, const AdamWOptions& options);

  // The 2-norm of all gradients together. Throws where update would. Not finite if one of them is not, or if it is too
  // large for a double.
  [[nodiscard]] double norm(const GradStore& gradients, int64_t threads);
  // One update by the gradients times `gradient_scale`, of the store's shadow too, if it keeps one. The gradients are
  // those of the store given to the constructor; rate is 0 or more.
  void update(const GradStore& gradients, double rate, double gradient_scale, int64_t threads);

  [[nodiscard]] int64_t updates() const { return updates_; }
  // State, to store and to restore: flat buffers with the parameters' layout and type.
  [[nodiscard]] std::byte* mean() const { return mean_.data(); }
  [[nodiscard]] std::byte* square() const { return square_.data(); }
  // How many of the updates each parameter took part in, by its index. State too, where unused ones are allowed.
  [[nodiscard]] std::span<int64_t> parameter_updates() { return parameter_updates_; }
  // Sets the count of updates, of every parameter too.
  void restore(int64_t updates);

 private:
  struct Piece {  // of the flat buffer, all of it decaying or none
    int64_t begin, end;
    size_t param;
    bool decays;
  };
  struct Correction {  // of a parameter's moments, in one update
    double step = 0, root_scale = 0;
    bool wanted = false;
  };

  // Finds out which parameters have a gradient.
  void look_at(const GradStore& gradients, int64_t threads);
  void correct(double rate);  // counts the update for these

  ParamStore& params_;
  AdamWOptions options_;
  int64_t updates_ = 0;
  std::vector<int64_t> parameter_updates_;
  std::vector<Correction> corrections_;  // one a parameter
  std::vector<Piece> pieces_;            // in order, of fixed length at most
  std::vector<double> partials_;         // one a piece
  MemoryBlock mean_, square_;
};

// What the gradients are multiplied by so that their norm is at most `clip`, as PyTorch does it; 0: no clipping.
[[nodiscard]] double clip_scale(double norm, double clip);

}  // namespace tril

// AdamW as in PyTorch: decoupled weight decay first, then the update with bias-corrected moments; epsilon is added
// outside the square root.
// I. Loshchilov, F. Hutter, "Decoupled weight decay regularization", https://arxiv.org/abs/1711.05101. Matrices decay,
// biases and norms do not.
#pragma once

#include <vector>

#include "train/run/optimizer.h"

namespace tril {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.99, weight_decay = 0.1, epsilon = 1e-8;
  bool allow_unused = false;  // see Optimizer
};

class AdamW final : public Optimizer {
 public:
  AdamW(ParamStore& params, const AdamWOptions& options);
  [[nodiscard]] const char* name() const override { return "AdamW"; }

 private:
  struct Correction {  // of a parameter's moments, in one update
    double step = 0, root_scale = 0;
  };
  void begin_update(double rate) override;
  void update_piece(const Piece& piece, const Update& update) const override;

  AdamWOptions options_;
  std::vector<Correction> corrections_;  // one a parameter
  std::byte *mean_, *square_;
};

}  // namespace tril

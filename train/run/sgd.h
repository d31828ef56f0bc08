// Stochastic gradient descent with momentum as PyTorch's torch.optim.SGD, without dampening: the decay is a part of the
// gradient (L2), g += decay · p; the buffer b = momentum · b + g; p -= rate · b. Matrices decay, biases and norms do
// not. https://pytorch.org/docs/stable/generated/torch.optim.SGD.html
#pragma once

#include "train/run/optimizer.h"

namespace tril {

struct SgdOptions {
  double momentum = 0.9, weight_decay = 0.0;
  bool allow_unused = false;  // see Optimizer
};

class Sgd final : public Optimizer {
 public:
  Sgd(ParamStore& params, const SgdOptions& options);
  [[nodiscard]] const char* name() const override { return "SGD"; }

 private:
  void update_piece(const Piece& piece, const Update& update) const override;

  SgdOptions options_;
  std::byte* momentum_;
};

}  // namespace tril

#include "train/run/sgd.h"

#include <cmath>

#include "core/autograd/op.h"
#include "core/machine/clones.h"

namespace tril {
namespace {

template <class T>
struct Constants {
  T gradient_scale, decay, momentum, rate;
};

template <class T>
TRIL_INLINE void update_range(T* __restrict p, const T* __restrict g, T* __restrict buffer, int64_t count,
                              const Constants<T>& constants) {
  const Constants<T> c = constants;
  for (int64_t i = 0; i < count; ++i) {
    buffer[i] = c.momentum * buffer[i] + (g[i] * c.gradient_scale + c.decay * p[i]);
    p[i] -= c.rate * buffer[i];
  }
}

SgdOptions checked(const SgdOptions& options) {
  expect_option(options.momentum >= 0 && options.momentum < 1, "momentum", "0 or more, and less than 1",
                options.momentum);
  expect_option(options.weight_decay >= 0 && std::isfinite(options.weight_decay), "weight_decay", "0 or more",
                options.weight_decay);
  return options;
}

}  // namespace

Sgd::Sgd(ParamStore& params, const SgdOptions& options)
    : Optimizer(params, options.allow_unused),
      options_(checked(options)),
      momentum_(add_state("momentum_buffer", true)) {}

void Sgd::update_piece(const Piece& piece, const Update& update) const {
  dispatch("optimizer", params().dtype(), [&](auto type) {
    using T = decltype(type);
    const Constants<T> constants{.gradient_scale = static_cast<T>(update.gradient_scale),
                                 .decay = static_cast<T>(piece.decays ? options_.weight_decay : 0.0),
                                 .momentum = static_cast<T>(options_.momentum),
                                 .rate = static_cast<T>(update.rate)};
    const auto range = [&](std::byte* buffer) { return reinterpret_cast<T*>(buffer) + piece.begin; };
    cloned<update_range<T>>(range(params().data()), range(update.gradients.data()), range(momentum_),
                            piece.end - piece.begin, constants);
  });
}

}  // namespace tril

#include "train/run/adamw.h"

#include <cmath>

#include "core/autograd/op.h"
#include "core/machine/clones.h"

namespace tril {
namespace {

template <class T>
struct Constants {
  T keep;  // 1 - rate * decay
  T gradient_scale, beta1_rest, beta2, beta2_rest, step, root_scale, epsilon;
};

template <class T>
TRIL_INLINE void update_range(T* __restrict p, const T* __restrict g, T* __restrict mean, T* __restrict square,
                              int64_t count, const Constants<T>& constants) {
  const Constants<T> c = constants;
  for (int64_t i = 0; i < count; ++i) {
    const T gradient = g[i] * c.gradient_scale;
    const T m = mean[i] + c.beta1_rest * (gradient - mean[i]);
    const T v = c.beta2 * square[i] + c.beta2_rest * gradient * gradient;
    mean[i] = m;
    square[i] = v;
    p[i] = p[i] * c.keep - c.step * m / (std::sqrt(v) * c.root_scale + c.epsilon);
  }
}

AdamWOptions checked(const AdamWOptions& options) {
  expect_option(options.beta1 >= 0 && options.beta1 < 1, "beta1", "0 or more, and less than 1", options.beta1);
  expect_option(options.beta2 >= 0 && options.beta2 < 1, "beta2", "0 or more, and less than 1", options.beta2);
  expect_option(options.weight_decay >= 0 && std::isfinite(options.weight_decay), "weight_decay", "0 or more",
                options.weight_decay);
  expect_option(options.epsilon >= 0 && std::isfinite(options.epsilon), "epsilon", "0 or more", options.epsilon);
  return options;
}

}  // namespace

AdamW::AdamW(ParamStore& params, const AdamWOptions& options)
    : Optimizer(params, options.allow_unused),
      options_(checked(options)),
      corrections_(params.params().size()),
      mean_(add_state("exp_avg", true)),
      square_(add_state("exp_avg_sq", false)) {}

void AdamW::begin_update(double rate) {
  int64_t last = 0;
  Correction correction;
  for (size_t i = 0; i < corrections_.size(); ++i) {
    if (!takes_part(i)) continue;
    if (const int64_t updates = parameter_updates()[i]; updates != last) {
      const auto t = static_cast<double>(updates);
      correction = {.step = rate / (1.0 - std::pow(options_.beta1, t)),
                    .root_scale = 1.0 / std::sqrt(1.0 - std::pow(options_.beta2, t))};
      last = updates;
    }
    corrections_[i] = correction;
  }
}

void AdamW::update_piece(const Piece& piece, const Update& update) const {
  const auto& [at, end, param, decays] = piece;
  const Correction& correction = corrections_[param];
  const double keep = decays ? 1.0 - update.rate * options_.weight_decay : 1.0;
  dispatch("optimizer", params().dtype(), [&, at = at, count = end - at](auto type) {
    using T = decltype(type);
    const Constants<T> constants{.keep = static_cast<T>(keep),
                                 .gradient_scale = static_cast<T>(update.gradient_scale),
                                 .beta1_rest = static_cast<T>(1.0 - options_.beta1),
                                 .beta2 = static_cast<T>(options_.beta2),
                                 .beta2_rest = static_cast<T>(1.0 - options_.beta2),
                                 .step = static_cast<T>(correction.step),
                                 .root_scale = static_cast<T>(correction.root_scale),
                                 .epsilon = static_cast<T>(options_.epsilon)};
    const auto range = [at](std::byte* buffer) { return reinterpret_cast<T*>(buffer) + at; };
    cloned<update_range<T>>(range(params().data()), range(update.gradients.data()), range(mean_), range(square_), count,
                            constants);
  });
}

}  // namespace tril

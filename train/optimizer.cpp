#include "train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/kernels/clones.h"
#include "core/kernels/convert.h"
#include "core/op.h"
#include "core/parallel.h"

namespace tril {
namespace {

constexpr int64_t kPiece = 8192;  // elements: the unit of work, whatever the number of threads

template <class T>
struct Constants {
  T keep;  // 1 - rate * decay
  T gradient_scale, beta1_rest, beta2, beta2_rest, step, root_scale, epsilon;
};

// In lanes of its own making, so that the compiler may use vectors without changing the order of the sum.
template <class T>
TRIL_CLONES double sum_of_squares(const T* g, int64_t count) {
  constexpr int64_t kLanes = 16;
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(g[i + lane]);
      lanes[lane] += value * value;
    }
  for (; i < count; ++i) lanes[0] += static_cast<double>(g[i]) * static_cast<double>(g[i]);
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

template <class T>
TRIL_CLONES void update_piece(T* __restrict p, const T* __restrict g, T* __restrict mean, T* __restrict square,
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

}  // namespace

AdamW::AdamW(ParamStore& params, const AdamWOptions& options)
    : params_(params),
      options_(options),
      mean_(std::max(params.elements(), int64_t{1}) * size_of(params.dtype())),
      square_(std::max(params.elements(), int64_t{1}) * size_of(params.dtype())) {
  TRIL_CHECK(params.frozen(), "optimizer", "a frozen store of parameters", "one that still grows",
             "call freeze() first");
  for (const ParamInfo& param : params.params()) {
    const int64_t begin = params.offset(param), end = begin + param.value.count();
    for (int64_t at = begin; at < end; at += kPiece)
      pieces_.push_back({at, std::min(at + kPiece, end), param.decays()});
  }
  partials_.resize(pieces_.size());
  std::memset(mean_.data(), 0, static_cast<size_t>(mean_.bytes()));
  std::memset(square_.data(), 0, static_cast<size_t>(square_.bytes()));
}

double AdamW::norm(const GradStore& gradients, int threads) {
  dispatch("optimizer", params_.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* const g = reinterpret_cast<const T*>(gradients.data());
    parallel_for(threads, static_cast<int64_t>(pieces_.size()), 1, [&](int64_t begin, int64_t end, int) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
        partials_[i] = sum_of_squares(g + pieces_[i].begin, pieces_[i].end - pieces_[i].begin);
    });
  });
  double sum = 0;
  for (const double partial : partials_) sum += partial;
  return std::sqrt(sum);
}

void AdamW::update(const GradStore& gradients, double rate, double gradient_scale, int threads) {
  ++updates_;
  const auto t = static_cast<double>(updates_);
  const double correction1 = 1.0 - std::pow(options_.beta1, t), correction2 = 1.0 - std::pow(options_.beta2, t);
  dispatch("optimizer", params_.dtype(), [&](auto type) {
    using T = decltype(type);
    Constants<T> still{.keep = T{1},
                       .gradient_scale = static_cast<T>(gradient_scale),
                       .beta1_rest = static_cast<T>(1.0 - options_.beta1),
                       .beta2 = static_cast<T>(options_.beta2),
                       .beta2_rest = static_cast<T>(1.0 - options_.beta2),
                       .step = static_cast<T>(rate / correction1),
                       .root_scale = static_cast<T>(1.0 / std::sqrt(correction2)),
                       .epsilon = static_cast<T>(options_.epsilon)};
    Constants<T> decaying = still;
    decaying.keep = static_cast<T>(1.0 - rate * options_.weight_decay);
    T* const p = reinterpret_cast<T*>(params_.data());
    const T* const g = reinterpret_cast<const T*>(gradients.data());
    T *const mean = reinterpret_cast<T*>(mean_.data()), *const square = reinterpret_cast<T*>(square_.data());
    [[maybe_unused]] bf16* const shadow = params_.shadow();
    parallel_for(threads, static_cast<int64_t>(pieces_.size()), 1, [&](int64_t begin, int64_t end, int) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        const auto [at, stop, decays] = pieces_[i];
        update_piece(p + at, g + at, mean + at, square + at, stop - at, decays ? decaying : still);
        if constexpr (std::is_same_v<T, float>)
          if (shadow != nullptr) convert(p + at, shadow + at, stop - at);  // from cache
      }
    });
  });
}

double clip_scale(double norm, double clip) {
  constexpr double kEpsilon = 1e-6;
  return clip > 0 && norm + kEpsilon > clip ? clip / (norm + kEpsilon) : 1.0;
}

}  // namespace tril

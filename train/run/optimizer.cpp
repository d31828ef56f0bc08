#include "train/run/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/autograd/op.h"
#include "core/kernels/convert.h"
#include "core/machine/clones.h"
#include "core/machine/parallel.h"

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
TRIL_INLINE double sum_of_squares(const T* g, int64_t count) {
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
TRIL_INLINE void update_piece(T* __restrict p, const T* __restrict g, T* __restrict mean, T* __restrict square,
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

void check(const AdamWOptions& options) {
  const auto expect = [](bool holds, const char* field, const char* expected, double got) {
    TRIL_CHECK(holds, "optimizer", cat(field, " of ", expected), cat(got));
  };
  expect(options.beta1 >= 0 && options.beta1 < 1, "beta1", "0 or more, and less than 1", options.beta1);
  expect(options.beta2 >= 0 && options.beta2 < 1, "beta2", "0 or more, and less than 1", options.beta2);
  expect(options.weight_decay >= 0 && std::isfinite(options.weight_decay), "weight_decay", "0 or more",
         options.weight_decay);
  expect(options.epsilon >= 0 && std::isfinite(options.epsilon), "epsilon", "0 or more", options.epsilon);
}

}  // namespace

AdamW::AdamW(ParamStore& params, const AdamWOptions& options)
    : params_(params),
      options_(options),
      mean_(std::max(params.elements(), int64_t{1}) * size_of(params.dtype())),
      square_(std::max(params.elements(), int64_t{1}) * size_of(params.dtype())) {
  params.expect_frozen("optimizer");
  check(options);
  for (size_t i = 0; i < params.params().size(); ++i) {
    const ParamInfo& param = params.params()[i];
    const int64_t begin = params.offset(param), end = begin + param.value.count();
    for (int64_t at = begin; at < end; at += kPiece)
      pieces_.push_back({at, std::min(at + kPiece, end), i, param.decays()});
  }
  parameter_updates_.assign(params.params().size(), 0);
  corrections_.resize(params.params().size());
  partials_.resize(pieces_.size());
  std::memset(mean_.data(), 0, static_cast<size_t>(mean_.bytes()));
  std::memset(square_.data(), 0, static_cast<size_t>(square_.bytes()));
}

void AdamW::restore(int64_t updates) {
  TRIL_CHECK(updates >= 0, "optimizer", "0 or more updates", cat(updates));
  updates_ = updates;
  std::fill(parameter_updates_.begin(), parameter_updates_.end(), updates);
}

void AdamW::look_at(const GradStore& gradients, int64_t threads) {
  constexpr int64_t kMostThreads = 1024;
  TRIL_CHECK(threads >= 1 && threads <= kMostThreads, "optimizer", cat("1 to ", kMostThreads, " threads"),
             cat(threads));
  TRIL_CHECK(&gradients.params() == &params_, "optimizer", "gradients of the store that it updates",
             "those of another store", "make a GradStore and an optimizer for each ParamStore");
  const auto& params = params_.params();
  size_t wanted = 0;
  for (size_t i = 0; i < params.size(); ++i) {
    corrections_[i].wanted = gradients.received(params[i]);
    wanted += corrections_[i].wanted ? 1 : 0;
  }
  if (wanted == params.size()) return;
  const bool allowed = options_.allow_unused;
  TRIL_CHECK(allowed && wanted > 0, "optimizer", cat("a gradient for ", allowed ? "some" : "every", " parameter"),
             cat("none for ", gradients.missing()),
             cat("call backward between reset() and this",
                 allowed ? "" : ", or set AdamWOptions::allow_unused to leave parameters without one as they are"));
}

double AdamW::norm(const GradStore& gradients, int64_t threads) {
  look_at(gradients, threads);
  dispatch("optimizer", params_.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* const g = reinterpret_cast<const T*>(gradients.data());
    parallel_for(static_cast<int>(threads), static_cast<int64_t>(pieces_.size()), 1,
                 [&](int64_t begin, int64_t end, int) {
                   for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
                     const auto& [at, stop, param, decays] = pieces_[i];
                     partials_[i] = corrections_[param].wanted ? cloned<sum_of_squares<T>>(g + at, stop - at) : 0.0;
                   }
                 });
  });
  double sum = 0;
  for (const double partial : partials_) sum += partial;
  return std::sqrt(sum);
}

void AdamW::correct(double rate) {
  int64_t last = 0;
  Correction correction;
  for (size_t i = 0; i < corrections_.size(); ++i) {
    if (!corrections_[i].wanted) continue;
    const int64_t updates = ++parameter_updates_[i];
    if (updates != last) {
      const auto t = static_cast<double>(updates);
      correction = {.step = rate / (1.0 - std::pow(options_.beta1, t)),
                    .root_scale = 1.0 / std::sqrt(1.0 - std::pow(options_.beta2, t)),
                    .wanted = true};
      last = updates;
    }
    corrections_[i] = correction;
  }
}

void AdamW::update(const GradStore& gradients, double rate, double gradient_scale, int64_t threads) {
  TRIL_CHECK(std::isfinite(rate) && rate >= 0, "optimizer", "a rate of 0 or more", cat(rate));
  TRIL_CHECK(std::isfinite(gradient_scale), "optimizer", "a finite gradient_scale", cat(gradient_scale));
  look_at(gradients, threads);
  ++updates_;
  correct(rate);
  dispatch("optimizer", params_.dtype(), [&](auto type) {
    using T = decltype(type);
    const Constants<T> common{.keep = T{1},
                              .gradient_scale = static_cast<T>(gradient_scale),
                              .beta1_rest = static_cast<T>(1.0 - options_.beta1),
                              .beta2 = static_cast<T>(options_.beta2),
                              .beta2_rest = static_cast<T>(1.0 - options_.beta2),
                              .step = T{0},
                              .root_scale = T{0},
                              .epsilon = static_cast<T>(options_.epsilon)};
    const T decayed = static_cast<T>(1.0 - rate * options_.weight_decay);
    T* const p = reinterpret_cast<T*>(params_.data());
    const T* const g = reinterpret_cast<const T*>(gradients.data());
    T *const mean = reinterpret_cast<T*>(mean_.data()), *const square = reinterpret_cast<T*>(square_.data());
    [[maybe_unused]] bf16* const shadow = params_.shadow();
    const auto update_one = [&](const Piece& piece) {
      const auto& [at, stop, param, decays] = piece;
      const Correction& correction = corrections_[param];
      if (!correction.wanted) return;
      Constants<T> constants = common;
      if (decays) constants.keep = decayed;
      constants.step = static_cast<T>(correction.step);
      constants.root_scale = static_cast<T>(correction.root_scale);
      cloned<update_piece<T>>(p + at, g + at, mean + at, square + at, stop - at, constants);
      if constexpr (std::is_same_v<T, float>)
        if (shadow != nullptr) convert(p + at, shadow + at, stop - at);  // from cache
    };
    parallel_for(static_cast<int>(threads), static_cast<int64_t>(pieces_.size()), 1,
                 [&](int64_t begin, int64_t end, int) {
                   for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) update_one(pieces_[i]);
                 });
  });
}

double clip_scale(double norm, double clip) {
  constexpr double kEpsilon = 1e-6;
  return clip > 0 && norm + kEpsilon > clip ? clip / (norm + kEpsilon) : 1.0;
}

}  // namespace tril

#include "train/run/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/autograd/op.h"
#include "core/kernels/convert.h"
#include "core/machine/clones.h"
#include "core/machine/parallel.h"
#include "train/run/adamw.h"
#include "train/run/sgd.h"

namespace tril {
namespace {

constexpr int64_t kPiece = 8192;  // elements

// Sums in fixed lanes, so that the compiler may use vectors without changing the order of the sum.
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

}  // namespace

void expect_option(bool holds, const char* field, const char* expected, double got) {
  TRIL_CHECK(holds, "optimizer", cat(field, " of ", expected), cat(got));
}

Optimizer::Optimizer(ParamStore& params, bool allow_unused) : params_(params), allow_unused_(allow_unused) {
  if (params.memory() == Memory::real) params.expect_frozen("optimizer");
  for (size_t i = 0; i < params.params().size(); ++i) {
    const ParamInfo& param = params.params()[i];
    const int64_t begin = params.offset(param), end = begin + param.value.count();
    if (params.memory() == Memory::planned) continue;
    for (int64_t at = begin; at < end; at += kPiece)
      pieces_.push_back({at, std::min(at + kPiece, end), i, param.decays()});
  }
  parameter_updates_.assign(params.params().size(), 0);
  takes_part_.assign(params.params().size(), 0);
  partials_.resize(pieces_.size());
}

std::byte* Optimizer::add_state(const char* name, bool may_be_negative) {
  const MemoryBlock& block =
      memory_.emplace_back(std::max(params_.elements(), int64_t{1}) * size_of(params_.dtype()), params_.memory());
  if (params_.memory() == Memory::real) std::memset(block.data(), 0, static_cast<size_t>(block.bytes()));
  state_.push_back({name, block.data(), may_be_negative});
  return block.data();
}

void Optimizer::restore(int64_t updates) {
  TRIL_CHECK(updates >= 0, "optimizer", "0 or more updates", cat(updates));
  updates_ = updates;
  std::fill(parameter_updates_.begin(), parameter_updates_.end(), updates);
}

void Optimizer::look_at(const GradStore& gradients, int64_t threads) {
  constexpr int64_t kMostThreads = 1024;
  params_.expect_frozen("optimizer");
  TRIL_CHECK(threads >= 1 && threads <= kMostThreads, "optimizer", cat("1 to ", kMostThreads, " threads"),
             cat(threads));
  TRIL_CHECK(&gradients.params() == &params_, "optimizer", "gradients of the store that it updates",
             "those of another store", "make a GradStore and an optimizer for each ParamStore");
  const auto& params = params_.params();
  size_t wanted = 0;
  for (size_t i = 0; i < params.size(); ++i) {
    takes_part_[i] = gradients.received(params[i]) ? 1 : 0;
    wanted += takes_part_[i];
  }
  if (wanted == params.size()) return;
  TRIL_CHECK(allow_unused_ && wanted > 0, "optimizer",
             cat("a gradient for ", allow_unused_ ? "some" : "every", " parameter"),
             cat("none for ", gradients.missing()),
             cat("call backward between reset() and this",
                 allow_unused_ ? "" : ", or set the option allow_unused to leave parameters without one as they are"));
}

double Optimizer::norm(const GradStore& gradients, int64_t threads) {
  look_at(gradients, threads);
  dispatch("optimizer", params_.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* const g = reinterpret_cast<const T*>(gradients.data());
    parallel_for(static_cast<int>(threads), static_cast<int64_t>(pieces_.size()), 1,
                 [&](int64_t begin, int64_t end, int) {
                   for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
                     const auto& [at, stop, param, decays] = pieces_[i];
                     partials_[i] = takes_part(param) ? cloned<sum_of_squares<T>>(g + at, stop - at) : 0.0;
                   }
                 });
  });
  double sum = 0;
  for (const double partial : partials_) sum += partial;
  return std::sqrt(sum);
}

void Optimizer::update(const GradStore& gradients, double rate, double gradient_scale, int64_t threads) {
  TRIL_CHECK(std::isfinite(rate) && rate >= 0, "optimizer", "a rate of 0 or more", cat(rate));
  TRIL_CHECK(std::isfinite(gradient_scale), "optimizer", "a finite gradient_scale", cat(gradient_scale));
  look_at(gradients, threads);
  ++updates_;
  for (size_t i = 0; i < takes_part_.size(); ++i) parameter_updates_[i] += takes_part_[i];
  begin_update(rate);
  const Update update{gradients, rate, gradient_scale};
  bf16* const shadow = params_.shadow();
  parallel_for(static_cast<int>(threads), static_cast<int64_t>(pieces_.size()), 1,
               [&](int64_t begin, int64_t end, int) {
                 for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
                   const Piece& piece = pieces_[i];
                   if (!takes_part(piece.param)) continue;
                   update_piece(piece, update);
                   if (shadow != nullptr)  // while the piece is in the cache; only stores of f32 have a shadow
                     convert(reinterpret_cast<const float*>(params_.data()) + piece.begin, shadow + piece.begin,
                             piece.end - piece.begin);
                 }
               });
}

std::unique_ptr<Optimizer> make_optimizer(ParamStore& params, const TrainConfig& config) {
  if (config.optimizer == OptimizerKind::sgd)
    return std::make_unique<Sgd>(params, SgdOptions{.momentum = config.momentum, .weight_decay = config.weight_decay});
  return std::make_unique<AdamW>(
      params, AdamWOptions{.beta1 = config.beta1, .beta2 = config.beta2, .weight_decay = config.weight_decay});
}

double clip_scale(double norm, double clip) {
  constexpr double kEpsilon = 1e-6;
  return clip > 0 && norm + kEpsilon > clip ? clip / (norm + kEpsilon) : 1.0;
}

}  // namespace tril

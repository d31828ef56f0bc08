#include "nn/decode.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/attention/one_query.h"
#include "core/attention/pattern.h"
#include "core/kernels/convert.h"
#include "core/kernels/math.h"
#include "core/kernels/norm_rows.h"
#include "core/machine/avx512.h"

namespace tril {
namespace {

constexpr int64_t kWorthDividing = 16;  // rows, between the members of a team
constexpr float kEpsilon = 1e-5f;

#if defined(__x86_64__)
template <class W>
TRIL_AVX512 void multiply_many(const float* x, int64_t row_x, int64_t rows, const panels::Matrix<W>& w,
                               const float* bias, float* y, int64_t row_y) {
  panels::product<8>(x, row_x, rows, w, bias, y, row_y);
}
#endif

template <class W>
TRIL_INLINE void multiply_few(const float* x, int64_t row_x, int64_t rows, const panels::Matrix<W>& w,
                              const float* bias, float* y, int64_t row_y) {
  panels::product(x, row_x, rows, w, bias, y, row_y);
}

template <class W>
void multiply_by(const float* x, int64_t row_x, int64_t rows, const panels::Matrix<W>& w, const float* bias, float* y,
                 int64_t row_y) {
#if defined(__x86_64__)
  if (rows >= 8 && cpu_has(CpuLevel::avx512)) return multiply_many(x, row_x, rows, w, bias, y, row_y);
#endif
  cloned<multiply_few<W>>(x, row_x, rows, w, bias, y, row_y);
}

TRIL_INLINE void normalise(const float* x, const float* weight, const float* bias, float* y, int64_t n) {
  const auto [mean, r] = norm_rows::statistics(x, n, kEpsilon);
  norm_rows::normalise(x, mean, r, weight, bias, y, n);
}

TRIL_INLINE void gelu_erf(float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = math::gelu_erf(x[i]);
}

TRIL_INLINE void gelu_tanh(float* x, int64_t n) {
  constexpr float kTwice = 1.5957691216057308f, kCubic = 0.044715f;  // 2 sqrt(2/pi)
  for (int64_t i = 0; i < n; ++i) x[i] *= math::sigmoid(kTwice * x[i] * (1.0f + kCubic * x[i] * x[i]));
}

TRIL_INLINE void add_row(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] += x[i];
}

template <class W>
TRIL_INLINE void attend_head(const float* q, const one_query::Seen<W>& seen, int64_t D, float scale, float* scores,
                             float* out) {
  one_query::attend(q, seen, D, scale, scores, out);
}

}  // namespace

void Decoder::multiply(const Work& work, const float* x, int64_t row_x, const Weight& w, const float* bias, float* y,
                       int64_t row_y) {
  if (w.tiles.data != nullptr)
    bf16_rows::product(x, row_x, work.rows, w.tiles, bias, y, row_y, work.rounded);
  else if (w.narrow.data != nullptr)
    multiply_by(x, row_x, work.rows, w.narrow, bias, y, row_y);
  else
    multiply_by(x, row_x, work.rows, w.wide, bias, y, row_y);
}

const Decoder::Stream& Decoder::stream_at(int64_t index) const {
  TRIL_CHECK(index >= 0 && index < streams(), "decoder", cat("streams from 0 to ", streams() - 1), cat(index));
  return streams_[static_cast<size_t>(index)];
}

void Decoder::check_token(int64_t token) const {
  TRIL_CHECK(token >= 0 && token < config_.vocabulary, "decoder", cat("tokens from 0 to ", config_.vocabulary - 1),
             cat(token));
}

void Decoder::reset() {
  for (Stream& stream : streams_) stream.window = stream.position = 0;
}

std::span<const float> Decoder::logits(int64_t stream) const {
  TRIL_CHECK(stream_at(stream).position > 0, "decoder", "a stream that has seen a token", cat("stream ", stream));
  return {logits_ + stream * logits_row_, static_cast<size_t>(config_.vocabulary)};
}

void Decoder::copy(int64_t from, int64_t to) {
  const Stream& source = stream_at(from);
  (void)stream_at(to);
  if (from == to) return;
  streams_[static_cast<size_t>(to)] = source;
  std::copy_n(logits_ + from * logits_row_, logits_row_, logits_ + to * logits_row_);
  const auto copy_window = [&](auto* windows, int64_t row) {
    const int64_t size = config_.context * row;
    if (windows != nullptr) std::copy_n(windows + from * size, source.window * row, windows + to * size);
  };
  for (const Layer& layer : layers_)
    for (const Part& part : layer.parts)
      for (const Windows& windows : {part.keys, part.values}) {
        copy_window(windows.wide, part.row);
        copy_window(windows.narrow, part.row);
      }
}

std::span<const float> Decoder::feed(int64_t index, std::span<const int32_t> tokens) {
  (void)stream_at(index);
  TRIL_CHECK(!tokens.empty(), "decoder", "at least one token", "none");
  for (const int32_t token : tokens) check_token(token);
  Stream& stream = streams_[static_cast<size_t>(index)];
  const auto count = static_cast<int64_t>(tokens.size());
  const int64_t T = config_.context, gone_at_once = T - T / 2, before = stream.window;
  // A token that finds the window full makes room; however many do, only the last window has to be computed.
  const int64_t over = std::max<int64_t>(before + count - T, 0);
  const int64_t gone = (over + gone_at_once - 1) / gone_at_once * gone_at_once;
  stream.window = before + count - gone;
  stream.position += count;
  const int64_t old = std::max<int64_t>(stream.window - count, 0);
  const auto window = stream.tokens.begin();
  if (gone > 0) std::copy(window + (before - old), window + before, window);
  std::copy(tokens.end() - (stream.window - old), tokens.end(), window + old);

  for (int64_t first = gone > 0 ? 0 : before; first < stream.window;) {
    rows_.clear();
    for (; first < stream.window && static_cast<int64_t>(rows_.size()) < kRows; ++first)
      rows_.push_back({index, first, stream.tokens[static_cast<size_t>(first)]});
    take_in(rows_, first == stream.window ? 1 : 0);
  }
  return logits(index);
}

void Decoder::feed_each(std::span<const Next> next) {
  int64_t last = -1;
  for (const Next& one : next) {
    (void)stream_at(one.stream);
    check_token(one.token);
    TRIL_CHECK(one.stream > last, "decoder", "each stream once, in ascending order",
               cat("stream ", one.stream, " after ", last));
    last = one.stream;
  }
  const auto flush = [&] {
    if (!together_.empty()) take_in(together_, static_cast<int64_t>(together_.size()));
    together_.clear();
  };
  for (const Next& one : next) {
    Stream& stream = streams_[static_cast<size_t>(one.stream)];
    if (stream.window == config_.context) {  // half of it is read anew, so it goes by itself
      (void)feed(one.stream, {&one.token, 1});
      continue;
    }
    together_.push_back({one.stream, stream.window, one.token});
    stream.tokens[static_cast<size_t>(stream.window++)] = one.token;
    ++stream.position;
    if (static_cast<int64_t>(together_.size()) == kRows) flush();
  }
  flush();
}

void Decoder::take_in(std::span<const Row> rows, int64_t wanted) {
  // On a busy machine the team is late, and one thread does it all for a while.
  if (team_.size() == 1 || alone_ > 0) {
    run(0, 1, rows, wanted);
    --alone_;
  } else if (team_.run([&](int member) { run(member, team_.size(), rows, wanted); },
                       static_cast<int64_t>(rows.size()))) {
    alone_next_ = kFirstAlone;
  } else {
    alone_ = alone_next_;
    alone_next_ = std::min(2 * alone_next_, kMostAlone);
  }
  const auto first = static_cast<int64_t>(rows.size()) - wanted;
  for (int64_t i = 0; i < wanted; ++i)
    std::copy_n(row_logits_ + i * logits_row_, logits_row_,
                logits_ + rows[static_cast<size_t>(first + i)].stream * logits_row_);
}

void Decoder::run(int member, int members, std::span<const Row> all, int64_t wanted) {
  const int64_t C = config_.width, parts = static_cast<int64_t>(heads_.size()), rows = static_cast<int64_t>(all.size());
  const int64_t begin = parts * member / members, end = parts * (member + 1) / members;
  // Each member adds up the parts' results by itself, so that one meeting is enough; where rows are many, each does so
  // for some of them, and they meet twice.
  const bool divided = members > 1 && rows >= kWorthDividing;
  Work work = work_[static_cast<size_t>(member)];
  work.rows = rows;
  if (divided) {
    work.stream = work_[0].stream;
    work.normed = work_[0].normed;
  }
  const int64_t row_begin = divided ? rows * member / members : 0,
                row_end = divided ? rows * (member + 1) / members : rows;
  const auto meet = [&](bool needed) {
    if (needed) team_.wait(member);
  };
  std::optional<MatrixUnit> unit;
  const auto prepare = [&] {
    if (work.rounded != nullptr) unit.emplace(bf16_rows::rows_of_unit(work.rows));
  };
  prepare();
  for (int64_t row = row_begin; row < row_end; ++row) {
    float* const x = work.stream + row * row_;
    std::copy_n(position_table_ + all[static_cast<size_t>(row)].at * C, C, x);
    cloned<add_row>(token_table_ + all[static_cast<size_t>(row)].token * C, x, C);
  }

  int64_t turn = 0;
  const auto partial = [&](int64_t part) { return partial_[static_cast<size_t>(2 * part + turn % 2)]; };
  const auto half_a_layer = [&](const Norm& norm, const float* bias, auto&& compute) {
    for (int64_t row = row_begin; row < row_end; ++row)
      cloned<normalise>(work.stream + row * row_, norm.weight, norm.bias, work.normed + row * row_, C);
    meet(divided);
    for (int64_t part = begin; part < end; ++part) compute(part, partial(part));
    meet(members > 1);
    for (int64_t row = row_begin; row < row_end; ++row) {
      float* const x = work.stream + row * row_;
      for (int64_t part = 0; part < parts; ++part) cloned<add_row>(partial(part) + row * row_, x, C);
      if (bias != nullptr) cloned<add_row>(bias, x, C);
    }
    ++turn;
  };
  for (const Layer& layer : layers_) {
    half_a_layer(layer.ln_1, layer.attention_bias,
                 [&](int64_t part, float* out) { attend(layer.parts[static_cast<size_t>(part)], all, work, out); });
    half_a_layer(layer.ln_2, layer.mlp_bias,
                 [&](int64_t part, float* out) { think(layer.parts[static_cast<size_t>(part)], work, out); });
  }
  if (wanted == 0) return;
  for (int64_t row = std::max(row_begin, rows - wanted); row < row_end; ++row)
    cloned<normalise>(work.stream + row * row_, ln_f_.weight, ln_f_.bias, work.normed + row * row_, C);
  meet(divided);
  const float* const x = work.normed + (rows - wanted) * row_;
  work.rows = wanted;
  prepare();
  for (int64_t part = begin; part < end; ++part) {
    const Head& head = heads_[static_cast<size_t>(part)];
    multiply(work, x, row_, head.weight, nullptr, row_logits_ + head.first, logits_row_);
  }
}

// Keeps keys and values of the rows, then lets each look back.
void Decoder::attend(const Part& part, std::span<const Row> all, const Work& work, float* out) const {
  multiply(work, work.normed, row_, part.qkv, part.qkv_bias, work.qkv, work.qkv_row);
  if (narrow_) {
    keep<bf16>(part, all, work);
    look_back<bf16>(part, all, work);
  } else {
    keep<float>(part, all, work);
    look_back<float>(part, all, work);
  }
  multiply(work, work.mixed, work.mixed_row, part.attention_projection, nullptr, out, row_);
}

template <class W>
void Decoder::keep(const Part& part, std::span<const Row> all, const Work& work) const {
  const int64_t size = part.heads * head_size_;
  for (int64_t row = 0; row < work.rows; ++row) {
    const auto [stream, t, token] = all[static_cast<size_t>(row)];
    const float* const k = work.qkv + row * work.qkv_row + part.group * size;
    const int64_t at = (stream * config_.context + t) * part.row;
    for (const auto& [from, windows] : {std::pair{k, part.keys}, std::pair{k + size, part.values}}) {
      W* const to = of<W>(windows) + at;
      convert(from, to, size);
      std::fill(to + size, to + part.row, W{});
    }
  }
}

template <class W>
void Decoder::look_back(const Part& part, std::span<const Row> all, const Work& work) const {
  const int64_t D = head_size_, stream_size = config_.context * part.row;
  const AttentionPattern pattern{.causal = true, .window = config_.window, .keys = config_.context};
  const float scale = 1.0f / std::sqrt(static_cast<float>(D));
  for (int64_t row = 0; row < work.rows; ++row) {
    const auto [stream, t, token] = all[static_cast<size_t>(row)];
    const KeyRange seen = pattern.seen_by(t);
    for (int64_t h = 0; h < part.heads * part.group; ++h) {
      std::copy_n(work.qkv + row * work.qkv_row + h * D, D, work.query);
      const int64_t at = stream * stream_size + seen.first * part.row + h / part.group * D;
      cloned<attend_head<W>>(work.query,
                             {of<W>(part.keys) + at, of<W>(part.values) + at, part.row, seen.last - seen.first}, D,
                             scale, work.scores, work.mixed + row * work.mixed_row + h * D);
    }
  }
}

void Decoder::think(const Part& part, const Work& work, float* out) const {
  multiply(work, work.normed, row_, part.fc, part.fc_bias, work.inner, work.inner_row);
  for (int64_t row = 0; row < work.rows; ++row) {
    float* const x = work.inner + row * work.inner_row;
    config_.gelu == Gelu::erf ? cloned<gelu_erf>(x, part.fc.outputs) : cloned<gelu_tanh>(x, part.fc.outputs);
  }
  multiply(work, work.inner, work.inner_row, part.mlp_projection, nullptr, out, row_);
}

}  // namespace tril

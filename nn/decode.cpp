#include "nn/decode.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/kernels/avx512.h"
#include "core/kernels/math.h"
#include "core/kernels/norm_rows.h"

namespace tril {
namespace {

constexpr int64_t kRows = 64;  // tokens taken together where several are known
constexpr int64_t kMostStreams = 1 << 16;
constexpr float kEpsilon = 1e-5f;

using Matrix = panels::Matrix<float>;
using panels::kPanel;
using panels::padded;

// Rows of several of its values lie this far apart where they are `count` long and pieces of `piece` are read in whole
// groups of lanes.
constexpr int64_t row_of_pieces(int64_t count, int64_t piece) {
  return padded(std::max<int64_t>(count - piece, 0) + padded(piece));
}

// [begin, end) of part `part` of `count` things, in whole groups of `unit`.
std::pair<int64_t, int64_t> part_of(int64_t count, int64_t part, int64_t parts, int64_t unit) {
  const auto cut = [&](int64_t i) { return std::min(panels::round_up(count * i / parts, unit), count); };
  return {cut(part), cut(part + 1)};
}

const GptConfig& checked(const GptConfig& config) {
  config.check();
  return config;
}

// Enough parts to keep a team busy, few enough that each has work worth a meeting.
int64_t parts_of(const GptConfig& config) { return config.width < 256 ? 2 : config.width < 768 ? 4 : 8; }

// Half a layer takes longer the wider it is, and so may the wait for a member with more of it.
int patience_of(const GptConfig& config) {
  return static_cast<int>(std::min<int64_t>(Team::kPatience + config.width * config.width / 16, 1 << 24));
}

#if defined(__x86_64__)
template <class W>
TRIL_AVX512 void multiply_many(const float* x, int64_t row_x, int64_t rows, const panels::Matrix<W>& w,
                               const float* bias, float* y, int64_t row_y) {
  panels::product<8>(x, row_x, rows, w, bias, y, row_y);
}
#endif

template <class W>
TRIL_CLONES void multiply_few(const float* x, int64_t row_x, int64_t rows, const panels::Matrix<W>& w,
                              const float* bias, float* y, int64_t row_y) {
  panels::product(x, row_x, rows, w, bias, y, row_y);
}

template <class W>
void multiply_by(const float* x, int64_t row_x, int64_t rows, const panels::Matrix<W>& w, const float* bias, float* y,
                 int64_t row_y) {
#if defined(__x86_64__)
  if (rows >= 8 && avx512::works()) return multiply_many(x, row_x, rows, w, bias, y, row_y);
#endif
  multiply_few(x, row_x, rows, w, bias, y, row_y);
}

TRIL_CLONES void normalise(const float* x, const float* weight, const float* bias, float* y, int64_t n) {
  const auto [mean, r] = norm_rows::statistics(x, n, kEpsilon);
  norm_rows::normalise(x, mean, r, weight, bias, y, n);
}

TRIL_CLONES void gelu_erf(float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = math::gelu_erf(x[i]);
}

TRIL_CLONES void gelu_tanh(float* x, int64_t n) {
  constexpr float kTwice = 1.5957691216057308f, kCubic = 0.044715f;  // 2 sqrt(2/pi)
  for (int64_t i = 0; i < n; ++i) x[i] *= math::sigmoid(kTwice * x[i] * (1.0f + kCubic * x[i] * x[i]));
}

TRIL_CLONES void add(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] += x[i];
}

// One head of one query: keys (D, T) and values (T, D) as matrices of the keys seen.
TRIL_CLONES void attend_head(const float* q, const Matrix& keys, const Matrix& values, float scale, float* scores,
                             float* out) {
  const int64_t seen = keys.outputs;
  panels::product(q, 0, 1, keys, static_cast<const float*>(nullptr), scores, 0);
  const float top = rows::max(scores, seen);
  for (int64_t t = 0; t < seen; ++t) scores[t] = math::exp_of_difference((scores[t] - top) * scale);
  const float share = 1.0f / rows::sum(scores, seen);
  for (int64_t t = 0; t < seen; ++t) scores[t] *= share;
  panels::product(scores, 0, 1, values, static_cast<const float*>(nullptr), out, 0);
}

}  // namespace

void Decoder::multiply(const float* x, int64_t row_x, int64_t rows, const Weight& w, const float* bias, float* y,
                       int64_t row_y) {
  w.narrow.data == nullptr ? multiply_by(x, row_x, rows, w.wide, bias, y, row_y)
                           : multiply_by(x, row_x, rows, w.narrow, bias, y, row_y);
}

// Looks parameters up by name, checks them, and lays them out.
class Decoder::Packer {
 public:
  Packer(const ParamStore& params, const GptConfig& config, int64_t streams, DType weights, Arena& memory)
      : params_(params), config_(config), streams_(streams), weights_(weights), memory_(memory) {
    TRIL_CHECK(weights == DType::f32 || weights == DType::bf16, "decoder", "weights of f32 or bf16", name_of(weights));
    TRIL_CHECK(params.frozen() && params.dtype() == DType::f32, "decoder", "a frozen store of f32 parameters",
               params.frozen() ? cat("one of ", params.dtype()) : "one that still grows");
    // So that all weights lie in one block: the store's own size and the zeros that fill panels up.
    const int64_t padding = config.layers * (5 + 2 * parts_of(config)) * config.width * kPanel;
    (void)memory_.allocate((params.elements() + padding) * size_of(weights));
    memory_.reset();
  }

  [[nodiscard]] float* floats(int64_t count) {
    return reinterpret_cast<float*>(memory_.allocate(count * int64_t{sizeof(float)}));
  }
  [[nodiscard]] const float* find(const std::string& name, const Shape& shape) const {
    const ParamInfo* const param = params_.find(name);
    TRIL_CHECK(param != nullptr, "decoder", cat("a parameter ", name), "none of this name");
    TRIL_CHECK(param->value.shape == shape, "decoder", cat(name, " ", shape), cat(param->value.shape));
    return param->value.ptr<float>();
  }
  // A copy of [begin, end), followed by zeros up to whole groups of lanes.
  [[nodiscard]] float* copy(const float* values, int64_t begin, int64_t end) {
    float* const out = floats(padded(end - begin));
    std::fill(std::copy(values + begin, values + end, out), out + padded(end - begin), 0.0f);
    return out;
  }
  [[nodiscard]] const float* bias(const std::string& name, int64_t size) {
    return config_.bias ? copy(find(cat(name, ".bias"), {size}), 0, size) : nullptr;
  }
  [[nodiscard]] Norm norm(const std::string& name) {
    return {copy(find(cat(name, ".weight"), {config_.width}), 0, config_.width), bias(name, config_.width)};
  }
  // Rows [begin, end) of a weight (…, inputs), for several ranges of equal length one below the other.
  [[nodiscard]] Weight pack_rows(const float* weight, int64_t inputs, std::initializer_list<int64_t> begins,
                                 int64_t count) {
    const auto outputs = count * static_cast<int64_t>(begins.size());
    return packed(outputs, inputs, [&](auto* out) {
      int64_t first = 0;
      for (const int64_t begin : begins) {
        panels::pack(weight + begin * inputs, inputs, count, inputs, out, first);
        first += count;
      }
    });
  }
  // Columns [begin, end) of a weight (outputs, inputs).
  [[nodiscard]] Weight pack_columns(const float* weight, int64_t outputs, int64_t inputs, int64_t begin, int64_t end) {
    return packed(outputs, end - begin,
                  [&](auto* out) { panels::pack(weight + begin, inputs, outputs, end - begin, out); });
  }
  [[nodiscard]] Part part(const std::string& name, int64_t index);

 private:
  // fill(out) puts the numbers where all are 0.
  template <class Fill>
  [[nodiscard]] Weight packed(int64_t outputs, int64_t inputs, Fill&& fill) {
    const auto make = [&]<class W>(W) {
      const int64_t bytes = panels::elements(outputs, inputs) * int64_t{sizeof(W)};
      auto* const out = reinterpret_cast<W*>(memory_.allocate(bytes));
      std::memset(static_cast<void*>(out), 0, static_cast<size_t>(bytes));
      fill(out);
      return panels::packed<W>(out, outputs, inputs);
    };
    Weight weight{.outputs = outputs};
    if (weights_ == DType::bf16)
      weight.narrow = make(bf16{});
    else
      weight.wide = make(float{});
    return weight;
  }

  const ParamStore& params_;
  const GptConfig& config_;
  int64_t streams_;
  DType weights_;
  Arena& memory_;
};

Decoder::Part Decoder::Packer::part(const std::string& name, int64_t index) {
  const int64_t C = config_.width, D = C / config_.heads, units = 4 * C, parts = parts_of(config_);
  const auto [head, head_end] = part_of(config_.heads, index, parts, 1);
  const auto [unit, unit_end] = part_of(units, index, parts, panels::kLanes);
  const int64_t first = head * D, size = (head_end - head) * D;
  const float* const attention = find(cat(name, ".attn.c_attn.weight"), {3 * C, C});
  Part part{};
  part.heads = head_end - head;
  part.qkv = pack_rows(attention, C, {first, C + first, 2 * C + first}, size);
  part.attention_projection = pack_columns(find(cat(name, ".attn.c_proj.weight"), {C, C}), C, C, first, first + size);
  part.fc = pack_rows(find(cat(name, ".mlp.c_fc.weight"), {units, C}), C, {unit}, unit_end - unit);
  part.mlp_projection = pack_columns(find(cat(name, ".mlp.c_proj.weight"), {C, units}), C, units, unit, unit_end);
  if (config_.bias) {
    const float* const bias = find(cat(name, ".attn.c_attn.bias"), {3 * C});
    float* const qkv_bias = floats(padded(3 * size));
    for (int64_t i = 0; i < 3; ++i) std::copy_n(bias + i * C + first, size, qkv_bias + i * size);
    std::fill(qkv_bias + 3 * size, qkv_bias + padded(3 * size), 0.0f);
    part.qkv_bias = qkv_bias;
    part.fc_bias = copy(find(cat(name, ".mlp.c_fc.bias"), {units}), unit, unit_end);
  }
  part.values_row = row_of_pieces(size, D);
  part.keys_size = size * panels::round_up(config_.context, kPanel);
  part.values_size = config_.context * part.values_row;
  part.keys = floats(streams_ * part.keys_size);
  part.values = floats(streams_ * part.values_size);
  return part;
}

Decoder::Decoder(const ParamStore& params, const GptConfig& config, int threads, int64_t streams, DType weights)
    : config_(checked(config)),
      head_size_(config.width / config.heads),
      row_(padded(config.width)),
      team_(static_cast<int>(std::min<int64_t>(threads, parts_of(config))), patience_of(config)) {
  TRIL_CHECK(streams >= 1 && streams <= kMostStreams, "decoder", cat("1 to ", kMostStreams, " streams"), cat(streams));
  Packer packer(params, config_, streams, weights, memory_);
  const int64_t C = config.width, parts = parts_of(config);
  const auto block = [](int64_t layer) { return cat("transformer.h.", layer); };
  layers_.resize(static_cast<size_t>(config.layers));
  // A part's weights lie one behind the other, in the order of their use.
  for (int64_t part = 0; part < parts; ++part) {
    for (int64_t i = 0; i < config.layers; ++i)
      layers_[static_cast<size_t>(i)].parts.push_back(packer.part(block(i), part));
    const float* const embedding = packer.find("transformer.wte.weight", {config.vocabulary, C});
    const auto [begin, end] = part_of(config.vocabulary, part, parts, panels::kLanes);
    heads_.push_back({packer.pack_rows(embedding, C, {begin}, end - begin), begin});
    partial_.push_back(packer.floats(kRows * row_));
    partial_.push_back(packer.floats(kRows * row_));
  }
  for (int64_t i = 0; i < config.layers; ++i) {
    Layer& layer = layers_[static_cast<size_t>(i)];
    layer.ln_1 = packer.norm(block(i) + ".ln_1");
    layer.ln_2 = packer.norm(block(i) + ".ln_2");
    layer.attention_bias = packer.bias(block(i) + ".attn.c_proj", C);
    layer.mlp_bias = packer.bias(block(i) + ".mlp.c_proj", C);
  }
  ln_f_ = packer.norm("transformer.ln_f");
  token_table_ = packer.copy(packer.find("transformer.wte.weight", {config.vocabulary, C}), 0, config.vocabulary * C);
  position_table_ = packer.copy(packer.find("transformer.wpe.weight", {config.context, C}), 0, config.context * C);
  logits_row_ = padded(config.vocabulary);
  logits_ = packer.floats(streams * logits_row_);
  row_logits_ = packer.floats(std::min(streams, kRows) * logits_row_);
  streams_.resize(static_cast<size_t>(streams));
  for (Stream& stream : streams_) stream.tokens.resize(static_cast<size_t>(config.context));
  rows_.reserve(static_cast<size_t>(kRows));
  together_.reserve(static_cast<size_t>(kRows));
  for (int member = 0; member < team_.size(); ++member) work_.push_back(make_work(packer));
}

Decoder::Work Decoder::make_work(Packer& packer) const {
  Work work{};
  for (const Part& part : layers_.front().parts) {
    work.qkv_row = std::max(work.qkv_row, padded(part.qkv.outputs));
    work.mixed_row = std::max(work.mixed_row, part.values_row);
    work.inner_row = std::max(work.inner_row, padded(part.fc.outputs));
  }
  work.stream = packer.floats(kRows * row_);
  work.normed = packer.floats(kRows * row_);
  work.qkv = packer.floats(kRows * work.qkv_row);
  work.mixed = packer.floats(kRows * work.mixed_row);
  work.inner = packer.floats(kRows * work.inner_row);
  work.scores = packer.floats(padded(config_.context));
  return work;
}

int64_t Decoder::stream_bytes(const GptConfig& config) {
  return config.layers * config.context * 2 * config.width * int64_t{sizeof(float)};
}

const Decoder::Stream& Decoder::stream_at(int64_t index) const {
  TRIL_CHECK(index >= 0 && index < streams(), "decoder", cat("streams from 0 to ", streams() - 1), cat(index));
  return streams_[static_cast<size_t>(index)];
}

void Decoder::check_token(int32_t token) const {
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
  const int64_t panels_seen = panels::round_up(source.window, kPanel) * head_size_;
  const int64_t plane = panels::round_up(config_.context, kPanel) * head_size_;
  for (const Layer& layer : layers_)
    for (const Part& part : layer.parts) {
      const float* const keys = part.keys + from * part.keys_size;
      for (int64_t h = 0; h < part.heads; ++h)
        std::copy_n(keys + h * plane, panels_seen, part.keys + to * part.keys_size + h * plane);
      std::copy_n(part.values + from * part.values_size, source.window * part.values_row,
                  part.values + to * part.values_size);
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
  const Work& work = work_[static_cast<size_t>(member)];
  const int64_t C = config_.width, parts = static_cast<int64_t>(heads_.size()), rows = static_cast<int64_t>(all.size());
  const int64_t begin = parts * member / members, end = parts * (member + 1) / members;
  for (int64_t row = 0; row < rows; ++row) {
    float* const x = work.stream + row * row_;
    std::copy_n(position_table_ + all[static_cast<size_t>(row)].at * C, C, x);
    add(token_table_ + all[static_cast<size_t>(row)].token * C, x, C);
  }

  int64_t turn = 0;
  const auto partial = [&](int64_t part) { return partial_[static_cast<size_t>(2 * part + turn % 2)]; };
  // Half a layer: the parts' results are added by every member to its own stream, so that one meeting is enough.
  const auto residual = [&](const Norm& norm, const float* bias, auto&& compute) {
    for (int64_t row = 0; row < rows; ++row)
      normalise(work.stream + row * row_, norm.weight, norm.bias, work.normed + row * row_, C);
    for (int64_t part = begin; part < end; ++part) compute(part, partial(part));
    if (members > 1) team_.wait(member);
    for (int64_t row = 0; row < rows; ++row) {
      float* const x = work.stream + row * row_;
      for (int64_t part = 0; part < parts; ++part) add(partial(part) + row * row_, x, C);
      if (bias != nullptr) add(bias, x, C);
    }
    ++turn;
  };
  for (const Layer& layer : layers_) {
    residual(layer.ln_1, layer.attention_bias,
             [&](int64_t part, float* out) { attend(layer.parts[static_cast<size_t>(part)], all, work, out); });
    residual(layer.ln_2, layer.mlp_bias,
             [&](int64_t part, float* out) { think(layer.parts[static_cast<size_t>(part)], rows, work, out); });
  }
  if (wanted == 0) return;
  for (int64_t i = 0; i < wanted; ++i)
    normalise(work.stream + (rows - wanted + i) * row_, ln_f_.weight, ln_f_.bias, work.normed + i * row_, C);
  for (int64_t part = begin; part < end; ++part) {
    const Head& head = heads_[static_cast<size_t>(part)];
    multiply(work.normed, row_, wanted, head.weight, nullptr, row_logits_ + head.first, logits_row_);
  }
}

// Keeps keys and values of the rows, then lets each look back.
void Decoder::attend(const Part& part, std::span<const Row> all, const Work& work, float* out) const {
  const int64_t D = head_size_, rows = static_cast<int64_t>(all.size()), size = part.heads * D,
                plane = panels::round_up(config_.context, kPanel) * D;
  multiply(work.normed, row_, rows, part.qkv, part.qkv_bias, work.qkv, work.qkv_row);
  for (int64_t row = 0; row < rows; ++row) {
    const auto [stream, t, token] = all[static_cast<size_t>(row)];
    const float* const k = work.qkv + row * work.qkv_row + size;
    // The first of a group of lanes clears the others.
    const int64_t lanes = t % panels::kLanes == 0 ? panels::kLanes : 1;
    for (int64_t h = 0; h < part.heads; ++h)
      for (int64_t d = 0; d < D; ++d) {
        float* const key =
            part.keys + stream * part.keys_size + h * plane + t / kPanel * kPanel * D + d * kPanel + t % kPanel;
        std::fill(key + 1, key + lanes, 0.0f);
        *key = k[h * D + d];
      }
    float* const values = part.values + stream * part.values_size + t * part.values_row;
    std::fill(std::copy_n(k + size, size, values), values + part.values_row, 0.0f);
  }
  const float scale = 1.0f / std::sqrt(static_cast<float>(D));
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t h = 0; h < part.heads; ++h) {
      const int64_t stream = all[static_cast<size_t>(row)].stream, seen = all[static_cast<size_t>(row)].at + 1;
      attend_head(work.qkv + row * work.qkv_row + h * D,
                  {part.keys + stream * part.keys_size + h * plane, D, seen, kPanel, kPanel * D},
                  {part.values + stream * part.values_size + h * D, seen, D, part.values_row, kPanel}, scale,
                  work.scores, work.mixed + row * work.mixed_row + h * D);
    }
  multiply(work.mixed, work.mixed_row, rows, part.attention_projection, nullptr, out, row_);
}

void Decoder::think(const Part& part, int64_t rows, const Work& work, float* out) const {
  multiply(work.normed, row_, rows, part.fc, part.fc_bias, work.inner, work.inner_row);
  for (int64_t row = 0; row < rows; ++row) {
    float* const x = work.inner + row * work.inner_row;
    config_.gelu == Gelu::erf ? gelu_erf(x, part.fc.outputs) : gelu_tanh(x, part.fc.outputs);
  }
  multiply(work.inner, work.inner_row, rows, part.mlp_projection, nullptr, out, row_);
}

}  // namespace tril

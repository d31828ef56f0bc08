// How a Decoder's weights, windows and buffers lie in memory.
#include <algorithm>

#include "core/attention/one_query.h"
#include "core/machine/cpu.h"
#include "nn/decode.h"

namespace tril {
namespace {

constexpr int64_t kMostStreams = 1 << 16;

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

// Of keys or values of a part's heads.
int64_t row_of_heads(const GptConfig& config, int64_t part) {
  const int64_t D = config.width / config.heads;
  const auto [head, head_end] = part_of(config.attention().key_heads(), part, parts_of(config), 1);
  return head == head_end ? 0 : row_of_pieces((head_end - head) * D, D);
}

// Half a layer takes longer the wider it is, and so may the wait for a member with more of it.
int patience_of(const GptConfig& config) {
  return static_cast<int>(std::min<int64_t>(Team::kPatience + config.width * config.width / 16, 1 << 24));
}

}  // namespace

// Looks parameters up by name, checks them, and lays them out.
class Decoder::Packer {
 public:
  Packer(const ParamStore& params, const GptConfig& config, int64_t streams, DType weights, Arena& memory)
      : params_(params), config_(config), streams_(streams), weights_(weights), memory_(memory) {
    TRIL_CHECK(weights == DType::f32 || weights == DType::bf16, "decoder", "weights of f32 or bf16", name_of(weights));
    params.expect_frozen("decoder");
    TRIL_CHECK(params.dtype() == DType::f32, "decoder", "parameters of f32", name_of(params.dtype()));
    // So that all lies in one block: the store's own size, the zeros that fill panels up, and the windows.
    const int64_t padding = config.layers * (5 + 2 * parts_of(config)) * config.width * kPanel;
    (void)memory_.allocate((params.elements() + padding) * size_of(weights) +
                           streams * Decoder::stream_bytes(config, weights));
    memory_.reset();
  }

  template <class T>
  [[nodiscard]] T* room(int64_t count) {
    return reinterpret_cast<T*>(memory_.allocate(count * int64_t{sizeof(T)}));
  }
  template <class T>
  [[nodiscard]] T* zeros(int64_t count) {
    T* const out = room<T>(count);
    std::fill(out, out + count, T{});
    return out;
  }
  [[nodiscard]] float* floats(int64_t count) { return room<float>(count); }
  [[nodiscard]] Windows windows(int64_t row) {
    const int64_t count = (streams_ * config_.context + one_query::kKeys) * row;  // read, though not used, by fours
    return weights_ == DType::bf16 ? Windows{.narrow = room<bf16>(count)} : Windows{.wide = room<float>(count)};
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
  // Some ranges of rows of a weight (…, inputs), one below the other.
  struct Range {
    int64_t begin, count;
  };
  [[nodiscard]] Weight pack_rows(const float* weight, int64_t inputs, std::initializer_list<Range> ranges) {
    int64_t outputs = 0;
    for (const Range& range : ranges) outputs += range.count;
    return packed(outputs, inputs, [&](auto&& pack) {
      int64_t first = 0;
      for (const auto& [begin, count] : ranges) {
        pack(weight + begin * inputs, inputs, count, inputs, first);
        first += count;
      }
    });
  }
  // Columns [begin, end) of a weight (outputs, inputs).
  [[nodiscard]] Weight pack_columns(const float* weight, int64_t outputs, int64_t inputs, int64_t begin, int64_t end) {
    return packed(outputs, end - begin,
                  [&](auto&& pack) { pack(weight + begin, inputs, outputs, end - begin, int64_t{0}); });
  }
  [[nodiscard]] Part part(const std::string& name, int64_t index);

 private:
  // fill(pack) calls pack(weight, row_stride, outputs, inputs, first) for what the matrix holds.
  template <class Fill>
  [[nodiscard]] Weight packed(int64_t outputs, int64_t inputs, Fill&& fill) {
    Weight weight{.outputs = outputs};
    if (weights_ == DType::f32) {
      auto* const out = zeros<float>(panels::elements(outputs, inputs));
      fill([out](const float* from, int64_t row_stride, int64_t rows, int64_t columns, int64_t first) {
        panels::pack(from, row_stride, rows, columns, out, first);
      });
      weight.wide = panels::packed<float>(out, outputs, inputs);
    } else if (cpu_has(CpuLevel::amx)) {
      auto* const out = zeros<bf16>(bf16_rows::elements(outputs, inputs));
      fill([out](const float* from, int64_t row_stride, int64_t rows, int64_t columns, int64_t first) {
        bf16_rows::pack(from, row_stride, rows, columns, out, first);
      });
      weight.tiles = {out, inputs, outputs};
    } else {
      auto* const out = zeros<bf16>(panels::elements(outputs, inputs));
      fill([out](const float* from, int64_t row_stride, int64_t rows, int64_t columns, int64_t first) {
        panels::pack(from, row_stride, rows, columns, out, first);
      });
      weight.narrow = panels::packed<bf16>(out, outputs, inputs);
    }
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
  const int64_t key_heads = config_.attention().key_heads(), group = config_.heads / key_heads, K = key_heads * D;
  const auto [head, head_end] = part_of(key_heads, index, parts, 1);
  const auto [unit, unit_end] = part_of(units, index, parts, panels::kLanes);
  const int64_t size = (head_end - head) * D, first = group * head * D, queries = group * size;
  const Range ranges[] = {{first, queries}, {C + head * D, size}, {C + K + head * D, size}};
  const float* const attention = find(cat(name, ".attn.c_attn.weight"), {C + 2 * K, C});
  Part part{};
  part.heads = head_end - head;
  part.group = group;
  part.qkv = pack_rows(attention, C, {ranges[0], ranges[1], ranges[2]});
  part.attention_projection =
      pack_columns(find(cat(name, ".attn.c_proj.weight"), {C, C}), C, C, first, first + queries);
  part.fc = pack_rows(find(cat(name, ".mlp.c_fc.weight"), {units, C}), C, {{unit, unit_end - unit}});
  part.mlp_projection = pack_columns(find(cat(name, ".mlp.c_proj.weight"), {C, units}), C, units, unit, unit_end);
  if (config_.bias) {
    const float* const bias = find(cat(name, ".attn.c_attn.bias"), {C + 2 * K});
    float* const qkv_bias = zeros<float>(padded(part.qkv.outputs));
    float* to = qkv_bias;
    for (const auto& [begin, count] : ranges) to = std::copy_n(bias + begin, count, to);
    part.qkv_bias = qkv_bias;
    part.fc_bias = copy(find(cat(name, ".mlp.c_fc.bias"), {units}), unit, unit_end);
  }
  part.row = row_of_heads(config_, index);
  part.keys = windows(part.row);
  part.values = windows(part.row);
  return part;
}

Decoder::Decoder(const ParamStore& params, const GptConfig& config, int64_t threads, int64_t streams, DType weights)
    : config_(checked(config)),
      narrow_(weights == DType::bf16),
      head_size_(config.width / config.heads),
      row_(padded(config.width)),
      team_(static_cast<int>(std::min<int64_t>(threads, parts_of(config))), patience_of(config)) {
  TRIL_CHECK(threads >= 1, "decoder", "at least 1 thread", cat(threads));
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
    heads_.push_back({packer.pack_rows(embedding, C, {{begin, end - begin}}), begin});
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
  row_logits_ = packer.floats(bf16_rows::rooms(std::min(streams, kRows)) * logits_row_);
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
    work.mixed_row = std::max(work.mixed_row, row_of_pieces(part.heads * part.group * head_size_, head_size_));
    work.inner_row = std::max(work.inner_row, padded(part.fc.outputs));
  }
  work.stream = packer.floats(kRows * row_);
  work.normed = packer.floats(kRows * row_);
  work.qkv = packer.floats(kRows * work.qkv_row);
  work.mixed = packer.floats(kRows * work.mixed_row);
  work.inner = packer.floats(kRows * work.inner_row);
  work.scores = packer.floats(padded(config_.context));
  work.query = packer.zeros<float>(padded(head_size_));
  const int64_t widest = std::max({row_, work.inner_row, work.mixed_row});
  if (layers_.front().parts.front().fc.tiles.data != nullptr)
    work.rounded = packer.room<bf16>(bf16_rows::rounded_elements(kRows, widest));
  return work;
}

int64_t Decoder::stream_bytes(const GptConfig& config, DType weights) {
  int64_t row = 0;
  for (int64_t part = 0; part < parts_of(config); ++part) row += row_of_heads(config, part);
  return 2 * config.layers * config.context * row * size_of(weights);
}

}  // namespace tril

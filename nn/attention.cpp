#include "nn/attention.h"

#include <algorithm>
#include <cmath>

#include "core/attention/one_query.h"
#include "core/attention/pattern.h"
#include "core/kernels/convert.h"

namespace tril {
namespace {

AttentionOptions checked(const MultiHeadAttentionOptions& options) {
  constexpr int64_t kWidest = int64_t{1} << 46;  // 3 widths together still fit into an int64_t
  const AttentionOptions& attention = options.attention;
  TRIL_CHECK(options.width >= 1 && options.width <= kWidest, "width", cat("1 to ", kWidest), cat(options.width));
  TRIL_CHECK(attention.heads >= 1 && options.width % attention.heads == 0, "heads",
             cat("a number that divides the width ", options.width), cat(attention.heads));
  TRIL_CHECK(attention.kv_heads >= 0 && attention.heads % attention.key_heads() == 0, "kv_heads",
             cat("a number that divides the ", attention.heads, " heads, or 0 for as many"), cat(attention.kv_heads));
  TRIL_CHECK(attention.window >= 0, "window", "1 or more keys, or 0 for all", cat(attention.window));
  return attention;
}

// The width of all key heads together, or of all value heads.
int64_t key_width(const MultiHeadAttentionOptions& options) {
  return options.width / options.attention.heads * options.attention.key_heads();
}

// The distance between rows of `count` values, of which pieces of `piece` values are read in whole groups of lanes.
int64_t row_of_pieces(int64_t count, int64_t piece) {
  return one_query::padded(std::max<int64_t>(count - piece, 0) + one_query::padded(piece));
}

// The distance between rows of the KV cache: the keys, or values, of some heads.
int64_t kept_row(Range heads, int64_t D) { return heads.count() == 0 ? 0 : row_of_pieces(heads.count() * D, D); }

template <class W>
TRIL_INLINE void attend_head(const float* q, const one_query::Seen<W>& seen, int64_t D, float scale, float* scores,
                             float* out) {
  one_query::attend(q, seen, D, scale, scores, out);
}

struct HeadShare {
  int64_t C, D, K;  // widths of all query heads, of one head, of all key heads
  int64_t group;    // query heads for each key head
  Range heads;      // key heads
  [[nodiscard]] Range queries() const { return {group * heads.begin * D, group * heads.end * D}; }
  [[nodiscard]] Range keys() const { return {C + heads.begin * D, C + heads.end * D}; }
  [[nodiscard]] Range values() const { return {C + K + heads.begin * D, C + K + heads.end * D}; }
};

// W: the type of the KV cache.
template <class W>
class AttentionStep final : public ShareStep {
 public:
  AttentionStep(DecodeMemory& memory, const Linear& c_attn, const Linear& c_proj, const AttentionOptions& options,
                const HeadShare& share)
      : share_(share),
        context_(memory.options().context),
        pattern_{.causal = options.causal, .window = options.window, .keys = context_},
        scale_(static_cast<float>(options.scale.value_or(1.0 / std::sqrt(static_cast<double>(share.D))))),
        kept_row_(kept_row(share.heads, share.D)),
        qkv_(memory.pack_rows(c_attn.weight, {share.queries(), share.keys(), share.values()})),
        projection_(memory.pack_columns(c_proj.weight, share.queries())),
        qkv_bias_(memory.copy(c_attn.bias, {share.queries(), share.keys(), share.values()})) {
    // The last block of keys reads a few rows beyond the last; they are not used.
    const int64_t count = (memory.options().streams * context_ + one_query::kKeys) * kept_row_;
    keys_ = memory.room<W>(count);
    values_ = memory.room<W>(count);
  }

  // Stores keys and values of all rows, then runs each row's attention.
  void operator()(const DecodePass& pass, const float* normed, float* out) const override {
    const Work work = work_in(pass.scratch);
    pass.multiply(normed, pass.stride, qkv_, qkv_bias_, work.qkv, qkv_stride());
    const auto rows = static_cast<int64_t>(pass.rows.size());
    for (int64_t row = 0; row < rows; ++row)
      keep(pass.rows[static_cast<size_t>(row)], work.qkv + row * qkv_stride() + share_.queries().count());
    for (int64_t row = 0; row < rows; ++row)
      look_back(pass.rows[static_cast<size_t>(row)], work, work.qkv + row * qkv_stride(),
                work.mixed + row * mixed_stride());
    pass.multiply(work.mixed, mixed_stride(), projection_, nullptr, out, pass.stride);
  }
  [[nodiscard]] int64_t scratch_bytes() const override {
    return (kDecodeRows * (qkv_stride() + mixed_stride()) + one_query::padded(context_) + one_query::padded(share_.D)) *
           size_of(DType::f32);
  }
  [[nodiscard]] int64_t most_inputs() const override { return std::max(qkv_.inputs(), projection_.inputs()); }
  void copy(int64_t from, int64_t to, int64_t tokens) const override {
    for (W* const kept : {keys_, values_})
      std::copy_n(kept + from * context_ * kept_row_, tokens * kept_row_, kept + to * context_ * kept_row_);
  }

 private:
  struct Work {
    float *qkv, *mixed;     // (rows, …)
    float *scores, *query;  // (T), (D)
  };
  [[nodiscard]] int64_t qkv_stride() const { return PackedWeight::padded(qkv_.outputs()); }
  [[nodiscard]] int64_t mixed_stride() const { return row_of_pieces(share_.queries().count(), share_.D); }
  [[nodiscard]] Work work_in(std::byte* scratch) const {
    auto* const qkv = reinterpret_cast<float*>(scratch);
    float* const mixed = qkv + kDecodeRows * qkv_stride();
    float* const scores = mixed + kDecodeRows * mixed_stride();
    return {qkv, mixed, scores, scores + one_query::padded(context_)};
  }
  [[nodiscard]] int64_t place_of(const DecodeRow& row) const { return (row.stream * context_ + row.at) * kept_row_; }

  void keep(const DecodeRow& row, const float* keys) const {
    const int64_t count = share_.keys().count();
    for (const auto& [from, kept] : {std::pair{keys, keys_}, std::pair{keys + count, values_}}) {
      W* const to = kept + place_of(row);
      convert(from, to, count);
      std::fill(to + count, to + kept_row_, W{});
    }
  }
  void look_back(const DecodeRow& row, const Work& work, const float* queries, float* out) const {
    const auto [C, D, K, group, heads] = share_;
    const KeyRange seen = pattern_.seen_by(row.at);
    const int64_t first = place_of({row.stream, seen.first, 0});
    std::fill(work.query + D, work.query + one_query::padded(D), 0.0f);
    for (int64_t h = 0; h < heads.count() * group; ++h) {
      std::copy_n(queries + h * D, D, work.query);
      const int64_t at = first + h / group * D;
      cloned<attend_head<W>>(work.query, {keys_ + at, values_ + at, kept_row_, seen.last - seen.first}, D, scale_,
                             work.scores, out + h * D);
    }
  }

  HeadShare share_;
  int64_t context_;
  AttentionPattern pattern_;
  float scale_;
  int64_t kept_row_;
  PackedWeight qkv_, projection_;
  const float* qkv_bias_;
  W *keys_, *values_;  // the KV cache: (T, kept_row_) for each stream
};

}  // namespace

SelfAttention::SelfAttention(const Scope& scope, const MultiHeadAttentionOptions& options)
    : options_(checked(options)),
      width_(options.width),
      c_attn_(scope / "c_attn", options.width, options.width + 2 * key_width(options), options.bias),
      c_proj_(scope / "c_proj", options.width, options.width, options.bias, options.projection_deviation) {}

Tensor SelfAttention::operator()(const Tensor& x, const Tensor& lengths) const {
  return c_proj_(attention(c_attn_(x), options_, {.lengths = lengths}));
}

std::unique_ptr<ShareStep> SelfAttention::decode_share(DecodeMemory& memory, int64_t index) const {
  const int64_t D = width_ / options_.heads, key_heads = options_.key_heads();
  const HeadShare share{.C = width_,
                        .D = D,
                        .K = key_heads * D,
                        .group = options_.heads / key_heads,
                        .heads = memory.options().share_of(key_heads, index)};
  if (memory.options().weights == DType::bf16)
    return std::make_unique<AttentionStep<bf16>>(memory, c_attn_, c_proj_, options_, share);
  return std::make_unique<AttentionStep<float>>(memory, c_attn_, c_proj_, options_, share);
}

int64_t SelfAttention::decode_bytes_a_token(const DecodeOptions& options) const {
  int64_t row = 0;
  for (int64_t share = 0; share < options.shares; ++share)
    row += kept_row(options.share_of(options_.key_heads(), share), width_ / options_.heads);
  return 2 * row * size_of(options.weights);
}

CrossAttention::CrossAttention(const Scope& scope, const MultiHeadAttentionOptions& options)
    : options_(checked(options)),
      q_proj_(scope / "q_proj", options.width, options.width, options.bias),
      k_proj_(scope / "k_proj", options.width, key_width(options), options.bias),
      v_proj_(scope / "v_proj", options.width, key_width(options), options.bias),
      c_proj_(scope / "c_proj", options.width, options.width, options.bias, options.projection_deviation) {}

Tensor CrossAttention::operator()(const Tensor& x, const Tensor& memory, const Tensor& memory_lengths) const {
  return c_proj_(attention(q_proj_(x), k_proj_(memory), v_proj_(memory), options_, {.lengths = memory_lengths}));
}

}  // namespace tril

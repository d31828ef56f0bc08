#include "nn/decode.h"

#include <algorithm>
#include <optional>

namespace tril {
namespace {

constexpr int64_t kMostStreams = 1 << 16;
constexpr int64_t kWorthDividing = 16;  // so many rows are divided between the members of a team

// Enough shares to keep a team busy, few enough that each is worth a synchronisation.
int64_t shares_of(const LanguageModel& model) { return model.width() < 256 ? 2 : model.width() < 768 ? 4 : 8; }

DecodeOptions options_of(const LanguageModel& model, int64_t streams, DType weights) {
  TRIL_CHECK(streams >= 1 && streams <= kMostStreams, "decoder", cat("1 to ", kMostStreams, " streams"), cat(streams));
  TRIL_CHECK(weights == DType::f32 || weights == DType::bf16, "decoder", "weights of f32 or bf16", name_of(weights));
  return {.shares = shares_of(model), .streams = streams, .context = model.context(), .weights = weights};
}

// How long members spin for each other. The wider the model, the longer half a layer takes, and the longer one member
// may wait for another that has more of it.
int patience_of(const LanguageModel& model) {
  return static_cast<int>(std::min<int64_t>(Team::kPatience + model.width() * model.width() / 16, 1 << 24));
}

int64_t checked_threads(int64_t threads) {
  TRIL_CHECK(threads >= 1, "decoder", "at least 1 thread", cat(threads));
  return threads;
}

// Estimates the memory, so that all lies in one block: the weights, the padding of packed matrices, and the KV caches.
int64_t expected_bytes(const LanguageModel& model, const DecodeOptions& options) {
  const ParamStore& params = model.params();
  int64_t padding = 0;
  for (const ParamInfo& param : params.params())
    if (param.decays()) padding += options.shares * panels::kPanel * param.value.shape.last();
  return (params.elements() + padding) * size_of(options.weights) +
         options.streams * options.context * model.decode_bytes_a_token(options);
}

}  // namespace

Decoder::Decoder(const LanguageModel& model, int64_t threads, int64_t streams, DType weights)
    : options_(options_of(model, streams, weights)),
      vocabulary_(model.vocabulary()),
      width_(model.width()),
      stride_(PackedWeight::padded(model.width())),
      team_(static_cast<int>(std::min(checked_threads(threads), options_.shares)), patience_of(model)) {
  model.params().expect_frozen("decoder");
  (void)memory_.allocate(expected_bytes(model, options_));
  memory_.reset();
  DecodeMemory memory(memory_, options_);
  steps_ = model.decode_steps(memory);
  for (int64_t i = 0; i < 2 * options_.shares; ++i) partial_.push_back(memory.room<float>(kDecodeRows * stride_));
  logits_stride_ = PackedWeight::padded(vocabulary_);
  logits_ = memory.room<float>(streams * logits_stride_);
  row_logits_ = memory.room<float>(PackedProducts::rooms(std::min(streams, kDecodeRows)) * logits_stride_);
  streams_.resize(static_cast<size_t>(streams));
  for (Stream& stream : streams_) stream.tokens.resize(static_cast<size_t>(options_.context));
  rows_.reserve(static_cast<size_t>(kDecodeRows));
  together_.reserve(static_cast<size_t>(kDecodeRows));

  int64_t scratch = 0, inputs = width_;
  for (const DecodeSteps::Branch& branch : steps_.branches)
    for (const auto& share : branch.shares) {
      scratch = std::max(scratch, share->scratch_bytes());
      inputs = std::max(inputs, share->most_inputs());
    }
  for (int member = 0; member < team_.size(); ++member)
    work_.push_back({memory.room<float>(kDecodeRows * stride_), memory.room<float>(kDecodeRows * stride_),
                     memory.room<std::byte>(scratch),
                     memory.room<std::byte>(PackedProducts::scratch_bytes(weights, kDecodeRows, inputs))});
}

int64_t Decoder::stream_bytes(const LanguageModel& model, DType weights) {
  return model.context() * model.decode_bytes_a_token(options_of(model, 1, weights));
}

const Decoder::Stream& Decoder::stream_at(int64_t index) const {
  TRIL_CHECK(index >= 0 && index < streams(), "decoder", cat("streams from 0 to ", streams() - 1), cat(index));
  return streams_[static_cast<size_t>(index)];
}

void Decoder::check_token(int64_t token) const {
  TRIL_CHECK(token >= 0 && token < vocabulary_, "decoder", cat("tokens from 0 to ", vocabulary_ - 1), cat(token));
}

void Decoder::reset() {
  for (Stream& stream : streams_) stream.window = stream.position = 0;
}

std::span<const float> Decoder::logits(int64_t stream) const {
  TRIL_CHECK(stream_at(stream).position > 0, "decoder", "a stream that has seen a token", cat("stream ", stream));
  return {logits_ + stream * logits_stride_, static_cast<size_t>(vocabulary_)};
}

void Decoder::copy(int64_t from, int64_t to) {
  const Stream& source = stream_at(from);
  (void)stream_at(to);
  if (from == to) return;
  streams_[static_cast<size_t>(to)] = source;
  std::copy_n(logits_ + from * logits_stride_, logits_stride_, logits_ + to * logits_stride_);
  for (const DecodeSteps::Branch& branch : steps_.branches)
    for (const auto& share : branch.shares) share->copy(from, to, source.window);
}

std::span<const float> Decoder::feed(int64_t index, std::span<const int32_t> tokens) {
  (void)stream_at(index);
  TRIL_CHECK(!tokens.empty(), "decoder", "at least one token", "none");
  for (const int32_t token : tokens) check_token(token);
  Stream& stream = streams_[static_cast<size_t>(index)];
  const auto count = static_cast<int64_t>(tokens.size());
  const int64_t T = options_.context, gone_at_once = T - T / 2, before = stream.window;
  // A token that finds the window full drops its first half. Even if that happens often, only the last window has to be
  // computed.
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
    for (; first < stream.window && static_cast<int64_t>(rows_.size()) < kDecodeRows; ++first)
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
    if (stream.window == options_.context) {  // half of it is computed again, in a pass of its own
      (void)feed(one.stream, {&one.token, 1});
      continue;
    }
    together_.push_back({one.stream, stream.window, one.token});
    stream.tokens[static_cast<size_t>(stream.window++)] = one.token;
    ++stream.position;
    if (static_cast<int64_t>(together_.size()) == kDecodeRows) flush();
  }
  flush();
}

void Decoder::take_in(std::span<const DecodeRow> rows, int64_t wanted) {
  // On a busy machine the team is late: then one thread does all the work for a while.
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
    std::copy_n(row_logits_ + i * logits_stride_, logits_stride_,
                logits_ + rows[static_cast<size_t>(first + i)].stream * logits_stride_);
}

void Decoder::run(int member, int members, std::span<const DecodeRow> all, int64_t wanted) {
  const int64_t shares = options_.shares, rows = static_cast<int64_t>(all.size());
  const int64_t begin = shares * member / members, end = shares * (member + 1) / members;
  // With few rows each member adds up the shares' results of all rows by itself, so that the members meet only once for
  // each branch. With many rows each member does so for some of them, and they meet twice.
  const bool divided = members > 1 && rows >= kWorthDividing;
  const Work& own = work_[static_cast<size_t>(member)];
  const Work& common = divided ? work_[0] : own;
  float *const x = common.x, *const normed = common.normed;
  const int64_t row_begin = divided ? rows * member / members : 0,
                row_end = divided ? rows * (member + 1) / members : rows;
  const auto meet = [&](bool needed) {
    if (needed) team_.wait(member);
  };
  for (int64_t row = row_begin; row < row_end; ++row) {
    std::fill_n(x + row * stride_, width_, 0.0f);
    for (const auto& input : steps_.inputs) (*input)(all[static_cast<size_t>(row)], x + row * stride_);
  }

  std::optional<PackedProducts> multiply(std::in_place, options_.weights, rows, own.products_scratch);
  const DecodePass pass{all, *multiply, stride_, own.scratch};
  size_t turn = 0;
  for (const auto& [norm, steps, bias] : steps_.branches) {
    const auto partial = [&](int64_t share) { return partial_[2 * static_cast<size_t>(share) + turn % 2]; };
    for (int64_t row = row_begin; row < row_end; ++row) (*norm)(x + row * stride_, normed + row * stride_);
    meet(divided);
    for (int64_t share = begin; share < end; ++share)
      (*steps[static_cast<size_t>(share)])(pass, normed, partial(share));
    meet(members > 1);
    for (int64_t row = row_begin; row < row_end; ++row) {
      for (int64_t share = 0; share < shares; ++share)
        add_row(partial(share) + row * stride_, x + row * stride_, width_);
      if (bias != nullptr) add_row(bias, x + row * stride_, width_);
    }
    ++turn;
  }
  if (wanted == 0) return;
  for (int64_t row = std::max(row_begin, rows - wanted); row < row_end; ++row)
    (*steps_.norm)(x + row * stride_, normed + row * stride_);
  meet(divided);
  multiply.emplace(options_.weights, wanted, own.products_scratch);
  for (int64_t share = begin; share < end; ++share) {
    const auto& [weight, first] = steps_.head[static_cast<size_t>(share)];
    (*multiply)(normed + (rows - wanted) * stride_, stride_, weight, nullptr, row_logits_ + first, logits_stride_);
  }
}

}  // namespace tril

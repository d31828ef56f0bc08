// The interface of a language model: it predicts the next token from those before it. Training, evaluation and decoding
// know a model through this interface alone.
#pragma once

#include <string>

#include "core/ops.h"
#include "nn/decode_steps.h"
#include "nn/params.h"

namespace tril {

class LanguageModel {
 public:
  virtual ~LanguageModel() = default;

  // ids (B, T) of i32 on a tape, T at most the context -> logits (B, T, V).
  [[nodiscard]] virtual Tensor operator()(const Tensor& ids) const = 0;
  // The cross-entropy of the targets (B, T), in nats: by default its mean, with targets of -1 ignored.
  [[nodiscard]] Tensor loss(const Tensor& ids, const Tensor& targets, const CrossEntropyOptions& options = {}) const {
    return cross_entropy((*this)(ids), targets, options);
  }

  [[nodiscard]] virtual const ParamStore& params() const = 0;
  [[nodiscard]] virtual int64_t vocabulary() const = 0;    // V
  [[nodiscard]] virtual int64_t context() const = 0;       // the most tokens that are seen at once
  [[nodiscard]] virtual int64_t width() const = 0;         // C, of the residual stream
  [[nodiscard]] virtual std::string describe() const = 0;  // "4 layers, 128 wide, context 64", for messages

  // For a Decoder: the bytes of KV cache for each token of a stream, and the steps of the whole model.
  [[nodiscard]] virtual int64_t decode_bytes_a_token(const DecodeOptions& options) const = 0;
  [[nodiscard]] virtual DecodeSteps decode_steps(DecodeMemory& memory) const = 0;

 protected:
  LanguageModel() = default;
  LanguageModel(const LanguageModel&) = default;
  LanguageModel(LanguageModel&&) = default;
  LanguageModel& operator=(const LanguageModel&) = default;
  LanguageModel& operator=(LanguageModel&&) = default;
};

}  // namespace tril

// An optimizer updates the flat buffer of a ParamStore from the gradients in a GradStore, and keeps its own state in
// named buffers of the same layout, which a checkpoint stores. Each optimizer has its own file: adamw.h, sgd.h;
// make_optimizer finds them by name.
//
// A gradient is valid from the backward that made it until GradStore::reset(), as in PyTorch: a second update in
// between uses the same gradients again, and a backward in between adds to them. If a parameter has no gradient (before
// backward, after reset(), after a backward that failed or allowed unused ones), norm() and update() throw, naming the
// parameters, and change nothing.
//
// It belongs to the trainer's thread. After construction nothing is allocated, and results do not depend on the number
// of threads.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/machine/arena.h"
#include "nn/params.h"
#include "train/model/config.h"

namespace tril {

// A buffer with the layout and type of the parameters: an optimizer's state, or another set of weights, such as an
// average.
struct NamedBuffer {
  std::string name;  // an optimizer's state has PyTorch's name for it
  std::byte* data = nullptr;
  bool may_be_negative = true;  // every value is finite; false: none is below 0
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  [[nodiscard]] virtual const char* name() const = 0;  // AdamW
  // The 2-norm of all gradients together. Throws if update() would. Not finite if a gradient is not, or if the norm is
  // too large for a double.
  [[nodiscard]] double norm(const GradStore& gradients, int64_t threads);
  // One update with the gradients times `gradient_scale`. It also updates the store's bf16 shadow, if there is one. The
  // gradients must belong to the store given to the constructor; `rate` is 0 or more.
  void update(const GradStore& gradients, double rate, double gradient_scale, int64_t threads);

  [[nodiscard]] int64_t updates() const { return updates_; }
  // The state, for checkpoints to save and load.
  [[nodiscard]] std::span<const NamedBuffer> state() const { return state_; }
  // How many of the updates each parameter took part in, by its index. With allow_unused this is state, too.
  [[nodiscard]] std::span<const int64_t> parameter_updates() const { return parameter_updates_; }
  // Sets the count of updates, also that of every parameter.
  void restore(int64_t updates);

 protected:
  // A range of the flat buffer, within one parameter: the unit of work, whatever the number of threads.
  struct Piece {
    int64_t begin, end;
    size_t param;
    bool decays;  // matrices do, biases and norms do not
  };
  struct Update {
    const GradStore& gradients;
    double rate, gradient_scale;
  };
  // The store must be frozen and outlive the optimizer. allow_unused: a parameter without a gradient keeps its values
  // and its state, without decay, as in PyTorch where grad is None, and the update is not counted for it. It stays an
  // error if no parameter has a gradient.
  Optimizer(ParamStore& params, bool allow_unused);
  // Adds a buffer of state, filled with zeros.
  [[nodiscard]] std::byte* add_state(const char* name, bool may_be_negative);

  // Called once in an update, after it has been counted and before its pieces.
  virtual void begin_update(double /*rate*/) {}
  // Called from several threads, for different pieces.
  virtual void update_piece(const Piece& piece, const Update& update) const = 0;
  [[nodiscard]] bool takes_part(size_t param) const { return takes_part_[param] != 0; }
  [[nodiscard]] ParamStore& params() const { return params_; }

 private:
  // Finds out which parameters have a gradient.
  void look_at(const GradStore& gradients, int64_t threads);

  ParamStore& params_;
  bool allow_unused_;
  int64_t updates_ = 0;
  std::vector<int64_t> parameter_updates_;
  std::vector<uint8_t> takes_part_;  // one a parameter, in this update
  std::vector<Piece> pieces_;        // in order, of fixed length at most
  std::vector<double> partials_;     // one a piece
  std::vector<NamedBuffer> state_;
  std::deque<MemoryBlock> memory_;
};

// Throws where a field of an optimizer's options is out of range.
void expect_option(bool holds, const char* field, const char* expected, double got);

// Makes the optimizer that the configuration names.
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(ParamStore& params, const TrainConfig& config);

// What the gradients are multiplied by so that their norm is at most `clip`, as PyTorch does it; 0: no clipping.
[[nodiscard]] double clip_scale(double norm, double clip);

}  // namespace tril

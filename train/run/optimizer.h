// An optimizer updates the flat buffer of a ParamStore by that of a GradStore, and keeps its own state in named buffers
// of the same layout, which a checkpoint stores. An optimizer a file: adamw.h, sgd.h; make_optimizer knows them by
// name.
//
// A gradient counts from the backward that made it to GradStore::reset(), as in PyTorch: a second update in between
// takes the same gradients again, and a backward in between adds to them. Without a gradient for every parameter
// (before backward, after reset(), after a backward that failed or allowed unused ones) norm() and update() throw,
// naming the parameters, and nothing has changed.
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

// Numbers with the parameters' layout and type, beside the parameters themselves: an optimizer's state, or another set
// of weights, such as an average.
struct NamedBuffer {
  std::string name;  // of an optimizer's state, as PyTorch calls it
  std::byte* data = nullptr;
  bool may_be_negative = true;  // finite it always is
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  [[nodiscard]] virtual const char* name() const = 0;  // AdamW
  // The 2-norm of all gradients together. Throws where update would. Not finite if one of them is not, or if it is too
  // large for a double.
  [[nodiscard]] double norm(const GradStore& gradients, int64_t threads);
  // One update by the gradients times `gradient_scale`, of the store's shadow too, if it keeps one. The gradients are
  // those of the store given to the constructor; rate is 0 or more.
  void update(const GradStore& gradients, double rate, double gradient_scale, int64_t threads);

  [[nodiscard]] int64_t updates() const { return updates_; }
  // State, to store and to restore.
  [[nodiscard]] std::span<const NamedBuffer> state() const { return state_; }
  // How many of the updates each parameter took part in, by its index. State too, where unused ones are allowed.
  [[nodiscard]] std::span<const int64_t> parameter_updates() const { return parameter_updates_; }
  // Sets the count of updates, of every parameter too.
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
  // The store is frozen, and outlives this. allow_unused: a parameter without a gradient is left as it is, undecayed
  // and its state too, as PyTorch does where grad is None: it counts only the updates that it took part in. That none
  // at all has a gradient stays an error.
  Optimizer(ParamStore& params, bool allow_unused);
  // One more buffer of state, of zeros.
  [[nodiscard]] std::byte* add_state(const char* name, bool may_be_negative);

  // Before the pieces of an update, when it has been counted.
  virtual void begin_update(double /*rate*/) {}
  // From several threads, for different pieces.
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

// The one that the configuration names.
[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(ParamStore& params, const TrainConfig& config);

// What the gradients are multiplied by so that their norm is at most `clip`, as PyTorch does it; 0: no clipping.
[[nodiscard]] double clip_scale(double norm, double clip);

}  // namespace tril

// The room core/autograd: tensors, the tape that records what ops did, and what an op must have.

// The tape: ops run as they are called and leave a flat list of plain records; backward walks the list from the end.
// Recording order is already topological, so there is no sort and no recursion. A tape belongs to its context's thread.
// Tensors made on it are valid until reset(), which keeps the memory for the next pass, or until the tape's end.
//
//   Context context;
//   Tape tape(context);
//   const Tensor x = tape.variable<float>({2}, {3.0f, 4.0f});
//   tape.backward(sum(x * x));
//   tape.gradient(x);  // (6, 8)
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "core/autograd/op.h"

namespace tril {

// Where the gradients of parameters go: a flat buffer with the same layout as the parameters' values. It need not be
// zeroed: a parameter whose `received` is 0 is overwritten and marked, one that is marked is added to. GradStore
// (nn/params.h) fills this struct in and clears the marks. It owns nothing: the memory it points at must outlive the
// passes of the tape that it is bound to.
struct ParameterGradients {
  const std::byte* values = nullptr;
  std::byte* gradients = nullptr;
  int64_t bytes = 0;
  std::span<uint8_t> received;         // a flag per parameter, by its index: 1 if it has a gradient
  std::span<const int64_t> offsets;    // where each parameter begins, in bytes, ascending
  std::span<const std::string> names;  // for errors
  // The parameters that received no gradient, as "a, b and 7 more"; empty if every parameter received one.
  [[nodiscard]] std::string missing() const;
};

struct BackwardOptions {
  bool allow_unused = false;  // a parameter that received no gradient is no error: its gradient is set to 0
};

class Tape {
 public:
  enum class Mode : uint8_t { train, evaluate };  // evaluate: nothing is recorded, and modules leave dropout out

  explicit Tape(Context& context, Mode mode = Mode::train)
      : context_(context), mode_(mode), life_(context.begin_life(*this)) {}
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  [[nodiscard]] Context& context() const { return context_; }
  [[nodiscard]] bool training() const { return mode_ == Mode::train; }

  // Tensors that want no gradient: constant() copies the values, view() looks at memory that must outlive the pass.
  template <class T>
  [[nodiscard]] Tensor constant(const Shape& shape, std::span<const T> values) {
    return copy_in("constant", shape, kDTypeOf<T>, values.data(), static_cast<int64_t>(values.size()), false);
  }
  template <class T>
  [[nodiscard]] Tensor constant(const Shape& shape, std::initializer_list<T> values) {
    return constant(shape, std::span<const T>(values.begin(), values.size()));
  }
  [[nodiscard]] Tensor view(const Shape& shape, DType dtype, const void* memory);
  // A tensor that wants a gradient.
  template <class T>
  [[nodiscard]] Tensor variable(const Shape& shape, std::span<const T> values) {
    return copy_in("variable", shape, kDTypeOf<T>, values.data(), static_cast<int64_t>(values.size()), true);
  }
  template <class T>
  [[nodiscard]] Tensor variable(const Shape& shape, std::initializer_list<T> values) {
    return variable(shape, std::span<const T>(values.begin(), values.size()));
  }

  // Parameters used on this tape send their gradients there. Without a binding they are constants.
  void bind(const ParameterGradients& gradients);

  // Computes the gradients of a loss, which has one element; or, with a cotangent of y's shape and type, those of the
  // inner product of y and the cotangent. Throws if y depends on no variable and no bound parameter and, unless
  // allow_unused, if a bound parameter received no gradient.
  void backward(const Tensor& loss, const BackwardOptions& options = {});
  void backward(const Tensor& y, const Tensor& cotangent, const BackwardOptions& options = {});
  // The gradient of a variable, of a parameter, or of a tensor that keep_gradient was called for. After several calls
  // of backward it is the sum of all. Valid until reset(), a parameter's as long as its store. Throws if x received
  // none.
  [[nodiscard]] Tensor gradient(const Tensor& x) const;
  [[nodiscard]] bool has_gradient(const Tensor& x) const;
  void keep_gradient(const Tensor& x);

  // Frees a tensor's memory, so that this pass can use it for other tensors. Neither the caller nor a later op may read
  // the tensor any more. If backward needs its numbers, the op that made it runs again, with the same bits. Does
  // nothing for variables, constants, parameters, tensors that share their memory, and, in train mode, tensors that
  // want no gradient.
  void discard(const Tensor& x);
  [[nodiscard]] bool is_discarded(const Tensor& x) const;
  // discard_since discards all tensors that were made since a mark, except those in `keep`.
  [[nodiscard]] int64_t mark() const { return static_cast<int64_t>(slots_.size()); }
  void discard_since(int64_t mark, std::initializer_list<Tensor> keep);

  void reset();
  [[nodiscard]] int64_t records() const { return static_cast<int64_t>(records_.size()); }
  [[nodiscard]] std::string to_string() const;  // one line a record
  // The first op of this pass whose result holds a NaN or an infinity, as "exp -> f32 (2, 3)"; empty: all are finite.
  [[nodiscard]] std::string first_non_finite();

  // For ops (core/autograd/op.h: apply).
  std::array<Tensor, OpPlan::kMaxResults> record(const OpInfo& op, std::span<const Tensor> inputs, const void* attrs);

 private:
  struct Slot {
    Tensor value;
    std::byte* gradient = nullptr;  // in backward: the sum of what has arrived so far
    std::byte* kept = nullptr;      // of a tensor with keeps_gradient: the sum over all backwards so far
    bool wants_gradient = false, has_gradient = false, keeps_gradient = false;
    int32_t parameter = -1;
    int32_t record = -1;       // the record that made it; -1: none is kept
    bool owns_memory = false;  // no other tensor views it
    bool discarded = false;    // its memory was given back during the pass
    bool remade = false;       // discarded, and computed again because backward reads it
  };
  struct Record {
    const OpInfo* op = nullptr;
    OpPlan plan;
    Draws draws;
    int32_t first_operand = 0, operands = 0, first_output = 0, first_saved = 0;
    alignas(16) std::array<std::byte, kMaxAttrs> attrs;
  };
  struct Target {  // where one operand's gradient is written during a record's backward
    int32_t slot;
    std::byte* temporary;  // of a repeated operand: its second gradient is computed here, then added
  };

  Tensor copy_in(const char* what, const Shape& shape, DType dtype, const void* values, int64_t count,
                 bool wants_gradient);
  Tensor add_slot(const Tensor& value, bool wants_gradient, int32_t parameter = -1);
  [[nodiscard]] int32_t resolve(const char* op, const Tensor& tensor);
  [[nodiscard]] int32_t slot_of_parameter(const char* op, const Tensor& tensor);
  Tensor allocate(const Shape& shape, DType dtype);
  void give_back(Slot& slot);
  void remake(int32_t slot);
  void remake_for(const Record& record);
  void discard_remade(const Record& record);
  void run_forward(const Record& record);
  [[nodiscard]] int32_t operand(const Record& record, int32_t i) const {
    return operands_[static_cast<size_t>(record.first_operand + i)];
  }
  [[nodiscard]] const Slot& checked_slot(const char* what, const Tensor& x) const;
  void run_backward(const Tensor& y, const BackwardOptions& options, const Tensor* cotangent = nullptr);
  void backward_record(const Record& record);
  // Add what an op is about to do to its row of the profile, and return that row's seconds, for Timed.
  [[nodiscard]] double& profile_forward(const Record& record, const Forward& forward);
  [[nodiscard]] double& profile_backward(const Record& record);
  [[nodiscard]] Gradient target_of(int32_t slot);
  void finish_targets(const Record& record);
  void release_gradient(Slot& slot);
  void keep(const char* op, Slot& slot);
  void add_gradient(const char* op, const Tensor& sum, const void* term) const;
  void seed_gradient(const Tensor& y, const Gradient& seed, const Tensor* cotangent) const;
  [[nodiscard]] bool is_bound(const Tensor& parameter) const;
  void expect_all_received() const;
  void clear_unreceived() const;
  void poison(void* data, int64_t bytes) const;

  Context& context_;
  Mode mode_;
  TapeLife& life_;  // counts the passes; owned by the context
  uint32_t ops_run_ = 0;
  ParameterGradients parameters_;
  std::vector<Slot> slots_;
  std::vector<Record> records_;
  std::vector<int32_t> operands_;  // slots, of all records one after the other
  std::vector<Tensor> saved_;
  std::vector<int32_t> parameter_slots_;  // by parameter index; -1: not used in this pass
  std::vector<Tensor> inputs_, dout_;     // scratch lists of one op, members to reuse their memory
  std::vector<Gradient> din_;
  std::vector<Target> targets_;
  std::vector<int32_t> to_run_;  // indices of records; scratch of remake()
};

}  // namespace tril

// The one list of ops. An op that is not in it does not compile; a name in it without an op does not link.
#pragma once

#include <string_view>

// clang-format off
#define TRIL_OP_LIST(X) \
  X(add) X(sub) X(mul) X(div) X(scale) X(affine) X(div_by) X(reciprocal) \
  X(exp) X(log) X(tanh) X(sigmoid) X(relu) X(gelu) X(silu) X(sum) X(mean) X(max) X(matmul) X(linear) X(reshape) \
  X(permute) X(slice) X(concat) X(embedding) X(softmax) X(log_softmax) X(dropout) X(layer_norm) X(add_layer_norm) \
  X(cross_entropy) X(attention)
// clang-format on

namespace tril {

[[nodiscard]] constexpr bool is_listed_op(std::string_view name) {
#define TRIL_IS_NAME(op) \
  if (name == #op) return true;
  TRIL_OP_LIST(TRIL_IS_NAME)
#undef TRIL_IS_NAME
  return false;
}

}  // namespace tril

#include <algorithm>
#include <array>

#include "core/autograd/op.h"

namespace tril {

namespace registered {
#define TRIL_DECLARE(op) extern const OpInfo op;
TRIL_OP_LIST(TRIL_DECLARE)
#undef TRIL_DECLARE
}  // namespace registered

std::span<const OpInfo* const> all_ops() {
#define TRIL_ADDRESS(op) &registered::op,
  static constexpr std::array kAll = {TRIL_OP_LIST(TRIL_ADDRESS)};
#undef TRIL_ADDRESS
  return kAll;
}

const OpInfo* find_op(std::string_view name) {
  const auto all = all_ops();
  const auto found = std::find_if(all.begin(), all.end(), [&](const OpInfo* op) { return op->name == name; });
  return found == all.end() ? nullptr : *found;
}

}  // namespace tril

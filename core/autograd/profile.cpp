#include "core/autograd/profile.h"

#include <algorithm>

#include "core/base/check.h"

namespace tril {

std::string OpTime::name() const {
  std::string text = op;
  for (size_t i = 0; i < operand_count; ++i) text += cat(" ", operands[i]);
  return text;
}

OpTime& Profile::row(const char* op, std::span<const Tensor> operands) {
  const size_t count = std::min(operands.size(), OpTime::kMostOperands);
  for (OpTime& row : rows_)
    if (row.op == op && row.operand_count == count &&
        std::equal(operands.begin(), operands.begin() + static_cast<std::ptrdiff_t>(count), row.operands.begin(),
                   [](const Tensor& operand, const Shape& shape) { return operand.shape == shape; }))
      return row;
  OpTime& made = rows_.emplace_back();
  made.op = op;
  made.operand_count = count;
  for (size_t i = 0; i < count; ++i) made.operands[i] = operands[i].shape;
  return made;
}

}  // namespace tril

// Shapes, and what a shape rule may declare: what lies outside is refused, not read or written.
#include "core/base/shape.h"

#include "core/autograd/op.h"
#include "support/catch.h"

using namespace tril;
using namespace tril::test;

TEST_CASE("shape: axes count from both ends, and others are refused") {
  const Shape shape{2, 3, 4};
  CHECK(shape[0] == 2);
  CHECK(shape[-1] == 4);
  for (const int axis : {-4, 3, 6})
    CHECK_THROWS_WITH(shape[axis], contains("shape: expected an axis of (2, 3, 4), got " + std::to_string(axis)));
  CHECK_THROWS_WITH(Shape{}[-1], contains("an axis of (), got -1"));
}

TEST_CASE("shape: a changed one has the limits of any other") {
  const Shape shape{2, 3};
  CHECK(shape.with(-1, 7) == Shape{2, 7});
  CHECK(shape.with(0, 0) == Shape{0, 3});
  CHECK_THROWS_WITH(shape.with(0, -1), contains("shape: expected dimensions of 0 or more, got -1"));
  CHECK_THROWS_WITH(shape.with(1, int64_t{1} << 50), contains("at most 2^48 elements"));
  CHECK_THROWS_WITH(shape.with(2, 1), contains("an axis of (2, 3), got 2"));
}

TEST_CASE("shape rule: more results, and operands further behind, than there is room for are refused") {
  OpPlan plan;
  Infer infer("crowd", {}, plan);
  for (int i = 0; i < OpPlan::kMaxResults; ++i) infer.output({1}, DType::f32);
  for (int i = 0; i < OpPlan::kMaxResults; ++i) infer.save({1}, DType::f32);
  CHECK_THROWS_WITH(infer.output({1}, DType::f32), contains("crowd: expected at most 4 outputs"));
  CHECK_THROWS_WITH(infer.save({1}, DType::f32), contains("crowd: expected at most 4 saved tensors"));
  infer.backward_reads_input(63);
  CHECK(plan.reads_input == uint64_t{1} << 63);
  for (const int i : {-1, 64}) {
    CHECK_THROWS_WITH(infer.backward_reads_input(i), contains("counted from 0 to 63, got " + std::to_string(i)));
    CHECK_THROWS_WITH(infer.backward_reads_output(i), contains("counted from 0 to 63"));
    CHECK_THROWS_WITH(infer.no_gradient(i), contains("counted from 0 to 63"));
  }
}

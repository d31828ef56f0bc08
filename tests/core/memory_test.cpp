// After the first steps a training step asks the system for nothing, and finds everything where it was.
#include <set>

#include "core/machine/context.h"
#include "nn/gpt.h"
#include "support/catch.h"
#include "support/tensors.h"

using namespace tril;
using namespace tril::test;

namespace {

constexpr GptConfig kConfig{
    .vocabulary = 11, .context = 16, .layers = 2, .heads = 2, .width = 16, .dropout = 0.1, .bias = true};

struct Training {
  Context context;
  ParamStore store{DType::f32, 1};
  Gpt model{store, kConfig};
  GradStore gradients = [this] {
    store.freeze();
    return GradStore(store);
  }();
  Tape tape{context};

  explicit Training(int threads) : context({.threads = threads}) { tape.bind(gradients.binding()); }

  // One step; returns where the logits lie.
  const void* step(int64_t number, int64_t batch, int64_t time) {
    context.set_step(number);
    gradients.reset();
    tape.reset();
    const auto ids = random_ids(batch * time, 11, static_cast<uint64_t>(number));
    const Tensor input = tape.constant<int32_t>({batch, time}, ids);
    const Tensor logits = model(input);
    tape.backward(cross_entropy(logits, input));
    return logits.data;
  }
};

}  // namespace

TEST_CASE("memory: a training step allocates nothing after warm-up, and its addresses repeat") {
  for (const int threads : {1, 2}) {
    Training training(threads);
    for (int i = 0; i < 3; ++i) (void)training.step(i, 4, 16);
    const int64_t allocations = training.context.allocations();
    CHECK(allocations > 0);
    std::set<const void*> addresses;
    for (int i = 3; i < 60; ++i) addresses.insert(training.step(i, 4, 16));
    CHECK(training.context.allocations() == allocations);
    CHECK(addresses.size() == 1);
  }
}

TEST_CASE("memory: passes of other shapes in between, and evaluation, stop allocating, too") {
  Training training(2);
  const auto evaluate = [&] {
    training.tape.reset();
    Tape tape(training.context, Tape::Mode::evaluate);
    (void)training.model(tape.constant<int32_t>({1, 7}, random_ids(7, 11, 1)));
  };
  const auto round = [&](int64_t number) {
    (void)training.step(number, 4, 16);
    (void)training.step(number, 1, 5);
    evaluate();
    (void)training.step(number, 4, 16);
  };
  for (int i = 0; i < 4; ++i) round(i);
  const int64_t allocations = training.context.allocations();
  for (int i = 4; i < 30; ++i) round(i);
  CHECK(training.context.allocations() == allocations);
}

TEST_CASE("memory: a larger batch allocates once more") {
  Training training(1);
  for (int i = 0; i < 3; ++i) (void)training.step(i, 2, 8);
  const int64_t small = training.context.allocations();
  for (int i = 0; i < 3; ++i) (void)training.step(i, 64, 16);
  const int64_t large = training.context.allocations();
  CHECK(large > small);
  for (int i = 0; i < 10; ++i) (void)training.step(i, 64, 16);
  CHECK(training.context.allocations() == large);
}

TEST_CASE("memory: an arena gives aligned pieces, goes back to a mark, and becomes one block") {
  Arena arena;
  const auto aligned = [](const std::byte* p) { return reinterpret_cast<uintptr_t>(p) % 64 == 0; };
  std::byte* const first = arena.allocate(1);
  CHECK(aligned(first));
  const Arena::Mark mark = arena.mark();
  std::byte* const second = arena.allocate(100);
  CHECK(second >= first + 64);
  CHECK(aligned(second));
  arena.release(mark);
  CHECK(arena.allocate(100) == second);
  for (int i = 0; i < 50; ++i) CHECK(aligned(arena.allocate(100'000)));
  arena.reset();
  CHECK(arena.bytes() == 0);  // memory is only taken in allocate(), so that reset() cannot fail
  const std::byte* expected = arena.allocate(100'000);
  const int64_t allocations = arena.system_allocations();
  for (int i = 1; i < 50; ++i) CHECK(arena.allocate(100'000) == (expected += 100'032));  // whole lines, side by side
  CHECK(arena.system_allocations() == allocations);
}

TEST_CASE("memory: a pool hands out again what came back, by exact size") {
  Pool pool;
  std::byte* const a = pool.allocate(100);
  std::byte* const b = pool.allocate(100);
  CHECK(a != b);
  pool.free(a, 100);
  CHECK(pool.allocate(5000) != a);
  CHECK(pool.allocate(128) == a);  // the same size in lines of 64 bytes
  pool.free(b, 100);
  pool.reset();
  CHECK(pool.allocate(100) == a);  // from the beginning, what came back forgotten
  CHECK(pool.allocate(100) == b);
}

TEST_CASE("memory: a request that cannot be met is an error that says so") {
  CHECK_THROWS_WITH(MemoryBlock(int64_t{1} << 60), contains("memory: expected"));
  CHECK_THROWS_WITH((Shape{int64_t{1} << 40, int64_t{1} << 40}), contains("shape: expected at most 2^48 elements"));
}

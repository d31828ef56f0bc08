#include "train/threads.h"

#include "support/catch.h"
#include "train/temp_folder.h"

namespace tril::test {

TEST_CASE("threads: by default no more than there are processors") {
  CHECK(default_threads() >= 1);
  CHECK(default_threads() <= processors());
}

}  // namespace tril::test

#include "train/base/cpu_name.h"

#include <sstream>

#include "support/catch.h"

namespace tril::test {
namespace {

std::string named(const std::string& cpuinfo) {
  std::istringstream file(cpuinfo);
  return cpu_name(file);
}

}  // namespace

TEST_CASE("processor: its name is found in what Linux says on each kind of machine") {
  CHECK(
      named("processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: Intel(R) Xeon\n"
            "\nprocessor\t: 1\nmodel name\t: Another\n") == "Intel(R) Xeon");
  CHECK(named("processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU architecture: 8\n"
              "CPU variant\t: 0x3\nCPU part\t: 0xd0c\nCPU revision\t: 1\n") == "Arm, implementer 0x41, part 0xd0c");
  CHECK(named("processor\t: 0\ncpu\t\t: POWER9, altivec supported\n") == "POWER9, altivec supported");
  CHECK(named("processor\t: 0\nhart\t\t: 1\nisa\t\t: rv64imafdc\nuarch\t\t: sifive,u74-mc\n") == "sifive,u74-mc");
  CHECK(named("system type\t: generic\ncpu model\t\t: Loongson-3A\n") == "Loongson-3A");
  for (const char* nothing : {"", "\n", ":", ": x", "model name\t:\n", "model name"})
    CHECK(named(nothing) == "unknown");
}

}  // namespace tril::test

#!/usr/bin/env bash
# The line that is shown after a failure names its reason. logs/ holds what CMake, compilers, linkers, make and apt wrote
# when they were made to fail, under the line that is expected.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../../examples/setup.sh"

failed=0
expect() {  # WHAT EXPECTED SHOWN
  [ "$3" = "$2" ] || {
    failed=1
    printf '%s\n  expected: %s\n  shown:    %s\n' "$@"
  }
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
log=$work/log

for file in "$here"/logs/*.log; do
  expected=$(sed -n '1s/^expected: //p' "$file")
  tail -n +2 "$file" >"$log"
  expect "$(basename "$file")" "$expected" "$(tril_reason "$log")"
done

# Where no log tells.
: >"$log"
expect "a program that was killed" "it was stopped by signal 9" "$(tril_why "$log" 137)"
expect "nothing known" "no reason given" "$(tril_why "$log" 1)"
expect "no log, as nothing can be written" "cannot write 64 KiB in $work/gone: is the disk full?" "$(tril_why "$work/gone/log" 1)"

# The whole way, from a program that fails to what is shown last.
cp -r "$tril_root/examples" "$work/examples"
tril_root=$work
last_line() { (tril_build release) 2>&1 | tail -n 1; }

cmake() {
  tail -n +2 "$here/logs/cmake_no_compiler.log"
  return 1
}
expect "a configuration that fails" \
  "reason_test.sh: CMake cannot configure the build: No CMAKE_CXX_COMPILER could be found. (CMakeLists.txt:2) (all of it: $work/build/release.log)" \
  "$(last_line)"
cmake() {
  [ "$1" = --build ] || return 0
  [ "$LC_ALL" = C ] || echo "x.cpp:1:1: error: in somebody's language"
  tail -n +2 "$here/logs/linker_undefined_reference.log"
  return 2
}
expect "a build that fails" \
  "reason_test.sh: the build failed: x.cpp:(.text+0x5): undefined reference to \`foo()' (all of it: $work/build/release.log)" \
  "$(last_line)"
exit $failed

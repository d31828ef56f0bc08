#!/usr/bin/env bash
# tril as somebody else's project meets it.
#   check.sh installed BUILD COMPILER       installs BUILD and builds the project here with find_package(tril)
#   check.sh headers BUILD COMPILER         every header that BUILD installs compiles by itself
#   check.sh folder COMPILER                what add_subdirectory decides, for itself and for nobody else
#   check.sh folder-built COMPILER          builds the project here with add_subdirectory, all of the library, warnings
#                                           being errors, and checks every gradient at each level of the processor
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
jobs=$(nproc 2>/dev/null || echo 2)

fail() {
  printf '%s\n' "$*" >&2
  exit 1
}

configure() {  # BUILD [ARGUMENT]…: what it says is in $work/log
  local build=$1
  shift
  cmake -S "$here" -B "$build" -G "Unix Makefiles" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON "$@" \
    >"$work/log" 2>&1 || fail "cannot configure with $*: $(cat "$work/log")"
}

build_and_run() {  # BUILD [TARGET]…
  local build=$1 shown expected
  shift
  cmake --build "$build" -j "$jobs" --target gradient letters "$@" >"$work/log" 2>&1 || fail "cannot build: $(cat "$work/log")"
  shown=$(cd "$work" && "$build/gradient" && "$build/letters" 2>&1)
  expected=$'6 8\nlogits: 3\nerror: nowhere.safetensors: '
  [[ $shown == "$expected"* ]] || fail "expected $expected, got $shown"
}

install_moved() {  # BUILD: into a folder that is another one afterwards
  cmake --install "$1" --prefix "$work/first" >"$work/log" 2>&1 || fail "cannot install: $(cat "$work/log")"
  mkdir "$work/elsewhere"
  mv "$work/first" "$work/elsewhere/tril"
  prefix=$work/elsewhere/tril
}

check_installed() {  # BUILD
  install_moved "$1"
  local path version
  for path in "$root" "$1" "$work/first"; do
    ! grep -rlF "$path" "$prefix" || fail "these of the installed files know the path $path"
  done
  [ ! -e "$prefix/include/tril/train/cli" ] || fail "the command line's headers are installed"
  [ "$(cd "$prefix" && echo include/*)" = include/tril ] || fail "headers lie outside of include/tril"
  configure "$work/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Debug
  build_and_run "$work/build"
  version=$("$prefix/bin/tril" --version)
  [[ $version == "tril "* ]] || fail "the installed program says $version"
  # The version is asked for and given: an outside project that needs another one is told so.
  cp -r "$here" "$work/later"
  sed -i 's/find_package(tril 0.1 /find_package(tril 9.1 /' "$work/later/CMakeLists.txt"
  ! cmake -S "$work/later" -B "$work/later/build" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" 2>&1 ||
    fail "version 9.1 was asked for, and found"
  grep -q 'compatible' "$work/log" || fail "no word on the version: $(cat "$work/log")"
}

check_headers() {  # BUILD
  install_moved "$1"
  cd "$prefix/include/tril"
  local header included
  while IFS= read -r header; do
    while IFS= read -r included; do
      [ -f "$included" ] || fail "$header includes $included, which is not installed"
    done < <(sed -n 's/^ *#include "\(.*\)".*/\1/p' "$header")
    # A source that begins with its own header has proved it to the compiler.
    [ "$(grep -m 1 '^#include' "$root/${header%.h}.cpp" 2>/dev/null)" = "#include \"$header\"" ] || echo "$header"
  done < <(find . -name '*.h' -printf '%P\n' | sort) >"$work/headers"
  [ "$(wc -l <"$work/headers")" -gt 20 ] || fail "only these headers would be compiled: $(cat "$work/headers")"
  # Without the note on vectors as arguments, which inlined functions of the kernels have.
  xargs -P "$jobs" -I HEADER sh -c \
    'echo "#include \"HEADER\"" | "$1" -std=c++20 -fsyntax-only -Wall -Wextra -Wconversion -Wshadow -Wno-psabi -Werror -I. -x c++ -' \
    sh "$compiler" <"$work/headers" || fail "a header does not compile by itself"
}

# flags FILE: with which it is compiled.
flags() { grep -E "\"command\": .*$1" "$work/build/compile_commands.json"; }

expect() {  # FILE yes|no FLAGS
  case "$2,$(flags "$1")" in
    yes,*" $3 "* | no,"") ;;
    no,*" $3 "*) fail "$1 is compiled with $3: $(flags "$1")" ;;
    no,*) ;;
    *) fail "$1 is compiled without $3: $(flags "$1")" ;;
  esac
}

expect_warning() {  # yes|no
  local said=no
  ! grep -q "compiled without optimisation" "$work/log" || said=yes
  [ "$said" = "$1" ] || fail "a warning of no optimisation: expected $1, got $said: $(cat "$work/log")"
}

check_folder() {
  local folder=(-DTRIL_FOLDER="$root") library=core/autograd/tape.cpp
  # Nothing chosen: the library is optimised, this project is not, and of the program nothing is asked for.
  configure "$work/build" "${folder[@]}" -DCMAKE_DISABLE_FIND_PACKAGE_cxxopts=ON
  expect_warning no
  expect $library yes "-O3 -DNDEBUG"
  expect gradient.cpp no -O3
  expect gradient.cpp no -DNDEBUG
  expect gradient.cpp no -Wall
  expect gradient.cpp no -ffp-contract=fast
  [ -z "$(flags train/cli/)" ] || fail "the program is built, unasked"
  [ -z "$(flags /tests/core/)" ] || fail "the tests are built, unasked"
  ! grep -q 'file(INSTALL' "$work/build/tril/cmake_install.cmake" || fail "tril installs itself, unasked"
  # A level of the project's own, in whatever way it was chosen, is the library's, too.
  configure "$work/build" "${folder[@]}" -DCMAKE_CXX_FLAGS=-O2
  expect_warning no
  expect $library no -O3
  configure "$work/build" "${folder[@]}" -DCMAKE_CXX_FLAGS= -DCMAKE_BUILD_TYPE=RelWithDebInfo
  expect_warning no
  expect $library no -O3
  configure "$work/build" "${folder[@]}" -DCMAKE_BUILD_TYPE=Debug
  expect_warning yes
  expect $library no -O3
  configure "$work/build" "${folder[@]}" -DCMAKE_BUILD_TYPE= -DCMAKE_CXX_FLAGS="-O2 -O0"
  expect_warning yes
  # The program where it is asked for.
  configure "$work/build" "${folder[@]}" -DCMAKE_CXX_FLAGS= -DTRIL_PROGRAM=ON -DCMAKE_DISABLE_FIND_PACKAGE_cxxopts=OFF
  expect train/cli/main.cpp yes "-O3 -DNDEBUG -O1"  # its own level comes last
}

kind=$1
shift
case $kind in
  installed | headers)
    compiler=$2
    "check_$kind" "$1"
    ;;
  folder)
    compiler=$1
    check_folder
    ;;
  folder-built)
    compiler=$1
    # The sources without the headers that a build of tril compiles once: each must include what it needs.
    configure "$work/build" -DTRIL_FOLDER="$root" -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON \
      -DCMAKE_CXX_FLAGS="-Wall -Wextra -Wconversion -Wshadow -Werror"
    build_and_run "$work/build" gradients
    "$here/../setup/runtime_test.sh" "$work/build/letters"
    for level in baseline avx2 avx512 avx512_bf16 amx; do
      TRIL_MAX_ISA=$level OMP_WAIT_POLICY=passive "$work/build/gradients" || fail "a gradient is wrong at level $level"
    done
    ;;
esac

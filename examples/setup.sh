# Installs what tril is built with, where it is missing, and builds it. Sourced by examples/quickstart.sh, tests/run.sh
# and .ci/run. The packages are those of Debian 12 and 13 and of Ubuntu.

tril_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tril_packages=(g++ cmake make libdnnl-dev libspdlog-dev libcxxopts-dev nlohmann-json3-dev catch2)

tril_say() { echo "$*" >&2; }

tril_fail() {
  tril_say "$(basename "$0"): $*"
  exit 1
}

# tril_reason LOG: the line of a failed program's log that names why it failed.
tril_reason() { awk -f "$tril_root/examples/reason.awk" "$1"; }

# tril_why LOG STATUS: the same, or what else can be known of the failure. On a full disk no log is whole, and what
# CMake concludes from files it could not write misleads.
tril_why() {
  local log=$1 status=$2 folder reason
  for folder in "$(dirname "$log")" "${TMPDIR:-/tmp}"; do
    if ! head -c 65536 /dev/zero 2>/dev/null >"$folder/tril-room.$$"; then reason="cannot write 64 KiB in $folder: is the disk full?"; fi
    rm -f "$folder/tril-room.$$"
  done 2>/dev/null
  reason=${reason:-$(tril_reason "$log" 2>/dev/null || true)}
  if [ -z "$reason" ] && [ "$status" -gt 128 ]; then reason="it was stopped by signal $((status - 128))"; fi
  echo "${reason:-no reason given}"
}

# Elsewhere than on Debian: what can be seen to be missing, by the command or header that each package brings.
tril_expect_without_apt() {
  local missing=() wanted
  for wanted in g++ cmake make; do command -v "$wanted" >/dev/null || missing+=("$wanted"); done
  if command -v g++ >/dev/null; then
    for wanted in dnnl.hpp spdlog/spdlog.h cxxopts.hpp nlohmann/json.hpp; do
      echo "#include <$wanted>" | g++ -std=c++20 -E -x c++ - >/dev/null 2>&1 || missing+=("$wanted")
    done
  fi
  [ ${#missing[@]} -eq 0 ] ||
    tril_fail "missing ${missing[*]}, and there is no apt to install them; install a C++ compiler, CMake, make, oneDNN," \
      "spdlog, cxxopts, nlohmann-json and Catch2 (Debian's names: ${tril_packages[*]})"
}

tril_install() {
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    tril_expect_without_apt
    return
  fi
  local missing=() package
  for package in "${tril_packages[@]}"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] || tril_apt_install "${missing[@]}"
}

# As root, or with sudo where there is one that can ask for a password or needs none.
tril_apt_install() {
  local as_root=() log by_hand="as root: apt-get update && apt-get install $*"
  if [ "$(id -u)" = 0 ]; then
    tril_say "Installing: $*"
  else
    command -v sudo >/dev/null || tril_fail "missing $*, and neither root nor sudo to install them; $by_hand"
    sudo -n true 2>/dev/null || { : </dev/tty; } 2>/dev/null ||
      tril_fail "missing $*, and sudo has no terminal to ask for a password; $by_hand"
    as_root=(sudo)
    tril_say "Installing with sudo: $*"
  fi
  log=$(mktemp)
  # An update that fails in part may still leave all that is needed, so only the installation decides.
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive sh -c '
      apt-get -qq -o DPkg::Lock::Timeout=120 update
      exec apt-get -qq -o DPkg::Lock::Timeout=120 install -y --no-install-recommends "$@"' sh "$@" >"$log" 2>&1 </dev/null || {
    local status=$? reason
    reason=$(tril_why "$log" $status)
    rm -f "$log"
    tril_fail "apt could not install $* ($reason); $by_hand"
  }
  rm -f "$log"
}

# Follows a build: one live line on a terminal, a line for every quarter elsewhere.
tril_show_progress() {
  local line percent next=25 begin=$SECONDS
  while IFS= read -r line; do
    case $line in \[*%\]*) ;; *) continue ;; esac
    percent=${line#[}
    percent=${percent%%%*}
    if [ -t 2 ]; then
      printf '\r\033[K%.79s' "$line" >&2
    elif [ "$percent" -ge "$next" ] && [ "$percent" -lt 100 ] && [ $((SECONDS - begin)) -ge 5 ]; then
      tril_say "$((percent)) % built"
      next=$((percent / 25 * 25 + 25))
    fi
  done
  [ ! -t 2 ] || printf '\r\033[K' >&2
}

# tril_build PRESET [TARGET]: everything, or one target.
tril_build() {
  local preset=$1 target=(${2:+--target "$2"}) folder=$tril_root/build/$1 log=$tril_root/build/$1.log begin=$SECONDS
  mkdir -p "$folder" || tril_fail "cannot make $folder; is the project's folder writable?"
  # A build made before the project was moved or copied here knows only its old place.
  if [ -f "$folder/CMakeCache.txt" ] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$tril_root" "$folder/CMakeCache.txt"; then
    tril_say "Building anew, as the project has moved"
    rm -rf "$folder"
  fi
  tril_say "Building what is not built yet, which takes a few minutes the first time (preset $preset) …"
  # In the C locale, as the reason of a failure is looked for in English.
  (cd "$tril_root" && LC_ALL=C cmake --preset "$preset") >"$log" 2>&1 ||
    tril_fail "CMake cannot configure the build: $(tril_why "$log" $?) (all of it: $log)"
  local jobs=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc 2>/dev/null || echo 2)}
  (cd "$tril_root" && LC_ALL=C cmake --build --preset "$preset" -j "$jobs" "${target[@]}") 2>&1 |
    tee -a "$log" | tril_show_progress ||
    tril_fail "the build failed: $(tril_why "$log" $?) (all of it: $log)"
  [ $((SECONDS - begin)) -lt 10 ] || tril_say "Built in $((SECONDS - begin)) s"
}

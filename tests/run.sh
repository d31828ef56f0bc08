#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test and every example. ctest's summary closes the output.
#   tests/run.sh [--preset release | ci | sanitize] [arguments for ctest]…
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../examples/setup.sh"
preset=release
if [ "${1:-}" = --preset ]; then
  preset=${2:-}
  case $preset in release | ci | sanitize) shift 2 ;; *) tril_fail "--preset: expected release, ci or sanitize, got '$preset'" ;; esac
fi

tril_install
tril_build "$preset"
cd "$tril_root"
exec ctest --preset "$preset" -j 2 "$@"

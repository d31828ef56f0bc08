#!/usr/bin/env bash
# runtime_test.sh PROGRAM: oneDNN calls the OpenMP runtime that tril calls, so that one team of threads serves both; the
# threads of two would wait for work beside each other. Clang's runtime stands in for GCC's, which oneDNN was built with,
# as long as the program names it first.
set -euo pipefail
program=$1
calls=$(LD_DEBUG=bindings LD_BIND_NOW=1 "$program" 2>&1 >/dev/null </dev/null |
  sed -n "s/.*binding file \([^ ]*\) \[0\] to \([^ ]*\) .* symbol \`\(GOMP\|__kmpc\|omp\)_.*/\1 \2/p" | sort -u |
  grep -v 'lib[a-z]*omp[^/ ]* ' || true)
[ -n "$calls" ] || { echo "skipped: the loader does not say what it binds" && exit 0; }
runtimes=$(echo "$calls" | cut -d ' ' -f 2 | sort -u)
grep -q '/libdnnl' <<<"$calls" && [ "$(wc -l <<<"$runtimes")" = 1 ] || {
  printf 'expected one OpenMP runtime for all, found:\n%s\n' "$calls"
  exit 1
}

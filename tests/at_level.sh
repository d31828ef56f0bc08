#!/usr/bin/env bash
# at_level.sh LEVEL TRIL TESTS…: runs tests as on a processor of a lower level (core/machine/cpu.h). If this machine's
# level is no higher, all tests already run so: then it exits with 77, which ctest counts as skipped.
set -euo pipefail
level=$1 tril=$2
shift 2
levels="baseline avx2 avx512 avx512_bf16 amx"
used=$("$tril" info | sed -n 's/^level *//p')
below=${levels%%"$used"*}
case " $below" in
  *" $level "*) ;;
  *) echo "skipped: this processor's level is $used, at which all tests run; $level is no lower" && exit 77 ;;
esac
export TRIL_MAX_ISA=$level
echo "at level $("$tril" info | sed -n 's/^level *//p')"
exec "$@"

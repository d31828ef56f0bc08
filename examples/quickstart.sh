#!/usr/bin/env bash
# From a fresh clone to a model that writes: installs what is missing, builds tril, trains a small model on the built-in
# stories for a minute or two, and lets it write. Run it again, from anywhere: it keeps what is there, goes on where it
# was stopped, and once all is done it only lets the model write.
#   TRIL_QUICKSTART_STEPS=500 examples/quickstart.sh   trains for so many steps, rather than 16000
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
steps=${TRIL_QUICKSTART_STEPS:-16000}
[[ $steps =~ ^[1-9][0-9]*$ ]] || tril_fail "TRIL_QUICKSTART_STEPS: expected a number of steps, got '$steps'"

tril_install
tril_build release tril
cd "$tril_root"
tril=build/release/tril
run=runs/quickstart

if [ -f "$run/last.safetensors" ]; then
  tril_say "Going on with $run, which is there already (remove the folder to begin anew)"
  "$tril" train --resume "$run" || tril_fail "training stopped; run this again to go on"
else
  # Stopped before anything was saved: nothing in it is of use.
  [ -f "$run/model.safetensors" ] || rm -rf "$run"
  tril_say "Training on the built-in stories, a minute or two on two cores …"
  # Small and shallow, with many quick steps: it has to learn a few hundred words and how they follow one another, and
  # gets further in that time than a larger model would.
  "$tril" train --out "$run" --layers 2 --width 64 --context 160 --batch 4 --gelu tanh \
    --steps "$steps" --lr 4e-3 --min-lr 1e-5 --weight-decay 0.05 --eval-every 2000 ||
    tril_fail "training stopped; run this again to go on"
fi

echo
echo "What it writes when it goes on from \"Mia had \":"
echo
"$tril" sample "$run" --prompt "Mia had " --length 900 --temperature 0.8 --seed 1
cat <<END


Three commands to try next, in $tril_root:
  $tril sample $run --prompt "Zoe had " --temperature 1.2
  $tril train your-text.txt     # any UTF-8 text, or a folder of them
  $tril gradcheck               # every gradient against numeric differences
END

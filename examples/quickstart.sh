#!/usr/bin/env bash
# From nothing to a trained model: installs what is missing, builds tril, trains a small model on the built-in stories
# for about a minute, and lets it write. Run it again, from anywhere: what is done is not done again.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$tril_root"

tril_install
tril_build release tril
tril=build/release/tril
run=runs/quickstart
steps=2000

if [ -f "$run/last.safetensors" ]; then
  echo "Going on with $run (remove the folder to begin anew) …" >&2
  "$tril" train --resume "$run" --steps "$steps"
else
  rm -rf "$run"
  echo "Training on the built-in stories, about a minute …" >&2
  "$tril" train --out "$run" --steps "$steps"
fi

echo
echo "What it writes:"
echo
"$tril" sample "$run" --prompt "Once " --length 300 --temperature 0.8 --seed 1
echo
echo
echo "Three commands to try next:"
echo "  $tril train your-text.txt              # any UTF-8 text, or a folder of them"
echo "  $tril sample $run --prompt \"The \" --length 500 --temperature 0.9"
echo "  $tril gradcheck                        # every gradient against numeric differences"

#!/usr/bin/env bash
# Saving, loading and converting checkpoints, ours beside PyTorch's: same sizes, two processes of one thread on one host, same disk, in turn.
#   benchmarks/compare_checkpoint.sh PYTHON [ROUNDS [FOLDER]]     PYTHON: an interpreter with torch 2.11 and safetensors; build first
# FOLDER (default: the temporary folder) is on the disk that is measured and needs 6 GB. Prints a line a figure and a table of medians; "blocks" lines
# are times, so that there a small ratio is good.
set -euo pipefail
python=${1:?usage: compare_checkpoint.sh PYTHON [ROUNDS [FOLDER]]}
rounds=${2:-3}
here=$(cd "$(dirname "$0")" && pwd)
bin=${SHARDLOOM_BIN:-$here/../build/release/bin}
peer=$here/checkpoint_peer.py
work=$(mktemp -d "${3:-${TMPDIR:-/tmp}}/checkpoint_bench_XXXXXX")
trap 'rm -rf "$work"' EXIT
log=$work/log

two_ranks() {  # label, command...
  local label=$1
  shift
  local port=$((20000 + RANDOM % 20000)) pids=()
  rm -rf "$work/state"
  sync
  for rank in 0 1; do
    OMP_NUM_THREADS=1 RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$@" \
      2>>"$work/err" | sed "s/^/$label: /" | tee -a "$log" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || { cat "$work/err" >&2; exit 1; }; done
}

"$python" "$peer" make "$work/model"
for ((round = 1; round <= rounds; ++round)); do
  two_ranks ours "$bin/checkpoint_bench" "$work/state"
  two_ranks torch "$python" "$peer" shards "$work/state"
  rm -rf "$work/state" "$work/dcp"
  sync
  "$bin/shardloom" convert hf_to_dcp --hf_dir "$work/model" --save_dir "$work/dcp" 2>&1 |
    sed -n 's/.*(\(.*\) GB\/s).*/ours: convert \1 GB\/s/p' | tee -a "$log"
  rm -rf "$work/dcp"
  sync
  "$python" "$peer" convert "$work/model" "$work/dcp" 2>>"$work/err" | sed 's/^/torch: /' | tee -a "$log"
done

python3 - "$log" <<'TABLE'
import re, statistics, sys
figures = {}
for line in open(sys.argv[1]):
    who, what, value, unit = re.match(r"(ours|torch): (.*) ([\d.]+) (GB/s|ms)", line).groups()
    figures.setdefault(f"{what}, {unit}", {}).setdefault(who, []).append(float(value))
print(f"\n{'median (lowest to highest)':34} {'ours':>22} {'PyTorch':>22} {'ratio':>6}")
for what, sides in figures.items():
    if len(sides) < 2: continue  # of ours alone
    text = {who: f"{statistics.median(v):.2f} ({min(v):.2f} to {max(v):.2f})" for who, v in sides.items()}
    ratio = statistics.median(sides["ours"]) / statistics.median(sides["torch"])
    print(f"{what:34} {text['ours']:>22} {text['torch']:>22} {ratio:6.2f}")
TABLE

#!/usr/bin/env bash
# One training step of ours beside PyTorch's fully_shard: same shapes, same units, two processes of one thread on one host, in turn.
#   benchmarks/compare_pytorch.sh PYTHON [ROUNDS]     PYTHON: an interpreter with torch 2.11 and transformers 5; build first
# Prints a line a run and a table of medians. Close everything else: a disturbed machine makes both sides slower, but not equally.
set -euo pipefail
python=${1:?usage: compare_pytorch.sh PYTHON [ROUNDS]}
rounds=${2:-3}
here=$(cd "$(dirname "$0")" && pwd)
bench=${STEP_BENCH:-$here/../build/release/bin/step_bench}
export OMP_NUM_THREADS=1
log=$(mktemp)
trap 'rm -f "$log"' EXIT

two_ranks() {  # label, steps, command...
  local label=$1
  shift
  local port=$((20000 + RANDOM % 20000))
  local pids=()
  for rank in 0 1; do
    RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$@" 2>/dev/null |
      sed "s/^/$label: /" | tee -a "$log" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid"; done
}

for ((round = 1; round <= rounds; ++round)); do
  for dtype in fp32 bf16; do
    two_ranks "ours $dtype" "$bench" mini $dtype 8
    # A bf16 step of PyTorch takes minutes on a CPU without bf16 products; one tells as much.
    two_ranks "torch $dtype" "$python" "$here/step_peer.py" mini $dtype $([ $dtype = fp32 ] && echo 5 || echo 1)
  done
done

python3 - "$log" <<'TABLE'
import re, statistics, sys
rows = {}
for line in open(sys.argv[1]):
    found = re.match(r"(ours|torch) (\w+): .* step ([\d.]+) ms .* first step ([\d.]+) s.* peak RSS (\d+) MiB", line)
    if found:
        rows.setdefault(found.groups()[:2], []).append([float(x) for x in found.groups()[2:]])
print(f"\n{'':12} {'ms/step':>9} {'to first step s':>16} {'peak RSS MiB':>13} {'ratio of steps':>15}")
median = {key: [statistics.median(column) for column in zip(*values)] for key, values in rows.items()}
for (who, dtype), (ms, start, rss) in median.items():
    base = ("torch", dtype)
    ratio = f"{ms / median[base][0]:.3f}" if who == "ours" and base in median else ""
    print(f"{who + ' ' + dtype:12} {ms:9.0f} {start:16.2f} {rss:13.0f} {ratio:>15}")
if ("ours", "bf16") in median and ("ours", "fp32") in median:
    print(f"our bf16 / our fp32: {median['ours', 'bf16'][0] / median['ours', 'fp32'][0]:.3f}")
TABLE

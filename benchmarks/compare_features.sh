#!/usr/bin/env bash
# One training step with each feature beside none, alternated: time, and peak memory of tensors (the exact counter, from the second step on).
#   benchmarks/compare_features.sh [ROUNDS] [SIZE ...]     two processes of one thread on one host; sizes as in step_bench.cpp; build first
set -euo pipefail
rounds=${1:-3}
shift || true
sizes=("$@")
here=$(cd "$(dirname "$0")" && pwd)
bench=${STEP_BENCH:-$here/../build/release/bin/step_bench}
export OMP_NUM_THREADS=1
log=$(mktemp)
trap 'rm -f "$log"' EXIT
groups=(none cp2 ep2 recompute chunk_loss offload "recompute offload" "cp2 ep2 recompute chunk_loss offload")

for ((round = 1; round <= rounds; ++round)); do
  for group in "${groups[@]}"; do
    port=$((20000 + RANDOM % 20000))
    pids=()
    for rank in 0 1; do
      # shellcheck disable=SC2086
      RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
        "$bench" mini fp32 5 "${sizes[@]}" ${group/none/} 2>/dev/null | sed "s/^/$group| /" | tee -a "$log" &
      pids+=($!)
    done
    for pid in "${pids[@]}"; do wait "$pid"; done
  done
done

python3 - "$log" <<'TABLE'
import re, statistics, sys
rows = {}
for line in open(sys.argv[1]):
    found = re.match(r"([^|]+)\| .* step ([\d.]+) ms .* peak tensors ([\d.]+) MiB", line)
    if found:
        rows.setdefault(found[1], []).append((float(found[2]), float(found[3])))
print("\n| features | ms/step | to none | peak MiB | to none |\n|---|---|---|---|---|")
median = {key: [statistics.median(column) for column in zip(*values)] for key, values in rows.items()}
for group, (ms, peak) in median.items():
    print(f"| {group} | {ms:.0f} | {ms / median['none'][0]:.2f} | {peak:.0f} | {peak / median['none'][1]:.2f} |")
TABLE

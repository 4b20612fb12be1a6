#!/usr/bin/env bash
# From a clean clone to a training run: sets up, builds, trains the embedded tiny model on the embedded pictures.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

config=examples/tiny/train.yaml
logs=out/tiny

scripts/build.sh bin/shardloom
rm -rf "$logs"
echo "quickstart: training $config"
build/release/bin/shardloom train "$config" "training.metrics_dir=$logs"

python3 - "$logs" "$config" <<'PYTHON'
import json, sys

logs, config = sys.argv[1:]
with open(f"{logs}/metrics.jsonl", encoding="utf-8") as lines:
    losses = [json.loads(line)["loss"] for line in lines]
window = max(1, min(5, len(losses) // 2))
first = sum(losses[:window]) / window
last = sum(losses[-window:]) / window
print(f"""
quickstart: {len(losses)} steps, loss {first:.3f} -> {last:.3f} (means of the first and last {window} steps)
  logs        {logs}/metrics.jsonl, one JSON object a step; TensorBoard events beside it
  again       build/release/bin/shardloom train {config} training.train_iters=200
  look        build/release/bin/shardloom data show {config} --index 0
  your own    docs/quickstart.md""")
if not last < first:
    sys.exit("quickstart: the loss did not fall")
PYTHON

#!/bin/bash
# Trains the byte model of this folder on the bytes of its own source, on two ranks. More flags may follow.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec "${SHARDLOOM_BIN_DIR:-build/release/bin}/custom_model" --nproc 2 \
  --use-torch-fsdp2 --fsdp2-config-path examples/custom_model/fsdp2_config.yaml \
  --ckpt-format torch_dcp --untie-embeddings-and-output-weights \
  --mm-model examples/custom_model/model.json --mm-data examples/custom_model/data.json \
  --micro-batch-size 4 --global-batch-size 8 --seq-length 64 --train-iters "${TRAIN_ITERS:-200}" \
  --lr 3e-3 --min-lr 0 --lr-decay-style cosine --lr-warmup-fraction 0.1 \
  --weight-decay 0 --clip-grad 1.0 --seed 42 --log-interval 10 "$@"

#!/usr/bin/env bash
# Fine-tunes InternVL3.5 on NPROC ranks of this host with internvl3_5_config.yaml. Runs as it is with the embedded tiny model;
# set the variables for your own; relative paths start at the root of the repository. Further key=value arguments override the file:
#   MODEL=/models/InternVL3_5-30B-A3B DATA=train.jsonl DATA_DIR=images CUTOFF_LEN=4096 \
#     examples/internvl3.5/finetune_internvl3_5.sh training.lr=1e-5 training.train_iters=2000 training.save=out/run
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

MODEL=${MODEL:-examples/tiny/model}
DATA=${DATA:-examples/tiny/data/train.jsonl}
DATA_DIR=${DATA_DIR:-examples/tiny/data}
CUTOFF_LEN=${CUTOFF_LEN:-256}
NPROC=${NPROC:-2}
SHARDLOOM=${SHARDLOOM:-build/release/bin/shardloom}

command -v "$SHARDLOOM" >/dev/null || { echo "$SHARDLOOM is not there: run scripts/build.sh, or set SHARDLOOM" >&2; exit 2; }

# On Ascend NPUs the environment of the reference's script, unless it is set already; README.md says what each does.
if command -v npu-smi >/dev/null; then
  export TASK_QUEUE_ENABLE=${TASK_QUEUE_ENABLE:-2} CPU_AFFINITY_CONF=${CPU_AFFINITY_CONF:-1}
  export PYTORCH_NPU_ALLOC_CONF=${PYTORCH_NPU_ALLOC_CONF:-expandable_segments:True}
  export MULTI_STREAM_MEMORY_REUSE=${MULTI_STREAM_MEMORY_REUSE:-1} CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-2}
  export HCCL_CONNECT_TIMEOUT=${HCCL_CONNECT_TIMEOUT:-1200}
fi

exec "$SHARDLOOM" train examples/internvl3.5/internvl3_5_config.yaml \
  "model.model_name_or_path=$MODEL" \
  "data.dataset_param.basic_parameters.dataset=$DATA" \
  "data.dataset_param.basic_parameters.dataset_dir=$DATA_DIR" \
  "data.dataset_param.basic_parameters.cutoff_len=$CUTOFF_LEN" \
  "$@" --nproc "$NPROC"

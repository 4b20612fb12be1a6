#!/usr/bin/env bash
# Builds the fuzz targets with clang and runs each for a while; stops at the first finding.
#
#   scripts/fuzz.sh [SECONDS [NAME ...]]    default: 60 seconds for each fuzz/*_fuzz.cpp
# Inputs found are kept in build/fuzz/corpus/NAME; a finding is written to build/fuzz/findings/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Real inputs to start from, below tests/data.
declare -A seeds=(
  [image_fuzz]=images [safetensors_fuzz]=checkpoint/safetensors [config_yaml_fuzz]=config [jsonl_fuzz]=dataset
  [dcp_pickle_fuzz]=dcp [dcp_zip_fuzz]=dcp [run_log_fuzz]=logs
)

seconds="${1:-60}"
names=("${@:2}")
if ((${#names[@]} == 0)); then
  for source in fuzz/*_fuzz.cpp; do names+=("$(basename "$source" .cpp)"); done
fi

scripts/setup.sh --fuzz
export CMAKE_BUILD_PARALLEL_LEVEL="${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}"
cmake --preset fuzz
cmake --build --preset fuzz --target "${names[@]}"
mkdir -p build/fuzz/findings
for name in "${names[@]}"; do
  mkdir -p "build/fuzz/corpus/$name"
  folders=("build/fuzz/corpus/$name")
  if [[ -n "${seeds[$name]:-}" ]]; then folders+=("tests/data/${seeds[$name]}"); fi
  echo "fuzz: $name for $seconds s"
  "build/fuzz/bin/$name" "-max_total_time=$seconds" -timeout=10 -rss_limit_mb=4096 -print_final_stats=1 \
    "-artifact_prefix=build/fuzz/findings/$name-" "${folders[@]}" 2>"build/fuzz/$name.log" ||
    { tail -n 60 "build/fuzz/$name.log" >&2; exit 1; }
  grep -E 'number_of_executed_units|peak_rss_mb' "build/fuzz/$name.log"
done
echo "fuzz: no findings in ${#names[@]} targets"

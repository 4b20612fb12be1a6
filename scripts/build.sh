#!/usr/bin/env bash
# Sets up what is missing, configures and builds into build/release. A second run rebuilds nothing.
#
#   scripts/build.sh [TARGET ...]    default: everything; bin/shardloom is the program alone
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/setup.sh
export CMAKE_BUILD_PARALLEL_LEVEL="${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}"
cmake --preset release
cmake --build --preset release ${1:+--target "$@"}

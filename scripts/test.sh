#!/usr/bin/env bash
# Sets up, builds and runs all tests; arguments go to ctest, as in: scripts/test.sh -L unit -R tokenizer
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/build.sh
ctest --preset release "$@"

#!/usr/bin/env bash
# Installs what building and testing need: Debian packages through apt, libtorch from PyPI wheels into .deps/.
# Only what is missing is installed; downloads are kept in the user's cache folder, so that another clone needs none.
#
#   scripts/setup.sh [--fuzz]        --fuzz: also clang with libFuzzer
#   SHARDLOOM_TORCH_DIR=DIR          use this installed torch (>= 2.11) and download nothing
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages=(
  g++ cmake ninja-build ccache pkg-config python3
  libyaml-cpp-dev nlohmann-json3-dev libcli11-dev libpcre2-dev libutf8proc-dev libprotozero-dev libxxhash-dev
  nettle-dev zlib1g-dev libjpeg-dev libpng-dev libwebp-dev libgtest-dev libgmock-dev libbenchmark-dev
)

cache="${XDG_CACHE_HOME:-$HOME/.cache}/shardloom"

# name, version, file, sha256 of each wheel
torch_wheel=(torch 2.11.0 torch-2.11.0-cp311-cp311-manylinux_2_28_x86_64.whl
  7aa2f9bbc6d4595ba72138026b2074be1233186150e9292865e04b7a63b8c67a)
cudart_wheel=(nvidia-cuda-runtime 13.0.96
  nvidia_cuda_runtime-13.0.96-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl
  7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548)
cupti_wheel=(nvidia-cuda-cupti 13.0.85 nvidia_cuda_cupti-13.0.85-py3-none-manylinux_2_25_x86_64.whl
  4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8)

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# Installs those of the named Debian packages that are missing.
install_packages() {
  local missing=() package apt=(apt-get)
  for package in "$@"; do
    [[ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" == installed ]] || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  command -v apt-get >/dev/null || fail "apt-get not found; install by hand: ${missing[*]}"
  if ((EUID != 0)); then
    command -v sudo >/dev/null || fail "not root and no sudo; as root: apt-get install ${missing[*]}"
    apt=(sudo env DEBIAN_FRONTEND=noninteractive apt-get)
  fi
  export DEBIAN_FRONTEND=noninteractive
  say "installing Debian packages: ${missing[*]}"
  if [[ -z "${lists_updated:-}" ]]; then
    "${apt[@]}" update -qq || say "apt-get update failed; trying with the lists at hand"
    lists_updated=yes
  fi
  "${apt[@]}" install -y -qq --no-install-recommends "${missing[@]}"
}

# Sets `python` to a python3 that has pip (the first in PATH may be one without).
find_pip() {
  local candidate
  while read -r candidate; do
    if "$candidate" -m pip --version >/dev/null 2>&1; then
      python="$candidate"
      return 0
    fi
  done < <(type -aP python3)
  return 1
}

has_sha256() { [[ -f "$1" ]] && sha256sum --check --status <<<"$2  $1"; }

# fetch_wheel NAME VERSION FILE SHA256: puts the wheel into the cache, downloading it only when absent or damaged.
fetch_wheel() {
  local name="$1" version="$2" file="$3" sha256="$4" partial="$cache/partial"
  has_sha256 "$cache/wheels/$file" "$sha256" && return 0
  find_pip || { install_packages python3-pip && hash -r && find_pip; } || fail "no python3 with pip"
  say "downloading $name $version into $cache/wheels"
  rm -rf "$partial"
  mkdir -p "$partial" "$cache/wheels"
  "$python" -m pip download --no-cache-dir --disable-pip-version-check --no-deps --only-binary=:all: \
    --python-version 3.11 --platform manylinux_2_28_x86_64 --platform manylinux_2_25_x86_64 \
    --platform manylinux2014_x86_64 --dest "$partial" "$name==$version"
  has_sha256 "$partial/$file" "$sha256" || fail "$partial/$file is missing or its SHA-256 is not $sha256"
  mv "$partial/$file" "$cache/wheels/$file"
  rm -rf "$partial"
}

# unpack WHEEL PREFIX DEST PATTERN...: writes the members that match a pattern to DEST, without PREFIX.
unpack() {
  python3 - "$@" <<'PYTHON'
import fnmatch, os, shutil, sys, zipfile

wheel, prefix, dest, *patterns = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    for member in archive.infolist():
        name = member.filename
        if member.is_dir() or not any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
            continue
        target = os.path.join(dest, name.removeprefix(prefix))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with archive.open(member) as source, open(target, "wb") as out:
            shutil.copyfileobj(source, out, 1 << 20)
PYTHON
}

# A folder below .deps is complete when its .stamp names the wheels that it came from; it appears under its name only then.
is_complete() { [[ "$(cat ".deps/$1/.stamp" 2>/dev/null)" == "$2" ]]; }
publish() {
  echo "$2" >".deps/$1.partial/.stamp"
  rm -rf ".deps/$1"
  mv ".deps/$1.partial" ".deps/$1"
}

install_torch() {
  local stamp="torch ${torch_wheel[1]} ${torch_wheel[3]}"
  is_complete torch "$stamp" && return 0
  fetch_wheel "${torch_wheel[@]}"
  say "unpacking libtorch ${torch_wheel[1]} into .deps/torch (1 GB)"
  rm -rf .deps/torch.partial
  unpack "$cache/wheels/${torch_wheel[2]}" torch/ .deps/torch.partial 'torch/include/*' 'torch/lib/*' 'torch/share/*'
  rm -f .deps/torch.partial/lib/libtorch_python.so
  publish torch "$stamp"
}

# libtorch_cpu.so of the wheel is linked against these two, also on machines without a GPU; its own RPATH looks for them
# in ../../nvidia/cu13/lib.
install_cuda_runtime() {
  local stamp="cudart ${cudart_wheel[1]} ${cudart_wheel[3]} cupti ${cupti_wheel[1]} ${cupti_wheel[3]}"
  is_complete nvidia "$stamp" && return 0
  fetch_wheel "${cudart_wheel[@]}"
  fetch_wheel "${cupti_wheel[@]}"
  say "unpacking libcudart and libcupti into .deps/nvidia"
  rm -rf .deps/nvidia.partial
  unpack "$cache/wheels/${cudart_wheel[2]}" nvidia/ .deps/nvidia.partial 'nvidia/cu13/lib/libcudart.so.13'
  unpack "$cache/wheels/${cupti_wheel[2]}" nvidia/ .deps/nvidia.partial 'nvidia/cu13/lib/libcupti.so.13'
  publish nvidia "$stamp"
}

case "${1:-}" in
  "") ;;
  --fuzz) packages+=(clang libclang-rt-14-dev) ;;
  *) fail "unknown option $1; usage: scripts/setup.sh [--fuzz]" ;;
esac

install_packages "${packages[@]}"
if [[ -n "${SHARDLOOM_TORCH_DIR:-}" ]]; then
  [[ -f "$SHARDLOOM_TORCH_DIR/lib/libtorch_cpu.so" ]] ||
    fail "SHARDLOOM_TORCH_DIR=$SHARDLOOM_TORCH_DIR has no lib/libtorch_cpu.so"
  say "using torch in $SHARDLOOM_TORCH_DIR"
else
  [[ "$(uname -m)" == x86_64 ]] ||
    fail "the pinned wheels are for x86_64; set SHARDLOOM_TORCH_DIR to an installed torch >= 2.11"
  mkdir -p .deps "$cache"
  # Two set-ups at once (two clones share the cache) take turns.
  exec 9>"$cache/lock"
  flock 9
  install_torch
  install_cuda_runtime
fi
say "everything is in place"

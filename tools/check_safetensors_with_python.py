#!/usr/bin/env python3
"""Reads safetensors files or Hugging Face folders with the Python packages safetensors and torch, as users will.

  check_safetensors_with_python.py PATH           every tensor loads; prints name, dtype, shape, SHA-256 of its bytes
  check_safetensors_with_python.py PATH OTHER     both hold the same tensors, bit for bit
"""

import argparse
import hashlib
import json
import pathlib
import sys

import torch
from safetensors import safe_open

INDEX = "model.safetensors.index.json"


def tensors_of_file(path, wanted=None):
    described = {}
    with safe_open(path, framework="pt") as file:
        for name in file.keys() if wanted is None else wanted:
            tensor = file.get_tensor(name).contiguous()
            raw = tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
            described[name] = (str(tensor.dtype), list(tensor.shape), hashlib.sha256(raw).hexdigest())
    return described


def tensors_of(path):
    """Name -> (dtype, shape, SHA-256), through the index where there is one."""
    if path.is_file():
        return tensors_of_file(path)
    if not (path / INDEX).exists():
        return tensors_of_file(path / "model.safetensors")
    names_of_file = {}
    for name, file in json.loads((path / INDEX).read_text())["weight_map"].items():
        names_of_file.setdefault(file, []).append(name)
    described = {}
    for file, names in names_of_file.items():
        described.update(tensors_of_file(path / file, names))
    return described


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=pathlib.Path)
    parser.add_argument("other", type=pathlib.Path, nargs="?")
    args = parser.parse_args()
    tensors = tensors_of(args.path)
    if args.other is None:
        for name, (dtype, shape, digest) in sorted(tensors.items()):
            print(f"{name} {dtype} {shape} {digest}")
        return 0
    others = tensors_of(args.other)
    differing = [n for n in sorted(tensors.keys() | others.keys()) if tensors.get(n) != others.get(n)]
    for name in differing:
        print(f"{name}: {tensors.get(name)} / {others.get(name)}")
    print(f"{len(tensors)} and {len(others)} tensors, {len(differing)} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())

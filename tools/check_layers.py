#!/usr/bin/env python3
"""Checks the house rules that a compiler does not see; prints `ok`, or one line per violation and exits 1.

    tools/check_layers.py [ROOT]

Rules: includes follow the arrows between rooms (docs/architecture.md), torch stays out of the torch-free rooms,
torch/torch.h is included nowhere, quoted includes are relative to the root and exist, files stay small.
"""

import pathlib
import re
import sys

# room -> rooms that it may include directly; what those may include, it may include too.
ARROWS = {
    "base": [],
    "config": ["base"],
    "ops": ["base"],
    "nn": ["ops"],
    "loss": ["ops"],
    "models": ["nn", "loss"],
    "tokenizer": ["base"],
    "data": ["tokenizer", "config"],
    "distributed": ["base"],
    "parallel": ["distributed", "nn"],
    "features": ["distributed", "nn"],
    "optim": ["distributed"],
    "checkpoint": ["distributed", "nn"],
    "trainer": ["config", "models", "data", "optim", "checkpoint", "parallel", "features"],
    "study": ["base", "config"],
    "cli": ["trainer", "study"],
}

TORCH_FREE = (
    "shardloom/base/",
    "shardloom/config/",
    "shardloom/tokenizer/",
    "shardloom/data/",
    "shardloom/trainer/metrics",
    "shardloom/optim/lr_schedule",
    "shardloom/optim/exact_sum",
    "shardloom/distributed/launcher",
    "shardloom/checkpoint/dcp/",
    "shardloom/study/",
)
TORCH_HEADERS = ("ATen/", "torch/", "c10/")

SOURCE_FOLDERS = ("shardloom", "apps", "tests", "benchmarks", "fuzz", "examples")
SUFFIXES = {".h", ".cpp"}
MAX_LINES = 600
WARN_LINES = 450

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def reachable(room):
    """All rooms that `room` may include, itself among them."""
    seen = set()
    open_rooms = [room]
    while open_rooms:
        current = open_rooms.pop()
        if current not in seen:
            seen.add(current)
            open_rooms += ARROWS[current]
    return seen


ALLOWED = {room: reachable(room) for room in ARROWS}


def room_of(path):
    """The room of a root-relative path below shardloom/, else None."""
    parts = path.split("/")
    return parts[1] if parts[0] == "shardloom" and len(parts) > 2 else None


def check_include(root, path, quote, header):
    """Yields what is wrong with one include of the file `path`."""
    if header == "torch/torch.h":
        yield "torch/torch.h costs 25 s a file; include the ATen or torch/csrc header that is needed"
    if header.startswith(TORCH_HEADERS) and path.startswith(TORCH_FREE):
        yield f"{header} in a torch-free place"
    if quote == '"' and not header.startswith(tuple(f"{folder}/" for folder in SOURCE_FOLDERS)):
        yield f'"{header}" is not relative to the root'
    elif quote == '"' and not (root / header).is_file():
        yield f'"{header}" does not exist'
    if quote == "<" and header.startswith("shardloom/"):
        yield f"<{header}> is ours and wants quotes"
    room, target = room_of(path), room_of(header)
    if room in ALLOWED and target is not None and target not in ALLOWED[room]:
        yield f"{room} may not include {target} ({header})"


def check_file(root, path):
    """Returns the violations and warnings of one file, each as "path:line: text"."""
    violations, warnings = [], []
    lines = (root / path).read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        match = INCLUDE.match(line)
        if match:
            violations += [f"{path}:{number}: {text}" for text in check_include(root, path, *match.groups())]
    room = room_of(path)
    if room is not None and room not in ARROWS:
        violations.append(f"{path}:1: room {room} is not in the table of {pathlib.Path(__file__).name}")
    if len(lines) > MAX_LINES:
        violations.append(f"{path}:{len(lines)}: {len(lines)} lines, at most {MAX_LINES}")
    elif len(lines) > WARN_LINES:
        warnings.append(f"{path}:{len(lines)}: {len(lines)} lines, split it before {MAX_LINES}")
    return violations, warnings


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    files = sorted(
        file.relative_to(root).as_posix()
        for folder in SOURCE_FOLDERS
        for file in (root / folder).rglob("*")
        if file.suffix in SUFFIXES and file.is_file()
    )
    if not files:
        sys.exit(f"{root}: no source files in {', '.join(SOURCE_FOLDERS)}")
    violations = []
    for path in files:
        found, warnings = check_file(root, path)
        violations += found
        for warning in warnings:
            print(f"warning: {warning}", file=sys.stderr)
    if violations:
        print("\n".join(violations))
        sys.exit(f"{len(violations)} violations in {len(files)} files")
    print("ok")


if __name__ == "__main__":
    main()

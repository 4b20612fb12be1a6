#!/usr/bin/env python3
"""Compares our distributed checkpoints (DCP) with PyTorch's, both ways and exactly. Needs torch.

  check_dcp_with_torch.py PROGRAM [--big BYTES]      PROGRAM: build/release/bin/dcp_sample

Ours, written for 1, 2 and 3 ranks: torch.distributed.checkpoint.load into plain tensors, into DTensors on 2 ranks, and
dcp_to_torch_save. PyTorch's, written on 1 and 2 ranks: every tensor and value that PROGRAM reads. With --big, ours also
holds one tensor of that many bytes (more than 4 GiB are of interest).
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

DTYPES = {
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "I16": torch.int16, "U16": torch.uint16, "I32": torch.int32,
    "U32": torch.uint32, "I64": torch.int64, "U64": torch.uint64, "F16": torch.float16, "BF16": torch.bfloat16,
    "F32": torch.float32, "F64": torch.float64, "C64": torch.complex64, "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E8M0": torch.float8_e8m0fnu, "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
}  # fmt: skip
NAMES = {dtype: name for name, dtype in DTYPES.items()}
# Those of which gloo can spread a DTensor.
MOVABLE = ("F32", "F64", "I64", "I32", "U8", "I8", "BF16", "F16")

VALUES = {
    "int": 123456789012, "float": 1e-08, "text": "h\u00e9llo", "none": None, "true": True, "bytes": b"a\xff",
    "tuple": (0.9, 0.95), "names": ["a", "b", "a"],
}  # fmt: skip
GROUPS = [{"lr": 0.001}, {"lr": ({"x": -1},)}]

checked = 0


def expect(what, seen, wanted):
    global checked
    checked += 1
    if seen != wanted:
        sys.exit(f"{what}: {str(seen)[:200]} where {str(wanted)[:200]} is right")


def raw(tensor):
    """Bytes of a dense tensor of any dtype."""
    return bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).tolist()) if tensor.numel() else b""


def sample_tensor(dtype, shape):
    """What dcp_sample writes: byte i is known."""
    count = dtype.itemsize * int(torch.Size(shape).numel())
    step = torch.arange(count, dtype=torch.int64)
    data = (step % 3 % 2 if dtype == torch.bool else step * 7 % 251).to(torch.uint8)
    return data.view(dtype).reshape(shape) if count else torch.empty(shape, dtype=dtype)


def sample_state():
    """The whole of dcp_sample's checkpoint."""
    state = {"rows": {}, "columns": {}, "scalar": {}, "values": VALUES, "groups": GROUPS}
    for name, dtype in DTYPES.items():
        state["rows"][name] = sample_tensor(dtype, (5, 3))
        state["columns"][name] = sample_tensor(dtype, (5, 3))
        state["scalar"][name] = sample_tensor(dtype, ())
    state["rows"]["one"] = sample_tensor(torch.float32, (1, 4))
    state["rows"]["none"] = sample_tensor(torch.float32, (0, 4))
    return state


def sample_views():
    """Tensors that PyTorch keeps with strides, an offset, or as a parameter."""
    base = sample_tensor(torch.float32, (5, 3))
    return {"transposed": base.t(), "slice": base[1:, 1:], "column": base[:, 2], "expanded": base[:1].expand(4, 3),
            "parameter": torch.nn.Parameter(base)}  # fmt: skip


def blank(state):
    """The same nested state without its content."""
    if isinstance(state, dict):
        return {key: blank(value) for key, value in state.items()}
    if isinstance(state, list) and state and isinstance(state[0], dict):
        return [blank(value) for value in state]
    if isinstance(state, DTensor):
        return DTensor.from_local(
            torch.zeros_like(state.to_local()), state.device_mesh, state.placements, shape=state.shape, stride=state.stride()
        )
    return torch.zeros_like(state) if isinstance(state, torch.Tensor) else "blank"


def compare(what, seen, wanted):
    if isinstance(wanted, dict):
        expect(f"{what}: keys", sorted(seen), sorted(wanted))
        for key, value in wanted.items():
            compare(f"{what}.{key}", seen[key], value)
    elif isinstance(wanted, torch.Tensor):
        local = [t.to_local() if isinstance(t, DTensor) else t for t in (seen, wanted)]
        expect(f"{what}: dtype", seen.dtype, wanted.dtype)
        expect(f"{what}: shape", local[0].shape, local[1].shape)
        expect(what, raw(local[0]), raw(local[1]))
    elif isinstance(wanted, list) and wanted and isinstance(wanted[0], dict):
        expect(f"{what}: length", len(seen), len(wanted))
        for i, value in enumerate(wanted):
            compare(f"{what}.{i}", seen[i], value)
    else:
        expect(what, seen, wanted)


def start_rank(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    return init_device_mesh("cpu", (world,))


def sharded(state, mesh):
    """DTensors where our sample is cut: rows along 0, columns along 1."""
    state = dict(state)
    for key, dim in (("rows", 0), ("columns", 1)):
        state[key] = {n: distribute_tensor(t, mesh, [Shard(dim)]) for n, t in state[key].items() if n in MOVABLE}
    return state


def load_on_rank(rank, world, port, folder):
    mesh = start_rank(rank, world, port)
    wanted = sharded(sample_state(), mesh)
    loaded = blank(wanted)
    dcp.load(loaded, checkpoint_id=folder)
    compare(f"rank {rank}", loaded, wanted)
    dist.destroy_process_group()


def save_on_rank(rank, world, port, folder):
    mesh = start_rank(rank, world, port)
    state = sample_state()
    dcp.save({**state, "dtensors": sharded(state, mesh)["rows"], "views": sample_views()}, checkpoint_id=folder)
    dist.destroy_process_group()


def check_ours(program, folder, ranks):
    subprocess.run([program, "write", folder, str(ranks)], check=True)
    wanted = sample_state()
    loaded = blank(wanted)
    dcp.load(loaded, checkpoint_id=folder, no_dist=True)
    compare(f"ours of {ranks} ranks", loaded, wanted)
    dcp_to_torch_save(folder, f"{folder}.pt")
    compare(f"ours of {ranks} ranks, dcp_to_torch_save", torch.load(f"{folder}.pt", weights_only=False), wanted)
    mp.spawn(load_on_rank, args=(2, 29400 + os.getpid() % 500, folder), nprocs=2)


def check_theirs(program, folder, ranks):
    mp.spawn(save_on_rank, args=(ranks, 29900 + os.getpid() % 500, folder), nprocs=ranks)
    lines = subprocess.run([program, "dump", folder], check=True, capture_output=True, text=True).stdout.splitlines()
    seen = {line["name"]: line for line in map(json.loads, lines)}
    state = sample_state()
    groups = {key: state[key] for key in ("rows", "columns", "scalar")}
    groups["views"] = sample_views()
    groups["dtensors"] = {name: state["rows"][name] for name in MOVABLE}
    for key, tensors in groups.items():
        for name, tensor in tensors.items():
            line = seen.pop(f"{key}.{name}")
            what = f"PyTorch's of {ranks} ranks, {key}.{name}"
            expect(f"{what}: dtype", line["dtype"], NAMES[tensor.dtype])
            expect(f"{what}: shape", line["shape"], list(tensor.shape))
            expect(what, bytes.fromhex(line["hex"]), raw(tensor))
            expect(f"{what}: chunks", line["chunks"], ranks if key == "dtensors" else 1)
    values = {f"values.{name}": value for name, value in VALUES.items()}
    values.update({f"groups.{i}.lr": group["lr"] for i, group in enumerate(GROUPS)})
    for name, value in values.items():
        expect(f"PyTorch's of {ranks} ranks, {name}", seen.pop(name)["value"], repr(value))
    expect("names left", sorted(seen), [])


def check_big(program, folder, size):
    subprocess.run([program, "write", folder, "1", str(size)], check=True)
    loaded = {"rows": {"big": torch.zeros(size, dtype=torch.uint8), "one": torch.zeros(1, 4)}}
    dcp.load(loaded, checkpoint_id=folder, no_dist=True)
    big = loaded["rows"]["big"]
    piece = 251 * (1 << 20)
    pattern = sample_tensor(torch.uint8, (piece,))
    for at in range(0, size, piece):
        end = min(at + piece, size)
        expect(f"byte {at} of the big tensor", torch.equal(big[at:end], pattern[: end - at]), True)
    expect("the tensor behind the big one", raw(loaded["rows"]["one"]), raw(sample_tensor(torch.float32, (1, 4))))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--big", type=int, default=0, metavar="BYTES")
    args = parser.parse_args()
    program = str(args.program.resolve())
    with tempfile.TemporaryDirectory() as folder:
        if args.big:
            check_big(program, f"{folder}/big", args.big)
        else:
            for ranks in (1, 2, 3):
                check_ours(program, f"{folder}/ours{ranks}", ranks)
            for ranks in (1, 2):
                check_theirs(program, f"{folder}/theirs{ranks}", ranks)
    print(f"torch {torch.__version__}: {checked} comparisons, all equal")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Training checkpoints between shardloom and PyTorch, both ways and exactly. Needs torch and safetensors.

  interop_pytorch.py BIN [--ranks 1 2 4]      BIN: build/release/bin, with shardloom and dcp_sample

Ours: `shardloom train` saves on 1, 2 and 4 ranks (the tiny model of examples/). PyTorch loads everything into plain tensors
(torch.distributed.checkpoint.load) and converts it (dcp_to_torch_save); weights are compared with `shardloom convert dcp_to_hf`,
the rest with what dcp_sample reads.
PyTorch's: a module with the same parameters under fully_shard and AdamW saves on 1, 2 and 4 ranks; compared are every tensor and
value that dcp_sample reads, the weights that `shardloom convert dcp_to_hf` writes, and `shardloom train` goes on from it.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from safetensors.torch import load_file
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = ROOT / "examples" / "tiny" / "model"
CONFIG = ROOT / "tests" / "data" / "trajectory.yaml"
NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.int64: "I64", torch.uint8: "U8"}
STEPS = 2

checked = 0


def expect(what, seen, wanted):
    global checked
    checked += 1
    if seen != wanted:
        sys.exit(f"{what}: {str(seen)[:300]} where {str(wanted)[:300]} is right")


def expect_tensor(what, seen, wanted):
    expect(f"{what}: type", (seen.dtype, tuple(seen.shape)), (wanted.dtype, tuple(wanted.shape)))
    expect(what, raw(seen), raw(wanted))


def raw(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def run(*command):
    done = subprocess.run([str(word) for word in command], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


def train(binaries, ranks, folder, *overrides):
    run(binaries / "shardloom", "train", CONFIG, "training.micro_batch_size=1", f"training.gradient_accumulation_steps={4 // ranks}",
        f"training.metrics_dir={folder}_metrics", *overrides, "--nproc", ranks)  # fmt: skip


def what_we_read(binaries, folder):
    """Name -> line of our reader, for every tensor and value."""
    lines = run(binaries / "dcp_sample", "dump", folder).splitlines()
    return {line["name"]: line for line in map(json.loads, lines)}


def compare_tensors(what, lines, tensors):
    """Each of `tensors` is what our reader gives under its name; takes these lines away."""
    for name, tensor in tensors.items():
        line = lines.pop(name)
        expect(f"{what}, {name}: type", (line["dtype"], line["shape"]), (NAMES[tensor.dtype], list(tensor.shape)))
        expect(f"{what}, {name}", bytes.fromhex(line["hex"]), raw(tensor))


def split_experts(weights):
    """Fused experts as Hugging Face files keep them; the number of experts is that of the router's rows."""
    split = {}
    for name, tensor in weights.items():
        found = re.fullmatch(r"(.*\.mlp\.)experts\.(gate_up|down)_proj", name)
        if not found:
            split[name] = tensor
            continue
        experts = weights[found[1] + "gate.weight"].shape[0]
        for e, part in enumerate(tensor.view(experts, -1, tensor.shape[1])):
            one = f"{found[1]}experts.{e}."
            if found[2] == "down":
                split[one + "down_proj.weight"] = part.t()
            else:
                gate, up = part.t().chunk(2)
                split.update({one + "gate_proj.weight": gate, one + "up_proj.weight": up})
    return split


def compare_export(what, binaries, checkpoint, weights, folder):
    """`shardloom convert dcp_to_hf` writes these weights under the original's names."""
    run(binaries / "shardloom", "convert", "dcp_to_hf", "--hf_dir", MODEL, "--dcp_dir", checkpoint, "--save_dir", folder)
    exported = {}
    for file in pathlib.Path(folder).glob("*.safetensors"):
        exported.update(load_file(file))
    wanted = split_experts(weights)
    expect(f"{what}, exported names", sorted(exported), sorted(wanted))
    for name, tensor in wanted.items():
        expect_tensor(f"{what}, exported {name}", exported[name], tensor)


def load_plain(folder):
    """All tensors and values by name, read by PyTorch without any knowledge of the state."""
    metadata = dcp.FileSystemReader(folder).read_metadata().state_dict_metadata
    state = {
        name: torch.empty(entry.size, dtype=entry.properties.dtype) if isinstance(entry, TensorStorageMetadata) else None
        for name, entry in metadata.items()
    }
    dcp.load(state, checkpoint_id=folder, no_dist=True)
    return state


def flattened(state, prefix=""):
    """Leaves by dotted name, as the planner names them: a list is opened only when it holds tensors or dicts."""
    opened = isinstance(state, list) and any(isinstance(value, (dict, torch.Tensor)) for value in state)
    items = state.items() if isinstance(state, dict) else enumerate(state) if opened else None
    if items is None:
        return {prefix: state}
    leaves = {}
    for key, value in items:
        leaves.update(flattened(value, f"{prefix}.{key}" if prefix else str(key)))
    return leaves


def check_ours(binaries, work, ranks):
    what = f"ours of {ranks} ranks"
    root = work / f"ours{ranks}"
    train(binaries, ranks, root, f"training.train_iters={STEPS}", f"training.save={root}")
    checkpoint = root / f"iter_{STEPS:07}"
    loaded = load_plain(checkpoint)
    weights = {name.removeprefix("model."): value for name, value in loaded.items() if name.startswith("model.")}
    moments = [name for name in loaded if name.startswith("optimizer.state.") and name.endswith(".exp_avg")]
    expect(f"{what}: moments", len(moments), len(weights))
    expect(f"{what}: a moment that is not zero", any(loaded[name].abs().max() > 0 for name in moments), True)

    lines = what_we_read(binaries, checkpoint)
    expect(f"{what}: names", sorted(lines), sorted(loaded))
    compare_tensors(what, lines, {name: value for name, value in loaded.items() if isinstance(value, torch.Tensor)})
    for name, line in lines.items():
        expect(f"{what}, {name}", line["value"], repr(loaded[name]))
    compare_export(what, binaries, checkpoint, weights, work / f"ours{ranks}_hf")

    dcp_to_torch_save(checkpoint, work / f"ours{ranks}.pt")
    nested = torch.load(work / f"ours{ranks}.pt", weights_only=False)
    expect(f"{what}: outermost keys of dcp_to_torch_save", {"model", "optimizer"} <= set(nested), True)
    leaves = flattened(nested)
    expect(f"{what}: names of dcp_to_torch_save", sorted(leaves), sorted(loaded))
    for name, value in loaded.items():
        if isinstance(value, torch.Tensor):
            expect_tensor(f"{what}, dcp_to_torch_save, {name}", leaves[name], value)
        else:
            expect(f"{what}, dcp_to_torch_save, {name}", leaves[name], value)
    return {name: value.shape for name, value in weights.items()}


class Holder(torch.nn.Module):
    """Parameters of the given names; the loss touches each."""

    def add(self, name, shape):
        *modules, leaf = name.split(".")
        place = self
        for module in modules:
            if module not in place._modules:
                place.add_module(module, Holder())
            place = place._modules[module]
        place.register_parameter(leaf, torch.nn.Parameter(torch.randn(shape) * 0.02))

    def forward(self):
        return sum((p.float() ** 2).sum() for p in self.parameters())


def whole(state):
    if isinstance(state, dict):
        return {key: whole(value) for key, value in state.items()}
    return state.full_tensor() if isinstance(state, DTensor) else state


def save_on_rank(rank, ranks, port, shapes, root):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(ranks))
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    torch.manual_seed(7)
    model = Holder()
    for name, shape in shapes.items():
        model.add(name, shape)
    fully_shard(model, mesh=init_device_mesh("cpu", (ranks,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.01)
    for _ in range(STEPS):
        model().backward()
        optimizer.step()
        optimizer.zero_grad()
    state = {"model": get_model_state_dict(model), "optimizer": get_optimizer_state_dict(model, optimizer)}
    dcp.save(state, checkpoint_id=f"{root}/iter_{STEPS:07}")
    truth = whole(state)
    if rank == 0:
        torch.save(truth, f"{root}.truth.pt")
        (pathlib.Path(root) / "latest_checkpointed_iteration.txt").write_text(str(STEPS))
    dist.destroy_process_group()


def check_theirs(binaries, work, ranks, shapes):
    what = f"PyTorch's of {ranks} ranks"
    root = work / f"theirs{ranks}"
    mp.spawn(save_on_rank, args=(ranks, 29500 + os.getpid() % 400 + ranks, shapes, str(root)), nprocs=ranks)
    truth = torch.load(f"{root}.truth.pt", weights_only=False)
    checkpoint = root / f"iter_{STEPS:07}"
    leaves = flattened(truth)
    lines = what_we_read(binaries, checkpoint)
    expect(f"{what}: names", sorted(lines), sorted(leaves))
    compare_tensors(what, lines, {name: value for name, value in leaves.items() if isinstance(value, torch.Tensor)})
    for name, line in lines.items():
        expect(f"{what}, {name}", line["value"], repr(leaves[name]))
    compare_export(what, binaries, checkpoint, truth["model"], work / f"theirs{ranks}_hf")
    run(binaries / "shardloom", "inspect", root, "--verify")
    for more in (1, 2):
        train(binaries, more, f"{root}_{more}", f"training.load={root}", "training.load_format=dcp", "training.load_strict=true",
              "training.no_load_optim=false", "training.no_load_rng=true", f"training.train_iters={STEPS + 1}")  # fmt: skip
    rows = [metrics(f"{root}_{more}") for more in (1, 2)]
    expect(f"{what}: iterations after it", rows[0], rows[1])
    expect(f"{what}: first iteration after it", rows[0][0]["iteration"], STEPS + 1)


def metrics(folder):
    lines = (pathlib.Path(f"{folder}_metrics") / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return [{key: row[key] for key in ("iteration", "consumed_samples", "tokens")} for row in rows if "loss" in row]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binaries", metavar="BIN", type=pathlib.Path)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    args = parser.parse_args()
    binaries = args.binaries.resolve()
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        for ranks in args.ranks:
            shapes = check_ours(binaries, work, ranks)
            print(f"ours of {ranks} ranks: {checked} comparisons so far", flush=True)
            check_theirs(binaries, work, ranks, shapes)
            print(f"PyTorch's of {ranks} ranks: {checked} comparisons so far", flush=True)
    print(f"torch {torch.__version__}: {checked} comparisons, all equal")


if __name__ == "__main__":
    main()

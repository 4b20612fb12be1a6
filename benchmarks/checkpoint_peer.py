#!/usr/bin/env python3
"""The peer of checkpoint_bench and of `shardloom convert`: the same with PyTorch. Needs torch, safetensors.

    checkpoint_peer.py shards FOLDER [MIB]      one rank under RANK, WORLD_SIZE, ...: dcp.save, dcp.async_save and dcp.load of DTensors, as checkpoint_bench
    checkpoint_peer.py convert HF_DIR SAVE_DIR  the obvious conversion: load the shards, merge the experts of each layer, dcp.save
    checkpoint_peer.py make HF_DIR              a model of 1.5 GB to convert: 2 layers of 64 experts
"""

import json
import os
import pathlib
import re
import struct
import sys
import time

TINY = pathlib.Path(__file__).parent.parent / "examples" / "tiny" / "model"
TENSORS, COLUMNS = 16, 1024


def shards(folder, mib=1024):
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (size,))
    torch.manual_seed(rank)
    rows = (mib << 20) // TENSORS // COLUMNS // 4 // size

    def state(make):
        return {"model": {f"layer{i}.weight": DTensor.from_local(make(rows, COLUMNS), mesh, [Shard(0)]) for i in range(TENSORS)}}

    def seconds_of(action):
        dist.barrier()
        start = time.perf_counter()
        result = action()
        dist.barrier()
        return time.perf_counter() - start, result

    def measure(what, action):
        seconds, _ = seconds_of(action)
        if rank == 0:
            print(f"{what} {(mib << 20) / 1e9 / seconds:.3f} GB/s", flush=True)

    def measure_async():
        path = os.path.join(folder, "async")
        for what in ("first async save blocks", "async save blocks"):
            seconds, future = seconds_of(lambda: dcp.async_save(saved, checkpoint_id=path))
            if rank == 0:
                print(f"{what} {seconds * 1e3:.1f} ms", flush=True)
            future.result()
            dist.barrier()

    def load(what):
        target = state(torch.empty)
        measure(what, lambda: dcp.load(target, checkpoint_id=folder))
        for name, tensor in target["model"].items():
            assert torch.equal(tensor.to_local(), saved["model"][name].to_local()), name

    saved = state(torch.rand)
    measure("save", lambda: dcp.save(saved, checkpoint_id=folder))
    measure_async()
    for _ in range(2):
        load("load")
    if rank == 0:
        for file in pathlib.Path(folder).glob("*.distcp"):
            with open(file, "rb") as f:
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    load("load cold")
    dist.destroy_process_group()


def convert(hf_dir, save_dir):
    import torch
    import torch.distributed.checkpoint as dcp
    from safetensors.torch import load_file

    start = time.perf_counter()
    state = {}
    for file in sorted(pathlib.Path(hf_dir).glob("*.safetensors")):
        state.update(load_file(file))
    config = json.loads((pathlib.Path(hf_dir) / "config.json").read_text())["llm_config"]
    for layer in range(config["num_hidden_layers"]):
        experts = f"language_model.model.layers.{layer}.mlp.experts."
        gate_up, down = [], []
        for e in range(config["num_experts"]):
            pair = torch.cat([state.pop(f"{experts}{e}.gate_proj.weight"), state.pop(f"{experts}{e}.up_proj.weight")])
            gate_up.append(pair.t())
            down.append(state.pop(f"{experts}{e}.down_proj.weight").t())
        state[experts + "gate_up_proj"] = torch.stack(gate_up).flatten(0, 1)
        state[experts + "down_proj"] = torch.stack(down).flatten(0, 1)
    size = sum(t.numel() * t.element_size() for t in state.values())
    dcp.save({"model": state, "checkpoint_version": 3.0}, checkpoint_id=os.path.join(save_dir, "release"), no_dist=True)
    print(f"convert {size / 1e9 / (time.perf_counter() - start):.3f} GB/s", flush=True)


def make(hf_dir):
    experts, hidden, inner, layers, vocab = 64, 2048, 768, 2, 32000
    config = json.loads((TINY / "config.json").read_text())
    language = config["llm_config"]
    language.update(num_experts=experts, hidden_size=hidden, moe_intermediate_size=inner, num_hidden_layers=layers, vocab_size=vocab)
    shapes = {}
    for file in TINY.glob("*.safetensors"):
        with open(file, "rb") as f:
            header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        # The picture side stays tiny; of a decoder layer the small tensors are those of layer 0, only wider.
        for name, tensor in header.items():
            if name.startswith("vision_model."):
                shapes[name] = tensor["shape"]
            elif name.startswith("mlp1.") or re.search(r"layers\.0\.(?!mlp\.experts)", name):
                wide = {"mlp1.1.weight": [hidden, 256], "mlp1.3.weight": [hidden, hidden]}
                q, kv, head = 64, 32, 16
                leaf = name.split("layers.0.")[-1]
                by_leaf = {
                    "self_attn.q_proj.weight": [q, hidden], "self_attn.k_proj.weight": [kv, hidden],
                    "self_attn.v_proj.weight": [kv, hidden], "self_attn.o_proj.weight": [hidden, q],
                    "self_attn.q_norm.weight": [head], "self_attn.k_norm.weight": [head], "mlp.gate.weight": [experts, hidden],
                }  # fmt: skip
                shape = wide.get(name) or by_leaf.get(leaf) or (tensor["shape"] if name.startswith("mlp1.0") else [hidden])
                for layer in range(layers if "layers.0." in name else 1):
                    shapes[name.replace("layers.0.", f"layers.{layer}.")] = shape
    decoder = "language_model.model."
    shapes.update({decoder + "embed_tokens.weight": [vocab, hidden], "language_model.lm_head.weight": [vocab, hidden],
                   decoder + "norm.weight": [hidden]})  # fmt: skip
    for layer in range(layers):
        for e in range(experts):
            one = f"{decoder}layers.{layer}.mlp.experts.{e}."
            shapes.update({one + "gate_proj.weight": [inner, hidden], one + "up_proj.weight": [inner, hidden],
                           one + "down_proj.weight": [hidden, inner]})  # fmt: skip
    os.makedirs(hf_dir, exist_ok=True)
    (pathlib.Path(hf_dir) / "config.json").write_text(json.dumps(config))
    header, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 2
        for dim in shape:
            end = begin + (end - begin) * dim
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    block = os.urandom(1 << 24)
    with open(pathlib.Path(hf_dir) / "model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for at in range(0, end, len(block)):
            f.write(block[: min(len(block), end - at)])


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "shards":
        shards(arguments[0], *map(int, arguments[1:]))
    else:
        {"convert": convert, "make": make}[command](*arguments)

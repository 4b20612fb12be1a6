#!/usr/bin/env python3
"""Trains a few steps, exports, loads the export in transformers and compares logits; from and to both layouts.

    python tools/check_export_with_transformers.py build/release/bin     (needs torch, transformers 5 and safetensors)

Not part of the test suite, which needs no Python packages.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from transformers import InternVLConfig, InternVLForConditionalGeneration

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = ROOT / "examples/tiny/model"
BATCH = ROOT / "tests/data/golden/moe/forward.safetensors"
RENAMES = [
    (r"^mlp1\.0\.", "multi_modal_projector.layer_norm."), (r"^mlp1\.1\.", "multi_modal_projector.linear_1."),
    (r"^mlp1\.3\.", "multi_modal_projector.linear_2."),
    (r"^vision_model\.embeddings\.class_embedding", "vision_tower.embeddings.cls_token"),
    (r"^vision_model\.embeddings\.patch_embedding\.", "vision_tower.embeddings.patch_embeddings.projection."),
    (r"^vision_model\.embeddings\.position_embedding", "vision_tower.embeddings.position_embeddings"),
    (r"^vision_model\.encoder\.layers\.", "vision_tower.encoder.layer."), (r"\.attn\.proj\.", ".attention.projection_layer."),
    (r"\.norm1\.", ".layernorm_before."), (r"\.norm2\.", ".layernorm_after."), (r"\.ls1$", ".lambda_1"), (r"\.ls2$", ".lambda_2"),
]


def hf_config(config, image_token_id):
    vision = dict(config["vision_config"])
    side = config["force_image_size"]
    return {
        "model_type": "internvl", "architectures": ["InternVLForConditionalGeneration"], "image_token_id": image_token_id,
        "downsample_ratio": config["downsample_ratio"], "tie_word_embeddings": False, "torch_dtype": "float32",
        "text_config": dict(config["llm_config"], tie_word_embeddings=False, torch_dtype="float32"),
        "vision_config": {
            "hidden_size": vision["hidden_size"], "num_hidden_layers": vision["num_hidden_layers"],
            "num_attention_heads": vision["num_attention_heads"], "intermediate_size": vision["intermediate_size"],
            "image_size": [side, side], "patch_size": [vision["patch_size"]] * 2, "attention_bias": vision["qkv_bias"],
            "layer_norm_eps": vision["layer_norm_eps"], "norm_type": "layer_norm", "layer_scale_init_value": 0.1,
        },
    }


def to_hf_layout(source, target):
    """The published converter's renames, written down once more from the layout tables."""
    shutil.copytree(source, target)
    weights = {}
    for file in sorted(target.glob("*.safetensors")):
        weights.update(load_file(file))
        file.unlink()
    (target / "model.safetensors.index.json").unlink()
    renamed = {}
    for name, value in weights.items():
        for pattern, new in RENAMES:
            name = re.sub(pattern, new, name)
        if ".attn.qkv." in name:
            for part, rows in zip("qkv", value.chunk(3)):
                renamed[name.replace(".attn.qkv.", f".attention.{part}_proj.")] = rows.contiguous()
        else:
            renamed[name] = value
    save_file(renamed, target / "model.safetensors", metadata={"format": "pt"})
    image_token_id = json.loads((target / "added_tokens.json").read_text())["<IMG_CONTEXT>"]
    config = hf_config(json.loads((target / "config.json").read_text()), image_token_id)
    (target / "config.json").write_text(json.dumps(config, indent=2))


def compare(folder, bin_dir, work, label):
    ours = work / f"{label}.safetensors"
    subprocess.run([bin_dir / "print_logits", folder, BATCH, ours], check=True)
    batch = load_file(BATCH)
    model = InternVLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], pixel_values=batch["pixel_values"]).logits
    difference = ((logits - load_file(ours)["logits"]).abs() * batch["attention_mask"].unsqueeze(-1)).max().item()
    print(f"{label}: largest difference of the logits {difference:.2e}")
    if not difference < 1e-4:
        sys.exit(f"{label}: transformers computes other logits")


def train(bin_dir, model, save, layout="auto"):
    subprocess.run([bin_dir / "shardloom", "train", "tests/data/trajectory.yaml", "training.train_iters=20", "training.lr_warmup_ratio=0.0",
                    f"model.model_name_or_path={model}", f"training.load={model}", f"training.save={save}",
                    "training.save_format=hf", f"training.save_hf_layout={layout}", f"training.metrics_dir={save}/metrics"], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    return save / "iter_0000020"


def main():
    bin_dir = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        to_hf_layout(MODEL, work / "hf")
        compare(work / "hf", bin_dir, work, "hf layout as given")
        compare(train(bin_dir, work / "hf", work / "a"), bin_dir, work, "hf layout after 20 steps")
        remote = train(bin_dir, MODEL, work / "b")
        to_hf_layout(remote, work / "b_hf")
        compare(work / "b_hf", bin_dir, work, "remote-code layout after 20 steps")
        compare(train(bin_dir, MODEL, work / "c", "hf"), bin_dir, work, "remote-code layout, exported as hf")
        back = train(bin_dir, work / "hf", work / "d", "remote_code")
        to_hf_layout(back, work / "d_hf")
        compare(work / "d_hf", bin_dir, work, "hf layout, exported as remote code")


main()

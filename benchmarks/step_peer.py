"""The peer of step_bench: transformers' InternVL with the same shapes, in one process of plain PyTorch, or, under RANK and
WORLD_SIZE (compare_pytorch.sh), sharded with PyTorch's fully_shard over gloo.

    OMP_NUM_THREADS=1 python step_peer.py [tiny|mini] [fp32|bf16] [steps] [foreach|fused]

Needs torch and transformers 5; experts run through grouped_mm, the fastest way transformers has on a CPU.
"""
import contextlib
import os
import resource
import statistics
import sys
import time

START = time.time()

import torch
from transformers import InternVLConfig, InternVLForConditionalGeneration

SHAPES = {
    "mini": dict(batch=1, seq=512, image=224, tokens=64, image_id=8190, vision=dict(hidden_size=256, num_hidden_layers=6, num_attention_heads=8,
                 intermediate_size=1024), text=dict(vocab_size=8192, hidden_size=512, num_hidden_layers=4, num_attention_heads=8,
                 num_key_value_heads=2, head_dim=64, moe_intermediate_size=192, num_experts=64, num_experts_per_tok=8)),
    "tiny": dict(batch=2, seq=256, image=112, tokens=16, image_id=762, vision=dict(hidden_size=64, num_hidden_layers=3, num_attention_heads=4,
                 intermediate_size=256), text=dict(vocab_size=864, hidden_size=64, num_hidden_layers=4, num_attention_heads=4,
                 num_key_value_heads=2, head_dim=16, moe_intermediate_size=32, num_experts=8, num_experts_per_tok=2)),
}


def shard(model, dtype):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    policy = MixedPrecisionPolicy(param_dtype={"fp32": torch.float32, "bf16": torch.bfloat16}[dtype], reduce_dtype=torch.float32)
    core = model.model
    for unit in [core.vision_tower.embeddings, core.vision_tower.encoder, core.multi_modal_projector, *core.language_model.layers,
                 model.lm_head]:
        fully_shard(unit, mp_policy=policy)
    fully_shard(model, mp_policy=policy)


def main():
    args = sys.argv[1:] + [None] * 4
    name, dtype, steps, adam = args[0] or "mini", args[1] or "fp32", int(args[2] or 8), args[3] or "foreach"
    s = SHAPES[name]
    config = InternVLConfig(
        vision_config=dict(s["vision"], image_size=[s["image"]] * 2, patch_size=[14, 14], attention_bias=True),
        text_config=dict(s["text"], model_type="qwen3_moe", norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[],
                         intermediate_size=1536, tie_word_embeddings=False),
        image_token_id=s["image_id"], tie_word_embeddings=False)
    torch.manual_seed(42)
    config._attn_implementation = "sdpa"
    model = InternVLForConditionalGeneration(config).float()
    model.model.language_model.set_experts_implementation("grouped_mm")
    model.train()
    ranks = int(os.environ.get("WORLD_SIZE", 1))
    rank = int(os.environ.get("RANK", 0))
    if ranks > 1:
        torch.distributed.init_process_group("gloo")
        shard(model, dtype)
        torch.manual_seed(43 + rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0, foreach=adam == "foreach", fused=adam == "fused")
    ids = torch.randint(0, s["image_id"], (s["batch"], s["seq"]))
    ids[:, 4:4 + s["tokens"]] = s["image_id"]
    labels = ids.clone()
    labels[:, :4 + s["tokens"] + 40] = -100
    pixels = torch.randn(s["batch"], 3, s["image"], s["image"])
    if ranks > 1 and dtype == "bf16":
        pixels = pixels.to(torch.bfloat16)
    times = []
    first_step = None
    for step in range(steps + 1):
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16) if dtype == "bf16" and ranks == 1 else contextlib.nullcontext():
            loss = model(input_ids=ids, attention_mask=torch.ones_like(ids), pixel_values=pixels, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step > 0:
            times.append((time.perf_counter() - start) * 1e3)
        first_step = first_step or time.time() - START
    if rank == 0:
        kind = "fully_shard" if ranks > 1 else "transformers"
        print(f"{name} {dtype} {kind}, {adam} AdamW: step {statistics.median(times):.1f} ms (median of {steps}), start to first step "
              f"{first_step:.2f} s, loss {loss.item():.4f}, peak RSS {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB, "
              f"{ranks} ranks of {torch.get_num_threads()} threads")
    if ranks > 1:
        torch.distributed.destroy_process_group()


main()

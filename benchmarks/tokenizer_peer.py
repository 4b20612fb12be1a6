#!/usr/bin/env python3
"""shardloom's tokenizer against the `tokenizers` package on one thread, in turns, on the texts of tokenizer_bench.

    benchmarks/tokenizer_peer.py build/release/bin/tokenizer_bench [--rounds 5]

Needs `pip install tokenizers`. Prints MB/s of CPU time, the median of the rounds and the best one.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
from check_tokenizer_with_hf import load_reference  # noqa: E402

LANGUAGES = ["english", "chinese"]


def run_ours(binary):
    result = subprocess.run(
        [binary, "--benchmark_filter=encode", "--benchmark_format=json"], check=True, capture_output=True, text=True
    )
    speeds = {run["name"]: run["bytes_per_second"] / 1e6 for run in json.loads(result.stdout)["benchmarks"]}
    return [speeds[f"encode_{language}"] for language in LANGUAGES]


def run_peer(tokenizer, paragraphs):
    start = time.thread_time()
    for paragraph in paragraphs:
        tokenizer.encode(paragraph, add_special_tokens=False)
    return sum(len(paragraph.encode()) for paragraph in paragraphs) / (time.thread_time() - start) / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([args.binary, "--write-texts", folder], check=True)
        texts = [
            (pathlib.Path(folder) / f"{language}.txt").read_bytes().decode().split("\0")[:-1] for language in LANGUAGES
        ]
    tokenizer = load_reference(str(ROOT / "tests/data/tokenizer/qwen3"))
    ours, peer = [], []
    for _ in range(args.rounds):
        ours.append(run_ours(args.binary))
        peer.append([run_peer(tokenizer, paragraphs) for paragraphs in texts])
    for index, language in enumerate(LANGUAGES):
        our_speeds = [speeds[index] for speeds in ours]
        peer_speeds = [speeds[index] for speeds in peer]
        middle, peer_middle = statistics.median(our_speeds), statistics.median(peer_speeds)
        print(
            f"{language}: shardloom {middle:.1f} MB/s (best {max(our_speeds):.1f}), "
            f"tokenizers {peer_middle:.2f} MB/s (best {max(peer_speeds):.2f}), {middle / peer_middle:.1f} x"
        )


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Images per second on one thread: Pillow and numpy against image_bench, run alternately.

    python3 benchmarks/image_peer.py build/release/bin/image_bench

Needs Pillow and numpy. The chain: 640 x 480 JPEG -> RGB -> bicubic 448 x 448 -> float32 CHW, normalised.
"""
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
import numpy as np  # noqa: E402
from PIL import Image  # noqa: E402

JPEG = Path(__file__).resolve().parent.parent / "tests" / "data" / "images" / "jpeg" / "photo_640x480.jpg"
MEAN = np.array([0.485, 0.456, 0.406], np.float32)
STD = np.array([0.229, 0.224, 0.225], np.float32)
ROUNDS = 5


def peer_images_per_second(num_images=60):
    start = time.perf_counter()
    for _ in range(num_images):
        with Image.open(JPEG) as image:
            square = image.convert("RGB").resize((448, 448), Image.Resampling.BICUBIC)
        floats = (np.asarray(square).astype(np.float32) / np.float32(255) - MEAN) / STD
        np.ascontiguousarray(floats.transpose(2, 0, 1))
    return num_images / (time.perf_counter() - start)


def our_images_per_second(bench):
    command = [bench, "--benchmark_filter=BM_Whole", "--benchmark_format=json", "--benchmark_min_time=1"]
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return 1e6 / result["benchmarks"][0]["real_time"]


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    peer_images_per_second(5)
    pairs = [(peer_images_per_second(), our_images_per_second(sys.argv[1])) for _ in range(ROUNDS)]
    for peer, ours in pairs:
        print(f"Pillow + numpy {peer:7.1f} images/s   shardloom {ours:7.1f} images/s   ratio {ours / peer:.2f}")
    print(f"median ratio {statistics.median(ours / peer for peer, ours in pairs):.2f}")


if __name__ == "__main__":
    main()

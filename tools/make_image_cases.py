#!/usr/bin/env python3
"""Writes the picture cases of tests/data/images: small files and the values Pillow 12.0 gives for them.

    python3 -m venv venv && venv/bin/pip install pillow==12.0.0 numpy && venv/bin/python tools/make_image_cases.py

Later versions resize very tall pictures vertically first; 12.0 has one order for all shapes. Files that are there already and are not
made here (see tests/data/images/README.md) keep their bytes; only their expected values are computed.
"""
import hashlib
import io
import json
import random
import struct
import zlib
from pathlib import Path

import numpy as np
import PIL
from PIL import Image, ImageFile, ImageOps

ROOT = Path(__file__).resolve().parent.parent / "tests" / "data" / "images"
MEAN = np.array([0.485, 0.456, 0.406], np.float32)
STD = np.array([0.229, 0.224, 0.225], np.float32)

# What the error text must contain, for files that must be refused.
REFUSED = {
    "damaged/empty.jpg": "empty",
    "damaged/html_named.jpg": "an HTML page",
    "damaged/jpeg_no_eoi.jpg": "truncated file",
    "damaged/jpeg_prog_trunc50.jpg": "truncated file",
    "damaged/jpeg_trunc60.jpg": "truncated file",
    "damaged/jpeg_trunc_header.jpg": "truncated file",
    "damaged/lfs_pointer.png": "git-lfs pointer",
    "damaged/png_bad_crc.png": "damaged PNG",
    "damaged/png_trunc70.png": "truncated file",
    "damaged/webp_trunc60.webp": "damaged WebP",
    "damaged/gif_trunc60.gif": "truncated file",
    "damaged/gif_no_frame.gif": "it has no frame",
    "damaged/bmp_trunc60.bmp": "truncated file",
    "damaged/tiff.jpg": "a TIFF picture",
    "damaged/noise.bin": "starts with",
    "giant/png_30000.png": "30000 x 30000",
    "giant/png_2_31.png": "2147483647 x 2147483647",
    "giant/png_width0.png": "0 x 16",
    "giant/jpeg_65500.jpg": "65500 x 65500",
    "giant/gif_65535.gif": "65535 x 65535",
    "giant/bmp_2_31.bmp": "2147483647 x 2147483647",
    "giant/bmp_width0.bmp": "0 x 4",
    "giant/webp_wide.webp": "16777216 x 200",
}


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def content(width, height, seed):
    """The test picture that tests/data_image/content.h makes too: noise, a smooth wave, or hard edges."""
    x = np.arange(width, dtype=np.uint64)[None, :, None]
    y = np.arange(height, dtype=np.uint64)[:, None, None]
    c = np.arange(3, dtype=np.uint64)[None, None, :]
    if seed % 3 == 0:
        v = (x * 374761393 + y * 668265263 + c * 2246822519 + seed * 3266489917) & 0xFFFFFFFF
        v = ((v ^ (v >> 13)) * 1274126177) & 0xFFFFFFFF
        v = (v ^ (v >> 16)) & 255
    elif seed % 3 == 1:
        v = (x * 3 + y * 5 + c * 40 + x * y // 16 + seed) & 255
    else:
        v = ((x // 3 + y // 2 + c) & 1) * 255
    return np.broadcast_to(v, (height, width, 3)).astype(np.uint8)


def save(name, data):
    path = ROOT / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def encoded(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, depth, color, rows, before=b"", interlaced=0):
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlaced)
    body = b"" if rows is None else chunk(b"IDAT", zlib.compress(rows, 9))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + before + body + chunk(b"IEND", b"")


def adam7(pixels):
    """Unfiltered interlaced rows of an array (height, width, bytes a pixel)."""
    out = b""
    for x0, y0, dx, dy in [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]:
        for row in pixels[y0::dy, x0::dx]:
            if row.size:
                out += b"\0" + row.tobytes()
    return out


def bmp(width, height, bits, pixels, colors=b"", compression=0, masks=b"", core=False, num_colors=0):
    if core:
        header = struct.pack("<IHHHH", 12, width, height, 1, bits)
    else:
        header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, compression, len(pixels), 0, 0, num_colors, 0)
    offset = 14 + len(header) + len(masks) + len(colors)
    return b"BM" + struct.pack("<IHHI", offset + len(pixels), 0, 0, offset) + header + masks + colors + pixels


def bmp_rows(rows):
    return b"".join(bytes(row) + b"\0" * (-len(row) % 4) for row in rows)


def make_palette_cases():
    table = bytes([255, 0, 0, 0, 255, 0, 0, 0, 255, 9, 8, 7])
    save("palette/index_beyond.png",
         png(6, 2, 8, 3, bytes([0, 0, 1, 2, 3, 4, 255, 0, 3, 2, 1, 0, 17, 99]), chunk(b"PLTE", table)))
    save("palette/index_beyond_4bit.png",
         png(4, 2, 4, 3, bytes([0, 0x01, 0x2F, 0, 0x3E, 0xD0]), chunk(b"PLTE", table)))
    save("palette/two_bits_trns.png",
         png(5, 2, 2, 3, bytes([0, 0b00011011, 0, 0, 0b11100100, 0x40]),
             chunk(b"PLTE", table) + chunk(b"tRNS", bytes([0, 128]))))
    save("palette/one_bit.png", png(9, 1, 1, 3, bytes([0, 0b10110100, 0x80]), chunk(b"PLTE", table[:6])))
    rgba = np.dstack([content(16, 11, 1), content(16, 11, 0)[..., :1]])
    rgba[:4, :, 3] = 0
    save("palette/rgba_transparent.png", encoded(Image.fromarray(rgba, "RGBA"), "PNG"))
    save("palette/gray_alpha.png", encoded(Image.fromarray(np.ascontiguousarray(rgba[..., 2:]), "LA"), "PNG"))
    gray = content(13, 9, 1)[..., 0]
    save("palette/gray_trns.png", png(13, 9, 8, 0, b"".join(b"\0" + r.tobytes() for r in gray), chunk(b"tRNS", b"\0\5")))
    rgb = content(13, 9, 0)
    save("palette/rgb_trns_gamma.png",
         png(13, 9, 8, 2, b"".join(b"\0" + r.tobytes() for r in rgb),
             chunk(b"gAMA", struct.pack(">I", 100000)) + chunk(b"tRNS", b"\0\1\0\2\0\3")))
    save("palette/interlaced_rgb.png", png(13, 9, 8, 2, adam7(rgb), interlaced=1))
    deep = (np.arange(13 * 9, dtype=">u2") * 4).reshape(9, 13)
    save("depth/gray16_interlaced.png", png(13, 9, 16, 0, adam7(deep[..., None]), interlaced=1))
    save("depth/rgba64.png",
         png(13, 9, 16, 6, b"".join(b"\0" + (r * 513).astype(">u2").tobytes()
                                    for r in np.dstack([rgb, rgb[..., :1]]).astype(np.uint32) % 128)))


def make_jpeg_cases():
    def smooth(width, height):
        return Image.fromarray(content(width, height, 0)).resize((width, height), box=(0, 0, width / 3, height / 3))

    save("jpeg/s420_17x13.jpg", encoded(smooth(17, 13), "JPEG", subsampling=2, quality=90))
    save("jpeg/s422_33x9.jpg", encoded(smooth(33, 9), "JPEG", subsampling=1, quality=85))
    save("jpeg/s444_31x23.jpg", encoded(smooth(31, 23), "JPEG", subsampling=0, quality=95))
    save("jpeg/gray_19x21.jpg", encoded(smooth(19, 21).convert("L"), "JPEG"))
    save("jpeg/progressive_65x47.jpg", encoded(smooth(65, 47), "JPEG", progressive=True, quality=70))
    save("jpeg/progressive_gray_23x45.jpg", encoded(smooth(23, 45).convert("L"), "JPEG", progressive=True))
    save("jpeg/restart_97x61.jpg", encoded(smooth(97, 61), "JPEG", restart_marker_blocks=3, optimize=True))
    save("jpeg/low_quality_100x75.jpg", encoded(smooth(100, 75), "JPEG", quality=12))
    save("jpeg/rgb_21x17.jpg", encoded(smooth(21, 17), "JPEG", keep_rgb=True))
    save("jpeg/one_pixel.jpg", encoded(smooth(3, 3).crop((0, 0, 1, 1)), "JPEG"))
    save("jpeg/trailing_bytes.jpg", encoded(smooth(40, 30), "JPEG") + b"after the end" * 3)
    save("jpeg/photo_640x480.jpg",
         encoded(smooth(64, 48).resize((640, 480)), "JPEG", subsampling=2, quality=75))


def place_24(value):
    """24 bits, as WebP stores sizes and offsets."""
    return struct.pack("<I", value)[:3]


def colored_frame(image):
    """A GIF of `image` with transparent index 3, its screen and frame offset to be chosen."""
    data = encoded(image, "GIF", interlace=0, optimize=False)
    after_table = 13 + (6 << (data[10] & 7))
    body = data[data.index(b"\x2c", after_table):]

    def build(screen, offset):
        control = b"\x21\xf9\x04\x01\0\0\3\0"
        header = data[:6] + struct.pack("<HH", *screen) + data[10:after_table]
        return header + control + b"\x2c" + struct.pack("<HH", *offset) + body[5:]

    return build


def make_format_cases():
    rgb = content(7, 5, 1)
    bgr = bmp_rows(row[:, ::-1].tobytes() for row in rgb[::-1])
    save("formats/bmp24.bmp", bmp(7, 5, 24, bgr))
    save("formats/bmp24_top_down.bmp", bmp(7, -5, 24, bgr))
    save("formats/bmp24_os2.bmp", bmp(7, 5, 24, bgr, core=True))
    bgrx = np.dstack([rgb[..., ::-1], rgb[..., :1]])
    save("formats/bmp32.bmp", bmp(7, 5, 32, bgrx.tobytes()))
    save("formats/bmp32_masks.bmp",
         bmp(7, 5, 32, bgrx.tobytes(), compression=3, masks=struct.pack("<III", 0xFF000000, 0xFF0000, 0xFF00)))
    words = (np.arange(35, dtype="<u2") * 1871).reshape(5, 7)
    save("formats/bmp16_555.bmp", bmp(7, 5, 16, bmp_rows(r.tobytes() for r in words)))
    save("formats/bmp16_565.bmp",
         bmp(7, 5, 16, bmp_rows(r.tobytes() for r in words), compression=3, masks=struct.pack("<III", 0xF800, 0x7E0, 0x1F)))
    table = bytes(v for i in range(16) for v in (i * 16, 255 - i * 9, i * 5 + 3, 0))
    save("formats/bmp4.bmp", bmp(7, 2, 4, bmp_rows([bytes.fromhex("01234560"), bytes.fromhex("fedcba90")]), table))
    save("formats/bmp1.bmp", bmp(10, 2, 1, bmp_rows([bytes([0b10110011, 0x40]), bytes([0x5A, 0x80])]), table[8:16]))
    save("formats/bmp8_short_table.bmp",
         bmp(5, 2, 8, bmp_rows([bytes([0, 1, 2, 3, 200]), bytes([15, 4, 0, 16, 7])]), table, num_colors=16))
    ramp = bytes(v for i in range(8) for v in (i, i, i, 0))
    save("formats/bmp8_ramp.bmp", bmp(5, 1, 8, bmp_rows([bytes([0, 3, 7, 8, 200])]), ramp, num_colors=8))
    rle8 = bytes([3, 5, 4, 9, 0, 0, 0, 3, 1, 2, 3, 0, 4, 7, 0, 0, 7, 1, 0, 1])
    save("formats/bmp_rle8.bmp", bmp(7, 3, 8, rle8, table, compression=1, num_colors=16))
    rle4 = bytes([5, 0x12, 2, 0x34, 0, 0, 0, 4, 0x56, 0x78, 3, 0x9A, 0, 0, 3, 0, 4, 0xBC, 0, 1])
    save("formats/bmp_rle4.bmp", bmp(7, 3, 4, rle4, table, compression=2))

    colors = Image.fromarray(content(30, 22, 1)).quantize(64)
    save("formats/gif_interlaced.gif", encoded(colors, "GIF", interlace=1))
    save("formats/gif_noise.gif", encoded(Image.fromarray(content(70, 60, 0)[..., 0]), "GIF", interlace=0))
    at = colored_frame(colors)
    save("formats/gif_offset_transparent.gif", at(screen=(44, 31), offset=(6, 4)))
    save("formats/gif_beyond_screen.gif", at(screen=(20, 24), offset=(3, 1)))

    rgba = np.dstack([content(29, 21, 1), content(29, 21, 4)[..., :1]])
    rgba[5:9, :, 3] = 0
    picture = Image.fromarray(rgba, "RGBA")
    save("formats/webp_lossy.webp", encoded(picture.convert("RGB"), "WEBP", quality=70))
    save("formats/webp_lossy_alpha.webp", encoded(picture, "WEBP", quality=80))
    save("formats/webp_lossless_alpha.webp", encoded(picture, "WEBP", lossless=True, exact=True))
    frame = encoded(picture.convert("RGB"), "WEBP", quality=60)[12:]
    riff = lambda kind, data: kind + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)
    animation = (riff(b"VP8X", b"\x02\0\0\0" + place_24(49) + place_24(39)) + riff(b"ANIM", b"\xff\xff\xff\xff\0\0")
                 + riff(b"ANMF", place_24(4) + place_24(3) + place_24(28) + place_24(20) + place_24(100) + b"\0" + frame))
    save("formats/webp_frame_offset.webp", riff(b"RIFF", b"WEBP" + animation))


def make_exif_cases():
    picture = Image.fromarray(content(14, 9, 1))
    for orientation in (2, 4, 7):
        exif = Image.Exif()
        exif[0x0112] = orientation
        save(f"exif/exif_orient{orientation}.png", encoded(picture, "PNG", exif=exif))
    exif = Image.Exif()
    exif[0x0112] = 6
    save("exif/exif_orient6.webp", encoded(picture, "WEBP", lossless=True, exif=exif.tobytes()))
    big_endian = b"Exif\0\0MM\0*\0\0\0\x08\0\1\x01\x12\0\3\0\0\0\1\0\x08\0\0\0\0\0\0"
    save("exif/exif_orient8_big_endian.jpg", encoded(picture, "JPEG", exif=big_endian))


def make_refused_cases():
    rgb = Image.fromarray(content(40, 30, 1))
    cut = lambda data: data[: len(data) * 6 // 10]
    save("damaged/webp_trunc60.webp", cut(encoded(rgb, "WEBP")))
    save("damaged/gif_trunc60.gif", cut(encoded(rgb.quantize(32), "GIF")))
    save("damaged/gif_no_frame.gif", b"GIF89a\x04\0\x04\0\0\0\0;")
    save("damaged/bmp_trunc60.bmp", cut(encoded(rgb.resize((8, 6)), "BMP")))
    save("damaged/tiff.jpg", encoded(rgb.resize((4, 4)), "TIFF"))
    save("damaged/noise.bin", bytes(range(7, 99)))
    save("giant/png_30000.png", png(30000, 30000, 8, 2, b"\0" * 64))
    save("giant/png_2_31.png", png(2**31 - 1, 2**31 - 1, 8, 2, b"\0" * 64))
    save("giant/png_width0.png", png(0, 16, 8, 2, b"\0" * 16))
    jpeg = bytearray(encoded(rgb.resize((8, 8)), "JPEG"))
    at = jpeg.index(b"\xff\xc0")
    struct.pack_into(">HH", jpeg, at + 5, 65500, 65500)
    save("giant/jpeg_65500.jpg", bytes(jpeg))
    save("giant/gif_65535.gif",
         b"GIF89a" + struct.pack("<HHBBB", 65535, 65535, 0, 0, 0) + b"," + struct.pack("<HHHHB", 0, 0, 65535, 65535, 0) + b"\2\0;")
    save("giant/bmp_2_31.bmp", bmp(2**31 - 1, 2**31 - 1, 24, b"\0" * 16))
    save("giant/bmp_width0.bmp", bmp(0, 4, 24, b"\0" * 16))
    webp = bytearray((ROOT / "formats/webp_frame_offset.webp").read_bytes())
    webp[24:30] = place_24(2**24 - 1) + place_24(199)
    save("giant/webp_wide.webp", bytes(webp))


def describe(name):
    """Pillow's values for one file."""
    path = ROOT / name
    with Image.open(path) as image:
        raw = np.asarray(image) if image.mode == "I;16" else None
        rgb = image.convert("RGB")
    square = rgb.resize((448, 448), Image.Resampling.BICUBIC)
    floats = (np.asarray(square).astype(np.float32) / np.float32(255) - MEAN) / STD
    row = {
        "width": rgb.width,
        "height": rgb.height,
        "rgb_sha256": sha256(rgb.tobytes()),
        "r448_sha256": sha256(square.tobytes()),
        "norm448_sha256": sha256(np.ascontiguousarray(floats.transpose(2, 0, 1)).tobytes()),
    }
    if name.startswith("exif/"):
        with Image.open(path) as image:
            upright = ImageOps.exif_transpose(image).convert("RGB")
        row["upright"] = {"width": upright.width, "height": upright.height, "rgb_sha256": sha256(upright.tobytes())}
    if raw is not None:
        high = (raw.astype(np.uint32) >> 8).astype(np.uint8)
        row["high_byte_rgb_sha256"] = sha256(np.repeat(high[..., None], 3, 2).tobytes())
    return row


def write_expected():
    Image.MAX_IMAGE_PIXELS = 2**28
    for folder in sorted(p for p in ROOT.iterdir() if p.is_dir()):
        rows = {}
        for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "expected.json"):
            name = str(path.relative_to(ROOT))
            key = str(path.relative_to(folder))
            if name in REFUSED:
                rows[key] = {"error": REFUSED[name]}
                if name == "damaged/tiff.jpg":  # Pillow reads it, we do not
                    continue
                try:
                    describe(name)
                except Exception:
                    continue
                raise SystemExit(f"Pillow accepts {name}")
            rows[key] = describe(name)
        (folder / "expected.json").write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")


def write_resize_rows():
    rng = random.Random(7)
    sizes = [(640, 480, 448, 448), (480, 640, 448, 448), (1, 1, 5, 7), (1, 900, 448, 3), (900, 1, 3, 448), (10, 10, 10, 31),
             (10, 10, 31, 10), (11, 40, 11, 40), (447, 1500, 448, 448), (1999, 31, 448, 448), (5, 3, 1, 1), (3000, 2, 1, 2)]
    while len(sizes) < 48:
        limit = rng.choice([12, 60, 300, 900])
        sizes.append(tuple(rng.randint(1, limit) for _ in range(4)))
    rows = []
    for seed, (width, height, out_width, out_height) in enumerate(sizes):
        image = Image.fromarray(content(width, height, seed))
        out = image.resize((out_width, out_height), Image.Resampling.BICUBIC)
        rows.append([width, height, seed, out_width, out_height, sha256(out.tobytes())])
    write_rows("resize.json", ["width", "height", "seed", "out_width", "out_height", "sha256"], rows)


def reference_grid(width, height, size, min_num, max_num):
    """find_closest_aspect_ratio of InternVL's dynamic_preprocess."""
    aspect_ratio = width / height
    target_ratios = set(
        (i, j) for n in range(min_num, max_num + 1) for i in range(1, n + 1) for j in range(1, n + 1)
        if i * j <= max_num and i * j >= min_num)
    best, best_diff = (1, 1), float("inf")
    for ratio in sorted(target_ratios, key=lambda x: x[0] * x[1]):
        diff = abs(aspect_ratio - ratio[0] / ratio[1])
        if diff < best_diff:
            best_diff, best = diff, ratio
        elif diff == best_diff and width * height > 0.5 * size * size * ratio[0] * ratio[1]:
            best = ratio
    return best


def write_grid_rows():
    rng = random.Random(11)
    pictures = [(640, 480), (800, 600), (1920, 1080), (448, 448), (633, 633), (634, 634), (1000, 1000), (5000, 100),
                (500, 400), (400, 500), (1250, 1000), (1, 1), (16384, 16384), (2125, 1000), (1000, 2125)]
    rows = []
    for width, height in pictures:
        for low, high in [(1, 1), (1, 6), (1, 12), (2, 2), (4, 4), (4, 5), (6, 6), (2, 12), (1, 40), (3, 40)]:
            rows.append([width, height, 448, low, high, *reference_grid(width, height, 448, low, high)])
    while len(rows) < 400:  # exact ties: the middle between two grids of one product
        low = rng.randint(2, 24)
        high = low + rng.randint(0, 6)
        n = rng.randint(low, high)
        divisors = [d for d in range(1, n + 1) if n % d == 0]
        if len(divisors) < 2:
            continue
        a, b = rng.sample(divisors, 2)
        width, height = a * a + b * b, 2 * n  # (a/(n/a) + b/(n/b)) / 2
        scale = rng.choice([1, 10, 200])
        size = rng.choice([448, 224])
        rows.append([width * scale, height * scale, size, low, high, *reference_grid(width * scale, height * scale, size, low, high)])
    write_rows("grids.json", ["width", "height", "image_size", "min_tiles", "max_tiles", "columns", "rows"], rows)


def write_tile_rows():
    rows = []
    for width, height, seed, size, low, high, thumbnail in [
            (640, 480, 1, 448, 1, 6, True), (100, 300, 0, 56, 1, 12, True), (300, 100, 2, 56, 1, 12, False),
            (90, 90, 0, 56, 1, 1, True), (50, 50, 1, 56, 1, 12, True), (500, 400, 0, 56, 2, 2, True)]:
        image = Image.fromarray(content(width, height, seed))
        columns, grid_rows = reference_grid(width, height, size, low, high)
        resized = image.resize((size * columns, size * grid_rows))
        tiles = []
        for k in range(columns * grid_rows):
            left, top = k % columns * size, k // columns * size
            tiles.append(resized.crop((left, top, left + size, top + size)))
        if thumbnail and len(tiles) != 1:
            tiles.append(image.resize((size, size)))
        rows.append([width, height, seed, size, low, high, thumbnail, [sha256(t.tobytes()) for t in tiles]])
    names = ["width", "height", "seed", "image_size", "min_tiles", "max_tiles", "use_thumbnail", "tiles_sha256"]
    write_rows("tiles.json", names, rows)


def write_rows(name, columns, rows):
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    (ROOT / name).write_text(f'{{"columns": {json.dumps(columns)},\n "rows": [\n{lines}\n]}}\n')


def main():
    if not PIL.__version__.startswith("12.0."):
        raise SystemExit(f"Pillow 12.0 is the reference, this is {PIL.__version__}")
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    make_palette_cases()
    make_jpeg_cases()
    make_format_cases()
    make_exif_cases()
    make_refused_cases()
    write_expected()
    write_resize_rows()
    write_grid_rows()
    write_tile_rows()


if __name__ == "__main__":
    main()

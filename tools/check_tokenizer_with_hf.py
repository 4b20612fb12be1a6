#!/usr/bin/env python3
"""Compares `shardloom tokenize` with the `tokenizers` package on random strings.

    tools/check_tokenizer_with_hf.py build/release/bin/shardloom MODEL_DIR [--count 1000] [--seed 0]

Needs `pip install tokenizers`. Prints the number of strings whose ids, or whose text after decoding, differ (0 is right);
exit code 1 if there are any.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

QWEN_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
WHITE_SPACE = "      \n\n\r\t\r\n\v\f\u0085\u00a0\u1680\u180e\u2000\u2003\u2028\u2029\u202f\u205f\u3000\u200b\ufeff\x1c\x1f"
CONTRACTIONS = ["'s", "'T", "'re", "'VE", "'m", "'ll", "'lL", "'d", "'\u017f", "\u2019s", "'x", "''"]
CODE = list("(){}[]<>=+-*/%&|^~!?:;,.#@$_\\\"'`") + ["def ", "return", "for (int i = 0; ", "//", "<img", "<|im_"]
WORDS = "the of and to in is you that it he was for on are with as at be this have from or one had by word but not what".split()
RANGES = {
    "cjk": [(0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6D6), (0x3000, 0x303F), (0xFF00, 0xFFEF), (0xF900, 0xFAD9)],
    "japanese": [(0x3040, 0x30FF), (0x4E00, 0x6FFF), (0x3099, 0x309A)],
    "korean": [(0xAC00, 0xD7A3), (0x1100, 0x1112), (0x1161, 0x1175), (0x11A8, 0x11C2)],
    "latin": [(0x20, 0x7E), (0xA0, 0x24F), (0x1E00, 0x1EFF), (0x300, 0x36F)],
    "emoji": [(0x1F300, 0x1F64F), (0x1F900, 0x1F9FF), (0x2600, 0x27BF), (0xFE0E, 0xFE0F), (0x200C, 0x200D), (0x1F1E6, 0x1F1FF)],
    "indic": [(0x900, 0x97F), (0x980, 0x9FD), (0xB80, 0xBFA), (0xE00, 0xE5B), (0xF00, 0xFDA)],
    "semitic": [(0x591, 0x5F4), (0x600, 0x6FF), (0x750, 0x77F)],
    "slavic": [(0x370, 0x52F)],
    "numbers": [(0x30, 0x39), (0x660, 0x669), (0xB2, 0xBE), (0x2150, 0x218B), (0x2460, 0x249B), (0x1D7CE, 0x1D7FF)],
}


def load_reference(folder):
    path = os.path.join(folder, "tokenizer.json")
    if os.path.exists(path):
        return Tokenizer.from_file(path)
    tokenizer = Tokenizer(models.BPE.from_file(os.path.join(folder, "vocab.json"), os.path.join(folder, "merges.txt")))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN_PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    with open(os.path.join(folder, "tokenizer_config.json"), encoding="utf-8") as file:
        added = json.load(file)["added_tokens_decoder"]
    for key in sorted(added, key=int):
        rule = dict(added[key])
        content, special = rule.pop("content"), rule.pop("special")
        add = tokenizer.add_special_tokens if special else tokenizer.add_tokens
        add([AddedToken(content, special=special, **rule)])
        assert tokenizer.token_to_id(content) == int(key), f"{content}: the package gives it another id than the file"
    return tokenizer


def is_known_to_reference(char):
    """The package's NFC is of Unicode 9: it leaves marks that are younger where they stand."""
    if unicodedata.combining(char) <= 1:
        return True
    return normalizers.NFC().normalize_str("a" + char + "\u0334") != "a" + char + "\u0334"


def random_strings(rng, count, added):
    pools = {
        name: [chr(c) for first, last in ranges for c in range(first, last + 1) if unicodedata.category(chr(c)) != "Cn"]
        for name, ranges in RANGES.items()
    }
    pools["anything"] = [chr(c) for c in range(1, 0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]
    pools = {name: [c for c in pool if is_known_to_reference(c)] for name, pool in pools.items()}
    pools["white space"] = list(WHITE_SPACE) + ["a", "!", "\u4e2d", "1"]
    pools["contractions"] = CONTRACTIONS + list("aIx S1 ")
    pools["code"] = CODE + ["\n", "    ", "\t", "x", "i", "0"]
    pools["words"] = [" " + word for word in WORDS] + WORDS + [", ", ". ", "\n\n", "\u2019s", "'s", " 42"]
    pools["long runs"] = ["a" * 37, " " * 70, "\n" * 21, "=" * 90, "\u4e2d" * 30, "ha" * 25]
    pools["added tokens"] = added + [token[:-1] for token in added] + [" ", "\n", "a", "\u0301", "\u0338", "<", "|>"]
    for index in range(count):
        names = rng.sample(sorted(pools), rng.choice([1, 1, 2, 4]))
        yield "".join(rng.choice(pools[rng.choice(names)]) for _ in range(rng.randrange(60)))


def run(binary, folder, lines, *options):
    result = subprocess.run(
        [binary, "tokenize", "--model", folder, *options],
        input="".join(json.dumps(line) + "\n" for line in lines),
        capture_output=True,
        text=True,
    )
    if result.returncode != 0:
        sys.exit(f"{binary} failed: {result.stderr}")
    return [json.loads(line) for line in result.stdout.rstrip("\n").split("\n")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("model")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    reference = load_reference(args.model)
    added = [token.content for _, token in sorted(reference.get_added_tokens_decoder().items())]
    texts = list(random_strings(random.Random(args.seed), args.count, added))
    wanted = [reference.encode(text, add_special_tokens=False).ids for text in texts]
    found = [line["ids"] for line in run(args.binary, args.model, [{"text": text} for text in texts])]
    decoded = [line["text"] for line in run(args.binary, args.model, [{"ids": ids} for ids in wanted], "--decode")]
    assert len(found) == len(decoded) == len(texts)

    wrong = 0
    for text, want, got, back in zip(texts, wanted, found, decoded):
        want_back = reference.decode(want, skip_special_tokens=False)
        if want != got or back != want_back:
            wrong += 1
            if wrong <= 3:
                print(f"text   {text!a}\nwanted {want} {want_back!a}\nfound  {got} {back!a}"[:1000])
    print(f"{args.model}: {wrong} of {len(texts)} strings differ ({sum(map(len, wanted))} tokens)")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()

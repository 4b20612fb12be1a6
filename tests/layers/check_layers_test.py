"""tools/check_layers.py finds each kind of planted violation, and only those."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools" / "check_layers.py"

CLEAN = {
    "shardloom/base/a.h": "#pragma once\n#include <string>\n",
    "shardloom/ops/b.h": '#include <ATen/core/Tensor.h>\n#include "shardloom/base/a.h"\n',
    "shardloom/nn/c.cpp": '#include "shardloom/ops/b.h"\n#include "shardloom/base/a.h"\n',
    "shardloom/trainer/metrics.h": '#include "shardloom/base/a.h"\n',
    "tests/ops/b_test.cpp": '#include "shardloom/ops/b.h"\n',
}


def check(files):
    """Runs the script over a tree of these files; returns its exit code and output."""
    with tempfile.TemporaryDirectory() as root:
        for name, text in files.items():
            path = pathlib.Path(root, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        done = subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr


class CheckLayersTest(unittest.TestCase):
    def expect_violation(self, name, text, message):
        code, output = check(CLEAN | {name: text})
        self.assertEqual(code, 1, output)
        self.assertIn(message, output)
        self.assertIn("1 violations", output)

    def test_clean_tree(self):
        self.assertEqual(check(CLEAN), (0, "ok\n"))

    def test_empty_tree_is_an_error(self):
        self.assertEqual(check({})[0], 1)

    def test_arrow_against_the_drawing(self):
        self.expect_violation(
            "shardloom/base/z.cpp", '\n#include "shardloom/ops/b.h"\n', "shardloom/base/z.cpp:2: base may not include ops"
        )

    def test_arrow_between_siblings(self):
        self.expect_violation("shardloom/loss/z.cpp", '#include "shardloom/nn/c.cpp"\n', "loss may not include nn")

    def test_torch_in_torch_free_places(self):
        for place in ("base/z.h", "config/z.h", "tokenizer/z.h", "data/z.h", "trainer/metrics_sink.h"):
            with self.subTest(place):
                self.expect_violation(f"shardloom/{place}", "#include <c10/util/Half.h>\n", "in a torch-free place")

    def test_torch_h_anywhere(self):
        self.expect_violation("tests/nn/z.cpp", "#include <torch/torch.h>\n", "torch/torch.h costs")

    def test_include_relative_to_the_file(self):
        self.expect_violation("shardloom/base/z.cpp", '#include "a.h"\n', '"a.h" is not relative to the root')

    def test_include_of_a_missing_file(self):
        self.expect_violation("shardloom/base/z.cpp", '#include "shardloom/base/y.h"\n', "does not exist")

    def test_angle_brackets_around_our_own(self):
        self.expect_violation("shardloom/ops/z.cpp", "#include <shardloom/base/a.h>\n", "wants quotes")

    def test_unknown_room(self):
        self.expect_violation("shardloom/attic/z.cpp", "int z;\n", "room attic is not in the table")

    def test_length(self):
        self.expect_violation("shardloom/base/z.cpp", "\n" * 601, "601 lines, at most 600")
        code, output = check(CLEAN | {"shardloom/base/z.cpp": "\n" * 451})
        self.assertEqual(code, 0, output)
        self.assertIn("warning: shardloom/base/z.cpp:451", output)


if __name__ == "__main__":
    unittest.main()

"""The layers of the code, read from its includes: a folder uses only itself and folders above it, and nothing below the
torch line includes torch. Also checks itself: planted violations must be found."""

import pathlib
import re
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# From top to bottom: a folder may include itself and what stands before it.
LAYERS = ["core", "patterns", "schedule", "kernels/reference", "kernels/cpu", "kernels", "io", "report", "ops", "nn",
          "models", "tasks", "train", "apps"]
# Values that both kinds of kernel start from: a call without its data, and the arrays of its data.
SHARED = {"iha/kernels/problem.h", "iha/kernels/attention.h"}
TORCH_FREE = set(LAYERS[: LAYERS.index("ops")])
TORCH_HEADER = re.compile(r"(torch|ATen|c10|caffe2)/|torch\.h$")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)


def layer_of(path: str) -> str | None:
    """The layer of `path`, relative to src (iha/...) or the root (apps/...); None for the umbrella headers."""
    inside = path.removeprefix("iha/")
    for layer in ("kernels/reference", "kernels/cpu", *LAYERS):
        if inside.startswith(layer + "/"):
            return layer
    return None


def violations(root: pathlib.Path) -> list[str]:
    found = []
    files = [(file, str(file.relative_to(root / "src"))) for file in sorted((root / "src").rglob("*.[hc]*"))]
    files += [(file, str(file.relative_to(root))) for file in sorted((root / "apps").rglob("*.[hc]*"))]
    for file, name in files:
        if file.suffix not in {".h", ".cpp"}:
            continue
        layer = layer_of(name)
        for included in INCLUDE.findall(file.read_text(encoding="utf-8")):
            if TORCH_HEADER.match(included) and (layer in TORCH_FREE or name == "iha/core.h"):
                found.append(f"{name} is below the torch line and includes {included}")
            if not included.startswith("iha/"):
                continue
            target = layer_of(included)
            if layer is None:
                if name == "iha/core.h" and target not in TORCH_FREE:
                    found.append(f"{name} is torch-free and includes {included}")
            elif target is None:
                found.append(f"{name} includes the umbrella header {included}")
            elif included not in SHARED and LAYERS.index(target) > LAYERS.index(layer):
                found.append(f"{name} ({layer}) includes {included} ({target}), which is below it")
    return found


class Layers(unittest.TestCase):
    def test_every_folder_is_a_layer(self):
        folders = {path.name for path in (ROOT / "src" / "iha").iterdir() if path.is_dir()}
        self.assertEqual(folders - {layer.split("/")[0] for layer in LAYERS}, set())

    def test_includes_point_upwards_only(self):
        self.assertEqual(violations(ROOT), [])

    def test_planted_violations_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in {
                "src/iha/core/a.h": '#include "iha/patterns/pattern.h"\n',
                "src/iha/kernels/cpu/b.cpp": "#include <ATen/ATen.h>\n",
                "src/iha/kernels/reference/c.cpp": '#include "iha/kernels/problem.h"\n',
                "src/iha/nn/d.h": '#include "iha/ops/attention.h"\n#include <torch/nn.h>\n',
                "src/iha/ops/e.cpp": '#include "iha/iha.h"\n',
            }.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            (root / "apps").mkdir()
            found = violations(root)
            self.assertEqual(len(found), 3, found)
            self.assertIn("iha/core/a.h (core) includes iha/patterns/pattern.h", found[0])
            self.assertIn("iha/kernels/cpu/b.cpp is below the torch line", found[1])
            self.assertIn("umbrella", found[2])


if __name__ == "__main__":
    unittest.main()

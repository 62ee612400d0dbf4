"""Rules that hold for the files of the project as a whole."""

import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def tracked() -> list[pathlib.Path]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode != 0:
        raise unittest.SkipTest("not a git checkout, so there is no list of the project's files")
    return [ROOT / name for name in listing.stdout.split("\0") if name and (ROOT / name).exists()]


class Files(unittest.TestCase):
    def test_nothing_is_built_for_this_machine_only(self):
        for path in tracked():
            if path.name == "CMakeLists.txt" or path.suffix == ".cmake" or path.name == "CMakePresets.json":
                self.assertNotRegex(path.read_text(), r"-march=native|-mtune=native", path)

    def test_headers_are_included_once(self):
        for path in tracked():
            if path.suffix == ".h":
                self.assertIn("#pragma once", path.read_text(), path)

    def test_source_files_say_what_they_are_for(self):
        for path in tracked():
            if path.suffix == ".h" and "src" in path.parts:
                self.assertTrue(path.read_text().startswith("//"), f"{path} opens without a comment")

    def test_every_example_is_built_and_documented(self):
        page = (ROOT / "docs" / "series.md").read_text()
        built = (ROOT / "examples" / "CMakeLists.txt").read_text().split()
        examples = {path for path in (ROOT / "examples").glob("*.cpp") if path.name != "example.cpp"}
        self.assertEqual(set(re.findall(r"`(?:examples/)?(\w+\.cpp)`", page)), {path.name for path in examples})
        for path in examples:
            self.assertIn(path.stem, built)

    def test_no_file_names_a_package_index(self):
        # Registries are the user's own configuration.
        pattern = re.compile(r"--(extra-)?index-url|--find-links|pypi\.org|download\.pytorch\.org", re.IGNORECASE)
        for path in tracked():
            if path != pathlib.Path(__file__).resolve() and path.suffix in {".txt", ".cmake", ".py", ".md", "", ".toml"}:
                self.assertNotRegex(path.read_text(errors="replace"), pattern, path)


if __name__ == "__main__":
    unittest.main()

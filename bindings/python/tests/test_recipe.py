"""Tests that the recipe for conda says the same as ``pyproject.toml``."""

import pathlib
import re
import unittest

try:
    import rattler_build
except ImportError:
    rattler_build = None

FOLDER = pathlib.Path(__file__).resolve().parents[1]
RECIPE = (FOLDER / "conda" / "recipe.yaml").read_text()
PROJECT = (FOLDER / "pyproject.toml").read_text()


class Recipe(unittest.TestCase):
    def test_it_needs_what_the_project_needs(self):
        workspace = (FOLDER.parents[1] / "Cargo.toml").read_text()
        version = re.search(r'^version = "(.*)"', workspace, re.MULTILINE)[1]
        self.assertIn(f"version: {version}\n", RECIPE)
        for name in ("numpy", "maturin"):
            versions = re.search(f'"{name}([<>=0-9.,]*)"', PROJECT)[1]
            self.assertIn(f"- {name} {versions}\n", RECIPE)
        oldest = re.search('requires-python = ">=(.*)"', PROJECT)[1]
        for name in ("python", "python-abi3"):
            self.assertIn(f"- {name} {oldest}.*\n", RECIPE)

    @unittest.skipIf(rattler_build is None, "no py-rattler-build")
    def test_rattler_build_can_read_it(self):
        recipe = rattler_build.Stage0Recipe.from_yaml(RECIPE)
        variants = rattler_build.VariantConfig.from_yaml("c_stdlib: [sysroot]\n")
        for platform in ("linux-64", "linux-aarch64", "osx-arm64"):
            config = rattler_build.RenderConfig(
                platform=rattler_build.PlatformConfig(target_platform=platform))
            [made] = recipe.render(variants, config)
            needed = made.recipe.requirements.to_dict()
            self.assertIn("numpy >=1.23", needed["run"])
            self.assertIn(f"rust_{platform}", needed["build"])


if __name__ == "__main__":
    unittest.main()

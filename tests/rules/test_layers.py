"""The import layers of pyproject.toml, checked by import-linter."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.kit.server import ROOT


def test_imports_follow_the_layers() -> None:
    """Every contract of import-linter is kept."""
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def read_layers() -> list[list[str]]:
    """Return the names of each layer, from top to bottom."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [re.split(r" [|:] ", layer) for layer in layers]


def test_the_architecture_has_the_order_of_the_layers() -> None:
    """The table of packages in the documentation has every name of the contract, layer after layer."""
    text, layers = (ROOT / "docs/architecture.md").read_text(), read_layers()
    table = text[text.index("| Package | Purpose |") :].partition("\n\n")[0]
    paths = [path for row in table.splitlines()[2:] for path in re.findall(r"`([^`]+)`", row.split(" | ")[0])]
    names = [path.removesuffix(".py").replace("/", ".") for path in paths]
    layer_of = {name: number for number, layer in enumerate(layers) for name in layer}
    assert sorted(names) == sorted(layer_of)
    assert names == sorted(names, key=layer_of.__getitem__)
    assert f"{len(layers)} layers" in text


def test_every_module_has_a_layer() -> None:
    """Every module of the appliance belongs to a layer by its name or package."""
    named = [name for layer in read_layers() for name in layer]
    package = ROOT / "appliance"
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in package.rglob("*.py")
        if path.name != "__init__.py"
    }
    left = [name for name in modules if not any(name == layer or name.startswith(layer + ".") for layer in named)]
    assert sorted(left) == []

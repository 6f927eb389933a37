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


def test_every_module_has_a_layer() -> None:
    """Every module of the appliance belongs to a layer by its name or package."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    named = [name.strip() for layer in layers for name in re.split(r"[|:]", layer)]
    package = ROOT / "appliance"
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in package.rglob("*.py")
        if path.name != "__init__.py"
    }
    left = [name for name in modules if not any(name == layer or name.startswith(layer + ".") for layer in named)]
    assert sorted(left) == []

"""What joins itself to others when it is imported is named where it is loaded for everybody (`appliance/joined.py`)."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Of a start, before anything else is imported
FIRST = {"appliance/__init__.py", "appliance/__main__.py", "appliance/db/open.py"}


def joining() -> Iterator[str]:
    """Yield the modules that call something of ours, or change it, while they are imported."""
    for path in sorted([*(ROOT / "appliance").rglob("*.py"), *(ROOT / "ui").rglob("*.py")]):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        ours = {
            name.asname or name.name.partition(".")[0]
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in ("appliance", "ui")
            for name in node.names
        }
        if any(_root(node) in ours for node in tree.body) and str(path.relative_to(ROOT)) not in FIRST:
            yield ".".join(path.relative_to(ROOT).with_suffix("").parts)


def _root(node: ast.stmt) -> str | None:
    """Return the name whose thing a statement calls or assigns to."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        place: ast.expr = node.value.func
    elif isinstance(node, ast.Assign | ast.AugAssign):
        place = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if isinstance(place, ast.Name):
            return None
    else:
        return None
    while isinstance(place, ast.Attribute | ast.Subscript | ast.Call):
        place = place.func if isinstance(place, ast.Call) else place.value
    return place.id if isinstance(place, ast.Name) else None


def test_what_joins_itself_is_there_for_whoever_could_miss_it() -> None:
    """All such modules, and nothing else: it is loaded before the first page."""
    tree = ast.parse((ROOT / "appliance" / "joined.py").read_text(encoding="utf-8"))
    named = {
        f"{node.module}.{name.name}" for node in tree.body if isinstance(node, ast.ImportFrom) for name in node.names
    }
    assert named == set(joining()) and len(named) >= 2

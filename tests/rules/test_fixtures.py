"""Fixtures are defined once."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.kit.server import ROOT


def list_fixtures(path: Path) -> Iterator[ast.FunctionDef]:
    """Yield the fixtures that a file of tests defines."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.FunctionDef) and any(
            "pytest.fixture" in ast.unparse(decorator) for decorator in node.decorator_list
        ):
            yield node


def test_no_fixture_is_defined_twice() -> None:
    """No two files define a fixture of the same name with the same arguments and body, whatever their docstrings."""
    files_by_fixture = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for fixture in list_fixtures(path):
            statements = fixture.body[1:] if ast.get_docstring(fixture) is not None else fixture.body
            key = (fixture.name, ast.unparse(fixture.args), *map(ast.unparse, statements))
            files_by_fixture[key].append(path.relative_to(ROOT).as_posix())
    assert len(files_by_fixture) > 200
    assert [(key[0], files) for key, files in files_by_fixture.items() if len(files) > 1] == []

"""Names of variables in templates and scripts: each says what it holds. `test_texts.py` checks those in Python."""

import re
from pathlib import Path

from jinja2 import Environment, nodes

from tests.kit.server import ROOT
from tests.rules.test_texts import VAGUE_NAMES


def list_vague_names_of_template(path: Path) -> list[str]:
    """Return the vague names that a template binds by loops, macros and assignments, each with its place."""
    tree = Environment(extensions=["jinja2.ext.i18n"]).parse(path.read_text())
    return [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for node in tree.find_all(nodes.Name)
        if node.ctx in ("store", "param") and node.name in VAGUE_NAMES
    ]


def test_no_variable_of_a_template_has_a_vague_name() -> None:
    """No loop, macro or assignment of a template binds a name that fits any value."""
    paths = [path for tree in ("appliance", "ui") for path in sorted((ROOT / tree).rglob("*.html"))]
    assert len(paths) > 100
    assert [place for path in paths for place in list_vague_names_of_template(path)] == []


# Comments and plain strings, in which the names are words of a sentence
NO_CODE = re.compile(r"/\*.*?\*/|(?<![:\\])//[^\n]*|\"(?:[^\"\\\n]|\\.)*\"", re.DOTALL)
NAME_OF_SCRIPT = re.compile(r"(?<![\w$.#-])(?:" + "|".join(sorted(VAGUE_NAMES)) + r")(?![\w$-])")


def list_vague_names_of_script(path: Path) -> list[str]:
    """Return the vague names that a script uses, other than as properties, each with its place."""
    code = NO_CODE.sub(lambda part: re.sub(r"[^\n]", " ", part[0]), path.read_text())
    return [
        f"{path.relative_to(ROOT)}:{code.count(chr(10), 0, name.start()) + 1} {name[0]}"
        for name in NAME_OF_SCRIPT.finditer(code)
    ]


def test_no_variable_of_a_script_has_a_vague_name() -> None:
    """No variable or parameter of a script has a name that fits any value."""
    paths = sorted((ROOT / "static" / "js").glob("*.js"))
    assert len(paths) > 25
    assert [place for path in paths for place in list_vague_names_of_script(path)] == []

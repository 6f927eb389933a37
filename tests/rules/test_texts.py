"""How the sources read: short, documented, and silent about where they were written."""

import ast
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.server import ROOT

PRODUCT = ("appliance", "ui")
LONGEST_FILE, MOST_LINES, LONGEST_FUNCTION = 300, 400, 60

# Patterns, written so that this file does not hold what it looks for
_PLACES = r"work|workspace|tmp|root|mnt|home/\w+|Users/\w+"
FORBIDDEN = {
    "a path of somebody's machine": re.compile(rf"(?<![\w./*}}\\-])/(?:{_PLACES})(?:/|\b)"),
    "a file beside the repository": re.compile(r"\.\.[/]shared"),
    "work left over": re.compile(r"\b(?:TO[D]O|FIX[M]E|XX[X]|HA[C]K)\b"),
}


def files(*names: str) -> list[Path]:
    """Answer the Python files of some trees."""
    return sorted(path for name in names for path in (ROOT / name).rglob("*.py"))


def name_of(path: Path) -> str:
    """Answer a path as a test's name."""
    return str(path.relative_to(ROOT))


def tracked() -> list[Path]:
    """Answer every text file that is published with the repository."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode == 0 and listed.stdout:
        paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        paths = [path for name in (*PRODUCT, "tests", "packaging", "docs") for path in (ROOT / name).rglob("*")]
    kinds = {".py", ".md", ".toml", ".html", ".css", ".js", ".sh", ".yaml", ".yml", ".spec", ".lock", ""}
    # What others wrote stands as it came
    ours = [path for path in paths if "vendor" not in path.parts and path.name != "LICENSE"]
    return [path for path in ours if path.suffix in kinds and path.is_file()]


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Walk every function of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("path", files(*PRODUCT, "tests", "packaging"), ids=name_of)
def test_files_and_functions_are_short(path: Path) -> None:
    """No file has over 400 lines (over 300 is a warning), no function over 60."""
    lines = len(path.read_text().splitlines())
    if lines > LONGEST_FILE:
        warnings.warn(f"{name_of(path)} has {lines} lines; {LONGEST_FILE} are enough", stacklevel=1)
    assert lines <= MOST_LINES
    long = {
        node.name: node.end_lineno - node.lineno + 1
        for node in functions(ast.parse(path.read_text()))
        if node.end_lineno is not None and node.end_lineno - node.lineno + 1 > LONGEST_FUNCTION
    }
    assert long == {}


@pytest.mark.parametrize("path", files(*PRODUCT), ids=name_of)
def test_what_is_public_is_documented(path: Path) -> None:
    """Every module, public class and public function says in its docstring what it promises."""
    tree = ast.parse(path.read_text())
    found = [] if ast.get_docstring(tree) else ["the module"]
    for owner in (tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))):
        for node in owner.body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or node.name.startswith("_"):
                continue
            plain = isinstance(node, ast.ClassDef) and node.name == "Meta"
            handler = any(
                isinstance(base, ast.Name) and base.id == "HTMLParser" for base in getattr(owner, "bases", [])
            )
            if not (ast.get_docstring(node) or plain or handler or getattr(owner, "name", "").startswith("_")):
                found.append(node.name)
    assert found == []


@pytest.mark.parametrize("path", [path for path in files("tests") if path.name.startswith("test_")], ids=name_of)
def test_every_test_says_what_it_shows(path: Path) -> None:
    """Every test has a docstring: the behaviour it holds to, in a sentence."""
    found = [
        node.name for node in functions(ast.parse(path.read_text()))
        if node.name.startswith("test") and not (ast.get_docstring(node) or "").strip().endswith((".", "?", "!", ")"))
    ]  # fmt: skip
    assert found == []


def is_transaction(item: ast.withitem) -> bool:
    """Say whether a `with` holds the write lock."""
    call = item.context_expr
    name = call.func if isinstance(call, ast.Call) else call
    return getattr(name, "attr", getattr(name, "id", "")) == "transaction"


@pytest.mark.parametrize("path", files(*PRODUCT), ids=name_of)
def test_nothing_waits_inside_a_transaction(path: Path) -> None:
    """No `await` stands inside `with transaction()`: nobody holds the write lock while doing something else."""
    blocks = [
        node for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.With | ast.AsyncWith) and any(is_transaction(item) for item in node.items)
    ]  # fmt: skip
    assert [node.lineno for block in blocks for node in ast.walk(block) if isinstance(node, ast.Await)] == []


def test_the_doors_never_write_by_themselves() -> None:
    """Outside of the command line nobody opens a transaction of his own: all writing goes over the one writer."""
    users = []
    for path in files(*PRODUCT):
        tree = ast.parse(path.read_text())
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.With) and any(map(is_transaction, node.items))]
        users += [name_of(path)] * bool(calls)
    assert users == ["appliance/db/work.py"]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_texts_speak_of_the_product_alone(what: str) -> None:
    """No published text names a path of somebody's machine, a file that is not in it, or work left over."""
    found = []
    for path in tracked():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{name_of(path)}: {match[0]}" for match in FORBIDDEN[what].finditer(text)]
    assert found == []


def test_no_test_replaces_our_own_code() -> None:
    """Tests use the product itself: nobody imports a library of mocks."""
    users = []
    for path in files("tests"):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            users += [name_of(path) for module in modules if module.startswith("unittest.mock") or module == "mock"]
    assert users == []


def test_the_interpreter_is_the_declared_one() -> None:
    """The sources are tried on a version of Python that the project declares."""
    assert sys.version_info >= (3, 11)

"""Rules for sources: short functions, docstrings, no local paths, valid references."""

import ast
import gc
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from appliance.audience.filters import fields
from appliance.audience.filters.predicates import PHRASES, PREDICATES, PREDICATES_BY_TYPE
from tests.kit.server import ROOT
from ui.widgets import filter_builder

PRODUCT = ("appliance", "ui")
# Names that fit any value, and so tell a reader nothing
VAGUE_NAMES = {"found", "here", "made", "one", "said", "told"}
MAX_FUNCTION_LINES = 60

# Patterns, written so that they do not match this file
_PLACES = r"work|workspace|tmp|root|mnt|home/\w+|Users/\w+"
FORBIDDEN = {
    "a path of somebody's machine": re.compile(rf"(?<![\w./*}}\\-])/(?:{_PLACES})(?:/|\b)"),
    "a file beside the repository": re.compile(r"\.\.[/]shared"),
    "work left over": re.compile(r"\b(?:TO[D]O|FIX[M]E|XX[X]|HA[C]K)\b"),
}


def python_files(*names: str) -> list[Path]:
    """Return the Python files of some directories."""
    return sorted(path for name in names for path in (ROOT / name).rglob("*.py"))


def relative_name(path: Path) -> str:
    """Return a path relative to the repository."""
    return str(path.relative_to(ROOT))


def tracked_files() -> list[Path]:
    """Return every text file that is published with the repository."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode == 0 and listed.stdout:
        paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        trees = (*PRODUCT, "tests", "benchmarks", "packaging", "docs")
        paths = [path for name in trees for path in (ROOT / name).rglob("*")]
    kinds = {".py", ".md", ".toml", ".html", ".css", ".js", ".sh", ".yaml", ".yml", ".spec", ".lock", ""}
    # Files of others stay unchanged
    ours = [path for path in paths if "vendor" not in path.parts and path.name != "LICENSE"]
    return [path for path in ours if path.suffix in kinds and path.is_file()]


class Function(NamedTuple):
    """The name, number of lines and docstring of a function."""

    name: str
    lines: int
    docstring: str


class Source(NamedTuple):
    """The data of a Python file that the rules need, gathered in one pass."""

    name: str
    functions: list[Function]
    imports: set[str]
    opens_transaction: bool
    waits: list[int]  # the lines of `await` inside a transaction
    vague_names: list[tuple[int, str]]  # the lines and names of variables and parameters; not of fields of classes


@cache
def sources(tree: str) -> tuple[Source, ...]:
    """Return the parsed Python files of a directory, cached for all rules."""
    gc.disable()  # a tree is no garbage while it is read, and looking for some takes a fifth of the time
    try:
        return tuple(parse_source(path) for path in python_files(tree))
    finally:
        gc.enable()


def parse_source(path: Path) -> Source:
    """Parse a file."""
    source, fields = Source(relative_name(path), [], set(), False, [], []), set[int]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Name):
            if node.id in VAGUE_NAMES and isinstance(node.ctx, ast.Store) and id(node) not in fields:
                source.vague_names.append((node.lineno, node.id))
        elif isinstance(node, ast.arg):
            source.vague_names.extend([(node.lineno, node.arg)] if node.arg in VAGUE_NAMES else [])
        elif isinstance(node, ast.ClassDef):
            fields |= {id(field.target) for field in node.body if isinstance(field, ast.AnnAssign)}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            source.functions.append(Function(node.name, lines, ast.get_docstring(node) or ""))
        elif isinstance(node, ast.Import):
            source.imports.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source.imports.add(node.module or "")
        elif isinstance(node, ast.With | ast.AsyncWith) and any(map(is_transaction, node.items)):
            source.waits.extend(inner.lineno for inner in ast.walk(node) if isinstance(inner, ast.Await))
            source = source._replace(opens_transaction=True)
    return source


def is_transaction(item: ast.withitem) -> bool:
    """Return whether a `with` statement holds the write lock."""
    call = item.context_expr
    name = call.func if isinstance(call, ast.Call) else call
    return getattr(name, "attr", getattr(name, "id", "")) == "transaction"


def parsed_sources(*names: str) -> Iterator[Source]:
    """Yield the parsed files of some directories."""
    for name in names:
        yield from sources(name)


def test_functions_are_short() -> None:
    """No function has more than 60 lines."""
    offenders = [
        f"{source.name}: {function.name}" for source in parsed_sources(*PRODUCT, "tests", "packaging")
        for function in source.functions if function.lines > MAX_FUNCTION_LINES
    ]  # fmt: skip
    assert offenders == []


def test_docstrings_begin_with_a_usual_verb() -> None:
    """Docstrings begin neither with "Answer" nor with "Say" (PEP 257), except "Answer with" in test servers."""
    verbs = re.compile(r"Answer (?!with\b)|Say (?:whether|what|how|why|who|where|which)\b")
    offenders = [
        f"{source.name}: {function.name}" for source in parsed_sources(*PRODUCT, "tests", "packaging")
        for function in source.functions if verbs.match(function.docstring)
    ]  # fmt: skip
    assert offenders == []


def test_every_test_has_a_docstring() -> None:
    """The docstring of each test is a sentence."""
    offenders = [
        f"{source.name}: {function.name}" for source in parsed_sources("tests") if "/test_" in source.name
        for function in source.functions
        if function.name.startswith("test") and not function.docstring.strip().endswith((".", "?", "!", ")"))
    ]  # fmt: skip
    assert offenders == []


def test_no_await_inside_a_transaction() -> None:
    """No `await` is inside of `with transaction()`, so that the write lock is released soon."""
    assert [f"{source.name}:{line}" for source in parsed_sources(*PRODUCT) for line in source.waits] == []


def test_only_the_writer_opens_transactions() -> None:
    """No other module than the writer opens a transaction."""
    users = [source.name for source in parsed_sources(*PRODUCT) if source.opens_transaction]
    assert users == ["appliance/storage/transactions.py"]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_forbidden_texts(what: str) -> None:
    """No published text has a local path, a file outside of the repository, or a note of unfinished work."""
    texts = []
    for path in tracked_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        texts += [f"{relative_name(path)}: {match[0]}" for match in FORBIDDEN[what].finditer(text)]
    assert texts == []


def test_no_test_imports_mocks() -> None:
    """Tests use the real code and import no mock library."""
    mocks = [
        source.name for source in parsed_sources("tests")
        if any(name == "mock" or name.startswith("unittest.mock") for name in source.imports)
    ]  # fmt: skip
    assert mocks == []


def test_no_variable_has_a_vague_name() -> None:
    """No variable or parameter of the product, its tests or its benchmarks has a name that fits any value."""
    parsed = list(parsed_sources(*PRODUCT, "tests", "benchmarks", "packaging", "clients"))
    assert len(parsed) > 900
    assert [f"{source.name}:{line} {name}" for source in parsed for line, name in source.vague_names] == []


def test_the_python_version_is_supported() -> None:
    """The tests run on a version of Python that the project declares."""
    assert sys.version_info >= (3, 11)


CODE = re.compile(r"[(,;] ?((?:[PTD]\d{1,2})(?=[),;]| and | to ))")
LINK = re.compile(r"docs/(\w+)\.md(?:#(\d+)\b)?((?:(?:,| and| to) #\d+)*)")
DOCS = {"P": "promises", "T": "threats", "D": "deliverability"}


def heading_codes(name: str) -> set[str]:
    """Return what the headings of a document begin with: `P3`, or `6` of `6. Campaigns`."""
    return set(re.findall(r"^## (\w+)", (ROOT / "docs" / f"{name}.md").read_text(), re.MULTILINE))


def test_references_to_documents_resolve() -> None:
    """Every `(P3)`, `(T06)`, `(D19)` and `docs/decisions.md#6` of the sources names a heading."""
    known = {path.stem: heading_codes(path.stem) for path in (ROOT / "docs").glob("*.md")}
    missing, count = [], 0
    for path in python_files(*PRODUCT, "tests", "benchmarks"):
        if path == Path(__file__):
            continue
        text = path.read_text()
        wanted = [(DOCS[code[0]], code) for code in CODE.findall(text)]
        for name, first, others in LINK.findall(text):
            wanted += [(name, each) for each in (first, *re.findall(r"\d+", others)) if each]
            missing += [f"{relative_name(path)}: docs/{name}.md"] * (name not in known)
        count += len(wanted)
        missing += [
            f"{relative_name(path)}: {name}, {each}" for name, each in wanted if each not in known.get(name, set())
        ]
    assert missing == [] and count > 200


def test_files_named_in_documents_exist() -> None:
    """Every file of the repository that a document names exists."""
    pattern = re.compile(r"`((?:appliance|ui|tests|packaging|benchmarks|docs)/[\w./-]+)`")
    documents = [*(ROOT / "docs").glob("*.md"), ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]
    named = [(path, name) for path in documents for name in pattern.findall(path.read_text())]
    assert [f"{relative_name(path)}: {name}" for path, name in named if not (ROOT / name).exists()] == []
    assert len(named) > 80


# The predicates of lists, segments, flows and campaigns have phrases of their own (segments/explain.py).
_PHRASES_OF_IDS = {"not {}", "one of {}", "none of {}", "any", "none"}


def test_filter_fields_and_predicates_have_labels() -> None:
    """The filter builder has a label for each field and each predicate, and for each value of a field with choices."""
    assert all(field.label[0].isupper() and "_" not in field.label for field in fields.FIELDS)
    assert len({field.label for field in fields.FIELDS}) == len(fields.FIELDS)
    phrases = {phrase for predicate in PREDICATES for phrase in (predicate.phrase, predicate.opposite_phrase)}
    shown = {phrase for phrase in phrases if phrase and phrase[0].isalpha() and phrase not in _PHRASES_OF_IDS}
    assert shown <= PHRASES
    for type_, predicates in PREDICATES_BY_TYPE.items():
        assert all(filter_builder._predicate_label(type_, key) for key in predicates)
    for field in fields.FIELDS:
        assert all(field.label_value(choice)[0].isupper() for choice in field.choices)

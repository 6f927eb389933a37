"""Names in templates. No type checker reads them: a wrong name would be noticed only when its page is opened."""

import ast
import builtins
from collections.abc import Iterator
from functools import cache

import pytest
from jinja2 import Environment, meta, nodes
from jinja2.runtime import LoopContext
from markupsafe import Markup

from appliance.content.designs import render
from appliance.forms import fields
from appliance.public import pages
from tests.kit.server import ROOT
from ui import view

FOLDERS = {
    "appliance/content/designs/sections": render.environment,
    "appliance/public/html": pages.get_environment,
    "appliance/forms/html": fields.get_environment,
    "ui/html": view.template_environment,
}
TEMPLATES = [
    (folder, path.relative_to(ROOT / folder).as_posix())
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*.*ml"))
]
# Methods and attributes of values that Python and Jinja make
BUILT_IN = {name for kind in (Markup, dict, list, int, tuple, set, LoopContext) for name in dir(kind)} | set(
    dir(builtins)
)


@cache
def parse(environment: Environment, folder: str, name: str) -> nodes.Template:
    """Return the syntax tree of a template."""
    return environment.parse((ROOT / folder / name).read_text())


@cache
def defined_in_python() -> frozenset[str]:
    """Return every name that the sources define: functions, attributes, parameters, dictionary keys, imports."""
    paths = [path for tree in ("appliance", "ui") for path in (ROOT / tree).rglob("*.py")]
    return frozenset(name for path in paths for node in ast.walk(ast.parse(path.read_text())) for name in names(node))


def names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node defines."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            yield name
        case ast.arg(arg=name) | ast.keyword(arg=str(name)):
            yield name
        case ast.alias(name=name, asname=other):
            yield other or name.rpartition(".")[2]
        case ast.Constant(value=str(text)) if text.isidentifier():
            # Keys of dictionaries, columns of named SQL rows, names for setattr
            yield text
        case ast.Constant(value=str(text)) if " AS " in text or "SELECT" in text:
            yield from (word.strip("(),.") for word in text.replace(".", " ").split())


@cache
def defined_in_templates() -> frozenset[str]:
    """Return the names of macros, of assignments and of fields of `namespace(...)` in all templates."""
    names: set[str] = set()
    for folder, name in TEMPLATES:
        tree = parse(FOLDERS[folder](), folder, name)
        names |= {macro.name for macro in tree.find_all(nodes.Macro)}
        names |= {target.name for target in tree.find_all(nodes.Name) if target.ctx != "load"}
        names |= {keyword.key for keyword in tree.find_all(nodes.Keyword)}
        names |= {str(pair.key.value) for pair in tree.find_all(nodes.Pair) if isinstance(pair.key, nodes.Const)}
    return frozenset(names)


@pytest.mark.parametrize(("folder", "name"), TEMPLATES, ids=[name for _, name in TEMPLATES])
def test_every_name_in_a_template_is_defined_somewhere(folder: str, name: str) -> None:
    """An attribute or variable that neither Python nor a template defines is the name of something renamed."""
    environment = FOLDERS[folder]()
    tree = parse(environment, folder, name)
    known = BUILT_IN | defined_in_python() | defined_in_templates() | set(environment.globals)
    used = {node.attr for node in tree.find_all(nodes.Getattr)} | meta.find_undeclared_variables(tree)
    assert sorted(used - known) == []


# They render a whole template
RENDERERS = {"render", "render_whole", "render_fragment", "render_dialog"}


def rendered_in(tree: str) -> Iterator[tuple[str, str, set[str]]]:
    """Yield place, template and keywords of each call that passes a whole context by keywords."""
    for path in sorted((ROOT / tree).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="view"), attr=function),
                    args=[_, ast.Constant(value=str(name)), *_],
                    keywords=keywords,
                ) if function in RENDERERS and all(keyword.arg for keyword in keywords):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", name, {str(keyword.arg) for keyword in keywords}


def missing(name: str, passed: set[str]) -> set[str]:
    """Return the variables that a template of the interface and those it includes use and nobody sets."""
    environment, used, known, names = view.template_environment(), set[str](), passed | BUILT_IN, [name]
    for each in names:
        tree = parse(environment, "ui/html", each)
        used |= meta.find_undeclared_variables(tree)
        known |= {target.name for target in tree.find_all(nodes.Name) if target.ctx != "load"}
        names += [other for other in meta.find_referenced_templates(tree) if other and other not in names]
    return used - known - set(environment.globals)


def test_a_page_is_given_all_that_its_template_uses() -> None:
    """A call that passes its context by keywords passes every variable; `_build_context` adds those of all pages."""
    [function] = (
        node
        for node in ast.walk(ast.parse((ROOT / "ui/view.py").read_text()))
        if isinstance(node, ast.FunctionDef) and node.name == "_build_context"
    )
    common = {node.value for node in ast.walk(function) if isinstance(node, ast.Constant)}
    calls = list(rendered_in("ui"))
    assert len(calls) > 50
    faults = {f"{place} {name}": names for place, name, passed in calls if (names := missing(name, passed | common))}
    assert faults == {}

"""The templates that the executable carries compiled: all of them, of these words, and no others are taken."""

import marshal
from pathlib import Path
from typing import Any

import pytest
from jinja2 import Environment

from appliance import precompiled
from appliance.designs import render
from tests.kit.server import ROOT
from ui import view

KINDS = {"pages": view.environment, "sections": render.environment}


def carried(executable: Path) -> dict[str, dict[str, bytes]]:
    """Return the compiled templates that lie in the executable."""
    data = (executable.parent / "unpacked" / "_internal" / precompiled.FILE).read_bytes()
    assert str(ROOT).encode() not in data, "a path of this machine"
    held: dict[str, dict[str, bytes]] = marshal.loads(data)
    return held


def finding(environment: Environment, held: dict[str, bytes], compiles: list[str]) -> Environment:
    """Return the same environment with these compiled, which notes what it compiles all the same."""
    made: Any = environment.overlay(bytecode_cache=precompiled._finding(held))

    def compile_it(source: str, name: str, filename: str) -> Any:
        compiles.append(name)
        return Environment.compile(made, source, name, filename)

    made.compile = compile_it
    return made  # type: ignore[no-any-return]  # an overlay is one


@pytest.mark.parametrize("kind", KINDS)
def test_no_template_is_compiled_again(executable: Path, kind: str) -> None:
    """Each is there, and taken: the executable spends no time on any."""
    compiles: list[str] = []
    environment = finding(KINDS[kind](), carried(executable)[kind], compiles)
    names = environment.list_templates(("html", "mjml"))
    assert len(names) > 20
    for name in names:
        environment.get_template(name)
    assert compiles == []


def test_other_words_are_not_taken() -> None:
    """What was compiled from another text is compiled anew, so that nobody sees an old page."""
    environment = render.environment()
    held = precompiled.compiled(environment)
    name, other = sorted(held)[:2]
    compiles: list[str] = []
    found = finding(environment, {name: held[other]}, compiles)
    found.get_template(name)
    assert compiles == [name]


def test_from_the_sources_there_are_none() -> None:
    """A clone compiles what it has."""
    assert precompiled.of("pages") is None

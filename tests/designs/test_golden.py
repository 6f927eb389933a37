"""Golden files: HTML and text of every kind of section and of a whole email, compared with the rendering.

`pytest tests/designs/test_golden.py --update-golden` writes them anew; review the difference afterwards.
"""

from pathlib import Path

import pytest

from appliance.content.designs.render import render_design
from tests.designs.samples import EVERY, LOOK

_HERE = Path(__file__).parent / "golden"


def break_lines(html: str) -> str:
    """Add line breaks to an email where they are invisible, so that differences are readable."""
    return html.replace("<tr", "\n<tr").replace("<div", "\n<div").replace("<!--[if", "\n<!--[if").replace("}.", "}\n.")


@pytest.mark.parametrize("name", EVERY)
def test_a_rendering_matches_its_golden_file(name: str, request: pytest.FixtureRequest) -> None:
    """HTML and text match the golden files byte for byte."""
    design = render_design(EVERY[name], LOOK)
    for suffix, content in (("html", break_lines(design.html)), ("txt", design.text)):
        file = _HERE / f"{name}.{suffix}"
        if request.config.getoption("--update-golden"):
            file.write_text(content, encoding="utf-8")

        assert content == file.read_text(encoding="utf-8")


def test_each_golden_file_has_a_sample() -> None:
    """No golden file is left of a sample that was removed."""
    assert {file.stem for file in _HERE.iterdir()} == set(EVERY)

"""Mails as they are made today: HTML and text of every kind, and of one whole mail, kept to be compared.

`pytest tests/designs/test_golden.py --update-golden` writes them anew; the difference is then looked at.
"""

from pathlib import Path

import pytest

from appliance.content.designs.render import render_design
from tests.designs.samples import EVERY, LOOK

_HERE = Path(__file__).parent / "golden"


def lines(html: str) -> str:
    """Break a mail where that shows nothing, so that differences can be read."""
    return html.replace("<tr", "\n<tr").replace("<div", "\n<div").replace("<!--[if", "\n<!--[if").replace("}.", "}\n.")


@pytest.mark.parametrize("name", EVERY)
def test_a_mail_is_made_as_it_was(name: str, request: pytest.FixtureRequest) -> None:
    """Every byte of a rendering is the one that was looked at."""
    made = render_design(EVERY[name], LOOK)
    for suffix, found in (("html", lines(made.html)), ("txt", made.text)):
        file = _HERE / f"{name}.{suffix}"
        if request.config.getoption("--update-golden"):
            file.write_text(found, encoding="utf-8")

        assert found == file.read_text(encoding="utf-8")


def test_nothing_else_is_kept() -> None:
    """A file whose sample is gone is gone too."""
    assert {file.stem for file in _HERE.iterdir()} == set(EVERY)

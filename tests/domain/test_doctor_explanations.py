"""What findings of `doctor` mean to people who do not administer the server."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.core import i18n
from appliance.ops.doctor import explanations
from appliance.ops.doctor.checks import Finding

_LEVELS = ("ok", "note", "warn", "fail")
# Checks whose names are variables in the code, with the levels of their findings.
_VARIABLE_CHECKS = {
    "listen": ("ok", "fail"), "inbound.listen": ("ok", "fail"), "tls.certificate": ("ok", "warn", "fail"),
    "inbound.tls_certificate": ("ok", "warn", "fail"), "HELO name": ("ok", "warn", "fail"),
    "domain bakery.example": ("ok", "warn", "fail"), "seed sender": ("warn", "fail"),
}  # fmt: skip


def _find_levels_in_code() -> Iterator[tuple[str, str]]:
    """Yield (check, level) of every finding whose check is a literal in the code."""
    for path in Path(explanations.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Finding":
                level, check = node.args[:2]
                for part in ast.walk(level):
                    if isinstance(check, ast.Constant) and isinstance(part, ast.Constant) and part.value in _LEVELS:
                        yield str(check.value), str(part.value)


def test_every_finding_is_explained() -> None:
    """Each check and level of the code has a title and full sentences without names of settings and tables."""
    pairs = {*_find_levels_in_code()} | {(name, level) for name, all in _VARIABLE_CHECKS.items() for level in all}
    assert len(pairs) > 50
    for check, level in sorted(pairs):
        text = explanations.explain(Finding(level, check, "words"))  # type: ignore[arg-type]  # a level of the code
        assert text[0].isupper() and text.endswith("."), text
        assert not any(word in text for word in ("ledger", "schema", "base_url", "listen", "relay", "_")), text
        assert explanations.name_check(check)[0].isupper()


@pytest.mark.parametrize("language", ["de", "pl"])
def test_titles_of_domains_name_them(language: str) -> None:
    """The title of the check of a domain names the domain in every language."""
    with i18n.use_language(language):
        assert "bakery.example" in explanations.name_check("domain bakery.example")


def test_a_meaning_of_its_own() -> None:
    """A finding that means something else than others of its check and level says so itself."""
    assert explanations.explain(Finding("warn", "queue", "words", meaning="Review them.")) == "Review them."

"""The merge variables of a template: what each is where nobody has a value, and what it may look like."""

from collections.abc import Mapping
from typing import Any

from appliance.content.designs import document as designs
from appliance.content.designs import merge
from appliance.content.designs.merge import Context, MergeError

# Where the fields of a template stand
FIELDS: dict[str, Context] = {"subject": "header", "preheader": "text", "from_name": "header", "body": "html"}
# What is ours to fill: nobody can lack it, and nobody needs to bring it
_OURS = ("brand", "account", "campaign", "unsubscribe_url", "preferences_url", "view_url", "show")
_SAMPLES = {
    "first_name": "Anna", "last_name": "Example", "email": "anna@example.org", "phone": "+15550100",
    "country_code": "US", "company": "Acme", "company_name": "Acme", "city": "Lisbon", "name": "Anna Example",
    "url": "https://example.org", "price": "24.00", "total": "48.00", "amount": "24.00", "code": "WELCOME10",
    "date": "2030-01-31", "order_id": "1001", "quantity": "2",
}  # fmt: skip


def of(document: Mapping[str, Any], channel: str = "email") -> dict[str, dict[str, Any]]:
    """Return every variable of a template by name: `default`, `sample`, `required`.

    The default is what the template says wherever it uses the variable; a variable is required where it says nothing.
    What cannot be parsed has no variables.
    """
    found: dict[str, set[str | None]] = {}
    for context, text in _texts(document) if channel == "email" else [_body(document)]:
        if "{" not in text:
            continue
        try:
            compiled = merge.compile_template(text, context)
        except MergeError:
            continue
        for name, default in compiled.defaults:
            found.setdefault(name, set()).add(default)
    return {name: _told(name, said) for name, said in sorted(found.items()) if name.partition(".")[0] not in _OURS}


def _body(document: Mapping[str, Any]) -> tuple[Context, str]:
    """Return what an SMS says."""
    return "text", document.get("body") or ""


def _texts(document: Mapping[str, Any]) -> list[tuple[Context, str]]:
    texts: list[tuple[Context, str]] = [
        (context, text) for name, context in FIELDS.items() if isinstance(text := document.get(name), str)
    ]
    return texts + [("html", text) for text in designs.strings(document.get("design"))]


def _told(name: str, said: set[str | None]) -> dict[str, Any]:
    defaults = said - {""}
    default = next(iter(defaults)) if len(defaults) == 1 else None
    return {"default": default, "sample": default or sample(name), "required": None in said}


def sample(name: str) -> str:
    """Return what a variable may look like."""
    last = name.rpartition(".")[2]
    return _SAMPLES.get(last) or next((value for key, value in _SAMPLES.items() if key in last), last.replace("_", " "))

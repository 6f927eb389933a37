"""What was exported comes in again as it was (T05)."""

from typing import Any

import pytest

from tests.kit.client import Client
from tests.kit.server import Server
from tests.kit.uploads import done, upload

PEOPLE: list[dict[str, Any]] = [
    {"email": "form@example.org", "first_name": '=HYPERLINK("http://x","y")', "last_name": "＝1", "source": "@SUM(1)"},
    {"email": "data@example.org", "data": {"n": 3, "text": "007", "flag": True, "deep": {"a": [1]}, "f": "-2+3",
                                           "word": "true", "tags": ["a", "b"], "quote": "'=1", "big": "12"}},
    {"phone": "+14155550123", "first_name": "Ann, \"A\"", "country_code": "US"},
    {"email": "both@example.org", "phone": "+442079460123", "first_name": "Zoë"},
    {"email": "out@example.org", "opt_in": False},
]  # fmt: skip
FIELDS = ("first_name", "last_name", "source", "country_code", "data", "tracking", "subscribed_email")


def told(api: Client) -> dict[str, Any]:
    """Return what is known of everybody, by address."""
    found = {}
    for one in api.all("/contacts"):
        kept = [(each["kind"], each["value"], each["subscribed"]) for each in one["channels"]]
        found[kept[0][1]] = [sorted(kept), {name: one[name] for name in FIELDS}]
    return found


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_an_export_comes_in_again_as_it_was(api: Client, kind: str) -> None:
    """Formulas, numbers as text, nested data, quotes, phones and consent survive the way out and in."""
    for one in PEOPLE:
        assert api.post("/contacts", one).status in (200, 201)
    file = api.get(f"/exports/contacts.{kind}")
    assert file.status == 200
    with Server().set_up() as server:
        other = server.client()
        job = done(other, upload(other, file.body, f"contacts.{kind}"))

        assert (job["failed"], job["created"]) == (0, len(PEOPLE))
        assert told(other) == told(api)

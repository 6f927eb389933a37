"""An export imported into another installation restores contacts unchanged (T05)."""

from typing import Any

import pytest

from tests.kit.client import Client
from tests.kit.server import Server
from tests.kit.uploads import upload, wait_for_import

PEOPLE: list[dict[str, Any]] = [
    {"email": "form@example.org", "first_name": '=HYPERLINK("http://x","y")', "last_name": "＝1", "source": "@SUM(1)"},
    {"email": "data@example.org", "data": {"n": 3, "text": "007", "flag": True, "deep": {"a": [1]}, "f": "-2+3",
                                           "word": "true", "tags": ["a", "b"], "quote": "'=1", "big": "12"}},
    {"phone": "+14155550123", "first_name": "Ann, \"A\"", "country_code": "US"},
    {"email": "both@example.org", "phone": "+442079460123", "first_name": "Zoë"},
    {"email": "out@example.org", "opt_in": False},
]  # fmt: skip
# An unsubscribed contact that has also bounced; both must be restored
LEFT = "email,status,bounced,optin_time\nleft@example.org,unsubscribed,yes,2020-05-01 10:00:00\n"
FIELDS = ("first_name", "last_name", "source", "country_code", "data", "tracking", "subscribed_email")


CHANNEL = (
    "kind", "value", "subscribed", "suppression_reason", "opted_out_by", "opt_in_at", "opt_out_at",
)  # fmt: skip


def snapshot(api: Client) -> dict[str, Any]:
    """Return consent, list names and fields of each contact, by its first address."""
    lists = {row["id"]: row["name"] for row in api.all("/lists")}
    results = {}
    for contact in api.all("/contacts"):
        kept = [tuple(channel[name] for name in CHANNEL) for channel in contact["channels"]]
        names = sorted(lists[number] for number in contact["list_ids"])
        results[kept[0][1]] = [sorted(kept, key=str), names, {name: contact[name] for name in FIELDS}]
    return results


@pytest.fixture(scope="module")
def source(api: Client) -> Client:
    """Return a client of a server with contacts of every kind."""
    lists = [api.post("/lists", {"name": name}).expect(201)["id"] for name in ("Friends, old", "=1+1")]
    for person in PEOPLE:
        api.post("/contacts", {**person, "list_ids": lists if "phone" in person else []}).expect(201)
    several = {"channels_attributes": [{"value": "first@example.org"}, {"value": "second@example.org", "kind": "email"},
                                       {"value": "+442079460999", "kind": "phone"}]}  # fmt: skip
    api.post("/contacts", several).expect(201)
    api.post("/suppressions", {"address": "second@example.org", "reason": "hard_bounce"}).expect(201)
    wait_for_import(api, upload(api, LEFT, map={"optin_time": "opt_in_at"}))
    return api


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_an_export_is_restored_by_an_import(source: Client, kind: str) -> None:
    """Formulas, numbers as text, nested data, addresses, lists, bounces and consent are restored."""
    file = source.get(f"/exports/contacts.{kind}")
    assert file.status == 200
    with Server().set_up() as server:
        other = server.client()
        job = wait_for_import(other, upload(other, file.body, f"contacts.{kind}"))

        assert (job["failed"], job["created"], job["product"]) == (0, len(PEOPLE) + 2, "campanero")
        assert snapshot(other) == snapshot(source)
        left = snapshot(other)["left@example.org"][0][0]
        assert left[3:5] == ("hard_bounce", "recipient")
        assert other.all("/lists")[0]["contacts_count"] == 2

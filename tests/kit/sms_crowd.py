"""Many people with phones in a list, an SMS campaign to them, and its books against what a provider took."""

from collections.abc import Iterable
from typing import Any

from tests.kit.books import ACCEPTED, Books, identity
from tests.kit.client import Client
from tests.kit.sms_shapes import Sms
from tests.kit.uploads import done, upload

TEXT = "Hello {{ first_name }}, we bake until noon. Reply STOP to opt out"


def phone(index: int) -> str:
    """Return the number of one of a crowd: all differ, none is in use."""
    return f"+1{212 + index // 10_000 % 10}555{index % 10_000:04}"


def crowd(api: Client, count: int, name: str = "p", first: int = 0) -> int:
    """Make a list of so many people with phones, and return its id."""
    group: int = api.post("/lists", {"name": f"Phones {name}"}).expect(201)["id"]
    lines = [f"{phone(index)},N{index}" for index in range(first, first + count)]
    made = done(api, upload(api, "phone,first_name\n" + "\n".join(lines), list_ids=[group], consent_source="form"), 600)
    assert (made["status"], made["created"]) == ("complete", count), made
    return group


def draft(api: Client, group: int, body: str = TEXT) -> str:
    """Make an SMS campaign to a list and return its path."""
    said = {"name": "Text", "channel": "sms", "trigger_attributes": {"contact_list_id": group},
            "template_attributes": {"body": body}}  # fmt: skip
    return f"/campaigns/{api.post('/campaigns', said).expect(201)['id']}"


def send(api: Client, group: int, body: str = TEXT) -> str:
    """Send an SMS campaign to a list and return its path."""
    path = draft(api, group, body)
    api.post(f"{path}/send").expect(200)
    return path


def balance(api: Client, path: str, taken: Iterable[Sms]) -> Books:
    """Compare a campaign with all that a provider took of it; raises where they differ.

    Who is in the ledger as accepted was taken, under the name that stands there; who was taken is that or uncertain.
    """
    row: dict[str, Any] = api.get(path).expect(200)
    stats, number = row["stats"], row["id"]
    identity(stats)
    accepted = {
        one["to"]: one["provider_id"]
        for status in ACCEPTED if stats[status]
        for one in api.all("/messages", campaign_id=number, status=status)
    }  # fmt: skip
    uncertain = {one["to"] for one in api.all("/messages", campaign_id=number, status="uncertain")}
    assert len(accepted) == sum(stats[term] for term in ACCEPTED) == row["sent_count"]
    seen: dict[str, list[str]] = {}
    for one in taken:
        seen.setdefault(one.to, []).append(one.sid)
    assert not seen.keys() - accepted.keys() - uncertain, sorted(seen.keys() - accepted.keys() - uncertain)[:5]
    strange = [to for to, sid in accepted.items() if to in seen and sid not in seen[to]]
    assert not strange, strange[:5]
    copies = sum(len(sids) - 1 for sids in seen.values())
    missing = len(accepted.keys() - seen.keys())
    return Books(stats["audience"], len(accepted), len(uncertain), copies, missing, stats)

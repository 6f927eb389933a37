"""Lists of contacts with phone numbers, SMS campaigns to them, and the comparison with a provider's messages."""

from collections.abc import Iterable
from typing import Any

from tests.kit.client import Client
from tests.kit.reconciliation import ACCEPTED, Reconciliation, check_sum_of_stats
from tests.kit.sms_messages import Sms
from tests.kit.uploads import upload, wait_for_import

TEXT = "Hello {{ first_name }}, we bake until noon. Reply STOP to opt out"


def phone(index: int) -> str:
    """Return the phone number of contact number `index`, in a range that is not in use."""
    return f"+1{212 + index // 10_000 % 10}555{index % 10_000:04}"


def create_list(api: Client, count: int, name: str = "p", first: int = 0) -> int:
    """Import `count` contacts with phone numbers into a new list, and return the id of the list."""
    list_id: int = api.post("/lists", {"name": f"Phones {name}"}).expect(201)["id"]
    lines = [f"{phone(index)},N{index}" for index in range(first, first + count)]
    import_ = wait_for_import(
        api, upload(api, "phone,first_name\n" + "\n".join(lines), list_ids=[list_id], consent_source="form"), 600
    )
    assert (import_["status"], import_["created"]) == ("complete", count), import_
    return list_id


def create_campaign(api: Client, list_id: int, body: str = TEXT) -> str:
    """Create an SMS campaign to a list and return its path."""
    campaign = {"name": "Text", "channel": "sms", "trigger_attributes": {"contact_list_id": list_id},
            "template_attributes": {"body": body}}  # fmt: skip
    return f"/campaigns/{api.post('/campaigns', campaign).expect(201)['id']}"


def send_campaign(api: Client, list_id: int, body: str = TEXT) -> str:
    """Send an SMS campaign to a list and return its path."""
    path = create_campaign(api, list_id, body)
    api.post(f"{path}/send").expect(200)
    return path


def reconcile(api: Client, path: str, messages: Iterable[Sms]) -> Reconciliation:
    """Compare a campaign with all messages that a provider accepted of it.

    Every message that the ledger counts as accepted was accepted under the stored provider id; every accepted
    message is accepted or uncertain in the ledger. Raises AssertionError otherwise.
    """
    row: dict[str, Any] = api.get(path).expect(200)
    stats, number = row["stats"], row["id"]
    check_sum_of_stats(stats)
    accepted = {
        row_["to"]: row_["provider_id"]
        for status in ACCEPTED if stats[status]
        for row_ in api.all("/messages", campaign_id=number, status=status)
    }  # fmt: skip
    uncertain = {row_["to"] for row_ in api.all("/messages", campaign_id=number, status="uncertain")}
    assert len(accepted) == sum(stats[term] for term in ACCEPTED) == row["sent_count"]
    sids_by_recipient: dict[str, list[str]] = {}
    for row_ in messages:
        sids_by_recipient.setdefault(row_.to, []).append(row_.sid)
    assert not sids_by_recipient.keys() - accepted.keys() - uncertain, sorted(
        sids_by_recipient.keys() - accepted.keys() - uncertain
    )[:5]
    mismatched = [to for to, sid in accepted.items() if to in sids_by_recipient and sid not in sids_by_recipient[to]]
    assert not mismatched, mismatched[:5]
    copies = sum(len(sids) - 1 for sids in sids_by_recipient.values())
    missing = len(accepted.keys() - sids_by_recipient.keys())
    return Reconciliation(stats["audience"], len(accepted), len(uncertain), copies, missing, stats)

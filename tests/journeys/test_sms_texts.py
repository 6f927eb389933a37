"""SMS texts arrive as written: all test strings of the alphabets, merge tags and short links of a campaign."""

import re
from collections.abc import Callable, Iterator

import pytest

from tests.domain.test_sms_segments import VECTORS
from tests.kit.client import Client
from tests.kit.fake_sms import NUMBER, FakeSms
from tests.kit.readers import Reader
from tests.kit.server import Server

HINT = "{{ brand.company_name }}: reply STOP to end"
BODY = "Hi {{ contact.first_name | default: 'friend' }}: https://example.org/sale?for={{ contact.id }}. See you"


@pytest.fixture(scope="module")
def server(shared_fake_sms: FakeSms) -> Iterator[Server]:
    """A server that sends through the provider."""
    with Server(env=shared_fake_sms.env).set_up() as running:
        yield running
        running.stop()


def received_by(provider: FakeSms, api: Client, action: Callable[[], int]) -> dict[str, str]:
    """Run an action that sends SMS; return their texts by number, once the ledger has them as sent."""
    before = len(provider.accepted)
    count = action()
    accepted = provider.wait_for(before + count)[before:]
    assert {sms.sender for sms in accepted} == {NUMBER} and len({sms.to for sms in accepted}) == len(accepted) == count
    api.wait("/messages", lambda rows: all(sms["sent_at"] for sms in rows), limit=100, channel="sms")
    return {sms.to: sms.body for sms in accepted}


def test_texts_arrive_unchanged(shared_fake_sms: FakeSms, api: Client) -> None:
    """Each text arrives with the parts that the preview showed; texts that cannot be sent are rejected."""
    expected: dict[str, tuple[str, int]] = {}

    def post_all() -> int:
        for index, (body, parts, forcing) in enumerate(VECTORS):
            to, request = f"+4477009001{index:02}", {"document": {}, "channel": "sms", "transactional": True}
            preview = api.post("/templates/preview", request | {"body": body}).expect(200)["sms"]
            assert (preview["segments"], (preview["forcing"] or {}).get("character")) == (parts, forcing)
            posted = api.post("/messages", {"channel": "sms", "to": to, "body": body})
            if preview["problem"]:
                assert list(posted.expect(422)["validation_errors"]) == ["body"]
                continue
            assert posted.expect(201)["segments"] == parts
            expected[to] = (preview["body"], parts)
        return len(expected)

    arrived = received_by(shared_fake_sms, api, post_all)
    assert arrived == {to: body for to, (body, _) in expected.items()} and len(arrived) == 28
    segments = {message["to"]: message["segments"] for message in api.get("/messages", limit=100).expect(200)}
    assert segments == {to: parts for to, (_, parts) in expected.items()}


def test_names_hint_and_links_of_a_campaign(shared_fake_sms: FakeSms, server: Server, api: Client) -> None:
    """Each SMS has the contact's name, the hint once, and a short link that redirects and counts."""
    api.patch("/account", {"sms_opt_out_hint": HINT}).expect(200)
    people = [("+447700900201", "Łukasz"), ("+447700900202", None)]
    contact_ids = [api.post("/contacts", {"phone": to, "first_name": name}).expect(201)["id"] for to, name in people]
    list_id = api.post("/lists", {"name": "SMS", "contact_ids": contact_ids}).expect(201)["id"]
    request = {
        "name": "Sale", "channel": "sms", "template_attributes": {"body": BODY},
        "trigger_attributes": {"contact_list_id": list_id},
    }  # fmt: skip
    campaign = api.post("/campaigns", request).expect(201)["id"]

    def send() -> int:
        api.post(f"/campaigns/{campaign}/send").expect(200)
        return 2

    arrived = received_by(shared_fake_sms, api, send)
    base = re.escape(server.url)
    for (to, name), contact in zip(people, contact_ids, strict=True):
        match = re.fullmatch(
            rf"Hi {name or 'friend'}: {base}(/c/[\w-]{{19}}-1)\. See you Bakery: reply STOP to end", arrived[to]
        )
        assert match is not None, arrived[to]
        assert Reader(server).follow(match[1]) == f"https://example.org/sale?for={contact}"
    rows = api.get("/messages", campaign_id=campaign).expect(200)
    assert {row["to"]: row["segments"] for row in rows} == {people[0][0]: 2, people[1][0]: 1}
    events = api.wait("/events", lambda match: len(match) == 2, event="sms_clicked")
    assert {row["resource_url"] for row in events} == {f"https://example.org/sale?for={row}" for row in contact_ids}

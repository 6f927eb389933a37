"""What was written is what the provider gets: all strings of the standard, and the names and links of a campaign."""

import re
from collections.abc import Callable, Iterator

import pytest

from tests.domain.test_gsm import VECTORS
from tests.kit.client import Client
from tests.kit.fake_sms import NUMBER, FakeSms
from tests.kit.readers import Reader
from tests.kit.server import Server

HINT = "{{ brand.company_name }}: reply STOP to end"
BODY = "Hi {{ contact.first_name | default: 'friend' }}: https://example.org/sale?for={{ contact.id }}. See you"


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeSms]:
    """A provider that behaves well."""
    with FakeSms(tmp_path_factory.mktemp("sms")) as running:
        yield running


@pytest.fixture(scope="module")
def server(provider: FakeSms) -> Iterator[Server]:
    """An installation that sends through it."""
    with Server(env=provider.env).set_up() as running:
        yield running
        running.stop()


def new(provider: FakeSms, api: Client, act: Callable[[], int]) -> dict[str, str]:
    """Do something that sends so many SMS; answers by number what arrived, once the ledger knows it."""
    before = len(provider.accepted)
    count = act()
    taken = provider.wait_for(before + count)[before:]
    assert {one.sender for one in taken} == {NUMBER} and len({one.to for one in taken}) == len(taken) == count
    api.wait("/messages", lambda found: all(one["sent_at"] for one in found), limit=100, channel="sms")
    return {one.to: one.body for one in taken}


def test_what_was_written_is_what_arrives(provider: FakeSms, api: Client) -> None:
    """Sign by sign, with the parts and the alphabet that the preview showed; what nobody carries is refused."""
    wanted: dict[str, tuple[str, int]] = {}

    def post_all() -> int:
        for index, (body, parts, forcing) in enumerate(VECTORS):
            to, asked = f"+4477009001{index:02}", {"document": {}, "channel": "sms", "transactional": True}
            shown = api.post("/templates/preview", asked | {"body": body}).expect(200)["sms"]
            assert (shown["segments"], (shown["forcing"] or {}).get("character")) == (parts, forcing)
            posted = api.post("/messages", {"channel": "sms", "to": to, "body": body})
            if shown["problem"]:
                assert list(posted.expect(422)["validation_errors"]) == ["body"]
                continue
            assert posted.expect(201)["segments"] == parts
            wanted[to] = (shown["body"], parts)
        return len(wanted)

    arrived = new(provider, api, post_all)
    assert arrived == {to: body for to, (body, _) in wanted.items()} and len(arrived) == 28
    kept = {one["to"]: one["segments"] for one in api.get("/messages", limit=100).expect(200)}
    assert kept == {to: parts for to, (_, parts) in wanted.items()}


def test_a_campaign_says_names_and_leads_on(provider: FakeSms, server: Server, api: Client) -> None:
    """Each gets their name, the hint once, and a short link that leads where it was written to and counts."""
    api.patch("/account", {"sms_opt_out_hint": HINT}).expect(200)
    people = [("+447700900201", "Łukasz"), ("+447700900202", None)]
    made = [api.post("/contacts", {"phone": to, "first_name": name}).expect(201)["id"] for to, name in people]
    to_all = api.post("/lists", {"name": "SMS", "contact_ids": made}).expect(201)["id"]
    asked = {
        "name": "Sale", "channel": "sms", "template_attributes": {"body": BODY},
        "trigger_attributes": {"contact_list_id": to_all},
    }  # fmt: skip
    campaign = api.post("/campaigns", asked).expect(201)["id"]

    def send() -> int:
        api.post(f"/campaigns/{campaign}/send").expect(200)
        return 2

    arrived = new(provider, api, send)
    base = re.escape(server.url)
    for (to, name), contact in zip(people, made, strict=True):
        found = re.fullmatch(
            rf"Hi {name or 'friend'}: {base}(/c/[\w-]{{19}}-1)\. See you Bakery: reply STOP to end", arrived[to]
        )
        assert found is not None, arrived[to]
        assert Reader(server).follows(found[1]) == f"https://example.org/sale?for={contact}"
    rows = api.get("/messages", campaign_id=campaign).expect(200)
    assert {one["to"]: one["segments"] for one in rows} == {people[0][0]: 2, people[1][0]: 1}
    told = api.wait("/events", lambda found: len(found) == 2, event="sms_clicked")
    assert {one["resource_url"] for one in told} == {f"https://example.org/sale?for={one}" for one in made}

"""A campaign of SMS from its draft to its report, through a provider that answers and tells as Twilio does."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.fake_sms import NUMBER, FakeSms
from tests.kit.readers import Reader
from tests.kit.server import Server

BODY = (
    "Bakery: hi {{ first_name | default: 'you' }}! Bread: https://bakery.example/menu?a=1&b=2 {{ contact.data.code }}"
)
HINT = "STOP to leave"


class Bakery:
    """A service that sends through the provider, with the words of these tests."""

    def __init__(self, server: Server, provider: FakeSms, clock: TestClock) -> None:
        self.server, self.provider, self.clock = server, provider, clock
        self.api: Client = server.client()
        self.numbers = iter(f"+1415555{number:04}" for number in range(100, 9_999))

    def people(self, name: str, count: int, **more: Any) -> tuple[int, list[str]]:
        """Make a list of people with numbers of their own; return it and the numbers."""
        group = int(self.api.post("/lists", {"name": name}).expect(201)["id"])
        phones = [next(self.numbers) for _ in range(count)]
        for index, phone in enumerate(phones):
            body = {"phone": phone, "first_name": f"Ann{index}", "data": {"code": f"K{index}"}, "list_ids": [group]}
            self.api.post("/contacts", body | more).expect(201)
        return group, phones

    def draft(self, group: int, body: str = BODY, **more: Any) -> int:
        """Make a draft of SMS to a list."""
        asked = {"name": "Bread", "channel": "sms", "trigger_attributes": {"contact_list_id": group},
                 "template_attributes": {"body": body}, **more}  # fmt: skip
        return int(self.api.post("/campaigns", asked).expect(201)["id"])

    def sent(self, group: int, body: str = BODY) -> Any:
        """Send a campaign and wait until it is completed."""
        made = self.draft(group, body)
        assert self.api.post(f"/campaigns/{made}/send").expect(200)["status"] == "active"
        return self.until(made, "completed")

    def until(self, campaign: int, phase: str) -> Any:
        """Wait until a campaign is in a phase."""
        return self.api.wait(f"/campaigns/{campaign}", lambda row: row["phase"] == phase, 60)

    def at(self, seconds: float) -> str:
        """Return a moment so many seconds from now."""
        return datetime.fromtimestamp(self.clock.now() + seconds, UTC).isoformat()

    def rows(self, campaign: int) -> dict[str, Any]:
        """Return the messages of a campaign by number."""
        return {row["to"]: row for row in self.api.all("/messages", campaign_id=campaign)}


@pytest.fixture(scope="module")
def bakery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bakery]:
    """One for the tests of this module; it must end well."""
    directory = Path(tmp_path_factory.mktemp("bakery"))
    clock = TestClock(directory / "clock")
    with FakeSms(directory, clock) as provider:
        env = provider.env | {"CAMPANERO_SMS__RETRY_AFTER": "1,1,1", "CAMPANERO_SMS__COUNTRIES": "US,DE"}
        with Server(clock=clock, env=env).set_up() as server:
            made = Bakery(server, provider, clock)
            made.api.patch("/account", {"name": "Bakery", "sms_opt_out_hint": HINT}).expect(200)
            yield made
            server.stop()


def test_everybody_gets_their_own_once(bakery: Bakery) -> None:
    """Each their words from our number; who left, has no number or lives elsewhere is skipped with the reason.

    What the provider tells of them and what people do is in rows, report, events and webhooks' events.
    """
    api, provider = bakery.api, bakery.provider
    group, phones = bakery.people("Everybody", 6)
    api.post("/contacts", {"email": "mail@example.org", "list_ids": [group]}).expect(201)
    api.post("/contacts", {"phone": "+33612345678", "list_ids": [group]}).expect(201)
    german = api.post("/contacts", {"phone": "+4915112345678", "first_name": "Zoë Ж", "list_ids": [group]}).expect(201)
    left = api.post("/contacts", {"phone": next(bakery.numbers), "list_ids": [group]}).expect(201)
    api.patch(f"/contacts/{left['id']}", {"opt_in": False}).expect(200)
    done = bakery.sent(group)

    assert done["stats"] | {"audience": 10, "sent": 7, "skipped": 3, "accepted": 7, "pending": 0} == done["stats"]
    taken = {one.to: one for one in provider.accepted if one.to in {*phones, "+4915112345678"}}
    assert len(taken) == len([one for one in provider.accepted if one.to in taken]) == 7
    for index, phone in enumerate(phones):
        said = re.fullmatch(rf"Bakery: hi Ann{index}! Bread: (\S+) K{index} {HINT}", taken[phone].body)
        assert said is not None and taken[phone].sender == NUMBER
        assert said[1].startswith(f"{bakery.server.url}/c/") and len(said[1].rpartition("/")[2]) <= 25
    rows = bakery.rows(done["id"])
    assert {rows[phone]["provider_id"] for phone in phones} == {taken[phone].sid for phone in phones}
    assert rows[phones[0]]["segments"] == 1 and rows["+4915112345678"]["segments"] == 2
    reasons = {row["skip_reason"] for row in api.all("/messages", campaign_id=done["id"], status="skipped")}
    assert reasons == {"no_channel", "country_not_allowed", "unsubscribed"}
    _told(bakery, done["id"], phones, taken)
    assert api.get(f"/contacts/{german['id']}").expect(200)["channels"][0]["sent_count"] == 1


def _told(bakery: Bakery, campaign: int, phones: list[str], taken: dict[str, Any]) -> None:
    """Let the provider tell and people act, and hold it against the report."""
    api, provider = bakery.api, bakery.provider
    for phone in phones[:4]:
        assert provider.report(taken[phone], "delivered").status < 300
    assert provider.report(taken[phones[4]], "undelivered", 30005).status < 300
    bakery.clock.advance(60)
    (link,) = re.findall(r"http\S+", taken[phones[1]].body)
    assert Reader(bakery.server).follows(link.removeprefix(bakery.server.url)) == "https://bakery.example/menu?a=1&b=2"
    assert provider.write(bakery.server.url, phones[0], "Stop.").status == 200
    bakery.clock.advance(5)

    def is_told(report: Any) -> bool:
        return bool(report["clicks"]["people"]["count"] == 1 and report["unsubscribes"]["count"] == 1)

    report = api.wait(f"/campaigns/{campaign}/report", is_told, 30)
    terms = {one["name"]: one["count"] for one in report["ledger"]["terms"]}
    assert terms["delivered"] == 4 and terms["bounced"] == 1 and terms["sent"] == 2 and report["ledger"]["adds_up"]
    assert report["bounces"]["count"] == 1 and report["opens"]["total"] == 0 and report["domains"] == []
    assert report["links"][0]["url"] == "https://bakery.example/menu?a=1&b=2" and report["links"][0]["total_human"] == 1
    assert report["sms"]["parts"] == 8
    american, german = report["sms"]["countries"][:2]
    assert (american["country"], american["delivered"], american["bounced"], american["clicked"]) == ("US", 4, 1, 1)
    assert (german["country"], german["accepted"], german["parts"]) == ("DE", 1, 2)
    behind = api.get(german["people"].removeprefix("/v1/my")).expect(200)
    assert [row["to"] for row in behind] == ["+4915112345678"]
    who = api.get(report["unsubscribes"]["people"].removeprefix("/v1/my")).expect(200)
    assert [row["to"] for row in who] == [phones[0]]
    events = {row["event"] for row in api.all("/events") if row["data"].get("campaign_id") == campaign}
    assert {
        "sms_sent",
        "sms_delivered",
        "sms_failed",
        "sms_skipped",
        "campaign_started",
        "campaign_completed",
    } <= events


def test_a_test_is_marked_and_counted_nowhere(bakery: Bakery) -> None:
    """To a number that is named, or the contact's; the campaign is still a draft that nobody got."""
    api = bakery.api
    group, (phone,) = bakery.people("Tests", 1)
    draft = bakery.draft(group)
    template = api.get(f"/campaigns/{draft}").expect(200)["template"]["id"]
    contact = api.get("/contacts", list_id=group).expect(200)[0]["id"]
    answer = api.post(f"/templates/{template}/send_test", {"phones": ["+1 (415) 555-9999"], "contact_id": contact})
    (result,) = answer.expect(200)["results"]
    found = api.wait(f"/messages/{result['message_id']}", lambda row: row["status"] == "sent")
    (taken,) = bakery.provider.to("+14155559999")

    assert (result["to"], result["email"], result["phone"]) == ("+14155559999", None, "+14155559999")
    assert taken.body.startswith("[Test] Bakery: hi Ann0! ") and taken.body.endswith(f"K0 {HINT}")
    assert (found["test"], found["source_type"], found["campaign_id"], found["segments"]) == (True, "test", None, 1)
    assert api.get(f"/campaigns/{draft}").expect(200)["sent_count"] == 0
    theirs = api.post(f"/templates/{template}/send_test", {"contact_id": contact}).expect(200)["results"][0]
    assert theirs["to"] == phone
    foreign = api.post(f"/templates/{template}/send_test", {"phone": "+33612345678"}).expect(200)
    assert (foreign["sent"], foreign["results"][0]["error"]) == (0, "country_not_allowed")
    refused = api.post(f"/templates/{template}/send_test", {"email": "a@example.org"}).expect(422)["validation_errors"]
    assert set(refused) == {"email", "phone"}
    codes = {one["code"] for one in api.get(f"/campaigns/{draft}/preflight").expect(200)["warnings"]}
    assert "not_tested" not in codes


def test_it_can_be_taken_back_and_stopped(bakery: Bakery) -> None:
    """Undone in its hold nobody gets it; paused nothing more leaves; cancelled it never does."""
    api, provider = bakery.api, bakery.provider
    group, phones = bakery.people("Held", 30)
    draft = bakery.draft(group)
    assert api.post(f"/campaigns/{draft}/send", {"hold_seconds": 600}).expect(200)["phase"] == "holding"
    assert api.patch(f"/campaigns/{draft}", {"status": "draft"}).expect(200)["phase"] == "draft"
    assert not [one for one in provider.accepted if one.to in phones] and not bakery.rows(draft)

    provider.hold("slow", accept=False)
    api.post(f"/campaigns/{draft}/send").expect(200)
    provider.wait_reached("slow")
    assert api.post(f"/campaigns/{draft}/pause").expect(200)["phase"] == "paused"
    provider.release("slow")
    provider.behave()
    # What was in hand ends; the rest waits for a person
    api.wait("/messages", lambda rows: not rows, campaign_id=draft, status="sending")
    few = {one.to for one in provider.accepted if one.to in phones}
    assert len(few) <= 16
    assert api.post(f"/campaigns/{draft}/resume").expect(200)["status"] == "active"
    done = bakery.until(draft, "completed")
    assert done["stats"]["sent"] == 30 == len([one for one in provider.accepted if one.to in phones])

    group, phones = bakery.people("Stopped", 3)
    late = bakery.draft(group, scheduled_at=bakery.at(3600))
    assert api.post(f"/campaigns/{late}/send").expect(200)["phase"] == "scheduled"
    assert api.post(f"/campaigns/{late}/cancel").expect(200)["phase"] == "cancelled"
    assert not [one for one in provider.accepted if one.to in phones]


def test_it_stays_what_it_was_when_it_went_out(bakery: Bakery) -> None:
    """Who it is from and how to leave are fixed with the words, whatever the account says while it waits."""
    api, provider = bakery.api, bakery.provider
    group, phones = bakery.people("Fixed", 2)
    draft = bakery.draft(group)
    api.post(f"/campaigns/{draft}/send", {"hold_seconds": 600}).expect(200)
    api.patch("/account", {"sms_opt_out_hint": "QUIT to quit", "sms_from": "+15005550001"}).expect(200)
    bakery.clock.advance(610)
    bakery.until(draft, "completed")
    taken = [one for one in provider.accepted if one.to in phones]

    assert [one.sender for one in taken] == [NUMBER] * 2 and all(one.body.endswith(HINT) for one in taken)
    row = bakery.rows(draft)[phones[0]]
    assert api.get(f"/messages/{row['id']}").expect(200)["text"] == provider.to(phones[0])[0].body
    again = api.post(f"/campaigns/{draft}/duplicate").expect(201)
    assert (again["phase"], again["channel"], again["name"]) == ("draft", "sms", "Bread (copy)")
    assert again["template"]["body"] == BODY and again["trigger"]["contact_list_id"] == group
    api.post(f"/campaigns/{again['id']}/send").expect(200)
    bakery.until(again["id"], "completed")
    assert {(one.sender, one.body[-12:]) for one in provider.accepted[-2:]} == {("+15005550001", "QUIT to quit")}
    api.patch("/account", {"sms_opt_out_hint": HINT, "sms_from": None}).expect(200)


def test_it_starts_at_its_time(bakery: Bakery) -> None:
    """Armed, it goes out once its time has come, to those who are in the audience then."""
    group, phones = bakery.people("Later", 2)
    draft = bakery.draft(group, scheduled_at=bakery.at(1800))
    assert bakery.api.post(f"/campaigns/{draft}/send").expect(200)["phase"] == "scheduled"
    bakery.clock.advance(1810)
    done = bakery.until(draft, "completed")

    assert done["stats"]["sent"] == 2 and {one.to for one in bakery.provider.accepted} >= set(phones)


def test_a_night_is_waited_for_and_told(bakery: Bakery) -> None:
    """While it is quiet where everybody lives the campaign says so, with the time it goes on; then all get it."""
    api, provider = bakery.api, bakery.provider
    local = datetime.fromtimestamp(bakery.clock.now(), ZoneInfo("America/Los_Angeles"))
    hours = {"from": f"{local - timedelta(hours=1):%H:%M}", "to": f"{local + timedelta(hours=1):%H:%M}"}
    api.patch("/account", {"sms_quiet_hours": hours}).expect(200)
    group, phones = bakery.people("Night", 3)
    draft = bakery.draft(group)
    api.post(f"/campaigns/{draft}/send").expect(200)

    def is_resting(row: Any) -> bool:
        return bool(row["waiting"] and row["waiting"]["reason"] == "quiet_hours")

    told = api.wait(f"/campaigns/{draft}", is_resting, 30)
    assert "quiet hours where 3 people live, next at" in told["waiting"]["text"] and told["waiting"]["until"]
    assert {row["status"] for row in bakery.rows(draft).values()} == {"held"}
    bakery.clock.advance(3600 + 180)
    done = bakery.until(draft, "completed")
    api.patch("/account", {"sms_quiet_hours": None}).expect(200)

    assert done["stats"]["sent"] == 3 == len([one for one in provider.accepted if one.to in phones])


def test_a_refusal_is_explained_and_can_be_sent_again(bakery: Bakery) -> None:
    """A number that is none is a problem with its meaning; once the reason is gone a person sends it again."""
    api, provider = bakery.api, bakery.provider
    group, phones = bakery.people("Refused", 2)
    provider.refuse(21408, phones[0], times=1, text="Permission to send to this region is not enabled: " + phones[0])
    done = bakery.sent(group)
    problems = api.get(f"/campaigns/{done['id']}/report").expect(200)["problems"]

    assert done["stats"] | {"failed": 1, "sent": 1} == done["stats"]
    assert problems[0]["count"] == 1 and phones[0] not in problems[0]["text"] and problems[0]["meaning"]
    failed = bakery.rows(done["id"])[phones[0]]
    api.post(f"/messages/{failed['id']}/retry").expect(200)
    api.wait(f"/messages/{failed['id']}", lambda row: row["status"] == "sent")
    assert bakery.until(done["id"], "completed")["stats"]["sent"] == 2
    assert len(provider.to(phones[0])) == 1


def test_a_test_keys_campaign_stays_here(bakery: Bakery) -> None:
    """Whatever the transport, it goes to the inbox, marked as a test, and counts for nobody."""
    api = bakery.server.client(bakery.server.new_key("test", "--test"))
    group, phones = bakery.people("Capture", 2)
    draft = bakery.draft(group)
    assert api.post(f"/campaigns/{draft}/send").expect(200)["status"] == "active"
    done = bakery.until(draft, "completed")
    kept = [row for row in bakery.api.all("/capture") if row["to"] in phones]

    assert done["stats"]["sent"] == 2 and done["sent_count"] == 0
    assert len(kept) == 2 and not [one for one in bakery.provider.accepted if one.to in phones]

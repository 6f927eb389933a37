"""An SMS campaign from draft to report, through a provider that behaves like Twilio."""

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
    """A service that sends SMS through the test provider, with helpers of these tests."""

    def __init__(self, server: Server, provider: FakeSms, clock: TestClock) -> None:
        self.server, self.provider, self.clock = server, provider, clock
        self.api: Client = server.client()
        self.numbers = iter(f"+1415555{number:04}" for number in range(100, 9_999))

    def create_list(self, name: str, count: int, **fields: Any) -> tuple[int, list[str]]:
        """Create a list of contacts; return its id and their phone numbers."""
        list_id = int(self.api.post("/lists", {"name": name}).expect(201)["id"])
        phones = [next(self.numbers) for _ in range(count)]
        for index, phone in enumerate(phones):
            body = {"phone": phone, "first_name": f"Ann{index}", "data": {"code": f"K{index}"}, "list_ids": [list_id]}
            self.api.post("/contacts", body | fields).expect(201)
        return list_id, phones

    def create_draft(self, list_id: int, body: str = BODY, **fields: Any) -> int:
        """Create an SMS draft to a list and return its id."""
        request = {"name": "Bread", "channel": "sms", "trigger_attributes": {"contact_list_id": list_id},
                 "template_attributes": {"body": body}, **fields}  # fmt: skip
        return int(self.api.post("/campaigns", request).expect(201)["id"])

    def send_and_wait(self, list_id: int, body: str = BODY) -> Any:
        """Send a campaign and return it once it is completed."""
        campaign_id = self.create_draft(list_id, body)
        assert self.api.post(f"/campaigns/{campaign_id}/send").expect(200)["status"] == "active"
        return self.wait_for_phase(campaign_id, "completed")

    def wait_for_phase(self, campaign: int, phase: str) -> Any:
        """Wait until a campaign is in a phase."""
        return self.api.wait(f"/campaigns/{campaign}", lambda row: row["phase"] == phase, 60)

    def time_in(self, seconds: float) -> str:
        """Return the time in `seconds` from now."""
        return datetime.fromtimestamp(self.clock.now() + seconds, UTC).isoformat()

    def rows(self, campaign: int) -> dict[str, Any]:
        """Return the messages of a campaign, by phone number."""
        return {row["to"]: row for row in self.api.all("/messages", campaign_id=campaign)}


@pytest.fixture(scope="module")
def bakery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bakery]:
    """A service for the tests of this module."""
    directory = Path(tmp_path_factory.mktemp("bakery"))
    clock = TestClock(directory / "clock")
    with FakeSms(directory, clock) as provider:
        env = provider.env | {"CAMPANERO_SMS__RETRY_AFTER": "1,1,1", "CAMPANERO_SMS__COUNTRIES": "US,DE"}
        with Server(clock=clock, env=env).set_up() as server:
            service = Bakery(server, provider, clock)
            service.api.patch("/account", {"name": "Bakery", "sms_opt_out_hint": HINT}).expect(200)
            yield service
            server.stop()


def test_an_sms_campaign(bakery: Bakery) -> None:
    """Each contact gets its own text once from our number; others are skipped with their reason.

    Receipts, clicks and a STOP appear in messages, report and events.
    """
    api, provider = bakery.api, bakery.provider
    list_id, phones = bakery.create_list("Everybody", 6)
    api.post("/contacts", {"email": "mail@example.org", "list_ids": [list_id]}).expect(201)
    api.post("/contacts", {"phone": "+33612345678", "list_ids": [list_id]}).expect(201)
    german_contact = api.post(
        "/contacts", {"phone": "+4915112345678", "first_name": "Zoë Ж", "list_ids": [list_id]}
    ).expect(201)
    opted_out = api.post("/contacts", {"phone": next(bakery.numbers), "list_ids": [list_id]}).expect(201)
    api.patch(f"/contacts/{opted_out['id']}", {"opt_in": False}).expect(200)
    completed = bakery.send_and_wait(list_id)

    assert (
        completed["stats"] | {"audience": 10, "sent": 7, "skipped": 3, "accepted": 7, "pending": 0}
        == completed["stats"]
    )
    taken = {accepted.to: accepted for accepted in provider.accepted if accepted.to in {*phones, "+4915112345678"}}
    assert len(taken) == len([accepted for accepted in provider.accepted if accepted.to in taken]) == 7
    for index, phone in enumerate(phones):
        match = re.fullmatch(rf"Bakery: hi Ann{index}! Bread: (\S+) K{index} {HINT}", taken[phone].body)
        assert match is not None and taken[phone].sender == NUMBER
        assert match[1].startswith(f"{bakery.server.url}/c/") and len(match[1].rpartition("/")[2]) <= 25
    rows = bakery.rows(completed["id"])
    assert {rows[phone]["provider_id"] for phone in phones} == {taken[phone].sid for phone in phones}
    assert rows[phones[0]]["segments"] == 1 and rows["+4915112345678"]["segments"] == 2
    reasons = {row["skip_reason"] for row in api.all("/messages", campaign_id=completed["id"], status="skipped")}
    assert reasons == {"no_channel", "country_not_allowed", "unsubscribed"}
    _check_report(bakery, completed["id"], phones, taken)
    assert api.get(f"/contacts/{german_contact['id']}").expect(200)["channels"][0]["sent_count"] == 1


def _check_report(bakery: Bakery, campaign: int, phones: list[str], taken: dict[str, Any]) -> None:
    """Report receipts, a click and a STOP, and check the campaign's report."""
    api, provider = bakery.api, bakery.provider
    for phone in phones[:4]:
        assert provider.send_receipt(taken[phone], "delivered").status < 300
    assert provider.send_receipt(taken[phones[4]], "undelivered", 30005).status < 300
    bakery.clock.advance(60)
    (link,) = re.findall(r"http\S+", taken[phones[1]].body)
    assert Reader(bakery.server).follow(link.removeprefix(bakery.server.url)) == "https://bakery.example/menu?a=1&b=2"
    assert provider.send_incoming(bakery.server.url, phones[0], "Stop.").status == 200
    bakery.clock.advance(5)

    def is_counted(report: Any) -> bool:
        return bool(report["clicks"]["people"]["count"] == 1 and report["unsubscribes"]["count"] == 1)

    report = api.wait(f"/campaigns/{campaign}/report", is_counted, 30)
    terms = {row["name"]: row["count"] for row in report["ledger"]["terms"]}
    assert terms["delivered"] == 4 and terms["bounced"] == 1 and terms["sent"] == 2 and report["ledger"]["adds_up"]
    assert report["bounces"]["count"] == 1 and report["opens"]["total"] == 0 and report["domains"] == []
    assert report["links"][0]["url"] == "https://bakery.example/menu?a=1&b=2" and report["links"][0]["total_human"] == 1
    assert report["sms"]["parts"] == 8
    us, germany = report["sms"]["countries"][:2]
    assert (us["country"], us["delivered"], us["bounced"], us["clicked"]) == ("US", 4, 1, 1)
    assert (germany["country"], germany["accepted"], germany["parts"]) == ("DE", 1, 2)
    german_messages = api.get(germany["people"].removeprefix("/v1/my")).expect(200)
    assert [row["to"] for row in german_messages] == ["+4915112345678"]
    unsubscribed = api.get(report["unsubscribes"]["people"].removeprefix("/v1/my")).expect(200)
    assert [row["to"] for row in unsubscribed] == [phones[0]]
    events = {row["event"] for row in api.all("/events") if row["data"].get("campaign_id") == campaign}
    assert {
        "sms_sent",
        "sms_delivered",
        "sms_failed",
        "sms_skipped",
        "campaign_started",
        "campaign_completed",
    } <= events


def test_a_test_sms(bakery: Bakery) -> None:
    """A test SMS goes to a given number or the contact's, is marked, and is not counted for the campaign."""
    api = bakery.api
    list_id, (phone,) = bakery.create_list("Tests", 1)
    campaign_id = bakery.create_draft(list_id)
    template = api.get(f"/campaigns/{campaign_id}").expect(200)["template"]["id"]
    contact = api.get("/contacts", list_id=list_id).expect(200)[0]["id"]
    response = api.post(f"/templates/{template}/send_test", {"phones": ["+1 (415) 555-9999"], "contact_id": contact})
    (result,) = response.expect(200)["results"]
    message = api.wait(f"/messages/{result['message_id']}", lambda row: row["status"] == "sent")
    (accepted,) = bakery.provider.to("+14155559999")

    assert (result["to"], result["email"], result["phone"]) == ("+14155559999", None, "+14155559999")
    assert accepted.body.startswith("[Test] Bakery: hi Ann0! ") and accepted.body.endswith(f"K0 {HINT}")
    assert (message["test"], message["source_type"], message["campaign_id"], message["segments"]) == (
        True,
        "test",
        None,
        1,
    )
    assert api.get(f"/campaigns/{campaign_id}").expect(200)["sent_count"] == 0
    to_contact = api.post(f"/templates/{template}/send_test", {"contact_id": contact}).expect(200)["results"][0]
    assert to_contact["to"] == phone
    foreign = api.post(f"/templates/{template}/send_test", {"phone": "+33612345678"}).expect(200)
    assert (foreign["sent"], foreign["results"][0]["error"]) == (0, "country_not_allowed")
    errors = api.post(f"/templates/{template}/send_test", {"email": "a@example.org"}).expect(422)["validation_errors"]
    assert set(errors) == {"email", "phone"}
    codes = {finding["code"] for finding in api.get(f"/campaigns/{campaign_id}/preflight").expect(200)["warnings"]}
    assert "not_tested" not in codes


def test_undo_pause_and_cancel(bakery: Bakery) -> None:
    """Undone in its hold, paused or cancelled, a campaign sends nothing more."""
    api, provider = bakery.api, bakery.provider
    list_id, phones = bakery.create_list("Held", 30)
    campaign_id = bakery.create_draft(list_id)
    assert api.post(f"/campaigns/{campaign_id}/send", {"hold_seconds": 600}).expect(200)["phase"] == "holding"
    assert api.patch(f"/campaigns/{campaign_id}", {"status": "draft"}).expect(200)["phase"] == "draft"
    assert not [sms for sms in provider.accepted if sms.to in phones] and not bakery.rows(campaign_id)

    provider.hold("slow", accept=False)
    api.post(f"/campaigns/{campaign_id}/send").expect(200)
    provider.wait_reached("slow")
    assert api.post(f"/campaigns/{campaign_id}/pause").expect(200)["phase"] == "paused"
    provider.release("slow")
    provider.clear_rules()
    # SMS in flight are completed; the rest waits
    api.wait("/messages", lambda rows: not rows, campaign_id=campaign_id, status="sending")
    sent_before_pause = {sms.to for sms in provider.accepted if sms.to in phones}
    assert len(sent_before_pause) <= 16
    assert api.post(f"/campaigns/{campaign_id}/resume").expect(200)["status"] == "active"
    completed = bakery.wait_for_phase(campaign_id, "completed")
    assert completed["stats"]["sent"] == 30 == len([sms for sms in provider.accepted if sms.to in phones])

    list_id, phones = bakery.create_list("Stopped", 3)
    scheduled_id = bakery.create_draft(list_id, scheduled_at=bakery.time_in(3600))
    assert api.post(f"/campaigns/{scheduled_id}/send").expect(200)["phase"] == "scheduled"
    assert api.post(f"/campaigns/{scheduled_id}/cancel").expect(200)["phase"] == "cancelled"
    assert not [sms for sms in provider.accepted if sms.to in phones]


def test_sender_and_hint_are_fixed_when_sending(bakery: Bakery) -> None:
    """Sender and opt-out hint are those of the moment of sending, whatever changes during the hold."""
    api, provider = bakery.api, bakery.provider
    list_id, phones = bakery.create_list("Fixed", 2)
    campaign_id = bakery.create_draft(list_id)
    api.post(f"/campaigns/{campaign_id}/send", {"hold_seconds": 600}).expect(200)
    api.patch("/account", {"sms_opt_out_hint": "QUIT to quit", "sms_from": "+15005550001"}).expect(200)
    bakery.clock.advance(610)
    bakery.wait_for_phase(campaign_id, "completed")
    accepted = [sms for sms in provider.accepted if sms.to in phones]

    assert [sms.sender for sms in accepted] == [NUMBER] * 2 and all(sms.body.endswith(HINT) for sms in accepted)
    row = bakery.rows(campaign_id)[phones[0]]
    assert api.get(f"/messages/{row['id']}").expect(200)["text"] == provider.to(phones[0])[0].body
    duplicate = api.post(f"/campaigns/{campaign_id}/duplicate").expect(201)
    assert (duplicate["phase"], duplicate["channel"], duplicate["name"]) == ("draft", "sms", "Bread (copy)")
    assert duplicate["template"]["body"] == BODY and duplicate["trigger"]["contact_list_id"] == list_id
    api.post(f"/campaigns/{duplicate['id']}/send").expect(200)
    bakery.wait_for_phase(duplicate["id"], "completed")
    assert {(sms.sender, sms.body[-12:]) for sms in provider.accepted[-2:]} == {("+15005550001", "QUIT to quit")}
    api.patch("/account", {"sms_opt_out_hint": HINT, "sms_from": None}).expect(200)


def test_a_scheduled_sms_campaign(bakery: Bakery) -> None:
    """A scheduled campaign starts at its time."""
    list_id, phones = bakery.create_list("Later", 2)
    campaign_id = bakery.create_draft(list_id, scheduled_at=bakery.time_in(1800))
    assert bakery.api.post(f"/campaigns/{campaign_id}/send").expect(200)["phase"] == "scheduled"
    bakery.clock.advance(1810)
    completed = bakery.wait_for_phase(campaign_id, "completed")

    assert completed["stats"]["sent"] == 2 and {sms.to for sms in bakery.provider.accepted} >= set(phones)


def test_quiet_hours_of_all_recipients(bakery: Bakery) -> None:
    """While all recipients have quiet hours the campaign waits and says until when; then all get it."""
    api, provider = bakery.api, bakery.provider
    local = datetime.fromtimestamp(bakery.clock.now(), ZoneInfo("America/Los_Angeles"))
    hours = {"from": f"{local - timedelta(hours=1):%H:%M}", "to": f"{local + timedelta(hours=1):%H:%M}"}
    api.patch("/account", {"sms_quiet_hours": hours}).expect(200)
    list_id, phones = bakery.create_list("Night", 3)
    campaign_id = bakery.create_draft(list_id)
    api.post(f"/campaigns/{campaign_id}/send").expect(200)

    def is_resting(row: Any) -> bool:
        return bool(row["waiting"] and row["waiting"]["reason"] == "quiet_hours")

    waiting_row = api.wait(f"/campaigns/{campaign_id}", is_resting, 30)
    assert "quiet hours for 3 contacts, next at" in waiting_row["waiting"]["text"] and waiting_row["waiting"]["until"]
    assert {row["status"] for row in bakery.rows(campaign_id).values()} == {"held"}
    bakery.clock.advance(3600 + 180)
    completed = bakery.wait_for_phase(campaign_id, "completed")
    api.patch("/account", {"sms_quiet_hours": None}).expect(200)

    assert completed["stats"]["sent"] == 3 == len([sms for sms in provider.accepted if sms.to in phones])


def test_a_rejected_sms_can_be_resent(bakery: Bakery) -> None:
    """The report explains a rejection without the number, and a user can send the message again."""
    api, provider = bakery.api, bakery.provider
    list_id, phones = bakery.create_list("Refused", 2)
    provider.reject(21408, phones[0], times=1, text="Permission to send to this region is not enabled: " + phones[0])
    completed = bakery.send_and_wait(list_id)
    problems = api.get(f"/campaigns/{completed['id']}/report").expect(200)["problems"]

    assert completed["stats"] | {"failed": 1, "sent": 1} == completed["stats"]
    assert problems[0]["count"] == 1 and phones[0] not in problems[0]["text"] and problems[0]["meaning"]
    failed = bakery.rows(completed["id"])[phones[0]]
    api.post(f"/messages/{failed['id']}/retry").expect(200)
    api.wait(f"/messages/{failed['id']}", lambda row: row["status"] == "sent")
    assert bakery.wait_for_phase(completed["id"], "completed")["stats"]["sent"] == 2
    assert len(provider.to(phones[0])) == 1


def test_a_test_key_sends_sms_to_the_capture_inbox(bakery: Bakery) -> None:
    """A campaign sent with a test key is captured, marked as a test and not counted."""
    api = bakery.server.client(bakery.server.new_key("test", "--test"))
    list_id, phones = bakery.create_list("Capture", 2)
    campaign_id = bakery.create_draft(list_id)
    assert api.post(f"/campaigns/{campaign_id}/send").expect(200)["status"] == "active"
    completed = bakery.wait_for_phase(campaign_id, "completed")
    captured = [row for row in bakery.api.all("/capture") if row["to"] in phones]

    assert completed["stats"]["sent"] == 2 and completed["sent_count"] == 0
    assert len(captured) == 2 and not [sms for sms in bakery.provider.accepted if sms.to in phones]

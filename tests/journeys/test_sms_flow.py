"""A flow of SMS: a click, a STOP, an unknown number, and quiet hours."""

from datetime import datetime
from typing import Any

from tests.conftest import FreshServer
from tests.journeys.test_tracking import wait_until
from tests.kit.clock import TestClock
from tests.kit.fake_sms import FakeSms
from tests.kit.readers import Reader
from tests.kit.recipients import NO_RATE_LIMITS
from tests.kit.server import Server

FROM = "+447700900999"
PEOPLE = {"ann": "+447700900201", "bob": "+447700900202", "cid": "+447700900203", "dee": "+447700900204"}
CLICKED = {"name": "event", "predicate": "performed", "value": {"event": "sms_clicked", "since": "flow_start"}}
STEPS = [
    {"type": "sms", "body": "Hi {{ first_name }}, your {{ event.bread }}: https://bakery.example/bread"},
    {"duration": 12 * 3600},
    {"filters": [CLICKED], "yes": [{"type": "sms", "body": "You liked it"}],
     "no": [{"type": "sms", "body": "Did you see our {{ event.bread }}?"}]},
    {"type": "sms", "body": "Paid", "transactional": True},
]  # fmt: skip
# An evening in London; twelve hours later it is 7 in the morning there
START = "2027-06-01T18:00:00+00:00"


class Journey:
    """Four contacts in a flow, and the SMS that they got."""

    def __init__(self, server: Server, sms: FakeSms, clock: TestClock) -> None:
        self.server, self.api, self.sms, self.clock = server, server.client(), sms, clock
        self.api.patch("/account", {
            "sms_from": FROM, "sms_opt_out_hint": "Reply STOP to end",
            "sms_quiet_hours": {"from": "21:00", "to": "08:00"},
        }).expect(200)  # fmt: skip
        self.people = {
            name: self.api.post("/contacts", {"phone": number, "first_name": name.title()}).expect(201)["id"]
            for name, number in PEOPLE.items()
        }
        flow = self.api.post("/flows", {"trigger": {"event": "checkout"}, "steps": STEPS}).expect(201)
        self.flow = f"/flows/{flow['id']}"
        self.api.post(f"{self.flow}/activate").expect(200)

    def texts(self, name: str) -> list[str]:
        """Return the texts sent to a contact, without links."""
        return [sms.body.partition(": http")[0] for sms in self.sms.to(PEOPLE[name])]

    def rows(self, name: str) -> list[tuple[str, str | None]]:
        """Return (status, skip reason) of a contact's messages, oldest first."""
        messages = self.api.get("/messages", to=PEOPLE[name], source_type="flow").expect(200)
        return [(message["status"], message["skip_reason"]) for message in reversed(messages)]

    def events(self, name: str) -> list[str]:
        """Return the names of a contact's SMS events, sorted."""
        events = self.api.get("/events", contact_id=self.people[name], limit=100).expect(200)
        return sorted(event["event"] for event in events if event["event"].startswith("sms_"))


def test_a_flow_of_sms(fresh_server: FreshServer, fake_sms: FakeSms, clock: TestClock) -> None:
    """A click decides the branch, a STOP gets one reply and ends all SMS, and marketing waits for the morning."""
    clock.advance(datetime.fromisoformat(START).timestamp() - clock.now())
    fake_sms.reject(21211, PEOPLE["dee"])
    fake_sms.send_receipts_for_all("sent", "delivered")
    server = fresh_server(env=fake_sms.env | NO_RATE_LIMITS, clock=clock)
    journey = Journey(server, fake_sms, clock)
    for contact_id in journey.people.values():
        journey.api.post("/events", {"event": "checkout", "contact_id": contact_id, "data": {"bread": "rye"}}).expect(
            201
        )
    first = evening(journey)
    morning(journey)
    single_messages(journey)
    day(journey, first)
    server.cli("doctor")
    server.stop()


def evening(journey: Journey) -> dict[str, Any]:
    """The first SMS arrive; Ann clicks, Bob writes STOP, and Dee's number is rejected."""
    journey.sms.wait_for(3)
    wait_until(lambda: [journey.rows(name) for name in ("ann", "bob", "cid")] == [[("delivered", None)]] * 3)
    wait_until(lambda: journey.rows("dee") == [("failed", None)])
    (to_ann,) = journey.sms.to(PEOPLE["ann"])
    assert to_ann.sender == FROM and to_ann.body.startswith("Hi Ann, your rye: http")
    assert to_ann.body.endswith(" Reply STOP to end")
    link = to_ann.body.partition(journey.server.url)[2].split()[0]
    journey.clock.advance(seconds=30)
    assert Reader(journey.server).follow(link) == "https://bakery.example/bread"
    wait_until(lambda: "sms_clicked" in journey.events("ann"))
    assert journey.sms.send_incoming(journey.server.url, PEOPLE["bob"], "Stop.", FROM).status == 200
    journey.sms.wait(lambda _: len(journey.texts("bob")) == 2)
    assert journey.api.get(f"/contacts/{journey.people['dee']}").json["sendable_phone"] is False
    message: dict[str, Any] = journey.api.get("/messages", to=PEOPLE["ann"]).json[0]
    assert (message["from"], message["segments"], message["subject"], message["transactional"]) == (
        FROM,
        1,
        None,
        False,
    )
    assert message["provider_id"] == to_ann.sid and message["delivered_at"] and message["internet_message_id"] is None
    return message


def morning(journey: Journey) -> None:
    """At 7 in the morning transactional SMS are sent; marketing waits until 8."""
    journey.clock.advance(hours=12)
    wait_until(lambda: [journey.texts(name)[1:] for name in ("ann", "cid")] == [["Paid"], ["Paid"]])
    wait_until(lambda: [[status for status, _ in journey.rows(name)] for name in ("ann", "cid")] == [
        ["delivered", "held", "delivered"]] * 2)  # fmt: skip
    wait_until(lambda: journey.rows("bob")[1:] == [("skipped", "suppressed_stop_keyword")] * 2)
    wait_until(lambda: journey.rows("dee")[1:] == [("skipped", "suppressed_hard_bounce")] * 2)


def single_messages(journey: Journey) -> None:
    """In quiet hours a code is sent and an offer waits; after a STOP neither is accepted."""
    offer = {"channel": "sms", "to": PEOPLE["cid"], "body": "An offer", "transactional": False}
    offer_id = journey.api.post("/messages", offer).expect(201)["id"]
    code_id = journey.api.post("/messages", {"channel": "sms", "to": PEOPLE["cid"], "body": "Code 1"}).expect(201)["id"]
    journey.api.wait(f"/messages/{code_id}", lambda row: row["status"] == "delivered")
    held_row = journey.api.wait(f"/messages/{offer_id}", lambda row: row["status"] == "held")
    assert "2027-06-02T07:00:00" <= held_row["next_attempt_at"] <= "2027-06-02T07:01:00.999Z"
    for message in (offer, offer | {"transactional": True}):
        rejection = journey.api.post("/messages", message | {"to": PEOPLE["bob"]}).expect(422)
        assert (rejection["reason"], rejection["skip_reason"]) == ("recipient_suppressed", "suppressed_stop_keyword")


def day(journey: Journey, first: dict[str, Any]) -> None:
    """After 8 the rest is sent once, and the report matches the messages."""
    journey.clock.advance(minutes=62)
    wait_until(lambda: [journey.rows(name)[1] for name in ("ann", "cid")] == [("delivered", None)] * 2)
    wait_until(lambda: len(journey.texts("cid")) == 5)
    assert journey.texts("ann") == ["Hi Ann, your rye", "Paid", "You liked it Reply STOP to end"]
    assert journey.texts("cid")[:3] == ["Hi Cid, your rye", "Paid", "Code 1"]
    assert set(journey.texts("cid")[3:]) == {"An offer Reply STOP to end", "Did you see our rye? Reply STOP to end"}
    assert len(journey.texts("bob")) == 2 and journey.texts("dee") == []
    assert journey.events("ann") == ["sms_clicked", *["sms_delivered"] * 3, *["sms_sent"] * 3]
    assert journey.events("dee") == ["sms_failed", "sms_skipped", "sms_skipped"]
    report = journey.api.get(f"{journey.flow}/report").expect(200)
    steps = {step["id"]: step["messages"] for step in report["steps"] if step["type"] == "sms"}
    counts = [
        (step["audience"]["count"], step["accepted"]["count"], step["clicked"]["count"]) for step in steps.values()
    ]
    assert counts == [(4, 3, 1), (1, 1, 0), (3, 1, 0), (4, 2, 0)]
    assert journey.api.get(f"/messages/{first['id']}").json["clicked_at"] is not None
    usage = journey.api.get("/account").expect(200)["usage"]
    assert usage["sms_sent"] == len(journey.sms.accepted) == usage["sms_parts"]

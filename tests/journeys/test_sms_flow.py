"""A flow of SMS over a provider that tells what becomes of them: a click, a STOP, a dead number, and a night."""

from datetime import datetime
from typing import Any

from tests.conftest import FreshServer
from tests.journeys.test_tracking import wait_until
from tests.kit.clock import TestClock
from tests.kit.fake_sms import FakeSms
from tests.kit.readers import Reader
from tests.kit.recipients import UNLIMITED
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
# An evening in London; twelve hours later it is seven in the morning there
START = "2027-06-01T18:00:00+00:00"


class Journey:
    """Four people in a flow, and what came to their phones."""

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
        made = self.api.post("/flows", {"trigger": {"event": "checkout"}, "steps": STEPS}).expect(201)
        self.flow = f"/flows/{made['id']}"
        self.api.post(f"{self.flow}/activate").expect(200)

    def got(self, name: str) -> list[str]:
        """Return what came to somebody, the links shortened away."""
        return [one.body.partition(": http")[0] for one in self.sms.to(PEOPLE[name])]

    def rows(self, name: str) -> list[tuple[str, str | None]]:
        """Return how the messages to somebody stand, the first one first."""
        found = self.api.get("/messages", to=PEOPLE[name], source_type="flow").expect(200)
        return [(one["status"], one["skip_reason"]) for one in reversed(found)]

    def events(self, name: str) -> list[str]:
        """Return what happened to somebody by SMS, sorted."""
        found = self.api.get("/events", contact_id=self.people[name], limit=100).expect(200)
        return sorted(one["event"] for one in found if one["event"].startswith("sms_"))


def test_a_flow_of_sms(fresh_server: FreshServer, fake_sms: FakeSms, clock: TestClock) -> None:
    """Who clicked goes one way; who wrote STOP gets one answer and no more; nobody is woken; all once, and told."""
    clock.advance(datetime.fromisoformat(START).timestamp() - clock.now())
    fake_sms.refuse(21211, PEOPLE["dee"])
    fake_sms.tells("sent", "delivered")
    server = fresh_server(env=fake_sms.env | UNLIMITED, clock=clock)
    on = Journey(server, fake_sms, clock)
    for number in on.people.values():
        on.api.post("/events", {"event": "checkout", "contact_id": number, "data": {"bread": "rye"}}).expect(201)
    first = evening(on)
    morning(on)
    single_messages(on)
    day(on, first)
    server.cli("doctor")
    server.stop()


def evening(on: Journey) -> dict[str, Any]:
    """The first SMS arrive; Ann clicks, Bob writes STOP, the number of Dee is dead."""
    on.sms.wait_for(3)
    wait_until(lambda: [on.rows(name) for name in ("ann", "bob", "cid")] == [[("delivered", None)]] * 3)
    wait_until(lambda: on.rows("dee") == [("failed", None)])
    (to_ann,) = on.sms.to(PEOPLE["ann"])
    assert to_ann.sender == FROM and to_ann.body.startswith("Hi Ann, your rye: http")
    assert to_ann.body.endswith(" Reply STOP to end")
    link = to_ann.body.partition(on.server.url)[2].split()[0]
    on.clock.advance(seconds=30)
    assert Reader(on.server).follows(link) == "https://bakery.example/bread"
    wait_until(lambda: "sms_clicked" in on.events("ann"))
    assert on.sms.write(on.server.url, PEOPLE["bob"], "Stop.", FROM).status == 200
    on.sms.wait(lambda _: len(on.got("bob")) == 2)
    assert on.api.get(f"/contacts/{on.people['dee']}").json["sendable_phone"] is False
    found: dict[str, Any] = on.api.get("/messages", to=PEOPLE["ann"]).json[0]
    assert (found["from"], found["segments"], found["subject"], found["transactional"]) == (FROM, 1, None, False)
    assert found["provider_id"] == to_ann.sid and found["delivered_at"] and found["internet_message_id"] is None
    return found


def morning(on: Journey) -> None:
    """At seven in the morning what they asked for goes; what is marketing waits until eight."""
    on.clock.advance(hours=12)
    wait_until(lambda: [on.got(name)[1:] for name in ("ann", "cid")] == [["Paid"], ["Paid"]])
    wait_until(lambda: [[one for one, _ in on.rows(name)] for name in ("ann", "cid")] == [
        ["delivered", "held", "delivered"]] * 2)  # fmt: skip
    wait_until(lambda: on.rows("bob")[1:] == [("skipped", "suppressed_stop_keyword")] * 2)
    wait_until(lambda: on.rows("dee")[1:] == [("skipped", "suppressed_hard_bounce")] * 2)


def single_messages(on: Journey) -> None:
    """At night a code leaves at once and an offer waits; to who wrote STOP neither may be sent."""
    offer = {"channel": "sms", "to": PEOPLE["cid"], "body": "An offer", "transactional": False}
    wanted = on.api.post("/messages", offer).expect(201)["id"]
    code = on.api.post("/messages", {"channel": "sms", "to": PEOPLE["cid"], "body": "Code 1"}).expect(201)["id"]
    on.api.wait(f"/messages/{code}", lambda one: one["status"] == "delivered")
    held = on.api.wait(f"/messages/{wanted}", lambda one: one["status"] == "held")
    assert "2027-06-02T07:00:00" <= held["next_attempt_at"] <= "2027-06-02T07:01:00.999Z"
    for asked in (offer, offer | {"transactional": True}):
        refused = on.api.post("/messages", asked | {"to": PEOPLE["bob"]}).expect(422)
        assert (refused["reason"], refused["skip_reason"]) == ("recipient_suppressed", "suppressed_stop_keyword")


def day(on: Journey, first: dict[str, Any]) -> None:
    """After eight the rest arrives, each once; the numbers of the flow are those of its rows."""
    on.clock.advance(minutes=62)
    wait_until(lambda: [on.rows(name)[1] for name in ("ann", "cid")] == [("delivered", None)] * 2)
    wait_until(lambda: len(on.got("cid")) == 5)
    assert on.got("ann") == ["Hi Ann, your rye", "Paid", "You liked it Reply STOP to end"]
    assert on.got("cid")[:3] == ["Hi Cid, your rye", "Paid", "Code 1"]
    assert set(on.got("cid")[3:]) == {"An offer Reply STOP to end", "Did you see our rye? Reply STOP to end"}
    assert len(on.got("bob")) == 2 and on.got("dee") == []
    assert on.events("ann") == ["sms_clicked", *["sms_delivered"] * 3, *["sms_sent"] * 3]
    assert on.events("dee") == ["sms_failed", "sms_skipped", "sms_skipped"]
    report = on.api.get(f"{on.flow}/report").expect(200)
    steps = {one["id"]: one["messages"] for one in report["steps"] if one["type"] == "sms"}
    said = [(one["audience"]["count"], one["accepted"]["count"], one["clicked"]["count"]) for one in steps.values()]
    assert said == [(4, 3, 1), (1, 1, 0), (3, 1, 0), (4, 2, 0)]
    assert on.api.get(f"/messages/{first['id']}").json["clicked_at"] is not None
    usage = on.api.get("/account").expect(200)["usage"]
    assert usage["sms_sent"] == len(on.sms.accepted) == usage["sms_parts"]

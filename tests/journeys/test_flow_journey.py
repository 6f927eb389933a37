"""A flow with every kind of step, over real SMTP: days pass, a click decides, somebody opts out, somebody pays."""

from typing import Any
from urllib.parse import urlsplit

from tests.conftest import FreshServer
from tests.journeys.test_tracking import wait_until
from tests.kit.clock import TestClock
from tests.kit.readers import Reader, read
from tests.kit.recipients import UNLIMITED
from tests.kit.smtp import SmtpServer
from tests.kit.spoken import Spoken, speak

LETTER = {"from_email": "ana@bakery.example", "from_name": "Ana"}
CLICKED = {"name": "event", "predicate": "performed", "value": {"event": "email_clicked", "since": "flow_start"}}


def steps(newcomers: int, readers: int) -> list[dict[str, Any]]:
    """Return the steps: all nine kinds, some inside branches."""
    return [
        {"subject": "Welcome {{ first_name }}", **LETTER,
         "body": "<p>Your {{ event.bread }}: <a href='https://bakery.example/bread'>look</a></p>"},
        {"duration": 3 * 86_400},
        {"filters": [CLICKED],
         "yes": [{"type": "list_add", "contact_list_id": readers},
                 {"type": "contact_update", "data_merge": {"reader": {"since": "today"}}},
                 {"event_name": "warmed", "event_data": {"by": "click"}, "forward_event_data": True}],
         "no": [{"subject": "Did you see our {{ event.bread }}?", "body": "<p>Look</p>", **LETTER}]},
        {"body": "Fresh bread", "type": "sms"},
        {"duration": 86_400},
        {"subject": "Your receipt", "body": "<p>Paid</p>", "transactional": True, **LETTER},
        {"type": "list_remove", "contact_list_id": newcomers},
        {"filters": [{"name": "data.reader", "predicate": "present"}], "yes": [{"type": "exit"}]},
        {"subject": "Goodbye {{ first_name }}", "body": "<p>Bye</p>", **LETTER},
    ]  # fmt: skip


class Journey:
    """Four people in the flow, what came to them, and the days."""

    def __init__(self, api: Spoken, sink: SmtpServer, clock: TestClock) -> None:
        self.api, self.sink, self.clock = api, sink, clock
        newcomers, self.readers = (api.lists.create({"name": name})["id"] for name in ("New", "Readers"))
        self.people = {
            name: api.contacts.create({"email": f"{name}@example.org", "first_name": name.title(),
                                       "list_ids": [newcomers]})["id"]
            for name in ("ann", "bob", "cid", "dee")
        }  # fmt: skip
        trigger = {"event": "checkout", "data": {"where": [{"name": "event.bread", "predicate": "present"}]}}
        made = api.flows.create({"name": "Whole way", "trigger": trigger, "goal": "order_paid",
                                 "steps": steps(newcomers, self.readers)})  # fmt: skip
        assert {one["type"] for one in _all(made["steps"])} == {
            "email", "sms", "wait", "split", "emit_event", "list_add", "list_remove", "contact_update", "exit"
        }  # fmt: skip
        self.flow: int = made["id"]
        api.flows.activate(self.flow)

    def happens(self, name: str, event: str, **data: Any) -> None:
        """Tell the service what somebody did."""
        body = {"event": event, "contact_id": self.people[name], "data": data}
        self.api.events.create(body)

    def got(self, name: str) -> list[str]:
        """Return the subjects of what came to somebody, in order."""
        return [one.subject for one in self.sink.to(f"{name}@example.org")]

    def runs(self) -> dict[str, tuple[str, str | None]]:
        """Return how everybody's run is."""
        names = {number: name for name, number in self.people.items()}
        return {names[one["contact_id"]]: (one["status"], one["exit_reason"])
                for one in self.api.flows.runs(self.flow)}  # fmt: skip

    def contact(self, name: str) -> Any:
        """Return somebody as the interface shows them."""
        return self.api.contacts.get(self.people[name])


def _all(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for step in steps for one in (step, *_all(step["yes"] or []), *_all(step["no"] or []))]


def test_every_kind_of_step_on_one_way(fresh_server: FreshServer, smtp_server: SmtpServer, clock: TestClock) -> None:
    """Who clicked goes one way, who opted out gets service messages alone, who pays leaves at once; all once."""
    server = fresh_server(relay=smtp_server.port, clock=clock, env=UNLIMITED)
    on = Journey(speak(server.client()), smtp_server, clock)
    for name in on.people:
        on.happens(name, "checkout", bread="rye & spelt")
    on.happens("ann", "checkout")  # not for this flow
    smtp_server.wait_for(4)
    assert {name: on.got(name) for name in on.people} == {name: [f"Welcome {name.title()}"] for name in on.people}
    first = smtp_server.to("ann@example.org")[0]
    assert "rye &amp; spelt" in (first.html() or "")
    assert first.header("List-Unsubscribe") and first.header("Auto-Submitted") == "auto-generated"

    # Written down as sent before the clock moves, or the click would seem to come in the same moment
    wait_until(lambda: on.api.flows.get(on.flow)["sent_count"] == 4)
    clock.advance(hours=30)
    people_act(on, Reader(server))
    clock.advance(days=2)
    branches_differ(on)
    clock.advance(days=1)
    all_end(on)
    server.cli("doctor")
    server.stop()


def people_act(on: Journey, reader: Reader) -> None:
    """Ann reads and clicks, Bob opts out, Cid pays."""
    mail = read(on.sink.to("ann@example.org")[0])
    reader.opens(mail)
    assert reader.follows(mail.doors[0]) == "https://bakery.example/bread"
    leaving = on.sink.to("bob@example.org")[0].header("List-Unsubscribe") or ""
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    path = urlsplit(leaving.strip("<>")).path
    assert on.api.client.request("POST", path, b"List-Unsubscribe=One-Click", form).status == 200
    on.happens("cid", "order_paid", total=7)
    on.clock.advance(seconds=10)
    wait_until(lambda: on.runs()["cid"] == ("completed", "goal"))
    wait_until(lambda: on.api.events.list(event="email_clicked"))


def branches_differ(on: Journey) -> None:
    """After three days the click decides: a list, data and an event for Ann, another mail for Dee."""
    wait_until(lambda: on.got("dee")[1:])
    wait_until(lambda: on.contact("ann")["list_ids"][1:])
    assert (on.got("ann"), on.got("bob"), on.got("dee")[1]) == (
        ["Welcome Ann"], ["Welcome Bob"], "Did you see our rye & spelt?")  # fmt: skip
    wait_until(lambda: on.api.events.list(event="warmed"))
    (warmed,) = on.api.events.list(event="warmed")
    assert (warmed["contact_id"], warmed["data"], warmed["generated"]) == (
        on.people["ann"], {"bread": "rye & spelt", "by": "click"}, True)  # fmt: skip


def all_end(on: Journey) -> None:
    """On the fourth day everybody comes to an end, each to their own."""
    wait_until(lambda: "live" not in {status for status, _ in on.runs().values()})
    wait_until(lambda: len(on.sink.messages) == 4 + 1 + 3 + 1)
    assert on.runs() == {"ann": ("exited", "exit_step"), "bob": ("completed", None), "cid": ("completed", "goal"),
                         "dee": ("completed", None)}  # fmt: skip
    assert [on.got(name)[1:] for name in ("ann", "bob", "cid")] == [["Your receipt"], ["Your receipt"], []]
    assert sorted(on.got("dee")[2:]) == ["Goodbye Dee", "Your receipt"]  # due at once, on two connections
    receipt = on.sink.to("bob@example.org")[1]
    assert receipt.header("List-Unsubscribe") is None and "unsubscribe" not in (receipt.html() or "").lower()
    ann = on.contact("ann")
    assert (ann["list_ids"], ann["data"]["reader"]) == ([on.readers], {"since": "today"})

    rows = on.api.messages.list.all(flow_id=on.flow, status="skipped")
    skipped = sorted((one["channel"], one["contact_id"], one["skip_reason"]) for one in rows)
    assert skipped == [("email", on.people["bob"], "unsubscribed")] * 2 + [
        ("sms", on.people[name], "no_channel") for name in ("ann", "bob", "dee")]  # fmt: skip
    wait_until(lambda: on.api.flows.get(on.flow)["sent_count"] == len(on.sink.messages))
    stats = on.api.flows.get(on.flow)["stats"]
    assert {key: stats[key] for key in ("entered", "active", "completed", "exited")} == {
        "entered": 4, "active": 0, "completed": 3, "exited": 1}  # fmt: skip

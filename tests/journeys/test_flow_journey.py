"""A flow with every kind of step over real SMTP: waits, a click, an opt-out and a goal."""

from typing import Any
from urllib.parse import urlsplit

from tests.conftest import FreshServer
from tests.journeys.test_tracking import wait_until
from tests.kit.clock import TestClock
from tests.kit.openapi_client import OpenApiClient, open_api_client
from tests.kit.readers import Reader, parse_mail
from tests.kit.recipients import NO_RATE_LIMITS
from tests.kit.smtp import SmtpServer

LETTER = {"from_email": "ana@bakery.example", "from_name": "Ana"}
CLICKED = {"name": "event", "predicate": "performed", "value": {"event": "email_clicked", "since": "flow_start"}}


def steps(newcomers: int, readers: int) -> list[dict[str, Any]]:
    """Return the steps of the flow: all ten kinds, some inside branches."""
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
        {"type": "unsubscribe", "channel": "sms"},
    ]  # fmt: skip


class Journey:
    """Four contacts in the flow, their mail and the clock."""

    def __init__(self, api: OpenApiClient, sink: SmtpServer, clock: TestClock) -> None:
        self.api, self.sink, self.clock = api, sink, clock
        newcomers, self.readers = (api.lists.create({"name": name})["id"] for name in ("New", "Readers"))
        self.people = {
            name: api.contacts.create({"email": f"{name}@example.org", "first_name": name.title(),
                                       "list_ids": [newcomers]})["id"]
            for name in ("ann", "bob", "cid", "dee")
        }  # fmt: skip
        trigger = {"event": "checkout", "data": {"where": [{"name": "event.bread", "predicate": "present"}]}}
        flow = api.flows.create({"name": "Whole way", "trigger": trigger, "goal": "order_paid",
                                 "steps": steps(newcomers, self.readers)})  # fmt: skip
        assert {row["type"] for row in _all_steps(flow["steps"])} == {
            "email", "sms", "wait", "split", "emit_event", "list_add", "list_remove", "contact_update",
            "unsubscribe", "exit"
        }  # fmt: skip
        self.flow: int = flow["id"]
        api.flows.activate(self.flow)

    def record_event(self, name: str, event: str, **data: Any) -> None:
        """Record an event of a contact."""
        body = {"event": event, "contact_id": self.people[name], "data": data}
        self.api.events.create(body)

    def subjects(self, name: str) -> list[str]:
        """Return the subjects of a contact's mail, in order."""
        return [message.subject for message in self.sink.to(f"{name}@example.org")]

    def runs(self) -> dict[str, tuple[str, str | None]]:
        """Return (status, exit reason) of each contact's run, by name."""
        names = {number: name for name, number in self.people.items()}
        return {names[row["contact_id"]]: (row["status"], row["exit_reason"])
                for row in self.api.flows.runs(self.flow)}  # fmt: skip

    def contact(self, name: str) -> Any:
        """Return a contact."""
        return self.api.contacts.get(self.people[name])


def _all_steps(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        nested_step
        for step in steps
        for nested_step in (step, *_all_steps(step["yes"] or []), *_all_steps(step["no"] or []))
    ]


def test_a_flow_with_every_kind_of_step(fresh_server: FreshServer, smtp_server: SmtpServer, clock: TestClock) -> None:
    """A click decides the branch, an opt-out leaves only transactional mail, and the goal ends a run."""
    server = fresh_server(relay=smtp_server.port, clock=clock, env=NO_RATE_LIMITS)
    journey = Journey(open_api_client(server.client()), smtp_server, clock)
    for name in journey.people:
        journey.record_event(name, "checkout", bread="rye & spelt")
    journey.record_event("ann", "checkout")  # does not match the trigger's filter
    smtp_server.wait_for(4)
    assert {name: journey.subjects(name) for name in journey.people} == {
        name: [f"Welcome {name.title()}"] for name in journey.people
    }
    first = smtp_server.to("ann@example.org")[0]
    assert "rye &amp; spelt" in (first.html() or "")
    assert first.header("List-Unsubscribe") and first.header("Auto-Submitted") == "auto-generated"

    # Recorded as sent before the clock moves, else the click would have the same time
    wait_until(lambda: journey.api.flows.get(journey.flow)["sent_count"] == 4)
    clock.advance(hours=30)
    act_as_recipients(journey, Reader(server))
    clock.advance(days=2)
    check_branches(journey)
    clock.advance(days=1)
    check_ends(journey)
    server.cli("doctor")
    server.stop()


def act_as_recipients(journey: Journey, reader: Reader) -> None:
    """Ann opens and clicks, Bob opts out, Cid reaches the goal."""
    mail = parse_mail(journey.sink.to("ann@example.org")[0])
    reader.open(mail)
    assert reader.follow(mail.tracked_paths[0]) == "https://bakery.example/bread"
    leaving = journey.sink.to("bob@example.org")[0].header("List-Unsubscribe") or ""
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    path = urlsplit(leaving.strip("<>")).path
    assert journey.api.client.request("POST", path, b"List-Unsubscribe=One-Click", form).status == 200
    journey.record_event("cid", "order_paid", total=7)
    journey.clock.advance(seconds=10)
    wait_until(lambda: journey.runs()["cid"] == ("completed", "goal"))
    wait_until(lambda: journey.api.events.list(event="email_clicked"))


def check_branches(journey: Journey) -> None:
    """After three days Ann has a list, data and an event, and Dee another email."""
    wait_until(lambda: journey.subjects("dee")[1:])
    wait_until(lambda: journey.contact("ann")["list_ids"][1:])
    assert (journey.subjects("ann"), journey.subjects("bob"), journey.subjects("dee")[1]) == (
        ["Welcome Ann"], ["Welcome Bob"], "Did you see our rye & spelt?")  # fmt: skip
    wait_until(lambda: journey.api.events.list(event="warmed"))
    (warmed,) = journey.api.events.list(event="warmed")
    assert (warmed["contact_id"], warmed["data"], warmed["generated"]) == (
        journey.people["ann"], {"bread": "rye & spelt", "by": "click"}, True)  # fmt: skip


def check_ends(journey: Journey) -> None:
    """On the fourth day all runs have ended."""
    wait_until(lambda: "live" not in {status for status, _ in journey.runs().values()})
    wait_until(lambda: len(journey.sink.messages) == 4 + 1 + 3 + 1)
    assert journey.runs() == {"ann": ("exited", "exit_step"), "bob": ("completed", None), "cid": ("completed", "goal"),
                         "dee": ("completed", None)}  # fmt: skip
    assert [journey.subjects(name)[1:] for name in ("ann", "bob", "cid")] == [["Your receipt"], ["Your receipt"], []]
    assert sorted(journey.subjects("dee")[2:]) == [
        "Goodbye Dee",
        "Your receipt",
    ]  # both leave at once
    receipt = journey.sink.to("bob@example.org")[1]
    assert receipt.header("List-Unsubscribe") is None and "unsubscribe" not in (receipt.html() or "").lower()
    ann = journey.contact("ann")
    assert (ann["list_ids"], ann["data"]["reader"]) == ([journey.readers], {"since": "today"})

    rows = journey.api.messages.list.all(flow_id=journey.flow, status="skipped")
    skipped = sorted((message["channel"], message["contact_id"], message["skip_reason"]) for message in rows)
    assert skipped == [("email", journey.people["bob"], "unsubscribed")] * 2 + [
        ("sms", journey.people[name], "no_channel") for name in ("ann", "bob", "dee")]  # fmt: skip
    wait_until(lambda: journey.api.flows.get(journey.flow)["sent_count"] == len(journey.sink.messages))
    stats = journey.api.flows.get(journey.flow)["stats"]
    assert {key: stats[key] for key in ("entered", "active", "completed", "exited")} == {
        "entered": 4, "active": 0, "completed": 3, "exited": 1}  # fmt: skip

"""Hypothesis drives a running appliance and the interpreter alike, and holds one against the other at every rest."""

from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.model import documents
from tests.model.interpreter import Event, Flow, Person, begun, changed, ended, refusal, told
from tests.model.stage import PEOPLE, Play, Stage, Tally

MAX_FLOWS = 3
someone = st.integers(0, PEOPLE - 1)


class FlowMachine(RuleBasedStateMachine):
    """People, flows and events at random; after each act the appliance must be what the interpreter says it may be."""

    stage: Stage
    tally: Tally

    # -- the beginning ------------------------------------------------------------------------------------------------

    @initialize(data=st.data())
    def people_come(self, data: st.DataObject) -> None:
        """Make people and lists of this example, and two flows."""
        self.play = Play(self.stage, self.tally)
        for leave_out in (True, False):
            self._make_flow(data, leave_out, by_client=leave_out)

    # -- flows --------------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.play.flows) < MAX_FLOWS)
    @rule(data=st.data(), leave_out=st.booleans())
    def make_flow(self, data: st.DataObject, leave_out: bool) -> None:
        """Make another flow and let it go live."""
        self._make_flow(data, leave_out)

    def _make_flow(self, data: st.DataObject, leave_out: bool, by_client: bool = False) -> None:
        document = data.draw(documents.documents(self.play.lists, by_client))
        sent = document | {"status": "active", "name": f"Flow {len(self.play.flows)}",
                           "steps": documents.without_types(document["steps"], leave_out)}  # fmt: skip
        made = self.play.api.post("/flows", sent).expect(201)
        trigger, more = document["trigger"], document["trigger"].get("data", {})
        often = more.get("frequency") or ("once" if trigger["event"] == "list_add" else "every_time")
        self.play.flows[made["id"]] = Flow(
            made["id"], trigger["event"], documents.with_ids(document["steps"], made["steps"]),
            list_id=trigger.get("contact_list_id"), where=tuple(more.get("where", ())),
            frequency=often["min_gap_seconds"] // 3600 if isinstance(often, dict) else often, goal=document["goal"],
        )  # fmt: skip

    def _any_flow(self, data: st.DataObject, *status: str) -> Flow | None:
        found = [flow for flow in self.play.flows.values() if flow.status in status]
        return data.draw(st.sampled_from(found)) if found else None

    @precondition(lambda self: self.play.flows)
    @rule(data=st.data())
    def edit_flow(self, data: st.DataObject) -> None:
        """Change the steps of a flow: those inside go on as they came."""
        if (flow := self._any_flow(data, "active", "paused")) is None:
            return
        fresh = data.draw(documents.steps(self.play.lists))
        kept = data.draw(st.booleans())
        sent = [*fresh, _listed(flow.steps[0])] if kept else fresh
        made = self.play.api.patch(f"/flows/{flow.id}", {"steps": sent}).expect(200)
        steps = documents.with_ids(sent, made["steps"])
        assert not kept or steps[-1]["id"] == flow.steps[0]["id"], "a step lost its id"
        self.play.flows[flow.id] = flow._replace(steps=steps)

    @precondition(lambda self: self.play.flows)
    @rule(data=st.data())
    def stop_or_go_on(self, data: st.DataObject) -> None:
        """Pause or put aside a flow that is active, and let one go on that was."""
        if (flow := self._any_flow(data, "active", "paused", "archived")) is None:
            return
        if flow.status == "active":
            verb, status = data.draw(st.sampled_from([("pause", "paused"), ("archive", "archived")]))
        else:
            verb, status = "activate", "active"
        if flow.status == "archived":
            self.play.api.patch(f"/flows/{flow.id}", {"status": "draft"}).expect(200)
        self.play.api.post(f"/flows/{flow.id}/{verb}").expect(200)
        self.play.flows[flow.id] = flow._replace(status=status)
        self.play.rest()

    @rule(data=st.data(), acts=documents.acts(PEOPLE), hours=st.integers(1, 3))
    def a_pause(self, data: st.DataObject, acts: list[documents.Act], hours: int) -> None:
        """A flow is paused while things happen and hours go by, and then it goes on."""
        if (flow := self._any_flow(data, "active")) is None:
            return
        self._happen(acts[:3])
        self.play.rest()
        self.play.api.post(f"/flows/{flow.id}/pause").expect(200)
        self.play.flows[flow.id] = flow._replace(status="paused")
        self.stage.clock.advance(hours=hours)
        self._happen(acts[3:])
        self.play.rest()
        self.play.api.post(f"/flows/{flow.id}/activate").expect(200)
        self.play.flows[flow.id] = flow
        self.play.rest()

    @precondition(lambda self: len(self.play.flows) == MAX_FLOWS)
    @rule(data=st.data())
    def delete_flow(self, data: st.DataObject) -> None:
        """Delete a flow: who is inside leaves it."""
        if (flow := self._any_flow(data, "active", "paused")) is None:
            return
        self.play.api.delete(f"/flows/{flow.id}").expect(200)
        self.play.flows[flow.id] = flow._replace(status="deleted")
        for one in range(PEOPLE):
            self.play.one(one, lambda person: all_ended(person, flow.id, "flow_deleted", self.play.facts.hour))
        self.play.rest()

    # -- people and events --------------------------------------------------------------------------------------------

    @rule(acts=documents.acts(PEOPLE), kill=st.integers(0, 3), after=st.floats(0, 0.03))
    def events_happen(self, acts: list[documents.Act], kill: int, after: float) -> None:
        """Several events at once; the appliance may be killed in the middle of what they begin."""
        self._happen(acts)
        self._perhaps_killed(kill, after)
        self.play.rest()

    def _happen(self, acts: list[documents.Act]) -> None:
        for act in acts:
            if (number := self.play.ids[act.person]) is None:
                continue
            sent = {"event": act.name, "contact_id": number, "data": {"n": act.n}}
            self.play.api.post("/events", sent).expect(201)
            self.play.one(act.person, partial(told, name=act.name, data={"n": act.n}))

    @rule(hours=st.integers(1, 6), kill=st.integers(0, 3), after=st.floats(0, 0.03))
    def time_passes(self, hours: int, kill: int, after: float) -> None:
        """Let hours go by; what is due then may be cut short by a kill."""
        self.stage.clock.advance(hours=hours)
        self._perhaps_killed(kill, after)
        self.play.rest()

    @rule(acts=documents.acts(PEOPLE), hours=st.lists(st.integers(1, 3), max_size=3))
    def a_day_goes_by(self, acts: list[documents.Act], hours: list[int]) -> None:
        """Events, and then some hours."""
        self._happen(acts)
        self.play.rest()
        for some in hours:
            self.stage.clock.advance(hours=some)
            self.play.rest()

    @rule(one=someone, list_number=st.integers(0, 1), join=st.booleans())
    def lists_change(self, one: int, list_number: int, join: bool) -> None:
        """Somebody joins or leaves a list."""
        if (number := self.play.ids[one]) is None:
            return
        group = self.play.lists[list_number]
        self.play.api.post(f"/lists/{group}/contacts/bulk", {"add" if join else "remove": [number]}).expect(200)

        def change(person: Person) -> Person:
            if (group in person.lists) == join:
                return person
            lists = person.lists | {group} if join else person.lists - {group}
            return told(person._replace(lists=lists), "list_add" if join else "list_remove", {"contact_list_id": group})

        self.play.one(one, change)
        self.play.rest()

    @rule(one=someone, subscribed=st.booleans())
    def consent_changes(self, one: int, subscribed: bool) -> None:
        """Somebody opts out, or in again."""
        if (number := self.play.ids[one]) is None:
            return
        self.play.api.patch(f"/contacts/{number}", {"subscribed_email": subscribed}).expect(200)
        self.play.one(one, lambda person: person._replace(subscribed=subscribed))

    @precondition(lambda self: self.play.flows)
    @rule(data=st.data(), one=someone)
    def enroll(self, data: st.DataObject, one: int) -> None:
        """Somebody is put into a flow by hand."""
        if (flow := self._any_flow(data, "active")) is None or (number := self.play.ids[one]) is None:
            return
        self.play.api.post(f"/flows/{flow.id}/enroll", {"contact_ids": [number]}).expect(200)
        self.play.one(one, lambda person: enrolled(person, flow, self.play.facts.hour))
        self.play.rest()

    @rule(one=someone, sure=st.integers(0, 2))
    def delete_person(self, one: int, sure: int) -> None:
        """Somebody is deleted: all ways end, nothing more is done."""
        if sure or (number := self.play.ids[one]) is None:
            return
        live = self.play.facts.ask("SELECT id FROM run WHERE contact_id = ? AND status = 'live'", number)
        self.play.api.delete(f"/contacts/{number}").expect(200)
        self.play.ids[one] = None
        for (run,) in live:
            found = self.play.facts.ask("SELECT status, exit_reason, contact_id FROM run WHERE id = ?", run)
            assert found == [("exited", "contact_deleted", None)], found

    @precondition(lambda self: self.play.flows)
    @rule(data=st.data(), one=someone, act=st.sampled_from(["move_on", "take_out"]))
    def move_by_hand(self, data: st.DataObject, one: int, act: str) -> None:
        """Somebody is let go on at once, or taken out of a flow."""
        if (flow := self._any_flow(data, "active", "paused")) is None or (number := self.play.ids[one]) is None:
            return
        live = "SELECT id FROM run WHERE contact_id = ? AND flow_id = ? AND status = 'live'"
        for (run,) in self.play.facts.ask(live, number, flow.id):
            self.play.api.post(f"/flows/{flow.id}/runs/{run}/{act}").expect(200)
        hour = self.play.facts.hour
        if act == "take_out":
            self.play.one(one, lambda person: all_ended(person, flow.id, "taken_out", hour))
        else:
            self.play.one(one, lambda person: hurried(person, flow.id))
        self.play.rest()

    # -- beside the rules ---------------------------------------------------------------------------------------------

    def _perhaps_killed(self, kill: int, after: float) -> None:
        if kill == 0:
            self.play.kill(after)

    @invariant()
    def sums(self) -> None:
        """What a flow says of itself is what its runs are."""
        if hasattr(self, "play"):
            self.play.sums()

    def teardown(self) -> None:
        """Leave nothing that the next example would meet."""
        if hasattr(self, "play"):
            self.play.end()


def _listed(step: dict[str, Any]) -> dict[str, Any]:
    """Return a step of the interpreter as it is sent."""
    return {key: [_listed(one) for one in value] if key in ("yes", "no") else value for key, value in step.items()}


def all_ended(person: Person, flow: int, reason: str, hour: int) -> Person:
    """End the runs of a flow."""
    for index, run in enumerate(person.runs):
        if run.flow == flow and run.status == "live":
            person = ended(person, index, "exited", reason, hour)
    return person._replace(mails=tuple(
        mail._replace(status="cancelled") if mail.status == "queued" and person.runs[mail.run].flow == flow else mail
        for mail in person.mails
    ))  # fmt: skip


def enrolled(person: Person, flow: Flow, hour: int) -> Person:
    """Start a run by hand, as often as the flow takes somebody; who is refused is told to the one who asked."""
    by_hand = Event("", {})
    return person if refusal(flow, by_hand, person, hour) else begun(person, flow, by_hand, hour)


def hurried(person: Person, flow: int) -> Person:
    """Let somebody wait no longer."""
    for index, run in enumerate(person.runs):
        if run.flow == flow and run.came is not None:
            person = changed(person, index, rest=(run.rest[0] | {"duration": 0}, *run.rest[1:]))
    return person

"""A Hypothesis state machine that drives the service and the interpreter, and compares them after each action."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from appliance.experiments import assignment
from tests.model import documents
from tests.model.interpreter import (
    Contact,
    Event,
    Flow,
    Run,
    end_run,
    ignore_reason,
    is_recorded,
    map_branches,
    record_event,
    start_run,
    update_run,
)
from tests.model.stage import PEOPLE, Environment, Example, Tally

MAX_FLOWS = 3
any_contact = st.integers(0, PEOPLE - 1)


class FlowMachine(RuleBasedStateMachine):
    """Random contacts, flows and events; after each action the service must agree with the interpreter."""

    stage: Environment
    tally: Tally

    # -- set-up --------------------------------------------------------------------------------------------------------

    @initialize(data=st.data())
    def start_example(self, data: st.DataObject) -> None:
        """Create the contacts and lists of this example, and two flows."""
        self.example = Example(self.stage, self.tally)
        for leave_out in (True, False):
            self._make_flow(data, leave_out, by_client=leave_out)

    # -- flows ---------------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.example.flows) < MAX_FLOWS)
    @rule(data=st.data(), leave_out=st.booleans())
    def make_flow(self, data: st.DataObject, leave_out: bool) -> None:
        """Create another flow and activate it."""
        self._make_flow(data, leave_out)

    def _make_flow(self, data: st.DataObject, leave_out: bool, by_client: bool = False) -> None:
        document = data.draw(documents.documents(self.example.lists, by_client))
        steps = documents.without_types(document["steps"], leave_out, self.example.facts.begun)
        sent = document | {"status": "active", "name": f"Flow {len(self.example.flows)}", "steps": steps}
        created = self.example.api.post("/flows", sent).expect(201)
        trigger, trigger_data = document["trigger"], document["trigger"].get("data", {})
        frequency = trigger_data.get("frequency") or ("once" if trigger["event"] == "list_add" else "every_time")
        self.example.flows[created["id"]] = Flow(
            created["id"], trigger["event"], documents.with_ids(document["steps"], created["steps"]),
            list_id=trigger.get("contact_list_id"), where=tuple(trigger_data.get("where", ())),
            frequency=frequency["min_gap_seconds"] // 3600 if isinstance(frequency, dict) else frequency,
            goal=document["goal"], held_out=find_held_out(self.example, created["id"], trigger_data.get("holdout", 0)),
        )  # fmt: skip

    def _any_flow(self, data: st.DataObject, *status: str) -> Flow | None:
        flows = [flow for flow in self.example.flows.values() if flow.status in status]
        return data.draw(st.sampled_from(flows)) if flows else None

    @precondition(lambda self: self.example.flows)
    @rule(data=st.data())
    def edit_flow(self, data: st.DataObject) -> None:
        """Change the steps of a flow: existing runs keep their steps."""
        if (flow := self._any_flow(data, "active", "paused")) is None:
            return
        new_steps = data.draw(documents.steps(self.example.lists))
        keeps_step = data.draw(st.booleans())
        sent = [*new_steps, flow.steps[0]] if keeps_step else new_steps
        request = {"steps": [_as_sent(step, self.example.facts.begun) for step in sent]}
        updated = self.example.api.patch(f"/flows/{flow.id}", request).expect(200)
        steps = documents.with_ids(sent, updated["steps"])
        assert not keeps_step or steps[-1]["id"] == flow.steps[0]["id"], "a step lost its id"
        self.example.flows[flow.id] = flow._replace(steps=steps)

    @precondition(lambda self: self.example.flows)
    @rule(data=st.data())
    def change_flow_status(self, data: st.DataObject) -> None:
        """Pause or archive an active flow, or activate another."""
        if (flow := self._any_flow(data, "active", "paused", "archived")) is None:
            return
        if flow.status == "active":
            verb, status = data.draw(st.sampled_from([("pause", "paused"), ("archive", "archived")]))
        else:
            verb, status = "activate", "active"
        if flow.status == "archived":
            self.example.api.patch(f"/flows/{flow.id}", {"status": "draft"}).expect(200)
        self.example.api.post(f"/flows/{flow.id}/{verb}").expect(200)
        self.example.flows[flow.id] = flow._replace(status=status)
        self.example.check_when_idle()

    @rule(data=st.data(), acts=documents.acts(PEOPLE), hours=st.integers(1, 3))
    def pause_flow(self, data: st.DataObject, acts: list[documents.Act], hours: int) -> None:
        """Pause a flow while events happen and hours pass, then activate it again."""
        if (flow := self._any_flow(data, "active")) is None:
            return
        self._record_events(acts[:3])
        self.example.check_when_idle()
        self.example.api.post(f"/flows/{flow.id}/pause").expect(200)
        self.example.flows[flow.id] = flow._replace(status="paused")
        self.stage.clock.advance(hours=hours)
        self._record_events(acts[3:])
        self.example.check_when_idle()
        self.example.api.post(f"/flows/{flow.id}/activate").expect(200)
        self.example.flows[flow.id] = flow
        self.example.check_when_idle()

    @precondition(lambda self: len(self.example.flows) == MAX_FLOWS)
    @rule(data=st.data())
    def delete_flow(self, data: st.DataObject) -> None:
        """Delete a flow: its runs are exited."""
        if (flow := self._any_flow(data, "active", "paused")) is None:
            return
        self.example.api.delete(f"/flows/{flow.id}").expect(200)
        self.example.flows[flow.id] = flow._replace(status="deleted")
        for index in range(PEOPLE):
            self.example.update_contact(
                index, lambda contact: exit_runs(contact, flow.id, "flow_deleted", self.example.facts.hour)
            )
        self.example.check_when_idle()

    # -- contacts and events -------------------------------------------------------------------------------------------

    @rule(acts=documents.acts(PEOPLE), kill=st.integers(0, 3), after=st.floats(0, 0.03))
    def record_events(self, acts: list[documents.Act], kill: int, after: float) -> None:
        """Record several events; the service may be killed while it processes them."""
        self._record_events(acts)
        self._maybe_kill(kill, after)
        self.example.check_when_idle()

    def _record_events(self, acts: list[documents.Act]) -> None:
        for act in acts:
            if self.example.ids[act.contact] is not None:
                self.example.record_event(act.contact, act.name, act.n)

    @rule(hours=st.integers(1, 6), kill=st.integers(0, 3), after=st.floats(0, 0.03))
    def pass_time(self, hours: int, kill: int, after: float) -> None:
        """Advance the clock by hours; the service may be killed while it processes what is due."""
        self.stage.clock.advance(hours=hours)
        self._maybe_kill(kill, after)
        self.example.check_when_idle()

    @rule(acts=documents.acts(PEOPLE), hours=st.lists(st.integers(1, 3), max_size=3))
    def record_events_and_pass_time(self, acts: list[documents.Act], hours: list[int]) -> None:
        """Record events, then let some hours pass."""
        self._record_events(acts)
        self.example.check_when_idle()
        for number in hours:
            self.stage.clock.advance(hours=number)
            self.example.check_when_idle()

    @rule(index=any_contact, list_number=st.integers(0, 1), join=st.booleans())
    def change_lists(self, index: int, list_number: int, join: bool) -> None:
        """A contact joins or leaves a list."""
        if (number := self.example.ids[index]) is None:
            return
        group = self.example.lists[list_number]
        self.example.api.post(f"/lists/{group}/contacts/bulk", {"add" if join else "remove": [number]}).expect(200)

        def change(contact: Contact) -> Contact:
            if (group in contact.lists) == join:
                return contact
            lists = contact.lists | {group} if join else contact.lists - {group}
            return record_event(
                contact._replace(lists=lists), "list_add" if join else "list_remove", {"contact_list_id": group}
            )

        self.example.update_contact(index, change)
        self.example.check_when_idle()

    @rule(index=any_contact, subscribed=st.booleans())
    def change_consent(self, index: int, subscribed: bool) -> None:
        """A contact opts out or in again."""
        if (number := self.example.ids[index]) is None:
            return
        self.example.api.patch(f"/contacts/{number}", {"subscribed_email": subscribed}).expect(200)
        self.example.update_contact(index, lambda contact: contact._replace(subscribed=subscribed))

    @precondition(lambda self: self.example.flows)
    @rule(data=st.data(), index=any_contact)
    def enroll(self, data: st.DataObject, index: int) -> None:
        """A contact is enrolled by hand."""
        if (flow := self._any_flow(data, "active")) is None or (number := self.example.ids[index]) is None:
            return
        self.example.api.post(f"/flows/{flow.id}/enroll", {"contact_ids": [number]}).expect(200)
        self.example.update_contact(index, lambda contact: enroll_by_hand(contact, flow, self.example.facts.hour))
        self.example.check_when_idle()

    @rule(index=any_contact, sure=st.integers(0, 2))
    def delete_contact(self, index: int, sure: int) -> None:
        """A contact is deleted: its runs end without their contact."""
        if sure or (number := self.example.ids[index]) is None:
            return
        live = self.example.facts.query("SELECT id FROM run WHERE contact_id = ? AND status = 'live'", number)
        self.example.api.delete(f"/contacts/{number}").expect(200)
        self.example.ids[index] = None
        for (run,) in live:
            rows = self.example.facts.query("SELECT status, exit_reason, contact_id FROM run WHERE id = ?", run)
            assert rows == [("exited", "contact_deleted", None)], rows

    @precondition(lambda self: self.example.flows)
    @rule(data=st.data(), index=any_contact, act=st.sampled_from(["move_on", "take_out"]))
    def move_run(self, data: st.DataObject, index: int, act: str) -> None:
        """A contact's wait is skipped, or it is removed from a flow."""
        if (flow := self._any_flow(data, "active", "paused")) is None or (number := self.example.ids[index]) is None:
            return
        live = "SELECT id FROM run WHERE contact_id = ? AND flow_id = ? AND status = 'live'"
        for (run,) in self.example.facts.query(live, number, flow.id):
            self.example.api.post(f"/flows/{flow.id}/runs/{run}/{act}").expect(200)
        hour = self.example.facts.hour
        if act == "take_out":
            self.example.update_contact(index, lambda contact: exit_runs(contact, flow.id, "taken_out", hour))
        else:
            self.example.update_contact(index, lambda contact: skip_wait(contact, flow.id))
        self.example.check_when_idle()

    # -- other than rules ----------------------------------------------------------------------------------------------

    def _maybe_kill(self, kill: int, after: float) -> None:
        if kill == 0:
            self.example.kill(after)

    @invariant()
    def check_stats(self) -> None:
        """The stats of each flow match its runs."""
        if hasattr(self, "example"):
            self.example.check_stats()

    def teardown(self) -> None:
        """Delete what the next example could meet."""
        if hasattr(self, "example"):
            self.example.end()


def find_held_out(example: Example, flow_id: int, share: float) -> frozenset[int]:
    """Return the numbers of the contacts whom a holdout group with this share keeps out of a flow."""
    groups = assignment.start_assignment(flow_id << 31, share)
    return frozenset(
        index for index, number in enumerate(example.ids)
        if number is not None and assignment.get_group(groups, number) == assignment.HELD_OUT
    )  # fmt: skip


def _as_sent(step: dict[str, Any], begun: int) -> dict[str, Any]:
    """Return a step of the interpreter as it is sent; `begun` is the moment of hour 0."""
    return map_branches(documents.as_sent(step, begun), lambda nested: [_as_sent(child, begun) for child in nested])


def exit_runs(contact: Contact, flow: int, reason: str, hour: int) -> Contact:
    """Exit the runs of a flow and cancel its queued messages."""
    for index, run in enumerate(contact.runs):
        if run.flow == flow and run.status == "live":
            contact = end_run(contact, index, "exited", reason, hour)
    return contact._replace(mails=tuple(
        mail._replace(status="cancelled") if mail.status == "queued" and contact.runs[mail.run].flow == flow else mail
        for mail in contact.mails
    ))  # fmt: skip


def enroll_by_hand(contact: Contact, flow: Flow, hour: int) -> Contact:
    """Start a run by hand, if the frequency of the flow allows it; a refusal leaves the contact unchanged."""
    by_hand = Event("", {})
    reason = ignore_reason(flow, by_hand, contact, hour)
    if reason == "held_out" and not is_recorded(contact, flow):
        held_out = Run(flow.id, {}, 0, hour, status="ignored", reason=reason)
        return contact._replace(runs=(*contact.runs, held_out))
    return contact if reason else start_run(contact, flow, by_hand, hour)


def skip_wait(contact: Contact, flow: int) -> Contact:
    """End the wait of a contact's run."""
    for index, run in enumerate(contact.runs):
        if run.flow == flow and run.entered is not None:
            skipped = run.rest[0] | {"duration": 0, "timeout": 0}
            if "hour" in skipped:
                skipped = {"id": skipped["id"], "type": "wait", "duration": 0}
            contact = update_run(contact, index, rest=(skipped, *run.rest[1:]))
    return contact

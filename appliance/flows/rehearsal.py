"""One person's way through a flow on a stage: time passes from one thing that is due to the next, each is told of."""

import itertools
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec

from appliance.audience.segments import people
from appliance.core import clock, tokens
from appliance.core.errors import Refused
from appliance.events import kinds
from appliance.flows import document, enrollment, recorded, run, simulated_events, simulated_sends, starting
from appliance.flows.document import walk
from appliance.flows.recorded import Came
from appliance.flows.simulated_events import Assumed, Cast, Impossible
from appliance.flows.simulated_sends import Gone
from appliance.flows.starting import MAX_CHAIN_DEPTH
from appliance.flows.steps import BY_TYPE
from appliance.flows.steps.kind import Going, Here, Move, Node
from appliance.flows.timeline import End, Entry, Rendered
from appliance.flows.triggers import MANUAL, Start
from appliance.flows.why import Reason, spoken
from appliance.sending.messages.prepare import Workshop
from appliance.storage import work
from appliance.storage.models import Flow
from appliance.storage.open import fetch_one, rows, scalar
from appliance.storage.open import run as open_run
from appliance.storage.sandbox import ALL, NONE, Rows, shadowed

# Which other flows would start by what happens in a rehearsal; they are named, and not followed.

_LIVE = (
    "SELECT f.id, f.name, t.event, t.segment_id, t.contact_list_id, t.data FROM main.flow f "
    "JOIN main.trigger t ON t.flow_id = f.id WHERE f.account_id = ? AND f.id <> ? AND f.status = 'active' "
    f"AND f.hidden = 0 AND f.deleted_at IS NULL AND t.event <> '{MANUAL}' ORDER BY f.id"
)


class Other(NamedTuple):
    """A live flow, and the event that would start it."""

    flow_id: int
    name: str
    event: str


class Others:
    """Looks at the events of a rehearsal as they come."""

    def __init__(self, account_id: int, flow_id: int) -> None:
        self._account_id = account_id
        self._flows = [
            (row[0], row[1], Start(row[2], row[3], row[4], msgspec.json.decode(row[5])))
            for row in rows(_LIVE, (account_id, flow_id))
        ]
        self._seen = int(scalar("SELECT coalesce(max(id), 0) FROM event"))

    def started(self) -> Iterator[Other]:
        """Return the flows that what was recorded since the last time would start."""
        before, self._seen = self._seen, int(scalar("SELECT coalesce(max(id), 0) FROM event"))
        if not self._flows or self._seen == before:
            return
        new: dict[str, list[int]] = {}
        for number, name in rows(
            "SELECT id, event FROM event WHERE id > ? AND quiet = 0 AND chain_depth < ? ORDER BY id",
            (before, MAX_CHAIN_DEPTH),
        ):
            new.setdefault(name, []).append(number)
        for flow_id, name, start in self._flows:
            if start.event in new and starting.met(self._account_id, flow_id, start, new[start.event]):
                yield Other(flow_id, name, start.event)


# More than this is no rehearsal any more: a flow has 200 steps, and each is left once
_MAX_MOMENTS = 2_000
_MAX_AT_ONCE = 50
# Others wait for the thread that it runs on
_MAX_SECONDS = 10.0


class Planned(NamedTuple):
    """Something that will be assumed to happen at a moment, once that is known."""

    at: int | None
    order: int
    what: Assumed


class Rehearsal:
    """The way of one run; `play` it on an open stage, where it was started."""

    def __init__(self, flow: Flow, version: int, paths: dict[Any, str], cast: Cast, until: int) -> None:
        self.flow, self.version, self.paths, self.cast, self.until = flow, version, paths, cast, until
        self.entries: list[Entry] = []
        self.notes: list[str] = []
        self.zone = people.scope(flow.account_id).zone
        self._runs = json.dumps([cast.run_id])
        self._workshop = Workshop()
        # Not by the plans that are kept: nobody shall remember one that was never live
        self._plan = document.read_plan(flow.id, version)
        self._steps: dict[int | None, Entry] = {}  # the last entry of each step, for the message it sends
        # The events that this flow asks for: in its filters, or as its goal
        self._mentioned = {str(flow.goal), *recorded.asked_for(flow.steps)}
        self._others = Others(flow.account_id, flow.id)
        self._planned: list[Planned] = []
        self._seen: set[int] = set()  # messages that were told of
        self._stuck: set[int] = set()  # those that nobody lets go
        self._ends = time.monotonic() + _MAX_SECONDS

    def play(self, script: list[Assumed], real: Sequence[Came]) -> End:
        """Let time pass until the run has ended or the time is over; `real` are events that came."""
        start = clock.now_ms()
        self._planned = [_planned(number, what, start) for number, what in enumerate(script)]
        left = list(real)
        now: int | None = start
        for _ in range(_MAX_MOMENTS):
            if now is None or now > self.until:
                break
            with clock.imagined(now):
                while left and left[0].at <= now:
                    self._happened(left.pop(0))
                self._settle()
                for planned in self._due(now):
                    self._assume(planned.what)
                    self._settle()
            if self._ended() is not None and not self._waits(now) and not self._leaves(now):
                break
            if self._is_late():
                self._note(f"It took too long and was ended early, at {spoken(now, self.zone)}.")
                break
            now = self._next(now, left)
        self._left_over()
        return self._end()

    # -- one moment ------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Do all that is due at this moment: goals, steps, messages, and what follows from them."""
        for _ in range(_MAX_AT_ONCE):
            before = len(self.entries)
            moved = enrollment.take_in()
            self._goal()
            due = fetch_one(
                "SELECT 1 FROM run WHERE id = ? AND status = 'live' AND due_at <= ?",
                (self.cast.run_id, clock.now_ms()),
            )
            if due:
                work.write(run.go_on, [self.cast.run_id], self.flow.name, self._plan, self._watch)
            self._tell_skipped()
            for gone in simulated_sends.leave(self._runs, self._workshop, self._stuck):
                self._gone(gone)
                if self._is_late():  # there may be hundreds of one moment, and each takes its time
                    return
            for other in self._others.started():
                self._tell("starts", f"{other.event} would start the flow “{other.name}” too", event=other.event)
            if not moved and not due and len(self.entries) == before:
                return

    def _watch(self, node: Node, going: Going, move: Move) -> None:
        """Tell of a step that the run has come to, and where it goes from there."""
        if going.passage_id is not None and node.kind == "wait":
            return  # that it waits was told when it began
        kind = BY_TYPE[node.kind]
        here = Here(going.account_id, going.flow_id, self.flow.name, self.version, clock.now_ms())
        more = kind.simulate(node, going, move, here)
        waits = move.to == "wait" and move.until > here.now
        outcome = "waits" if waits else move.outcome or "on"
        filters: list[Reason] = more.pop("filters", [])
        told = self._tell(
            "step", self._step_words(node, move, waits, filters), step_id=node.id, path=self.paths.get(node.id),
            type=node.kind, outcome=outcome, reason=move.reason, until=clock.iso(move.until) if waits else None,
            filters=filters, asks=sorted({*recorded.asked_for([node.props])}) if filters else [], data=more or None,
        )  # fmt: skip
        self._steps[node.id] = told

    def _step_words(self, node: Node, move: Move, waits: bool, filters: list[Reason]) -> str:
        kind = BY_TYPE[node.kind]
        if waits:
            return f"{kind.summary(node.props, self.flow.account_id)}: until {spoken(move.until, self.zone)}"
        if filters:
            is_yes = move.to == "yes"
            return f"{kind.label}: {'Yes' if is_yes else 'No'}, {simulated_events.because(filters, is_yes)}"
        said = kind.summary(node.props, self.flow.account_id)
        if move.outcome == "skipped":
            return f"{said}: skipped, {simulated_events.skipped(move.reason)}"
        return f"{said}: failed, and they leave the flow" if move.reason == "failed" else said

    def _goal(self) -> None:
        if self._ended() == "goal" and not any(one.told == "goal" for one in self.entries):
            self._tell("goal", f"The goal is reached: {self.flow.goal}", event=self.flow.goal)

    # -- messages --------------------------------------------------------------------------------------------------

    def _gone(self, gone: Gone) -> None:
        """Tell of a message that left or did not: with the step that made it where that was at the same moment."""
        told = self._steps.get(gone.step_id)
        says = simulated_events.message(gone.message, self.zone)
        if told is None or told.at != clock.iso(clock.now_ms()) or told.message is not None:
            told = self._tell("message", says, step_id=gone.step_id, path=self.paths.get(gone.step_id))
        else:
            skips = gone.message.status == "skipped"
            told.says = f"{told.says}: skipped, {simulated_events.skipped(gone.message.skip_reason)}" if skips else says
        told.message = gone.message
        if gone.message.status in ("queued", "held") and not gone.message.is_held(clock.now_ms()):
            self._stuck.add(gone.message_id)
        if gone.note is not None:
            self._note(f"Step {gone.step_id}: {gone.note}")
        self._from_message(gone)

    def _tell_skipped(self) -> None:
        """Show the messages that will never leave, or not now, with the steps that made them."""
        found = rows(
            "SELECT id, step_id, channel, status, skip_reason, recipient, subject, due_at FROM message "
            "WHERE run_id = ? AND (status = 'skipped' OR (status = 'held' AND due_at > ?)) ORDER BY id",
            (self.cast.run_id, clock.now_ms()),
        )
        for message_id, step_id, channel, status, reason, to, subject, due in found:
            told = self._steps.get(step_id)
            if message_id in self._seen or told is None or told.message is not None:
                continue
            self._seen.add(message_id)
            leaves = clock.iso(due) if status == "held" else None
            told.message = Rendered(channel, status, reason, to, None, subject, None, None, leaves)
            if status == "held":
                told.says = f"{told.says}: held until {spoken(due, self.zone)}"
            elif told.outcome != "skipped":
                told.says = f"{told.says}: skipped, {simulated_events.skipped(reason)}"

    def _from_message(self, gone: Gone) -> None:
        """Fix the moments of what the script lets happen to a message, now that it has left."""
        if gone.message.status != "sent":
            return
        self._planned = [
            one._replace(at=clock.now_ms() + one.what.after * 1000)
            if one.at is None and one.what.step == gone.step_id and isinstance(one.what.after, int)
            else one
            for one in self._planned
        ]

    # -- what is assumed -------------------------------------------------------------------------------------------

    def _due(self, now: int) -> Iterator[Planned]:
        while True:
            due = sorted(one for one in self._planned if one.at is not None and one.at <= now)
            if not due:
                return
            self._planned.remove(due[0])
            yield due[0]

    def _assume(self, what: Assumed) -> None:
        step = what.step if isinstance(what.step, int) else None
        try:
            says = work.write(simulated_events.happen, what, self.cast)
        except (Impossible, Refused) as reason:
            self._note(f"{what.event} could not happen: {reason}")
            return
        self._tell("assumed", f"Assumed: {says}", event=what.event, data=what.given or None, step_id=step)

    def _happened(self, came: Came) -> None:
        """Let a real event of this person come, as it really came."""
        work.write(recorded.again, came)
        if came.event in self._mentioned:
            words = f"As it really was: {kinds.words(came.event)} ({came.event})"
            self._tell("recorded", words, event=came.event)

    # -- time ------------------------------------------------------------------------------------------------------

    def _next(self, now: int, real: Sequence[Came]) -> int | None:
        coming = [one.at for one in self._planned if one.at is not None]
        # Of what this flow does not ask for it is enough that it is there by then
        coming += [came.at for came in real if came.event in self._mentioned][:1]
        due = scalar("SELECT due_at FROM run WHERE id = ? AND status = 'live'", (self.cast.run_id,))
        coming += [one for one in (due, simulated_sends.waiting(self._runs)) if one is not None]
        return min((one for one in coming if one > now), default=None)

    def _waits(self, now: int) -> bool:
        """Return whether a message of the run leaves later than its end."""
        due = simulated_sends.waiting(self._runs)
        return due is not None and due > now

    def _leaves(self, now: int) -> bool:
        """Return whether a message of the run should have left by now, and nobody had the time to let it."""
        due = simulated_sends.waiting(self._runs)
        return due is not None and due <= now and self._is_late()

    def _is_late(self) -> bool:
        return time.monotonic() > self._ends

    def _ended(self) -> str | None:
        found = fetch_one("SELECT coalesce(exit_reason, status) FROM run WHERE id = ? AND status <> 'live'",
                    (self.cast.run_id,))  # fmt: skip
        return str(found[0]) if found else None

    def _left_over(self) -> None:
        for left in sorted(self._planned, key=lambda one: one.order):
            if left.at is None:
                self._note(f"{left.what.event} did not happen: step {left.what.step} sent no message that left")
            else:
                self._note(f"{left.what.event} would come after the end, {spoken(left.at, self.zone)}")

    def _end(self) -> End:
        status, reason, ended_at, step_id, due = rows(
            "SELECT status, exit_reason, ended_at, action_id, due_at FROM run WHERE id = ?", (self.cast.run_id,)
        )[0]
        if status == "live":
            says = f"Still inside at the end of the rehearsal, {spoken(self.until, self.zone)}"
            if due is not None:
                says += f"; goes on {spoken(due, self.zone)}"
            return End(status, None, None, step_id, f"{says}.")
        why = simulated_events.why_ended(status, reason)
        says = f"{'Completed' if status == 'completed' else 'Left'} {spoken(ended_at, self.zone)}: {why}."
        return End(status, reason, clock.iso(ended_at), step_id, says)

    # -- words -----------------------------------------------------------------------------------------------------

    def _tell(self, told: Any, says: str, **more: Any) -> Entry:
        now = clock.now_ms()
        made = Entry(str(clock.iso(now)), told, says, **more)
        self.entries.append(made)
        return made

    def _note(self, words: str | None) -> None:
        if words is not None and words not in self.notes:
            self.notes.append(words)


def _planned(order: int, what: Assumed, start: int) -> Planned:
    """Return when something is assumed to happen; what is counted from a message waits for that one."""
    if isinstance(what.at, int):
        return Planned(max(what.at, start), order, what)
    if isinstance(what.step, int) and isinstance(what.after, int):
        return Planned(None, order, what)
    return Planned(start + (what.after * 1000 if isinstance(what.after, int) else 0), order, what)


# What a rehearsal sees: shadows of every table that a flow writes, holding the people it is about and nobody else.

# Versions that were never live; numbered over all rehearsals of this process, so that none is remembered for another
_versions = itertools.count((1 << 47) + 1, 2)

_PEOPLE = "(SELECT value FROM json_each(:people))"
_NAMES = "(SELECT value FROM json_each(:names))"
_OF_CAMPAIGNS = ("campaign_sent", "campaign_opened", "campaign_clicked")
_HASHES = "(SELECT value ->> 0, unhex(value ->> 1) FROM json_each(:hashes))"


class Stage:
    """Whose rehearsal of which flow it is, and when it begins.

    `steps` are what is tried in place of its own, `addresses` (kind, key) those of people who are made up.
    """

    def __init__(
        self, flow: Flow, people: Sequence[int], start: int, steps: Sequence[dict[str, Any]] = (),
        addresses: Sequence[tuple[str, str]] = (),
    ) -> None:  # fmt: skip
        self.flow, self.people, self.start, self.steps, self.addresses = flow, people, start, steps, addresses
        self._templates = [
            step["template_id"] for _, step in [*walk(flow.steps), *walk(steps)] if step.get("template_id") is not None
        ]

    @contextmanager
    def open(self) -> Iterator[int]:
        """Let this thread write into the shadows, and believe that it is the moment of the start.

        Yields the number that a version of the flow may have which was never live.
        """
        with shadowed(self._tables()), clock.imagined(self.start):
            # A rehearsal with everything at rest would tell nothing
            work.write(open_run, "UPDATE account SET sending_stopped = 0")
            yield next(_versions)

    def _tables(self) -> dict[str, Rows]:
        own = rows(
            f"SELECT kind, key FROM channel WHERE contact_id IN {_PEOPLE}", {"people": json.dumps([*self.people])}
        )
        hashes = [(kind, tokens.address_hash(kind, key).hex()) for kind, key in [*own, *self.addresses]]
        asked = self._asked()
        values = {
            "account": self.flow.account_id, "flow": self.flow.id, "version": self.flow.version,
            "names": json.dumps(sorted({*recorded.asked_for(asked), *self._started_by()})),
            "sent_since": self._sent_since(asked), "people": json.dumps([*self.people]),
            "start": self.start, "hashes": json.dumps(hashes), "templates": json.dumps(self._templates),
        }  # fmt: skip

        def some(where: str) -> Rows:
            return Rows(where, {name: value for name, value in values.items() if f":{name}" in where})

        of_people, of_flow = some(f"contact_id IN {_PEOPLE}"), some("flow_id = :flow")
        by_address = some(f"account_id = :account AND (kind, address_hash) IN {_HASHES}")
        templates = "flow_id = :flow OR id IN (SELECT value FROM json_each(:templates))"
        return {
            "account": some("id = :account"),
            "contact": some(f"id IN {_PEOPLE}"), "channel": of_people, "consent": of_people, "membership": of_people,
            "list_refusal": of_people, "contact_list": some("account_id = :account"), "contact_search": NONE,
            "opt_out": by_address, "suppression": by_address,
            # What happened after the start has not happened yet, and what nobody asks for is not looked at
            "event": some(f"contact_id IN {_PEOPLE} AND created_at <= :start AND event IN {_NAMES}"),
            "flow": some("id = :flow"), "trigger": of_flow, "cursor": ALL, "passage": NONE,
            "step": some("flow_id = :flow AND version = :version"),
            # Who is inside now is not inside in the rehearsal, or could not come in
            "run": some(f"contact_id IN {_PEOPLE} AND (flow_id <> :flow OR status <> 'live')"),
            # Of what waits to be sent the rehearsal knows nothing, or it would send it
            "message": some(
                f"contact_id IN {_PEOPLE} AND status NOT IN ('queued', 'held', 'sending') AND sent_at >= :sent_since"
            ),
            "message_content": NONE, "repeat": NONE, "hit": NONE, "returned": NONE, "told": NONE, "warm_up_day": ALL,
            "sms_day": ALL, "receipt": NONE, "incoming": NONE,
            "link": some("account_id = :account AND campaign_id IS NULL"),
            "template": some(f"account_id = :account AND ({templates})"),
            "template_revision": some(
                "id IN (SELECT content_id FROM main.step WHERE flow_id = :flow AND version = :version) OR "
                f"(template_id, number) IN (SELECT id, revision FROM main.template WHERE {templates})"
            ),
        }  # fmt: skip

    def _asked(self) -> list[Any]:
        """Return whatever may ask for what people did: steps, trigger, designs, and segments that those may name."""
        here = {"account": self.flow.account_id, "flow": self.flow.id}
        found = rows("SELECT data FROM trigger WHERE flow_id = :flow UNION ALL SELECT filters FROM segment "
                     "WHERE account_id = :account UNION ALL SELECT design FROM template WHERE flow_id = :flow",
                     here)  # fmt: skip
        return [self.flow.steps, *self.steps, *(json.loads(text) for (text,) in found)]

    def _started_by(self) -> list[str]:
        return [name for (name,) in rows("SELECT event FROM trigger WHERE flow_id = ?", (self.flow.id,))]

    def _sent_since(self, asked: list[Any]) -> int:
        """Return since when messages that were sent matter: for filters of campaigns, or for the frequency cap."""
        if any(name in json.dumps(asked) for name in _OF_CAMPAIGNS):
            return 0
        cap = scalar("SELECT frequency_cap FROM account WHERE id = ?", (self.flow.account_id,))
        return self.start - int(json.loads(cap)["days"]) * 86_400_000 if cap else self.start

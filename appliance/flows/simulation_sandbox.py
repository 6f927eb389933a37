"""The sandbox of a simulation: its rows, how contacts enter the flow, and sending messages without a server."""

import itertools
import json
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec

from appliance.audience import lists
from appliance.audience.filters import compiler
from appliance.audience.filters.fields import FilterPlace
from appliance.audience.segments import explain, members
from appliance.content.designs.merge_limits import MergeError
from appliance.core import clock, crypto
from appliance.core.errors import Invalid, RecipientRejected, SenderRejected
from appliance.core.i18n import gettext, gettext_noop
from appliance.events import log
from appliance.events.log import NewEvent
from appliance.flows import enrollment, holdouts, simulation_events, simulation_timeline, triggers
from appliance.flows.document import walk
from appliance.flows.enrollment import Entrant, OpenFlow
from appliance.flows.holdouts import NO_HOLDOUT
from appliance.flows.simulation_timeline import RenderedMessage, SplitReason
from appliance.flows.triggers import MANUAL, TriggerSpec
from appliance.sending.messages import queue
from appliance.sending.messages.ledger import COLUMNS, LedgerRow, Outcome
from appliance.sending.messages.prepare import MessagePreparer
from appliance.sending.sms import segments
from appliance.storage import disk_guard, transactions
from appliance.storage.database import fetch_one, rows, run, scalar
from appliance.storage.database import run as open_run
from appliance.storage.models import Flow, Message, Trigger
from appliance.storage.sandbox import ALL_ROWS, FIRST_SANDBOX_ID, NO_ROWS, TableRows, sandbox
from appliance.storage.transactions import require_write_transaction

# The sandbox has temporary copies of every table that a flow reads or writes, with the rows that the simulated contacts
# need.

# Numbers for versions that were never live. They are unique in this process, so that no cache mixes up two simulations.
_versions = itertools.count((1 << 47) + 1, 2)

_CONTACT_IDS = "(SELECT value FROM json_each(:contacts))"
_EVENT_NAMES = "(SELECT value FROM json_each(:names))"
_CAMPAIGN_FILTERS = ("campaign_sent", "campaign_opened", "campaign_clicked")
_ADDRESS_HASHES = "(SELECT value ->> 0, unhex(value ->> 1) FROM json_each(:hashes))"


class SimulationSandbox:
    """The sandbox for simulating a flow with contacts, from a start time in Unix milliseconds.

    `steps` are the steps to simulate instead of the flow's, if any. `addresses` are (kind, key) of sample contacts,
    whose suppressions and opt-outs are copied, too.
    """

    def __init__(
        self, flow: Flow, contact_ids: Sequence[int], start: int, steps: Sequence[dict[str, Any]] = (),
        addresses: Sequence[tuple[str, str]] = (),
    ) -> None:  # fmt: skip
        self.flow, self.contact_ids, self.start, self.steps, self.addresses = flow, contact_ids, start, steps, addresses
        self._templates = [
            step["template_id"] for _, step in [*walk(flow.steps), *walk(steps)] if step.get("template_id") is not None
        ]

    @contextmanager
    def open(self) -> Iterator[int]:
        """Redirect database access of this thread to the sandbox, and set its clock to the start of the simulation.

        Yields an unused version number, under which the simulated steps can be stored.
        """
        with sandbox(self._select_rows()), clock.simulated_time(self.start):
            # Sending is always on in the sandbox; otherwise the simulation of a stopped account would show no messages.
            transactions.write(open_run, "UPDATE account SET sending_stopped = 0")
            yield next(_versions)

    def _select_rows(self) -> dict[str, TableRows]:
        own_addresses = rows(
            f"SELECT kind, key FROM channel WHERE contact_id IN {_CONTACT_IDS}",
            {"contacts": json.dumps([*self.contact_ids])},
        )
        hashes = [(kind, crypto.hash_address(kind, key).hex()) for kind, key in [*own_addresses, *self.addresses]]
        filters = self._load_filters()
        values = {
            "account": self.flow.account_id, "flow": self.flow.id, "version": self.flow.version,
            "names": json.dumps(sorted({*simulation_events.find_event_names(filters), *self._list_trigger_events()})),
            "sent_since": self._get_sent_since(filters), "contacts": json.dumps([*self.contact_ids]),
            "start": self.start, "hashes": json.dumps(hashes), "templates": json.dumps(self._templates),
        }  # fmt: skip

        def filtered(where: str) -> TableRows:
            return TableRows(where, {name: value for name, value in values.items() if f":{name}" in where})

        of_contacts, of_flow = filtered(f"contact_id IN {_CONTACT_IDS}"), filtered("flow_id = :flow")
        by_address = filtered(f"account_id = :account AND (kind, address_hash) IN {_ADDRESS_HASHES}")
        templates = "flow_id = :flow OR id IN (SELECT value FROM json_each(:templates))"
        return {
            "account": filtered("id = :account"),
            "contact": filtered(f"id IN {_CONTACT_IDS}"),
            "channel": of_contacts, "consent": of_contacts, "membership": of_contacts,
            "list_opt_out": of_contacts, "contact_list": filtered("account_id = :account"), "contact_search": NO_ROWS,
            "opt_out": by_address, "suppression": by_address,
            # Events after the start have not happened yet, and events that no filter or trigger names are not needed
            "event": filtered(f"contact_id IN {_CONTACT_IDS} AND created_at <= :start AND event IN {_EVENT_NAMES}"),
            "flow": filtered("id = :flow"), "trigger": of_flow, "cursor": ALL_ROWS, "step_visit": NO_ROWS,
            "flow_request": NO_ROWS, "split_test": of_flow,
            "step": filtered("flow_id = :flow AND version = :version"),
            # Live runs of the flow are left out; otherwise contacts who are in the flow could not enter it.
            "run": filtered(f"contact_id IN {_CONTACT_IDS} AND (flow_id <> :flow OR status <> 'live')"),
            # Unsent messages are left out; otherwise the simulation would send them.
            "message": filtered(
                f"contact_id IN {_CONTACT_IDS} AND status NOT IN ('queued', 'held', 'sending') "
                "AND sent_at >= :sent_since"
            ),
            "message_content": NO_ROWS, "bulk_content": NO_ROWS, "raw_message": NO_ROWS, "attachment": NO_ROWS,
            "retry_payload": NO_ROWS, "send_log": NO_ROWS, "hit": NO_ROWS, "click_hour": NO_ROWS,
            "contact_zone": NO_ROWS,
            "bounce": NO_ROWS, "processed_notification": NO_ROWS, "warm_up_day": ALL_ROWS,
            "sms_day": ALL_ROWS, "receipt": NO_ROWS, "incoming": NO_ROWS,
            "link": filtered("account_id = :account AND campaign_id IS NULL"),
            "template": filtered(f"account_id = :account AND ({templates})"),
            "template_revision": filtered(
                "id IN (SELECT content_id FROM main.step WHERE flow_id = :flow AND version = :version) OR "
                f"(template_id, number) IN (SELECT id, revision FROM main.template WHERE {templates})"
            ),
        }  # fmt: skip

    def _load_filters(self) -> list[Any]:
        """Return all JSON that may contain event filters: steps, trigger, designs, and the account's segments."""
        parameters = {"account": self.flow.account_id, "flow": self.flow.id}
        json_rows = rows("SELECT data FROM trigger WHERE flow_id = :flow UNION ALL SELECT filters FROM segment "
                     "WHERE account_id = :account UNION ALL SELECT design FROM template WHERE flow_id = :flow",
                     parameters)  # fmt: skip
        return [self.flow.steps, *self.steps, *(json.loads(text) for (text,) in json_rows)]

    def _list_trigger_events(self) -> list[str]:
        return [name for (name,) in rows("SELECT event FROM trigger WHERE flow_id = ?", (self.flow.id,))]

    def _get_sent_since(self, filters: list[Any]) -> int:
        """Return the time, in Unix milliseconds, from which sent messages are needed.

        It is 0 if a filter refers to campaigns, else the start of the days that the frequency cap counts.
        """
        if any(name in json.dumps(filters) for name in _CAMPAIGN_FILTERS):
            return 0
        cap = scalar("SELECT frequency_cap FROM account WHERE id = ?", (self.flow.account_id,))
        return self.start - int(json.loads(cap)["days"]) * clock.DAY_MS if cap else self.start


_REFUSALS = {
    enrollment.FREQUENCY: gettext_noop(
        "the contact was in this flow before, and its trigger does not allow another entry yet"
    ),
    enrollment.ALREADY_INSIDE: gettext_noop("the contact is already in this flow"),
    enrollment.TOO_DEEP: gettext_noop("flows triggered each other too many times"),
    triggers.HELD_OUT: gettext_noop("the contact is in the holdout group of this flow"),
    holdouts.CONTROL_GROUP: gettext_noop("the contact is in the control group of the account"),
}  # fmt: skip


class EntryResult(NamedTuple):
    """A run that was started in the sandbox.

    `description` is the text of its timeline entry. `event` and `data` are the name and data of the triggering event,
    None if the contact was enrolled by hand. `filters` are the conditions of the trigger with their results, and
    `notes` say why the contact would not enter in reality.
    """

    run_id: int
    description: str
    event: str | None
    data: dict[str, Any] | None
    filters: list[SplitReason]
    notes: list[str]


def enter_flow(flow: Flow, contact_id: int, overrides: Mapping[str, Any], now: int) -> EntryResult:
    """Start a run of a contact, even if the trigger does not match or the frequency forbids it, and return it.

    Each reason that would prevent the entry in reality becomes a note of the result. The data in `overrides` replaces
    the default data of the triggering event.
    """
    require_write_transaction()
    spec = triggers.get_spec(Trigger.get(Trigger.flow == flow.id))
    event_id = None if spec.event == MANUAL else _record_trigger_event(flow, spec, contact_id, overrides)
    data: dict[str, Any] = {} if event_id is None else _load_event_data(event_id)
    reasons = [] if event_id is None else explain_trigger(flow.account_id, spec, contact_id, data, now)
    # An incomplete trigger already has a note as a blocker, so no note about a mismatch is needed.
    is_matched = (
        event_id is None
        or bool(triggers.list_missing(spec))
        or bool(triggers.match_events(flow.account_id, flow.id, spec, [event_id]))
    )
    notes = (
        []
        if is_matched
        else [
            gettext(
                "In reality, “%(event)s” would not start this flow for the contact: %(reason)s.",
                event=log.name_event(spec.event or ""),
                reason=describe_refusal(spec, reasons, flow),
            )
        ]
    )
    # Whether a contact is held out depends on its id, and a sample contact has no id in reality.
    holdout = holdouts.get_holdout(spec.data) if contact_id < FIRST_SANDBOX_ID else NO_HOLDOUT
    open_flow = OpenFlow(
        flow.account_id, flow.id, flow.name, flow.version, triggers.get_frequency(spec), holdout=holdout
    )
    entrant = Entrant(contact_id, event_id)
    result = enrollment.start_runs(open_flow, [entrant])
    if not result.started:
        refusals = [gettext(_REFUSALS[reason]) if reason in _REFUSALS else reason for reason in result.ignored]
        notes += [gettext("In reality, the contact would not enter: %(reason)s.", reason=reason) for reason in refusals]
        enrollment.start_runs(open_flow._replace(frequency="every_time", holdout=NO_HOLDOUT), [entrant])
    run_id = scalar(
        "SELECT id FROM run WHERE flow_id = ? AND contact_id = ? AND status = 'live'", (flow.id, contact_id)
    )
    close_entry(flow.id)
    if event_id is None:
        description = gettext("Enters the flow manually")
    else:
        description = gettext("Enters the flow: %(event)s", event=log.name_event(spec.event or ""))
    return EntryResult(int(run_id), description, None if event_id is None else spec.event, data or None, reasons, notes)


def close_entry(flow_id: int) -> None:
    """Prevent further contacts from entering the flow, and mark all existing events as processed.

    Later events can still reach goals.
    """
    require_write_transaction()
    run("INSERT INTO cursor (name, event_id) VALUES (?, 0) ON CONFLICT DO NOTHING", (enrollment.CURSOR_NAME,))
    run(
        "UPDATE cursor SET event_id = (SELECT coalesce(max(id), 0) FROM event) WHERE name = ?",
        (enrollment.CURSOR_NAME,),
    )
    run("UPDATE trigger SET event = ? WHERE flow_id = ?", (MANUAL, flow_id))


def _record_trigger_event(flow: Flow, spec: TriggerSpec, contact_id: int, overrides: Mapping[str, Any]) -> int:
    """Record the event that starts the flow, with the data of `_get_default_data` and `overrides`; return its id.

    For `list_add`, the contact is added to the list, which records the event.
    """
    is_joining = spec.event == "list_add" and spec.contact_list_id is not None
    if is_joining and not _is_member(spec.contact_list_id, contact_id):
        try:
            lists.add_members(flow.account_id, int(spec.contact_list_id or 0), [contact_id])
        except Invalid:
            is_joining = False  # The list mirrors a segment, so contacts cannot be added to it.
    row = (
        fetch_one("SELECT max(id) FROM event WHERE event = 'list_add' AND id > ?", (FIRST_SANDBOX_ID,))
        if is_joining
        else None
    )
    if row is None or row[0] is None:
        log.record(NewEvent(flow.account_id, spec.event, contact_id, _get_default_data(flow, spec)))
    event_id = int(scalar("SELECT max(id) FROM event WHERE event = ?", (spec.event,)))
    if spec.event not in log.RESERVED_NAMES:
        run("UPDATE event SET generated = 0 WHERE id = ?", (event_id,))
    if overrides:
        data_json = msgspec.json.encode({**_load_event_data(event_id), **overrides}).decode()
        run("UPDATE event SET data = ? WHERE id = ?", (data_json, event_id))
    return event_id


def _get_default_data(flow: Flow, spec: TriggerSpec) -> dict[str, Any]:
    """Return the data that an event needs to match a trigger, apart from data that its filters require."""
    if spec.event == triggers.DATE:
        return {"flow_id": flow.id, "path": spec.data.get("path")}
    if spec.event in triggers.LIST_EVENTS and spec.contact_list_id is not None:
        return {"contact_list_id": spec.contact_list_id}
    if spec.event in triggers.SEGMENT_EVENTS:
        return {"segment_id": spec.segment_id}
    if spec.event in triggers.TAG_EVENTS and spec.data.get("tag"):
        return {"tag": spec.data["tag"]}
    if spec.data.get("keywords"):
        return {"keyword": spec.data["keywords"][0]}
    return {}


def _is_member(list_id: int | None, contact_id: int) -> bool:
    sql = "SELECT 1 FROM membership WHERE contact_list_id = ? AND contact_id = ?"
    return fetch_one(sql, (list_id, contact_id)) is not None


def _load_event_data(event_id: int) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.json.decode(scalar("SELECT data FROM event WHERE id = ?", (event_id,)), type=dict)
    return data


def explain_trigger(account_id: int, spec: TriggerSpec, contact_id: int, data: Any, now: int) -> list[SplitReason]:
    """Return each filter and the segment of a trigger, with whether it matches a contact.

    `data` is the data of the triggering event, and `now` the time of the entry in Unix milliseconds. Returns an empty
    list for invalid filters.
    """
    scope = members.build_scope(account_id)._replace(place=FilterPlace.SPLIT)
    filters = list(spec.data.get("where") or [])
    if spec.segment_id is not None and spec.event != "segment_exit":
        filters.append({"name": "contact_segment", "predicate": "eq", "value": spec.segment_id})
    try:
        return simulation_timeline.explain_filters(compiler.parse_filters(filters, scope), scope, contact_id, data, now)
    except Invalid:
        return []  # A filter names a deleted object, so the trigger matches no contact.


def describe_refusal(spec: TriggerSpec, reasons: list[SplitReason], flow: Flow) -> str:
    """Return a text that says why the trigger of `flow` does not match a contact.

    `reasons` are the conditions of the trigger with their results for the contact; they may be empty.
    """
    if any(not reason.matches for reason in reasons):
        conditions = simulation_timeline.describe_decision(reasons)
        return gettext("the contact does not match: %(conditions)s", conditions=conditions)
    if spec.contact_list_id is not None:
        list_name = explain.fetch_name(flow.account_id, "list", spec.contact_list_id)
        return gettext("the trigger is only for the list “%(list)s”", list=list_name)
    return gettext("the event does not match the trigger")


_WORKER_ID = "rehearsal"
_SELECT_DUE_MESSAGES = (
    f"SELECT {COLUMNS} FROM message WHERE run_id IN (SELECT value FROM json_each(?)) "
    "AND status IN ('queued', 'held') AND due_at <= ? ORDER BY due_at, id"
)


class SimulatedSend(NamedTuple):
    """A message after an attempt to send it; `note` says what prevented sending or rendering it, or is None."""

    message_id: int
    step_id: int | None
    message: RenderedMessage
    note: str | None


def send_due_messages(
    runs: str, renderer: MessagePreparer, excluded: Set[int] = frozenset()
) -> Iterator[SimulatedSend]:
    """Send the due messages of runs in the sandbox one after the other, and yield each with its content.

    `runs` are the run ids as a JSON list, and `excluded` the ids of messages that are not sent.
    """
    for row in [LedgerRow._make(columns) for columns in rows(_SELECT_DUE_MESSAGES, (runs, clock.now_ms()))]:
        if row.id not in excluded:
            yield _send_message(row, renderer)


def send_due_unrendered(runs: str) -> int:
    """Mark the due messages of runs (ids as a JSON list) as sent without rendering them; return how many were sent."""
    due_rows = [LedgerRow._make(columns) for columns in rows(_SELECT_DUE_MESSAGES, (runs, clock.now_ms()))]
    marked_ids = transactions.write(queue.claim, due_rows, _WORKER_ID) if due_rows else set()
    transactions.write(queue.record, [Outcome(row, sender="") for row in due_rows if row.id in marked_ids])
    return len(marked_ids)


def show_message(message: Message, note: str | None = None, renderer: MessagePreparer | None = None) -> SimulatedSend:
    """Return a message with its status in the sandbox, and its content if `renderer` is given and can render it."""
    rendered, is_sms = None, message.channel == "sms"
    if renderer is not None:
        try:
            rendered = renderer.fill_again(message)
        except (MergeError, ValueError) as error:
            note = note or gettext("the message cannot be shown: %(error)s", error=error)
    subject = rendered.subject if rendered else message.subject
    message_shown = RenderedMessage(
        message.channel, message.status, message.skip_reason, message.recipient, message.sender,
        None if is_sms else subject, rendered.html if rendered and not is_sms else None,
        rendered.text if rendered else None,
        clock.iso(message.due_at) if message.status == "held" else None,
        segments.count_segments(rendered.text).parts if rendered and is_sms else None,
    )  # fmt: skip
    return SimulatedSend(message.id, message.step_id, message_shown, note)


def _send_message(row: LedgerRow, renderer: MessagePreparer) -> SimulatedSend:
    marked_ids = transactions.write(queue.claim, [row], _WORKER_ID)
    if row.id not in marked_ids:
        return show_message(Message.get_by_id(row.id), _explain_waiting(row))
    outcome, note = render_message(row, renderer)
    transactions.write(queue.record, [outcome])
    return show_message(Message.get_by_id(row.id), note, renderer if outcome.skip_reason is None else None)


def _explain_waiting(row: LedgerRow) -> str | None:
    """Return why a message that could not be claimed still waits; None if it is final, or held until a known time."""
    message = Message.get_by_id(row.id)
    if message.status not in ("queued", "held") or (message.status == "held" and message.due_at > clock.now_ms()):
        return None
    return disk_guard.send_blocker() or gettext("it would wait in the queue")


def render_message(row: LedgerRow, renderer: MessagePreparer) -> tuple[Outcome, str | None]:
    """Render a message; return the outcome of its attempt, and what prevents sending or showing it, or None."""
    try:
        prepared = renderer.build(row).prepared
    except SenderRejected as error:
        # Only the sender is invalid, so the content is shown and the simulation continues.
        subject = renderer.fill_again(Message.get_by_id(row.id)).subject
        message = gettext("it would wait until the sender is fixed: %(error)s", error=error.text)
        return Outcome(row, subject=subject, sender=""), message
    except (MergeError, ValueError) as error:
        message = error.describe() if isinstance(error, MergeError) else str(error)
        return Outcome(row, RecipientRejected(message), skip_reason="render_error"), gettext(
            "the message cannot be rendered: %(error)s", error=message
        )
    return Outcome(
        row, subject=prepared.subject, sender=prepared.sender, internet_message_id=prepared.internet_message_id,
        # Storing the text counts its parts towards the daily limit, and keeps the opt-out hint out of the next SMS.
        prepared=prepared if row.channel == "sms" else None,
    ), None  # fmt: skip


def get_next_due(runs: str) -> int | None:
    """Return when the next unsent message of runs (ids as a JSON list) is due, in Unix milliseconds, or None."""
    due_rows: Sequence[tuple[int | None, ...]] = rows(
        "SELECT min(due_at) FROM message WHERE run_id IN (SELECT value FROM json_each(?)) AND status "
        "IN ('queued', 'held')",
        (runs,),
    )
    return due_rows[0][0]


MAX_EVENTS = 10
_SELECT_LAST_EVENTS = (
    "SELECT contact_id, max(id) FROM event WHERE account_id = ? AND event = ? AND created_at >= ? AND test = 0 "
    "AND quiet = 0 AND contact_id IS NOT NULL GROUP BY contact_id ORDER BY 2 DESC LIMIT ?"
)


class RecentContact(NamedTuple):
    """A contact with its last event of the trigger's name.

    `at` is the time of the event in Unix milliseconds, and `would_enter` says whether the event matches the trigger.
    `reason` says why it does not, that the contact is in the flow now (`is_inside`), or which messages would be
    skipped; it may be empty.
    """

    contact_id: int
    at: int
    would_enter: bool
    reason: str
    is_inside: bool = False


class RecentMatches(NamedTuple):
    """How many contacts had the trigger's event in the last `days` days, and the latest of them, newest first."""

    days: int
    number: int
    contacts: list[RecentContact]


def find_recent_contacts(flow: Flow, spec: TriggerSpec, days: int = 7, channels: Collection[str] = ()) -> RecentMatches:
    """Return how many contacts had the trigger's event in the last `days` days, and the latest `MAX_EVENTS` of them.

    For each returned contact, the result says whether its last event matches the trigger. An incomplete or invalid
    trigger matches no contact. Quiet events, such as those of an import that starts no flows, are left out. `channels`
    are the channels of the flow's marketing messages (`email`, `sms`): a contact who may get none of them still enters,
    and the reason says that its messages are skipped.
    """
    since_ms = clock.now_ms() - days * clock.DAY_MS
    if spec.event == MANUAL:
        return RecentMatches(days, 0, [])
    number = int(scalar(
        "SELECT count(DISTINCT contact_id) FROM event WHERE account_id = ? AND event = ? AND created_at >= ? "
        "AND test = 0 AND quiet = 0", (flow.account_id, spec.event, since_ms),
    ))  # fmt: skip
    event_rows = rows(_SELECT_LAST_EVENTS, (flow.account_id, spec.event, since_ms, MAX_EVENTS))
    matched = (
        set()
        if triggers.list_missing(spec)
        else set(triggers.match_events(flow.account_id, flow.id, spec, [e for _, e in event_rows]))
    )
    return RecentMatches(days, number, [
        _build_recent_contact(flow, spec, contact_id, event_id, event_id in matched, channels)
                                   for contact_id, event_id in event_rows])  # fmt: skip


def _build_recent_contact(
    flow: Flow, spec: TriggerSpec, contact_id: int, event_id: int, is_matched: bool, channels: Collection[str]
) -> RecentContact:
    data_json, at = rows("SELECT data, created_at FROM event WHERE id = ?", (event_id,))[0]
    if not is_matched:
        reasons = explain_trigger(flow.account_id, spec, contact_id, msgspec.json.decode(data_json), clock.now_ms())
        return RecentContact(contact_id, at, False, describe_refusal(spec, reasons, flow))
    live_run = fetch_one(
        "SELECT status FROM run WHERE contact_id = ? AND flow_id = ? AND status = 'live' AND test = 0",
        (contact_id, flow.id),
    )
    if live_run:
        return RecentContact(contact_id, at, True, gettext("already in this flow"), is_inside=True)
    excluded = holdouts.find_excluded(flow.account_id, flow.id, holdouts.get_holdout(spec.data), [contact_id])
    if contact_id in excluded:
        return RecentContact(contact_id, at, False, gettext(_REFUSALS[excluded[contact_id]]))
    return RecentContact(contact_id, at, True, _describe_skipped(contact_id, channels))


def _describe_skipped(contact_id: int, channels: Collection[str]) -> str:
    """Return which messages would be skipped because the contact is not subscribed, or an empty string."""
    skipped = {
        channel
        for channel in channels
        if not scalar(
            "SELECT count(*) FROM channel WHERE contact_id = ? AND kind = ? AND subscribed = 1 AND suppression IS NULL",
            (contact_id, "phone" if channel == "sms" else "email"),
        )
    }
    if len(skipped) > 1:
        return gettext("not subscribed: emails and SMS would be skipped")
    if "email" in skipped:
        return gettext("not subscribed to emails: they would be skipped")
    return gettext("not subscribed to SMS: they would be skipped") if skipped else ""


def count_segment(account_id: int, segment_id: int) -> int | None:
    """Return the current number of contacts in a segment, or None if its filters are invalid."""
    scope = members.build_scope(account_id)
    try:
        filters = members.parse_filters(
            account_id, [{"name": "contact_segment", "predicate": "eq", "value": segment_id}]
        )
    except Invalid:
        return None
    return members.count_members(account_id, filters, scope)

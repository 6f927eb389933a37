"""Input of simulations: the request, saved scripts, and assumed events.

Assumed events are applied by the code for real events. If a simulation with a real contact starts in the past, the
contact's real events since then are replayed.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.audience import consent, lists
from appliance.audience.consent import Evidence
from appliance.audience.contacts import write
from appliance.audience.contacts.store import ContactPatch, ContactWrite
from appliance.core import clock
from appliance.core.errors import Faults, Invalid
from appliance.core.i18n import gettext
from appliance.core.validation import Data, EventName, Id, Name, Short, When, default, read, read_partial
from appliance.events import log, submit
from appliance.events.log import NewEvent
from appliance.events.submit import EventWrite
from appliance.flows import event_waits
from appliance.flows.branches import BRANCH_KEY
from appliance.flows.document import StepsWrite
from appliance.flows.request_template import MAX_RESPONSE_BYTES
from appliance.inbound import delivery_reports, incoming_sms
from appliance.inbound.delivery_reports import DeliveryReport, ReportKind
from appliance.sending.messages.links import LinkRequest, LinkResolver
from appliance.sending.sms.error_codes import IncomingSms
from appliance.storage.database import fetch_one, rows, run, scalar
from appliance.storage.models import Channel, ContactList
from appliance.storage.transactions import require_write_transaction
from appliance.tracking import bot_detection, engagement
from appliance.tracking.bot_detection import HUMAN, ObservedHit, Verdict
from appliance.tracking.engagement import HitEvent

MAX_ASSUMPTIONS, MAX_RESPONSES = 100, 100
MAX_SECONDS = 3 * 366 * 86_400
# A user agent that bot detection recognises as a person's.
_USER_AGENT = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
_SOURCE = "rehearsal"
_DELIVERY_FACTS: dict[str, tuple[ReportKind, int | None, str | None, str]] = {
    "email_delivered": ("delivered", None, None, "delivered"),
    "email_bounced": ("bounced", 550, "5.1.1", "550 5.1.1 there is no such recipient"),
    "email_soft_bounced": ("soft_bounced", 452, "4.2.2", "452 4.2.2 the mailbox is full"),
    "email_complained": ("complained", None, None, "complained"),
    "sms_delivered": ("delivered", None, None, "delivered"),
    "sms_failed": ("bounced", None, "5.1.1", "this number is not in service"),
}
MESSAGE_EVENTS = frozenset({*_DELIVERY_FACTS, "email_opened", "email_clicked", "email_replied", "sms_clicked"})
_LIST_EVENTS = frozenset({"list_add", "list_remove"})
_PLAIN_EVENTS = frozenset({"form_submitted", "double_opt_in_confirmed", "tag_add", "tag_remove"})
ASSUMABLE_EVENTS = (
    MESSAGE_EVENTS | _LIST_EVENTS | _PLAIN_EVENTS | {"opt_out", "opt_in", "contact_update", "message", "keyword"}
)


class Assumption(Struct):
    """An event that is assumed to happen: at a time, or `after` a number of seconds; by default at the start.

    An event of a message, such as `email_clicked`, concerns the message of the step `step` or, without it, the last
    message sent. With `step`, `after` counts from the time when that message is sent. `data` is, for `contact_update`,
    the fields of the contact; for `list_add` and `list_remove`, the `contact_list_id`; and for a click, optionally the
    `url`.
    """

    event: Annotated[EventName, Meta(description="name of the assumed event")]
    after: (
        Annotated[
            int,
            Meta(ge=0, le=MAX_SECONDS),
            Meta(description="seconds after the start or, with `step`, after the message of that step was sent"),
        ]
        | UnsetType
    ) = UNSET
    at: Annotated[When, Meta(description="time of the event")] | UnsetType = UNSET
    step: (
        Annotated[
            Id,
            Meta(
                description="id of the step to whose message the event refers; default: that of the last message sent"
            ),
        ]
        | UnsetType
    ) = UNSET
    data: Annotated[Data, Meta(description="data of the event")] | UnsetType = UNSET
    amount: Annotated[float, Meta(description="amount of the event")] | UnsetType = UNSET

    @property
    def event_data(self) -> dict[str, Any]:
        """Return the data of the event, an empty dict if it has none."""
        return self.data if isinstance(self.data, dict) else {}


class SimulatedRun(NamedTuple):
    """The run to which assumed events are applied, with its account and contact."""

    account_id: int
    contact_id: int
    run_id: int


class ImpossibleEvent(Exception):
    """Raised for an assumed event that cannot happen in this simulation; the message says why."""


class SimulatedResponse(Struct):
    """The response that a simulation plays for a step that makes an HTTP request."""

    step: Annotated[Id, Meta(description="id of the step")]
    status: (
        Annotated[int, default(200), Meta(ge=0, le=599, description="HTTP status; 0: no response in time")] | UnsetType
    ) = UNSET
    body: Annotated[Any, Meta(extra={"bytes": MAX_RESPONSE_BYTES}, description="decoded JSON of the response")] = None


def check_assumptions(
    account_id: int, assumptions: Sequence[Assumption], step_ids: set[int], faults: Faults, path: str = "events"
) -> None:
    """Add an error for each assumed event that can never happen, at its path below `path`.

    `step_ids` are the ids of the steps that the simulation runs.
    """
    for index, assumption in enumerate(assumptions):
        item_path = f"{path}[{index}]"
        if assumption.after is not UNSET and assumption.at is not UNSET:
            faults.add(f"{item_path}.at", gettext("cannot be combined with after"))
        if not isinstance(assumption.event, str):
            continue  # The checks below depend on the event.
        is_reserved = log.find_name_error(assumption.event) is not None and assumption.event not in ASSUMABLE_EVENTS
        if is_reserved:
            faults.add(f"{item_path}.event", gettext("cannot be assumed: it follows from other events"))
        if assumption.step is not UNSET and assumption.event not in MESSAGE_EVENTS:
            faults.add(f"{item_path}.step", gettext("is only allowed for events of a message"))
        elif assumption.step is not UNSET and assumption.step not in step_ids:
            faults.add(f"{item_path}.step", gettext("must exist"))
        list_id = assumption.event_data.get("contact_list_id")
        if assumption.event in _LIST_EVENTS and not (type(list_id) is int and _has_list(account_id, list_id)):
            faults.add(f"{item_path}.data.contact_list_id", gettext("must exist"))
        if assumption.event == "contact_update":
            try:
                read(ContactPatch, assumption.event_data, f"{item_path}.data")
            except Invalid as error:
                faults.merge(error.fields)


def check_responses(responses: Sequence[SimulatedResponse], request_steps: set[int], faults: Faults) -> None:
    """Add an error for each response whose step makes no request; `request_steps` are the ids of those that do."""
    for index, response in enumerate(responses):
        if isinstance(response.step, int) and response.step not in request_steps:
            faults.add(f"responses[{index}].step", gettext("must be the id of a step that makes an HTTP request"))


def _has_list(account_id: int, list_id: int) -> bool:
    return 0 < list_id < 2**63 and ContactList.select().where(
        ContactList.account == account_id, ContactList.id == list_id, ContactList.segment.is_null()
    ).exists()  # fmt: skip


def apply_assumption(assumption: Assumption, run: SimulatedRun) -> str:
    """Apply an assumed event now, with all its effects, and return a text that describes it.

    Raises ImpossibleEvent if the event cannot happen in this simulation, or Refused if the code for real events rejects
    it.
    """
    require_write_transaction()
    if assumption.event in MESSAGE_EVENTS:
        return _apply_to_message(assumption, run)
    apply = _APPLY.get(assumption.event)
    if apply is not None:
        return apply(assumption, run)
    if assumption.event in _PLAIN_EVENTS:
        log.record(NewEvent(run.account_id, assumption.event, run.contact_id, assumption.event_data))
        return log.describe(assumption.event)
    amount = assumption.amount if isinstance(assumption.amount, float) else UNSET
    request = EventWrite(assumption.event, contact_id=run.contact_id, data=assumption.event_data, amount=amount)
    submit.submit(run.account_id, submit.prepare(request))
    event_name = log.name_event(assumption.event)
    if not assumption.event_data:
        return gettext("“%(event)s”", event=event_name)
    return gettext("“%(event)s” (%(data)s)", event=event_name, data=_describe_data(assumption.event_data))


def _describe_data(data: dict[str, Any]) -> str:
    """Return the data of an event or contact as `amount: 40, shop: Berlin`, truncated to 300 characters."""
    texts = [
        f"{name}: {value if isinstance(value, str) else msgspec.json.encode(value).decode()}"
        for name, value in data.items()
    ]
    return ", ".join(texts)[:300]


def _apply_to_message(assumption: Assumption, run: SimulatedRun) -> str:
    """Apply an assumed event to the sent message of its step, or to the last message sent; return its description.

    Raises ImpossibleEvent if there is no such message, or if opens and clicks of the contact are not tracked.
    """
    step_id = assumption.step if isinstance(assumption.step, int) else None
    message_rows = rows(
        "SELECT id, step_id, subject, recipient, sent_at FROM message WHERE run_id = ?1 AND sent_at IS NOT NULL "
        "AND channel = ?3 AND (?2 IS NULL OR step_id = ?2) ORDER BY sent_at DESC, id DESC LIMIT 1",
        (run.run_id, step_id, assumption.event.partition("_")[0]),
    )
    is_sms = assumption.event.startswith("sms_")
    if not message_rows:
        raise ImpossibleEvent(_describe_missing_message(is_sms, step_id))
    message_id, _, subject, recipient, sent_at = message_rows[0]
    if subject:
        message_name = gettext("“%(text)s”", text=subject)
    else:
        message_name = gettext("the SMS") if is_sms else gettext("the email")
    if assumption.event == "email_replied":
        engagement.record_reply(message_id, _SOURCE)
        return gettext("replies to %(message)s", message=message_name)
    if assumption.event in _DELIVERY_FACTS:
        kind, smtp, enhanced, text = _DELIVERY_FACTS[assumption.event]
        delivery_reports.record_report(DeliveryReport(message_id, kind, _SOURCE, text, smtp, enhanced, recipient))
        if kind == "delivered":
            return gettext("%(message)s is delivered", message=message_name)
        if kind == "complained":
            return gettext("marks %(message)s as spam", message=message_name)
        return gettext("%(message)s bounces (%(reply)s)", message=message_name, reply=text)
    return _open_or_click(assumption, message_id, message_name, sent_at)


def _describe_missing_message(is_sms: bool, step_id: int | None) -> str:
    """Return why there is no message to which an assumed event could apply."""
    if step_id is None:
        return (
            gettext("no SMS of this flow has been sent by then")
            if is_sms
            else gettext("no email of this flow has been sent by then")
        )
    if is_sms:
        return gettext("the SMS of that step had not been sent by then")
    return gettext("the email of that step had not been sent by then")


def _open_or_click(assumption: Assumption, message_id: int, message_name: str, sent_at: int) -> str:
    wanted_target = LinkRequest(message_id, None)
    target = LinkResolver().resolve([wanted_target]).get(wanted_target)
    if target is None or target.tracking != "full":
        raise ImpossibleEvent(gettext("opens and clicks of this contact are not tracked"))
    url = str(assumption.event_data.get("url") or "") or None
    # Bot detection would attribute an earlier hit to a machine.
    at = max(clock.now_ms(), sent_at + bot_detection.TOO_SOON_MS)
    is_click = assumption.event.endswith("_clicked")
    hit = ObservedHit(at, "click" if is_click else "open", 1 if is_click else None, "GET", None, _USER_AGENT)
    hit_event = HitEvent(target._replace(url=url), hit, None, Verdict(HUMAN, None))
    engagement.record_hit_events([hit_event])
    engagement.count_engagement([(hit_event.message, hit, hit_event.verdict)])
    if not is_click:
        return gettext("opens %(message)s", message=message_name)
    if url:
        return gettext("clicks %(url)s in %(message)s", url=url, message=message_name)
    return gettext("clicks a link in %(message)s", message=message_name)


def _change_consent(assumption: Assumption, run: SimulatedRun) -> str:
    kind = "phone" if assumption.event_data.get("channel") == "sms" else "email"
    evidence = Evidence(_SOURCE, "recipient")
    channels = list(Channel.select().where(Channel.contact == run.contact_id, Channel.kind == kind))
    if not channels:
        raise ImpossibleEvent(
            gettext("the contact has no phone number")
            if kind == "phone"
            else gettext("the contact has no email address")
        )
    for channel in channels:
        if assumption.event == "opt_out":
            consent.opt_out(channel, "recipient", evidence)
        else:
            consent.opt_in_by_recipient(channel, evidence)
    if assumption.event == "opt_out":
        return gettext("unsubscribes from SMS") if kind == "phone" else gettext("unsubscribes from emails")
    return gettext("subscribes to SMS") if kind == "phone" else gettext("subscribes to emails")


def _change_list(assumption: Assumption, run: SimulatedRun) -> str:
    list_id = int(assumption.event_data["contact_list_id"])
    name = ContactList.get_by_id(list_id).name
    if assumption.event == "list_add":
        lists.add_members(run.account_id, list_id, [run.contact_id])
        return gettext("joins the list “%(list)s”", list=name)
    lists.remove_members(run.account_id, list_id, [run.contact_id])
    return gettext("leaves the list “%(list)s”", list=name)


def _update_contact(assumption: Assumption, run: SimulatedRun) -> str:
    patch = read(ContactPatch, assumption.event_data)
    write.update(run.account_id, run.contact_id, patch, Evidence(_SOURCE, "operator"))
    return gettext("is updated: %(data)s", data=_describe_data(assumption.event_data))


def _receive_sms(assumption: Assumption, run: SimulatedRun) -> str:
    """Receive an SMS from the contact: apply a consent keyword such as STOP, and record any other text as the event."""
    text = next(
        (
            assumption.event_data[key]
            for key in ("body", "text", "keyword")
            if isinstance(assumption.event_data.get(key), str)
        ),
        "",
    )
    number = scalar("SELECT key FROM channel WHERE contact_id = ? AND kind = 'phone' ORDER BY id", (run.contact_id,))
    if number is not None and incoming_sms.is_consent_keyword(run.account_id, number, text):
        incoming_sms.receive_sms(_SOURCE, IncomingSms(None, number, "", text), account_id=run.account_id)
    else:
        log.record(NewEvent(run.account_id, assumption.event, run.contact_id, assumption.event_data))
    return gettext("replies by SMS: “%(text)s”", text=text[:160]) if text else log.describe(assumption.event)


_APPLY: dict[str, Callable[[Assumption, SimulatedRun], str]] = {
    "message": _receive_sms, "keyword": _receive_sms,
    "opt_out": _change_consent, "opt_in": _change_consent,
    "list_add": _change_list, "list_remove": _change_list, "contact_update": _update_contact,
}  # fmt: skip


SCRIPTS = "scripts"
MAX_SCRIPTS, MAX_EXPECTED = 20, 50
Outcome = Annotated[str, Meta(pattern=f"^(on|jumped|skipped|exited|waits|not_reached|{BRANCH_KEY})$")]


class SimulationInput(Struct):
    """The assumptions of a simulation: which contact enters when, with which event, and what happens afterwards."""

    contact_id: Annotated[Id, Meta(description="id of the contact; absent for a sample contact")] | None | UnsetType = (
        UNSET
    )
    contact: Annotated[ContactWrite, Meta(description="properties of the sample contact")] | None | UnsetType = UNSET
    start_at: Annotated[When, Meta(description="start of the simulation; default: now")] | None | UnsetType = UNSET
    event: Annotated[Data, Meta(description="data of the event that starts the flow")] | None | UnsetType = UNSET
    events: (
        Annotated[list[Assumption], Meta(max_length=MAX_ASSUMPTIONS), Meta(description="assumed events")]
        | None
        | UnsetType
    ) = UNSET
    branches: (
        Annotated[
            dict[str, str],
            Meta(max_length=MAX_ASSUMPTIONS),
            Meta(description="key of the branch that the contact takes at a random split, by the id of the step"),
        ]
        | None
        | UnsetType
    ) = UNSET
    until: Annotated[When, Meta(description="latest end of the simulation")] | None | UnsetType = UNSET
    responses: (
        Annotated[
            list[SimulatedResponse],
            Meta(max_length=MAX_RESPONSES),
            Meta(description="responses of HTTP requests, by step; default: 200 without a body"),
        ]
        | None
        | UnsetType
    ) = UNSET


class SimulateRequest(SimulationInput):
    """A request to simulate a flow with one contact."""

    steps: Annotated[StepsWrite, Meta(description="steps to simulate instead of the stored ones")] | UnsetType = UNSET


class Expectation(Struct):
    """One expected result of a script: either what happens at a `step`, or how the simulation ends (`end`).

    `outcome`, `subject` and `text` are for steps, and `reason` is for both. At least one message of the step must
    contain `subject` in its subject, and at least one must contain `text` in its text; upper and lower case do not
    matter.
    """

    step: Id | UnsetType = UNSET
    outcome: Outcome | UnsetType = UNSET
    reason: Short | UnsetType = UNSET
    subject: Short | UnsetType = UNSET
    text: Short | UnsetType = UNSET
    end: Literal["completed", "exited", "live"] | UnsetType = UNSET


class Script(SimulationInput):
    """A simulation that is saved with a flow under a name, with its expected results."""

    name: Name | UnsetType = UNSET
    expect: Annotated[list[Expectation], Meta(max_length=MAX_EXPECTED)] | UnsetType = UNSET


def check_scripts(data: Any, faults: Faults, path: str = "data") -> None:
    """Add the errors of the scripts in a flow's custom data, each at its path below `path`."""
    raw = data.get(SCRIPTS) if isinstance(data, dict) else None
    if raw is None:
        return
    scripts_path = f"{path}.{SCRIPTS}"
    if not isinstance(raw, list):
        faults.add(scripts_path, gettext("is invalid"))
    elif len(raw) > MAX_SCRIPTS:
        faults.add(scripts_path, gettext("is too long (maximum is %(limit)s entries)", limit=MAX_SCRIPTS))
    else:
        for index, script in enumerate(raw):
            parse_script(script, faults, f"{scripts_path}[{index}]")


def parse_script(raw: Any, faults: Faults, path: str) -> Script | None:
    """Parse a script and add every error at its path below `path`; return None if it is not an object."""
    parsed = read_partial(Script, raw, path)
    faults.merge(parsed.faults.fields)
    script: Script = parsed.value
    if parsed.value is UNSET:
        return None
    if script.name is UNSET and f"{path}.name" not in faults.fields:
        faults.add(f"{path}.name", gettext("can't be blank"))
    for index, expectation in enumerate(script.expect or []):
        item_path = f"{path}.expect[{index}]"
        if (expectation.step is UNSET) == (expectation.end is UNSET):
            faults.add(item_path, gettext("must have either step or end"))
        elif expectation.end is not UNSET and (expectation.outcome, expectation.subject, expectation.text) != (
            UNSET,
            UNSET,
            UNSET,
        ):
            faults.add(item_path, gettext("must not have outcome, subject or text beside end"))
    return script


_MAX_EVENTS = 1_000


class RealEvent(NamedTuple):
    """A real event: its time in Unix milliseconds, id and name."""

    at: int
    id: int
    event: str


def list_real_events(contact_id: int, flow_id: int, start: int) -> list[RealEvent]:
    """Return the first `_MAX_EVENTS` real events of a contact after a time, without test events, oldest first.

    Events that the flow itself recorded are left out, because the simulation records its own.
    """
    event_rows = rows(
        "SELECT created_at, id, event FROM main.event WHERE contact_id = ? AND created_at > ? AND test = 0 "
        "AND (generated = 1 AND json_extract(data, '$.flow_id') = ?) IS NOT TRUE ORDER BY created_at, id LIMIT ?",
        (contact_id, start, flow_id, _MAX_EVENTS),
    )
    return [RealEvent(*row) for row in event_rows]


def replay_event(event: RealEvent) -> None:
    """Copy a real event, with its original time, into the event table of the sandbox."""
    require_write_transaction()
    columns_list = [row[1] for row in rows("SELECT * FROM pragma_table_info('event')") if row[1] != "id"]
    columns = ", ".join(columns_list)
    run(f"INSERT INTO event ({columns}) SELECT {columns} FROM main.event WHERE id = ?", (event.id,))


def find_event_names(steps: Sequence[Any]) -> Iterator[str]:
    """Yield the event names that filters and waits use; `steps` are steps or other JSON, searched at any depth."""
    for part in steps:
        if isinstance(part, dict):
            name = part.get("event_name" if part.get("type") == event_waits.KIND else "event")
            if isinstance(name, str):
                yield name
            yield from find_event_names(list(part.values()))
        elif isinstance(part, list):
            yield from find_event_names(part)


def is_really_inside(contact_id: int, flow_id: int) -> bool:
    """Return whether a contact is in a flow in reality, outside of the sandbox, not counting test runs."""
    sql = "SELECT 1 FROM main.run WHERE contact_id = ? AND flow_id = ? AND status = 'live' AND test = 0"
    return fetch_one(sql, (contact_id, flow_id)) is not None


class PlannedEvent(NamedTuple):
    """An assumed event and its time in Unix milliseconds.

    The time is None while the event counts from a message that is not sent yet. `order` is the event's index in the
    script.
    """

    at: int | None
    order: int
    assumption: Assumption


def plan_event(order: int, assumption: Assumption, start: int) -> PlannedEvent:
    """Return an assumed event with its time; the time is None if it counts from a message of a step."""
    if isinstance(assumption.at, int):
        return PlannedEvent(max(assumption.at, start), order, assumption)
    if isinstance(assumption.step, int) and isinstance(assumption.after, int):
        return PlannedEvent(None, order, assumption)
    return PlannedEvent(
        start + (assumption.after * 1000 if isinstance(assumption.after, int) else 0), order, assumption
    )

"""The result of a replay: what the draft and the live version of a flow would have sent, and to whom."""

import json
import zlib
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct, field

from appliance.core import clock
from appliance.flows import document, jumps
from appliance.flows.branches import get_props
from appliance.flows.replay_events import Feed
from appliance.flows.replay_simulator import ReplayOutcome, SentMessage
from appliance.flows.simulation_events import MESSAGE_EVENTS, find_event_names
from appliance.flows.steps import BY_TYPE
from appliance.storage.database import connection

MAX_SAMPLE, MAX_ROWS, MAX_ORDERS, MAX_SHOWN = 50, 100_000, 1_000_000, 200
# If the first event of a name was recorded this long after the start, such events were probably not recorded before.
_MISSING_MS = 2 * clock.DAY_MS
_MINUTE_MS = 60_000
_FREQUENCY_CAP = "frequency_cap"
_SELECT_ORDERS = (
    "SELECT contact_id, created_at, coalesce(amount, 0.0) FROM event WHERE account_id = ? AND created_at >= ? "
    "AND created_at < ? AND test = 0 AND contact_id IS NOT NULL AND {} ORDER BY created_at, id LIMIT ?"
)


class ReplayTotals(Struct):
    """What one version would have done."""

    entered: Annotated[int, Meta(description="number of times that a contact entered the flow")] = 0
    completed: Annotated[int, Meta(description="runs that were completed")] = 0
    exited: Annotated[int, Meta(description="runs that ended early")] = 0
    live: Annotated[int, Meta(description="runs that had not ended at the end of the replayed time")] = 0
    people: Annotated[int, Meta(description="contacts who would have got at least one message")] = 0
    emails: Annotated[int, Meta(description="emails that would have been sent")] = 0
    sms: Annotated[int, Meta(description="SMS that would have been sent")] = 0
    sms_parts: Annotated[int, Meta(description="parts of these SMS")] = 0
    sms_parts_estimated: Annotated[
        bool, Meta(description="whether the parts are an estimate, because not every SMS was rendered")
    ] = False
    sms_cost: Annotated[float, Meta(description="price of these parts; null without a price")] | None = None
    held: Annotated[int, Meta(description="messages that would have waited for the end of quiet hours")] = 0
    capped: Annotated[int, Meta(description="messages that the frequency cap would have kept from being sent")] = 0
    unsent: Annotated[
        dict[str, int], Meta(description="messages that would not have been sent, by reason; with those of the cap")
    ] = field(default_factory=dict)
    refused: Annotated[dict[str, int], Meta(description="entries that were refused, by reason")] = field(
        default_factory=dict
    )


class ReplayStepCounts(Struct):
    """The contacts and messages of one step in one version."""

    entered: Annotated[int, Meta(description="how often a contact came to the step")] = 0
    sent: Annotated[int, Meta(description="messages sent")] = 0
    unsent: Annotated[int, Meta(description="messages not sent")] = 0
    held: Annotated[int, Meta(description="messages that waited for the end of quiet hours")] = 0
    outcomes: Annotated[dict[str, int], Meta(description="contacts by how they left the step")] = field(
        default_factory=dict
    )


class ReplayStep(Struct):
    """A step of the draft or of the live version, with its counts in each; null where it does not exist."""

    step_id: Annotated[int, Meta(description="id of the step")]
    path: Annotated[str, Meta(description="path of the step in the flow")]
    type: str
    props: Annotated[dict[str, Any], Meta(description="properties of the step, without its branches")]
    draft: Annotated[ReplayStepCounts, Meta(description="counts with the changes")] | None = None
    live: Annotated[ReplayStepCounts, Meta(description="counts in the live version")] | None = None


class ReplayOrders(Struct):
    """Orders that followed a message within the attribution window, with the sum of their amounts."""

    orders: Annotated[int, Meta(description="number of orders")] = 0
    people: Annotated[int, Meta(description="contacts who ordered")] = 0
    amount: Annotated[float, Meta(description="sum of the amounts of the orders")] = 0.0


class ReplayMessage(Struct):
    """A message that a contact would have got, or not got for a reason."""

    step_id: Annotated[int, Meta(description="id of the step")]
    at: Annotated[str, Meta(description="when it would have been sent", extra_json_schema={"format": "date-time"})]
    reason: Annotated[str, Meta(description="why it would not have been sent; null if it would")] | None


class ReplayPerson(Struct):
    """A contact for whom the draft and the live version differ."""

    contact_id: Annotated[int, Meta(description="id of the contact")]
    draft: Annotated[list[ReplayMessage], Meta(description="messages of the draft")]
    live: Annotated[list[ReplayMessage], Meta(description="messages of the live version")]


WarningCode = Literal[
    "sampled", "event_missing", "event_late", "current_data", "reactions", "random", "not_ready", "starts_flows",
    "unfinished", "sms_estimated", "rounded", "imported",
]  # fmt: skip


class ReplayWarning(Struct):
    """A limit of the replay: a code, and the event, number or total that it is about."""

    code: Annotated[WarningCode, Meta(description="which limit it is")]
    event: Annotated[str, Meta(description="name of the event that the warning is about")] | None = None
    at: Annotated[str, Meta(description="time", extra_json_schema={"format": "date-time"})] | None = None
    number: Annotated[int, Meta(description="number that the warning is about")] | None = None
    total: Annotated[int, Meta(description="of so many")] | None = None


class ReplayResult(Struct):
    """The result of a replay; `live` is null for a flow that was never live, and `draft` equals it without changes."""

    started_at: Annotated[str, Meta(description="start of the replayed time")]
    ended_at: Annotated[str, Meta(description="end of the replayed time")]
    matching: Annotated[int, Meta(description="contacts whose events may start the flow")]
    replayed: Annotated[int, Meta(description="contacts whose events were replayed; fewer if they are a sample")]
    is_changed: Annotated[bool, Meta(description="whether the draft differs from the live version")]
    draft: Annotated[ReplayTotals, Meta(description="what the flow with its changes would have done")]
    live: Annotated[ReplayTotals, Meta(description="what the live version would have done")] | None
    gained: Annotated[int, Meta(description="contacts who would have got a message only from the draft")] = 0
    lost: Annotated[int, Meta(description="contacts who would have got a message only from the live version")] = 0
    changed: Annotated[int, Meta(description="contacts who would have got other messages, or at another time")] = 0
    orders: Annotated[ReplayOrders, Meta(description="orders that followed a message of the draft")] = field(
        default_factory=ReplayOrders
    )
    orders_gained: Annotated[
        ReplayOrders, Meta(description="orders that followed a message that the live version would not have sent")
    ] = field(default_factory=ReplayOrders)
    orders_lost: Annotated[
        ReplayOrders,
        Meta(description="orders that followed a message of the live version that the draft would not have sent"),
    ] = field(default_factory=ReplayOrders)
    # A result that was stored before it had this field counted five days.
    order_days: Annotated[int, Meta(description="for how many days after a message orders count")] = 5
    steps: Annotated[list[ReplayStep], Meta(description="steps of both versions with their counts")] = field(
        default_factory=list
    )
    sample: Annotated[list[ReplayPerson], Meta(description="some contacts for whom the versions differ")] = field(
        default_factory=list
    )
    warnings: Annotated[list[ReplayWarning], Meta(description="limits of the replay")] = field(default_factory=list)


class PersonRow(NamedTuple):
    """The message of one step to one contact in both versions. Times are in Unix milliseconds.

    A time is None if the version has no such message; a reason is None if the message would have been sent. The fields
    have the order of the columns in the file.
    """

    contact_id: int
    step_id: int
    draft_at: int | None
    draft_reason: str | None
    live_at: int | None
    live_reason: str | None

    @property
    def change(self) -> str:
        """Return how the draft's message differs: `added`, `removed`, `moved` in time, or `same`."""
        is_draft = self.draft_at is not None and self.draft_reason is None
        is_live = self.live_at is not None and self.live_reason is None
        if is_draft != is_live:
            return "added" if is_draft else "removed"
        return "moved" if is_draft and self.draft_at != self.live_at else "same"


class OrderInput(NamedTuple):
    """Which events count as orders (None: all with an amount), and for how many days after a message.

    `sms_price` is the price of a part of an SMS, or None if it is unknown.
    """

    account_id: int
    event: str | None
    days: int
    sms_price: float | None


def build_result(
    feed: Feed, draft: ReplayOutcome, live: ReplayOutcome | None, orders: OrderInput, is_changed: bool
) -> tuple[ReplayResult, list[PersonRow]]:
    """Return the result of a replay, and the rows of each contact's messages, those with a difference first."""
    people = list(_compare_people(draft, live))
    gained, lost, changed = _count_changes(people)
    result = ReplayResult(
        str(clock.iso(feed.start)), str(clock.iso(feed.end)), feed.matching_contacts, len(feed.contact_ids), is_changed,
        _build_totals(draft, orders.sms_price), None if live is None else _build_totals(live, orders.sms_price),
        gained, lost, changed,
    )  # fmt: skip
    _add_orders(result, feed, draft, live, orders)
    result.order_days = orders.days
    result.steps = list(_build_steps(draft, live))
    people.sort(key=lambda row: (row.change == "same", row.contact_id))
    result.sample = _build_sample(people)
    return result, people[:MAX_ROWS]


def _build_totals(outcome: ReplayOutcome, sms_price: float | None) -> ReplayTotals:
    sent = [message for message in outcome.messages if message.is_sent]
    unsent = Counter(message.reason for message in outcome.messages if message.reason is not None)
    by_channel = Counter(message.channel for message in sent)
    ends = Counter[str]()
    for (status, _), count in outcome.ends.items():
        ends[status] += count
    parts = sum(count.total for count in outcome.sms.values())
    return ReplayTotals(
        outcome.entered, ends["completed"], ends["exited"], ends["live"],
        len({message.contact_id for message in sent}), by_channel["email"], by_channel["sms"], parts,
        any(count.rendered < count.sent for count in outcome.sms.values()),
        None if sms_price is None else round(parts * sms_price, 6),
        sum(outcome.held.values()), unsent[_FREQUENCY_CAP], dict(sorted(unsent.items())),
        dict(sorted(outcome.ignored.items())),
    )  # fmt: skip


# -- people ------------------------------------------------------------------------------------------------------------


def _compare_people(draft: ReplayOutcome, live: ReplayOutcome | None) -> Iterator[PersonRow]:
    """Yield a row for each message of a contact and step: the n-th in the draft beside the n-th in the live version."""
    messages: tuple[defaultdict[tuple[int, int], list[SentMessage]], ...] = (defaultdict(list), defaultdict(list))
    for version, by_step in zip((draft, live), messages, strict=True):
        for message in version.messages if version is not None else ():
            by_step[message.contact_id, message.step_id].append(message)
    for contact_id, step_id in sorted(messages[0].keys() | messages[1].keys()):
        drafts, lives = messages[0][contact_id, step_id], messages[1][contact_id, step_id]
        for index in range(max(len(drafts), len(lives))):
            first = drafts[index] if index < len(drafts) else None
            second = lives[index] if index < len(lives) else None
            yield PersonRow(
                contact_id, step_id, first and first.at, first and first.reason, second and second.at,
                second and second.reason,
            )  # fmt: skip


def _count_changes(people: Sequence[PersonRow]) -> tuple[int, int, int]:
    """Return how many contacts get messages only from the draft, only from the live version, or other ones."""
    changes: defaultdict[int, set[str]] = defaultdict(set)
    draft_people, live_people = set(), set()
    for row in people:
        changes[row.contact_id].add(row.change)
        if row.draft_at is not None and row.draft_reason is None:
            draft_people.add(row.contact_id)
        if row.live_at is not None and row.live_reason is None:
            live_people.add(row.contact_id)
    changed = sum(bool(kinds - {"same"}) for kinds in changes.values())
    gained, lost = len(draft_people - live_people), len(live_people - draft_people)
    return gained, lost, changed - gained - lost


def _build_sample(people: Sequence[PersonRow]) -> list[ReplayPerson]:
    by_contact: dict[int, ReplayPerson] = {}
    chosen: set[int] = set()
    for row in people:
        if row.change != "same" and len(chosen) < MAX_SAMPLE:
            chosen.add(row.contact_id)
    for row in people:
        if row.contact_id not in chosen:
            continue
        person = by_contact.setdefault(row.contact_id, ReplayPerson(row.contact_id, [], []))
        if row.draft_at is not None:
            person.draft.append(ReplayMessage(row.step_id, str(clock.iso(row.draft_at)), row.draft_reason))
        if row.live_at is not None:
            person.live.append(ReplayMessage(row.step_id, str(clock.iso(row.live_at)), row.live_reason))
    for person in by_contact.values():
        person.draft.sort(key=lambda message: message.at)
        person.live.sort(key=lambda message: message.at)
    return list(by_contact.values())


def pack_people(people: Sequence[PersonRow]) -> bytes:
    """Return rows as compressed MessagePack, with ids instead of names; names are read when the rows are displayed."""
    return zlib.compress(msgspec.msgpack.encode([tuple(row) for row in people]), 6)


def unpack_people(packed: bytes) -> list[PersonRow]:
    """Return the rows that `pack_people` has packed."""
    return [PersonRow(*row) for row in msgspec.msgpack.decode(zlib.decompress(packed))]


# -- orders ------------------------------------------------------------------------------------------------------------


def _add_orders(
    result: ReplayResult, feed: Feed, draft: ReplayOutcome, live: ReplayOutcome | None, orders: OrderInput
) -> None:
    """Add to the result the orders that followed a message, by whether one version or both sent a message before."""
    contacts = set(feed.contact_ids)
    draft_times, live_times = _list_times(draft), _list_times(live)
    buyers: tuple[set[int], set[int], set[int]] = (set(), set(), set())
    condition, values = ("event = ?", [orders.event]) if orders.event else ("amount IS NOT NULL AND generated = 0", [])
    sql = _SELECT_ORDERS.format(condition)
    parameters = [orders.account_id, feed.start, feed.end, *values, MAX_ORDERS]
    for contact_id, at, amount in connection().execute(sql, parameters):
        if contact_id not in contacts:
            continue
        has_draft = _follows(draft_times.get(contact_id), at, orders.days)
        has_live = _follows(live_times.get(contact_id), at, orders.days)
        for people, count, applies in zip(
            buyers,
            (result.orders, result.orders_gained, result.orders_lost),
            (has_draft, has_draft and not has_live, has_live and not has_draft),
            strict=True,
        ):
            if applies:
                people.add(contact_id)
                count.orders, count.people, count.amount = count.orders + 1, len(people), count.amount + amount
    for count in (result.orders, result.orders_gained, result.orders_lost):
        count.amount = round(count.amount, 6)


def _list_times(outcome: ReplayOutcome | None) -> Mapping[int, list[int]]:
    times: defaultdict[int, list[int]] = defaultdict(list)
    for message in outcome.messages if outcome is not None else ():
        if message.is_sent:
            times[message.contact_id].append(message.at)
    return times


def _follows(times: list[int] | None, at: int, days: int) -> bool:
    """Return whether a message was sent less than `days` days before `at`; `times` are in ascending order, or None."""
    if not times:
        return False
    index = bisect_right(times, at)
    return index > 0 and at - times[index - 1] < days * clock.DAY_MS


# -- steps and warnings ------------------------------------------------------------------------------------------------


# The content of a message, and encrypted secrets
_NOT_STORED = frozenset(("template_id", "secret_headers", "signing_secret", "slack_url"))


def _build_steps(draft: ReplayOutcome, live: ReplayOutcome | None) -> Iterator[ReplayStep]:
    """Yield the steps of the draft in document order, and then those that only the live version has."""
    draft_counts = _count_steps(draft)
    live_counts = {} if live is None else _count_steps(live)
    for outcome, others in ((draft, set()), (live, set(draft_counts))):
        for path, step in document.walk(jumps.link_targets(outcome.steps)) if outcome is not None else ():
            if step["id"] not in others:
                yield ReplayStep(
                    step["id"], path, step["type"], _get_stored_props(step), draft_counts.get(step["id"]),
                    live_counts.get(step["id"]),
                )  # fmt: skip


def _get_stored_props(step: dict[str, Any]) -> dict[str, Any]:
    """Return the properties of a step that its summary needs: no secrets, and only the beginning of a message."""
    props = {key: value for key, value in get_props(step).items() if key not in _NOT_STORED}
    if isinstance(props.get("target"), dict):
        props["target"] = {key: value for key, value in props["target"].items() if key not in _NOT_STORED}
    if "content" in props:
        props["content"] = {name: (props["content"].get(name) or "")[:MAX_SHOWN] for name in ("subject", "body")}
    return props


def _count_steps(outcome: ReplayOutcome) -> dict[int, ReplayStepCounts]:
    counts = {step["id"]: ReplayStepCounts() for _, step in document.walk(outcome.steps)}
    for (step_id, name, _), number in outcome.visits.items():
        count = counts[step_id]
        count.entered += number
        count.outcomes[name] = count.outcomes.get(name, 0) + number
    for message in outcome.messages:
        count = counts[message.step_id]
        if message.is_sent:
            count.sent += 1
        else:
            count.unsent += 1
    for step_id, number in outcome.held.items():
        counts[step_id].held += number
    return counts


def list_warnings(
    feed: Feed, result: ReplayResult, draft: ReplayOutcome, documents: Sequence[Any], rounded_ms: int
) -> list[ReplayWarning]:
    """Return the limits of a replay.

    `documents` are the steps and triggers of both versions, and `rounded_ms` is the precision of the time of day.
    """
    text = json.dumps(documents)
    warnings = []
    if len(feed.contact_ids) < feed.matching_contacts:
        warnings.append(ReplayWarning("sampled", number=len(feed.contact_ids), total=feed.matching_contacts))
    if feed.imported_count:
        warnings.append(ReplayWarning("imported", number=feed.imported_count))
    for name, first in feed.first_events.items():
        if first is None:
            warnings.append(ReplayWarning("event_missing", event=name))
        elif first > feed.start + _MISSING_MS:
            warnings.append(ReplayWarning("event_late", event=name, at=clock.iso(first)))
    if '"name": "contact_' in text or '"contact_list_id": ' in text or '"tag": ' in text:
        warnings.append(ReplayWarning("current_data"))
    if MESSAGE_EVENTS & {*find_event_names(documents)}:
        warnings.append(ReplayWarning("reactions"))
    kinds = {step["type"] for _, step in document.walk(draft.steps)}
    if "random_split" in kinds:
        warnings.append(ReplayWarning("random"))
    if "emit_event" in kinds:
        warnings.append(ReplayWarning("starts_flows"))
    if draft.notes:
        warnings.append(ReplayWarning("not_ready"))
    if result.draft.live:
        warnings.append(ReplayWarning("unfinished", number=result.draft.live))
    if result.draft.sms_parts_estimated:
        warnings.append(ReplayWarning("sms_estimated"))
    if rounded_ms > _MINUTE_MS:
        warnings.append(ReplayWarning("rounded", number=rounded_ms // _MINUTE_MS))
    return warnings


def summarize_step(step: ReplayStep, account_id: int) -> str:
    """Return a short text that says what a step of a result does, translated."""
    return BY_TYPE[step.type].summary(step.props, account_id)

"""The feed of a replay: the real events of an account's contacts, and the other changes that a flow depends on.

It is read once, and both versions of a flow are replayed against it. If there are more than `MAX_RUNS` trigger events,
a sample of the contacts is used that depends only on the seed.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from appliance.core import crypto
from appliance.flows import simulation_events, triggers
from appliance.flows.simulation_events import MESSAGE_EVENTS
from appliance.flows.triggers import EVENT_ALIAS, MANUAL, TriggerSpec
from appliance.storage.database import connection, rows, run, scalar
from appliance.storage.transactions import require_write_transaction

# The maximum numbers of trigger events, each of which may start a run, and of all items of a feed.
MAX_RUNS, MAX_ITEMS = 100_000, 1_000_000
# An imported event started no flow when it was recorded; a replay applies it at the time when it happened. Events that
# the service itself recorded during an import are left out, because the import was to start no flow.
_IS_PLAYED = "(quiet = 0 OR generated = 0)"
_PLAYED_AT = "CASE WHEN quiet THEN created_at ELSE updated_at END"
# Events of a message. A replay applies them only if the version has sent a message of the same step.
REACTIONS = MESSAGE_EVENTS
_OF_CONTACTS = "contact_id IN (SELECT value FROM json_each(:contacts))"
_SELECT_TRIGGERS = (
    f"SELECT {EVENT_ALIAS}.id, {EVENT_ALIAS}.contact_id FROM event {EVENT_ALIAS} "
    f"CROSS JOIN contact c ON c.id = {EVENT_ALIAS}.contact_id WHERE {EVENT_ALIAS}.created_at >= :since "
    f"AND {EVENT_ALIAS}.created_at < :until AND {EVENT_ALIAS}.test = 0 "
    f"AND ({EVENT_ALIAS}.quiet = 0 OR {EVENT_ALIAS}.generated = 0) AND "
)
_SELECT_EVENTS = (
    f"SELECT id, contact_id, {_PLAYED_AT}, event, quiet, CASE WHEN resource_uid = :own OR (generated "
    "AND json_extract(data, '$.flow_id') = :flow) THEN coalesce(json_extract(data, '$.step_id'), 0) END FROM event "
    f"WHERE {_IS_PLAYED} AND account_id = :account AND event IN (SELECT value FROM json_each(:names)) "
    "AND created_at >= :since AND created_at < :until AND test = 0 AND contact_id IS NOT NULL ORDER BY id"
)
_SELECT_CONSENT = (
    "SELECT id, contact_id, kind, address_hash, act, created_at, data ->> 'reason' FROM consent "
    f"WHERE {_OF_CONTACTS} AND created_at > :since AND act IN ('opt_in', 'opt_out', 'suppressed', 'lifted') ORDER BY id"
)
_SELECT_ENDED_RUNS = (
    "SELECT id, contact_id, ended_at FROM run WHERE flow_id = :flow AND created_at < :since AND ended_at > :since "
    "AND ended_at < :until AND status IN ('completed', 'exited') AND test = 0 AND contact_id IS NOT NULL ORDER BY id"
)
_SELECT_OTHER_MESSAGES = (
    f"SELECT id, contact_id, sent_at FROM message WHERE {_OF_CONTACTS} AND sent_at > :since AND sent_at < :until "
    "AND transactional = 0 AND test = 0 AND flow_id IS NOT :flow ORDER BY id"
)
_COPY = "INSERT INTO {table} ({columns}) SELECT {values} FROM main.{table} WHERE id IN ({ids}) ORDER BY {order}"
_COPIED_VALUES = {"quiet": "0", "updated_at": _PLAYED_AT}
_IDS = "SELECT value FROM json_each(?)"


# An opt-in within this time after an address was created belongs to the creation.
_CREATION_MS = 1_000


class ItemKind(IntEnum):
    """The kinds of items, in the order in which items with the same time are applied."""

    CONSENT = 1  # an address was opted in or out, or suppressed
    RUN_END = 2  # a run ended that had begun before the replay
    MESSAGE = 3  # a message of another flow or a campaign was sent, which the frequency cap counts
    EVENT = 4
    REACTION = 5  # an event of a message of this flow


class FeedItem(NamedTuple):
    """An event or change of a contact at a time in Unix milliseconds; `id` is its row in the table of the kind."""

    at: int
    kind: ItemKind
    id: int
    contact_id: int
    step_id: int | None = None  # for a reaction: the step of its message


class ChannelState(NamedTuple):
    """The columns of `channel` that decide whether an address may get marketing messages."""

    subscribed: bool
    opt_out_at: int | None
    suppression: str | None


class FeedRequest(NamedTuple):
    """The parameters of a feed: `start` and `end` in Unix milliseconds, and what the versions refer to."""

    account_id: int
    flow_id: int
    start: int
    end: int
    seed: int
    triggers: Sequence[TriggerSpec]
    documents: Sequence[Any]  # steps and conditions that may name events
    goals: Collection[str]


class Feed:
    """The items of a replay in order, and the contacts whose events may start the flow.

    `matching_contacts` is the number of contacts with a trigger event; with more than `MAX_RUNS` events, `contact_ids`
    is a sample of them. `imported_count` is the number of imported events. `first_events` has the time of the first
    recorded event by name, None for a name without events.
    """

    def __init__(self, request: FeedRequest, max_runs: int = MAX_RUNS, max_items: int = MAX_ITEMS) -> None:
        self.start, self.end = request.start, request.end
        self._request = request
        self._states: dict[int, ChannelState] = {}  # by consent id: the state after it
        self._channels: dict[int, int] = {}  # by consent id: the channel
        self._first_states: dict[int, ChannelState] = {}  # by channel id: the state at the start
        trigger_contacts = dict(self._list_trigger_events())
        counts = Counter(trigger_contacts.values())
        self.matching_contacts, self.matching_events = len(counts), len(trigger_contacts)
        chosen = _sample(counts, request.seed, max_runs)
        self.imported_count = 0
        self.names = self._list_names()
        self.first_events = {name: self._find_first(name) for name in sorted(self.names)}
        items = self._list_events(trigger_contacts, chosen)
        if len(items) > max_items:
            chosen = _sample(Counter(item.contact_id for item in items), request.seed, max_items)
            items = [item for item in items if item.contact_id in chosen]
        self.contact_ids = sorted(chosen)
        self.trigger_count = sum(item.id in trigger_contacts and item.kind is ItemKind.EVENT for item in items)
        parameters = {
            "contacts": json.dumps(self.contact_ids), "since": self.start, "until": self.end, "flow": request.flow_id,
        }  # fmt: skip
        items += self._list_consents(parameters)
        items += [
            FeedItem(at, ItemKind.RUN_END, run_id, contact_id)
            for run_id, contact_id, at in _select(_SELECT_ENDED_RUNS, parameters)
            if contact_id in chosen
        ]
        if scalar("SELECT frequency_cap FROM account WHERE id = ?", (request.account_id,)):
            items += [
                FeedItem(at, ItemKind.MESSAGE, message_id, contact_id)
                for message_id, contact_id, at in _select(_SELECT_OTHER_MESSAGES, parameters)
            ]
        self.items = sorted(items)

    # -- reading ---------------------------------------------------------------------------------------------------

    def _list_trigger_events(self) -> Iterator[tuple[int, int]]:
        request = self._request
        for number, spec in enumerate(request.triggers):
            if spec.event == MANUAL or triggers.list_missing(spec):
                continue
            condition = triggers.compile_event_condition(request.account_id, request.flow_id, spec, f"t{number}")
            values = {**condition.parameters, "since": self.start, "until": self.end}
            yield from _select(f"{_SELECT_TRIGGERS}{condition.of_event}", values)

    def _list_names(self) -> set[str]:
        """Return the names of the events that start the flow, reach its goal, or that its conditions refer to."""
        request = self._request
        documents = [*request.documents, *(dict(spec.data) for spec in request.triggers)]
        if "contact_segment" in json.dumps(documents) or any(spec.segment_id for spec in request.triggers):
            segments = rows("SELECT filters FROM segment WHERE account_id = ?", (request.account_id,))
            documents += [json.loads(filters) for (filters,) in segments]
        names = {*simulation_events.find_event_names(documents), *request.goals}
        return names | {spec.event for spec in request.triggers if spec.event != MANUAL}

    def _find_first(self, name: str) -> int | None:
        sql = "SELECT min(created_at) FROM event WHERE account_id = ? AND event = ?"
        first: int | None = scalar(sql, (self._request.account_id, name))
        return first

    def _list_events(self, trigger_contacts: Mapping[int, int], chosen: Collection[int]) -> list[FeedItem]:
        request = self._request
        parameters = {
            "account": request.account_id, "flow": request.flow_id, "own": f"flow:{request.flow_id}",
            "names": json.dumps(sorted(self.names)), "since": self.start, "until": self.end,
        }  # fmt: skip
        starting = {spec.event for spec in request.triggers}
        others = {*simulation_events.find_event_names([*request.documents]), *request.goals}
        items = []
        for event_id, contact_id, at, name, is_quiet, own_step in _select(_SELECT_EVENTS, parameters):
            if contact_id not in chosen or at >= self.end:
                continue
            self.imported_count += is_quiet
            if event_id in trigger_contacts:
                items.append(FeedItem(at, ItemKind.EVENT, event_id, contact_id))
            elif own_step is not None:
                if name in REACTIONS:  # The replay records all other events of the flow itself.
                    items.append(FeedItem(at, ItemKind.REACTION, event_id, contact_id, own_step))
            elif name in others or name not in starting:
                items.append(FeedItem(at, ItemKind.EVENT, event_id, contact_id))
        return items

    def _list_consents(self, parameters: Mapping[str, Any]) -> Iterator[FeedItem]:
        """Yield the changes of consent, and store the state of their channels at the start and after each change."""
        acts = list(_select(_SELECT_CONSENT, {name: parameters[name] for name in ("contacts", "since")}))
        contacts = json.dumps(sorted({act[1] for act in acts}))
        channels = {
            (contact_id, kind, crypto.hash_address(kind, key)): (
                channel_id,
                at,
                ChannelState(bool(subscribed), *others),
            )
            for channel_id, contact_id, kind, key, at, subscribed, *others in rows(
                "SELECT id, contact_id, kind, key, created_at, subscribed, opt_out_at, suppression FROM channel "
                f"WHERE contact_id IN ({_IDS})",
                (contacts,),
            )
        }
        states: dict[int, ChannelState] = {}
        # Read backwards from the current state, because only changes are recorded.
        for consent_id, contact_id, kind, address_hash, act, at, reason in reversed(acts):
            channel = channels.get((contact_id, kind, bytes(address_hash)))
            if channel is None:
                continue
            channel_id, created_at, present = channel
            if act == "opt_in" and at <= created_at + _CREATION_MS:
                # The address was subscribed when it was created; earlier events were imported with its contact.
                continue
            after = states.get(channel_id, present)
            self._states[consent_id], self._channels[consent_id] = after, channel_id
            before = {
                "opt_in": after._replace(subscribed=False),
                "opt_out": after._replace(subscribed=True, opt_out_at=None),
                "suppressed": after._replace(suppression=None),
                "lifted": after._replace(suppression=reason),
            }[act]
            states[channel_id] = self._first_states[channel_id] = before
            if at < self.end:
                yield FeedItem(at, ItemKind.CONSENT, consent_id, contact_id)

    # -- playing, in the sandbox -----------------------------------------------------------------------------------

    def rewind(self) -> None:
        """Set the addresses in the sandbox to the consent that they had at the start."""
        require_write_transaction()
        _set_states(self._first_states.items())

    def apply(self, items: Sequence[FeedItem], now: int) -> None:
        """Write items into the sandbox."""
        require_write_transaction()
        by_kind: dict[ItemKind, list[FeedItem]] = {}
        for item in items:
            kind = ItemKind.EVENT if item.kind is ItemKind.REACTION else item.kind
            by_kind.setdefault(kind, []).append(item)
        _set_states([
            (self._channels[item.id], self._states[item.id]) for item in by_kind.get(ItemKind.CONSENT, ())
        ])  # fmt: skip
        connection().executemany(
            "UPDATE run SET status = 'completed', ended_at = ? WHERE id = ? AND status = 'live'",
            [(item.at, item.id) for item in by_kind.get(ItemKind.RUN_END, ())],
        )
        for kind, table in ((ItemKind.MESSAGE, "message"), (ItemKind.EVENT, "event")):
            if kind in by_kind:
                _copy(table, [item.id for item in by_kind[kind]])


def _select(sql: str, parameters: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    yield from connection().execute(sql, {name: value for name, value in parameters.items() if f":{name}" in sql})


def _copy(table: str, ids: Sequence[int]) -> None:
    """Copy real rows into the sandbox.

    Events get new ids there, in the order of their names, so that events of one name are applied together. This may
    change their order, because the events of one layer belong to different contacts.
    """
    names = [row[1] for row in rows(f"SELECT * FROM pragma_table_info('{table}')")]
    columns = [name for name in names if name != "id" or table != "event"]
    order = "event, id" if table == "event" else "id"
    values = ", ".join(_COPIED_VALUES.get(name, name) for name in columns) if table == "event" else ", ".join(columns)
    sql = _COPY.format(table=table, columns=", ".join(columns), values=values, ids=_IDS, order=order)
    run(sql, (json.dumps(ids),))


def _set_states(states: Collection[tuple[int, ChannelState]]) -> None:
    connection().executemany(
        "UPDATE channel SET subscribed = ?, opt_out_at = ?, suppression = ? WHERE id = ?",
        [(*state, channel_id) for channel_id, state in states],
    )


def _sample(counts: Mapping[int, int], seed: int, limit: int) -> set[int]:
    """Return the contacts whose events number at most `limit` together, chosen by a hash; all contacts if they fit.

    The hash is of the seed and the contact's id.
    """
    if sum(counts.values()) <= limit:
        return set(counts)
    chosen: set[int] = set()
    remaining = limit
    for contact_id in sorted(counts, key=lambda contact_id: (_hash(seed, contact_id), contact_id)):
        if counts[contact_id] <= remaining:
            chosen.add(contact_id)
            remaining -= counts[contact_id]
    return chosen


def _hash(seed: int, contact_id: int) -> bytes:
    return hashlib.blake2b(f"{seed}:{contact_id}".encode(), digest_size=8).digest()

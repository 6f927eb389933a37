"""Rows of a filter as a page shows them: what each offers, whom they mean in words, how many people that is."""

import asyncio
import time
from typing import NamedTuple

from appliance.audience.filters import read
from appliance.audience.filters.fields import FIELDS, Field
from appliance.audience.filters.predicates import BY_TYPE
from appliance.audience.filters.read import Group, Node
from appliance.audience.filters.scope import Place, Scope
from appliance.audience.segments import counting, explain, people, value_suggestions
from appliance.audience.segments.counting import Counting
from appliance.core.errors import Invalid
from appliance.storage.work import call
from ui import filter_values, happenings, words
from ui.filters import ANY_DATA, ANY_EVENT, ANY_EVENT_DATA, Row, Rows

# What the rows of a filter offer: fields in their groups, predicates in words, things and values that are there.

SEGMENT, BRANCH = "segment", "split"
_GROUPS = ("Person", "Channels", "Lists and segments", "Data", "Messages", "Events", "The event that began it", "Dates")
_CHANNELS = ("contact_email", "contact_phone_number", "contact_verification_status", "contact_suppression_reason",
             "contact_subscribed_email", "contact_subscribed_phone", "contact_verified",
             "contact_suppressed")  # fmt: skip
# The words of predicates of ids say "not", "one of": here they follow the field's name
_IDS = {"eq": "is", "not_eq": "is not", "in": "is one of", "not_in": "is none of", "present": "is any",
        "blank": "is none at all"}  # fmt: skip
_PLAIN = {"true": "yes", "false": "no", "performed": "did this", "not_performed": "did not do this",
          "any": "at least one holds", "all": "all hold", "none": "none holds"}  # fmt: skip
# Two names for one question: a stored filter keeps its own, nobody is offered both
_TWICE = {"boolean": ("eq", "not_eq"), "tags": ("eq", "not_eq")}
KINDS = (("text", "as text"), ("number", "as a number"), ("date", "as a date"), ("boolean", "as yes or no"))


class Offer(NamedTuple):
    """What one row offers."""

    fields: list[tuple[str, list[tuple[str, str]]]]
    predicates: list[tuple[str, str]]
    before: str
    after: str
    things: list[tuple[str, str]]
    seen: list[value_suggestions.Value]
    kinds: list[tuple[str, str]]


def fill_offers(account_id: int, rows: Rows, place: str = SEGMENT) -> Rows:
    """Give every row what it offers; `place` is `split` in a flow, where the event that began it can be asked about."""
    offers = _Offers(account_id, place, rows.event)
    offers.fill(rows.rows, "")
    return rows


class _Offers:
    def __init__(self, account_id: int, place: str, event: str) -> None:
        self.account_id = account_id
        self.event = event
        self.fields = _fields(account_id, place, event)
        self.named: dict[str, list[tuple[str, str]]] = {}

    def fill(self, rows: list[Row], event: str) -> None:
        for row in rows:
            self._one(row, event)
            self.fill(row.rows, row.event if row.type == "history" else "" if row.type == "group" else event)

    def _one(self, row: Row, event: str) -> None:
        field = row.field
        groups = _inside(self.account_id, event) if event else self.fields
        kinds: list[tuple[str, str]] = []
        if field is not None and field.type == "json" and row.takes in ("value", "values", "pair"):
            guess = self._guess(row, event)
            row.more["kind"] = row["kind"] or guess or "text"
            # What stands in the data says how a value is read; only where it does not, it is asked
            if row["kind"] != guess:
                kinds = [one for one in KINDS if one[0] != "boolean" or row.takes == "value"]
            kinds += [(filter_values.EXACT, "exactly, as JSON")] if row["kind"] == filter_values.EXACT else []
        before, _, after = _words(row).partition("…")
        row.offer = Offer(
            _with(groups, row), _predicates(row), before, after, self._things(field), self._seen(row), kinds
        )  # fmt: skip

    def _guess(self, row: Row, event: str) -> str:
        """Return the type that values of a path have where it is seen, or nothing."""
        event = event or (self.event if row.name.startswith("event.") else "")
        if row.name.startswith("event.") and not event:
            return ""
        name = row.field.label if row.field else ""
        known = (
            value_suggestions.event_keys(self.account_id, event) if event else value_suggestions.keys(self.account_id)
        )
        found = next((key for key in known if key.path == name), None)
        if found is None or found.type == "list":
            return "" if found is None else "text"
        return "date" if found.type == "text" and filter_values.DAY.fullmatch(str(found.example)) else found.type

    def _things(self, field: Field | None) -> list[tuple[str, str]]:
        if field is None:
            return []
        if field.choices:
            return [(one, _choice(one)) for one in field.choices]
        if not field.of:
            return []
        if field.of not in self.named:
            self.named[field.of] = [
                (str(number), name) for number, name in value_suggestions.things(self.account_id, field.of)
            ]
        return self.named[field.of]

    def _seen(self, row: Row) -> list[value_suggestions.Value]:
        if row.takes not in ("text", "texts", "value", "values") or row.field is None or row.field.choices:
            return []
        return value_suggestions.values(self.account_id, row.field.name, 12)


def _choice(value: str) -> str:
    return words.SUPPRESSIONS.get(value) or words.sentence(value.replace("_", " ")).rstrip(".")


def _fields(account_id: int, place: str, event: str) -> list[tuple[str, list[tuple[str, str]]]]:
    groups: dict[str, list[tuple[str, str]]] = {name: [] for name in _GROUPS}
    for field in FIELDS:
        if field.listed and field.type not in ("group", "history"):
            groups[_group(field)].append((field.name, _label(field.label)))
    groups["Data"] = [(f"contact_data.{key.path}", key.path) for key in value_suggestions.keys(account_id)]
    groups["Data"].append((ANY_DATA, "Something else in their data…"))
    ours = [name for name in happenings._EVENTS if not name.startswith(("campaign_", "domain_", "webhook_"))]
    names = [*ours, *(name for name in value_suggestions.events(account_id) if name not in happenings._EVENTS)]
    groups["Events"] = [(f"event:{name}", happenings.event(name)[2]) for name in names]
    groups["Events"].append((ANY_EVENT, "Another event…"))
    if place == BRANCH:
        known = value_suggestions.event_keys(account_id, event) if event else []
        groups["The event that began it"] = [(f"event.{key.path}", _of_event(key.path)) for key in known]
        groups["The event that began it"].append((ANY_EVENT_DATA, "Something in its data…"))
    return [(name, found) for name, found in groups.items() if found]


def _inside(account_id: int, event: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return what can be asked about the data of an event."""
    found = [(f"event.{key.path}", key.path) for key in value_suggestions.event_keys(account_id, event)]
    return [("Its data", [*found, (ANY_EVENT_DATA, "Something else in its data…")])]


def _group(field: Field) -> str:
    if field.type == "time":
        return "Dates"
    if field.name.startswith(("campaign_", "email_", "sms_")):
        return "Messages"
    if field.type == "id":
        return "Lists and segments"
    return "Channels" if field.name in _CHANNELS else "Person"


def _with(groups: list[tuple[str, list[tuple[str, str]]]], row: Row) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the fields with the one that the row has, even where it is not offered to others."""
    if not row.name or row.name == "group" or any(row.name == name for _, found in groups for name, _ in found):
        return groups
    label = row.event.replace("_", " ") if row.type == "history" else row.field.label if row.field else row.name
    if row.name.startswith("event."):
        label = _of_event(label)
    return [*groups, ("As it is stored", [(row.name, _label(label) if row.type != "json" else label)])]


def _of_event(path: str) -> str:
    return f"{path} (of the event)"


def _label(text: str) -> str:
    return text[:1].upper() + text[1:]


def _predicates(row: Row) -> list[tuple[str, str]]:
    if row.type in ("history", "group"):
        keys = ("performed", "not_performed") if row.type == "history" else ("any", "all", "none")
        return [(key, _PLAIN[key]) for key in keys]
    hidden = () if row.type not in _TWICE else tuple(one for one in _TWICE[row.type] if one != row.predicate)
    if row.field is not None and row.field.of == "segment":
        hidden = ("present", "blank")
    return [(key, _said(row.type, key)) for key in BY_TYPE.get(row.type, {}) if key not in hidden]


def _said(type_: str, key: str) -> str:
    if type_ == "id":
        return _IDS[key]
    if type_ == "boolean" and key in _PLAIN:
        return _PLAIN[key]
    test, negative = BY_TYPE[type_][key]
    said = (test.opposite_words if negative else test.words).replace("{}", "…").removesuffix("…").strip()
    return said + " …" if said.endswith("…") else said


def _words(row: Row) -> str:
    return next((said for key, said in _predicates(row) if key == row.predicate), "")


TIMEOUT_SECONDS = 1.5


class Look(NamedTuple):
    """Everything that the part `rows.builder` shows; `tally` is None where nobody can be counted, `note` says why."""

    rows: Rows
    place: str = SEGMENT
    sentence: str = ""
    tally: Counting | None = None
    note: str = ""


async def shown(account_id: int, rows: Rows, place: str = SEGMENT, counted: bool = True) -> Look:
    """Return rows as a page shows them, with the number of people if it is found soon; else the page asks for it."""
    made = await call(look, account_id, rows, place, counted)
    if made.tally is not None:
        await settled(made.tally)
    return made


async def settled(tally: Counting, seconds: float = TIMEOUT_SECONDS) -> None:
    """Wait until a count is done, at most so long, without keeping anybody else waiting."""
    until = time.monotonic() + seconds
    while not tally.is_done and time.monotonic() < until:
        await asyncio.sleep(0.01)


def look(account_id: int, rows: Rows, place: str = SEGMENT, counted: bool = True) -> Look:
    """Return rows as a page shows them, with a count that is under way; runs on a reader (`await call(look, …)`).

    Faults of what is complete are noted at the rows. `place` is `split` where a flow asks: there the event that
    began it can be asked about, and then nobody can be counted ahead.
    """
    fill_offers(account_id, rows, place)
    try:
        nodes, here = read_rows(account_id, rows, place)
    except Invalid as refused:
        rows.take(refused)
        return Look(rows, place)
    sentence = explain.sentence(account_id, nodes, here)
    if not counted:
        return Look(rows, place, sentence)
    if _needs_event(nodes):
        return Look(rows, place, sentence, note="Whom this means depends on the event that begins the flow.")
    try:
        _share(account_id, rows, nodes, here)
    except Invalid as refused:
        rows.take(refused)
        return Look(rows, place, sentence)
    return Look(rows, place, sentence, counting.begin(account_id, rows.asker, rows.complete(), rows.seed))


def read_rows(account_id: int, rows: Rows, place: str = SEGMENT) -> tuple[list[Node], Scope]:
    """Read the complete rows; raises Invalid with the faults at the paths of their rows."""
    here = people.scope(account_id, writing=True)
    here = here._replace(place=Place.SPLIT) if place == BRANCH else here
    return read.filters(rows.complete(), here), here


def _share(account_id: int, rows: Rows, nodes: list[Node], here: Scope) -> None:
    """Note at every row how many people it alone lets through, in groups too."""
    pairs = list(_pairs(rows.rows, nodes))
    shares = people.shares(account_id, [node for _, node in pairs], here)
    for (row, _), share in zip(pairs, shares, strict=True):
        row.share = share


def _pairs(rows: list[Row], nodes: list[Node]) -> list[tuple[Row, Node]]:
    found: list[tuple[Row, Node]] = []
    for row, node in zip([row for row in rows if row.path], nodes, strict=True):
        found.append((row, node))
        if isinstance(node, Group):
            found += _pairs(row.rows, node.parts)
    return found


def _needs_event(nodes: list[Node]) -> bool:
    """Return whether an answer depends on the event that began a flow, or on when somebody entered it."""
    for node in nodes:
        if isinstance(node, Group):
            if _needs_event(node.parts):
                return True
        elif (
            node.field.name.startswith("event.") or getattr(getattr(node, "history", None), "since", 0) == "flow_start"
        ):
            return True
    return False

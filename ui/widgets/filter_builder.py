"""Build the filter builder: options of rows, rules as a sentence, counts, a sample, and a check of one contact."""

import asyncio
import re
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from appliance.audience.contacts import store
from appliance.audience.filters import compiler
from appliance.audience.filters.compiler import ConditionGroup, EventCondition, FieldCondition, Node
from appliance.audience.filters.fields import FIELDS, Field, FilterPlace, Scope
from appliance.audience.filters.predicates import PREDICATES_BY_TYPE
from appliance.audience.segments import explain, members, suggestions
from appliance.audience.segments.members import BackgroundCount
from appliance.core import i18n
from appliance.core.errors import Invalid, NotFound
from appliance.core.i18n import gettext, gettext_noop
from appliance.flows.steps import split_value
from appliance.imports import store as imports
from appliance.storage.transactions import scan
from ui import formats, labels
from ui.forms import lookups, parse_number, typed_values
from ui.forms.filter_rows import ANY_DATA, ANY_EVENT, ANY_EVENT_DATA, FilterRow, FilterRows

SEGMENT, BRANCH = "segment", "split"
# The groups of the field selector, in order.
_CONTACT, _SUBSCRIPTIONS, _LISTS, _CUSTOM, _EVENTS, _CAMPAIGNS, _COUNTS, _LAST_DATES, _TRIGGER = _GROUP_TITLES = (
    gettext_noop("About the contact"), gettext_noop("Subscriptions"), gettext_noop("Lists, segments and flows"),
    gettext_noop("Custom fields"), gettext_noop("Events: how often, in which period"),
    gettext_noop("Engagement: which campaign"), gettext_noop("Engagement: number in total"),
    gettext_noop("Engagement: when last"), gettext_noop("Trigger event"),
)  # fmt: skip
_SUBSCRIPTION_FIELDS = (
    "contact_verification_status", "contact_suppression_reason", "contact_subscribed_email",
    "contact_subscribed_phone", "contact_verified", "contact_suppressed", "contact_unsubscribed_at",
)  # fmt: skip
# Labels of the predicates, shown after the field's name; those of a type come before those of all types.
_PREDICATE_LABELS = {
    "eq": gettext_noop("is"), "not_eq": gettext_noop("is not"), "cont": gettext_noop("contains"),
    "not_cont": gettext_noop("does not contain"), "start": gettext_noop("starts with"),
    "not_start": gettext_noop("does not start with"), "end": gettext_noop("ends with"),
    "not_end": gettext_noop("does not end with"), "in": gettext_noop("is one of"), "not_in": gettext_noop("is none of"),
    "present": gettext_noop("is set"), "blank": gettext_noop("is not set"), "gt": gettext_noop("is over"),
    "gteq": gettext_noop("is at least"), "lt": gettext_noop("is under"), "lteq": gettext_noop("is at most"),
    "between": gettext_noop("is between"), "true": gettext_noop("yes"), "false": gettext_noop("no"),
    "within_days": gettext_noop("is within the last … days"),
    "not_within_days": gettext_noop("is not within the last … days"), "performed": gettext_noop("happened"),
    "not_performed": gettext_noop("did not happen"), "any": gettext_noop("at least one matches"),
    "all": gettext_noop("all match"), "none": gettext_noop("none match"),
}  # fmt: skip
_TYPE_PREDICATE_LABELS = {
    "tags": {
        "cont": gettext_noop("include"), "not_cont": gettext_noop("do not include"), "eq": gettext_noop("include"),
        "not_eq": gettext_noop("do not include"), "in": gettext_noop("include one of"),
        "not_in": gettext_noop("include none of"), "present": gettext_noop("are set"),
        "blank": gettext_noop("are not set"),
    },
    "time": {
        "eq": gettext_noop("is on"), "gt": gettext_noop("is after"), "gteq": gettext_noop("is on or after"),
        "lt": gettext_noop("is before"), "lteq": gettext_noop("is on or before"),
    },
    "json": {"true": gettext_noop("is yes"), "false": gettext_noop("is not yes")},
}  # fmt: skip
# The labels of `present` and `blank`, by the kind of object that the ids of a field refer to
_ID_PREDICATE_LABELS = {
    "list": {"present": gettext_noop("any list"), "blank": gettext_noop("no list")},
    "flow": {"present": gettext_noop("any flow"), "blank": gettext_noop("no flow")},
    "campaign": {"present": gettext_noop("any campaign"), "blank": gettext_noop("no campaign")},
}
# Words by which a field is also found in the field selector
_EVENT_WORDS = gettext_noop("bought buy purchase order custom event")
_SEARCH_WORDS = {
    "contact_list": gettext_noop("newsletter on a list member"), "contact_data.*": gettext_noop("custom property"),
    "event:*": _EVENT_WORDS, "event:email_opened": gettext_noop("opened a campaign recently last days"),
    "event:email_clicked": gettext_noop("clicked a campaign recently last days"),
}  # fmt: skip
_PURCHASE_EVENT = re.compile(r"order|purchas|checkout|paid|payment|bought|sale", re.IGNORECASE)
# Events of the account, which no contact has
_ACCOUNT_EVENTS = ("campaign_", "domain_", "webhook_", "import_", "bulk_action_")
# Predicates with a synonym, by type. A stored filter keeps such a predicate, but no other row offers it.
_SYNONYM_PREDICATES = {"boolean": ("eq", "not_eq"), "tags": ("eq", "not_eq")}
VALUE_KINDS = (
    ("text", gettext_noop("as text")), ("number", gettext_noop("as a number")), ("date", gettext_noop("as a date")),
    ("boolean", gettext_noop("as yes or no")),
)  # fmt: skip


class RowOptions(NamedTuple):
    """The options of one row: fields by group, predicates, selectable values, suggested values and value types.

    A field is (name, label), or also has the words by which it is found. `warning` says that the rule compares values
    as a type other than the stored one; `fix` is the type of VALUE_KINDS to compare as instead, or empty.
    """

    fields: list[tuple[str, list[tuple[str, ...]]]]
    predicates: list[tuple[str, str]]
    choices: list[tuple[str, str]]
    suggestions: list[suggestions.Value]
    kinds: list[tuple[str, str]]
    warning: str = ""
    fix: str = ""


def fill_options(account_id: int, rows: FilterRows, place: str = SEGMENT) -> FilterRows:
    """Set the options of every row and return the rows.

    `place` is SEGMENT, or BRANCH in a flow, where rules can use the triggering event.
    """
    offers = _OptionsBuilder(account_id, place, rows.event)
    offers.fill(rows.rows, "")
    return rows


class _OptionsBuilder:
    def __init__(self, account_id: int, place: str, event: str) -> None:
        self.account_id = account_id
        self.event = event
        self.fields = _field_groups(account_id, place, event)
        self.choices_by_kind: dict[str, list[tuple[str, str]]] = {}

    def fill(self, rows: list[FilterRow], event: str) -> None:
        for row in rows:
            self._fill_row(row, event)
            self.fill(row.rows, row.event if row.type == "history" else "" if row.type == "group" else event)

    def _fill_row(self, row: FilterRow, event: str) -> None:
        field = row.field
        groups = _event_data_groups(self.account_id, event) if event else self.fields
        kinds: list[tuple[str, str]] = []
        warning, fix = "", ""
        if field is not None and field.type == "json" and row.value_kind in ("value", "values", "pair"):
            event = event or (self.event if row.name.startswith("event.") else "")
            stored = _stored_types(self.account_id, row, event)
            guess = max(stored, key=lambda name: stored[name]).replace("list", "text") if stored else ""
            row.extra["kind"] = row["kind"] or guess or "text"
            # The type of a value is guessed from the stored data. The user is asked for it if the guess fails, and for
            # a comparison with values that are not numbers or dates, or not all of one type.
            is_unclear = row.predicate in explain.COMPARISONS and (len(stored) > 1 or guess not in ("number", "date"))
            if row["kind"] != guess or is_unclear:
                kinds = [
                    (kind, gettext(label))
                    for kind, label in VALUE_KINDS
                    if kind != "boolean" or row.value_kind == "value"
                ]
            if row["kind"] == typed_values.EXACT:
                kinds.append((typed_values.EXACT, gettext("exactly, as JSON")))
            warning, fix = _type_warning(row, stored)
            fix = fix if fix in dict(kinds) else ""
        row.options = RowOptions(
            _with_current_field(groups, row), _predicates(row), self._load_choices(field),
            self._load_suggestions(row),
            kinds, warning, fix,
        )  # fmt: skip

    def _load_choices(self, field: Field | None) -> list[tuple[str, str]]:
        if field is None:
            return []
        if field.choices:
            return [(choice, field.label_value(choice)) for choice in field.choices]
        if field.name == "contact_country":
            return list(lookups.country_names())
        if field.name == "contact_language":
            stored = suggestions.suggest_values(self.account_id, field.name)
            options = dict(lookups.language_options("")[1:])
            return list((options | {language.value: i18n.name_language(language.value) for language in stored}).items())
        if not field.id_kind:
            return []
        if field.id_kind not in self.choices_by_kind:
            self.choices_by_kind[field.id_kind] = [
                (str(number), name) for number, name in suggestions.list_targets(self.account_id, field.id_kind)
            ]
        return self.choices_by_kind[field.id_kind]

    def _load_suggestions(self, row: FilterRow) -> list[suggestions.Value]:
        if row.value_kind not in ("text", "texts", "value", "values") or row.field is None or row.field.choices:
            return []
        return suggestions.suggest_values(self.account_id, row.field.name, 12)


# Warnings by the type that a condition compares as; `%(types)s` are the types of the values.
_COMPARED_AS = {
    "text": gettext_noop("This condition compares as text, but the values of this field are %(types)s."),
    "date": gettext_noop("This condition compares as dates, but the values of this field are %(types)s."),
    "number": gettext_noop("This condition compares as numbers, but the values of this field are %(types)s."),
    "boolean": gettext_noop("This condition compares as yes or no, but the values of this field are %(types)s."),
}
_MOSTLY_COMPARED_AS = {
    "text": gettext_noop("This condition compares as text, but most values of this field are %(types)s."),
    "date": gettext_noop("This condition compares as dates, but most values of this field are %(types)s."),
    "number": gettext_noop("This condition compares as numbers, but most values of this field are %(types)s."),
    "boolean": gettext_noop("This condition compares as yes or no, but most values of this field are %(types)s."),
}
_TYPE_NAMES = {
    "text": gettext_noop("text"), "date": gettext_noop("dates"), "number": gettext_noop("numbers"),
    "boolean": gettext_noop("yes or no"),
}  # fmt: skip
# The types of stored values that a value of each kind can match: dates are stored as text.
_MATCHED_TYPES = {"text": ("text", "date"), "date": ("text", "date"), "number": ("number",), "boolean": ("boolean",)}


def _type_warning(row: FilterRow, stored: dict[str, int]) -> tuple[str, str]:
    """Return a warning if a rule compares values as a type other than the stored one, and the type to use instead.

    Both are empty if there is nothing to warn of; the type alone is empty if another type does not help.
    """
    counts = {name: number for name, number in stored.items() if name in _TYPE_NAMES}
    kind = row["kind"]
    if not counts or kind not in _MATCHED_TYPES:
        return "", ""
    others = {name: number for name, number in counts.items() if name not in _MATCHED_TYPES[kind]}
    most_common = max(counts, key=lambda name: counts[name])
    if most_common in others:
        messages = _COMPARED_AS if len(others) == len(counts) else _MOSTLY_COMPARED_AS
        return gettext(messages[kind], types=gettext(_TYPE_NAMES[most_common])), most_common
    if row.predicate not in explain.COMPARISONS:
        return "", ""
    if others:
        names = formats.join_names([gettext(_TYPE_NAMES[name]) for name in others])
        return gettext("Some values of this field are %(types)s. This condition never matches them.", types=names), ""
    if kind == "text" and any(_is_number(value) for value in row.values):
        return (
            gettext(
                "The values of this field are text, which sorts alphabetically: 89 counts as more "
                "than 100. To compare amounts, import the field as numbers."
            ),
            "",
        )
    return "", ""


def _is_number(text: str) -> bool:
    try:
        parse_number(text)
    except ValueError:
        return False
    return True


def _stored_types(account_id: int, row: FilterRow, event: str) -> dict[str, int]:
    """Return how many of the sampled values of the row's data path have each type; empty if none are known."""
    if row.name.startswith("event.") and not event:
        return {}
    name = row.field.label if row.field else ""
    keys = suggestions.suggest_event_keys(account_id, event) if event else suggestions.suggest_data_keys(account_id)
    return next((key.types for key in keys if key.path == name), {})


def list_warnings(account_id: int, filters: Any) -> list[str]:
    """Return a warning for each stored rule that compares custom data as a type other than the stored one."""
    rows = [row for row in FilterRows.from_filters(filters) if row.type == "json" and row["kind"]]
    warnings = [
        _type_warning(row, _stored_types(account_id, row, ""))[0]
        for row in rows
        if not row.name.startswith("event.") and row.value_kind in ("value", "values", "pair")
    ]
    return [text for text in dict.fromkeys(warnings) if text]


def _field_groups(account_id: int, place: str, event: str) -> list[tuple[str, list[tuple[str, ...]]]]:
    groups: dict[str, list[tuple[str, ...]]] = {name: [] for name in _GROUP_TITLES}
    for field in FIELDS:
        if field.listed and field.type not in ("group", "history"):
            groups[_field_group(field)].append((field.name, field.title()))
    headings = imports.list_data_labels(account_id)
    groups[_CUSTOM] = [
        (f"contact_data.{key.path}", formats.data_label(key.path, headings))
        for key in suggestions.suggest_data_keys(account_id)
    ]
    groups[_CUSTOM].append((ANY_DATA, gettext("Another custom field…")))
    ours = [name for name in labels.EVENT_ICONS if not name.startswith(_ACCOUNT_EVENTS)]
    names = [
        *ours,
        *(name for name in suggestions.list_event_names(account_id) if name not in labels.EVENT_ICONS),
    ]
    groups[_EVENTS] = [(f"event:{name}", labels.event(name)[2]) for name in names]
    groups[_EVENTS].append((ANY_EVENT, gettext("Another event…")))
    if place == BRANCH:
        event_keys = suggestions.suggest_event_keys(account_id, event) if event else []
        groups[_TRIGGER] = [(f"event.{key.path}", _event_field_label(key.path)) for key in event_keys]
        groups[_TRIGGER].append((ANY_EVENT_DATA, gettext("Another field of the event…")))
    return [(gettext(name), [_with_words(*option) for option in result]) for name, result in groups.items() if result]


def list_value_fields(account_id: int, event: str, chosen: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the fields by whose values a flow can be split, by group, and `chosen` if it is not among them.

    `event` is the event that starts the flow. Each group is (label, [(field, label)]).
    """
    groups = [
        (label, [(name, text) for name, text, *_ in options if _has_values(name)])
        for label, options in _field_groups(account_id, BRANCH, event)
    ]
    groups = [(label, options) for label, options in groups if options]
    if chosen and not any(chosen == name for _, options in groups for name, _ in options):
        groups.append((gettext("Current field"), [(chosen, split_value.title_field(chosen))]))
    return groups


def _has_values(name: str) -> bool:
    return name in (ANY_DATA, ANY_EVENT_DATA) or split_value.find_value_field(name) is not None


def _with_words(name: str, label: str) -> tuple[str, ...]:
    """Return the option of a field, with the words by which it is found, if it has any besides its name."""
    words = _SEARCH_WORDS.get(name) or (
        _EVENT_WORDS if name.startswith("event:") and _PURCHASE_EVENT.search(name) else ""
    )
    return (name, label, f"{name.partition(':')[2] or name} {gettext(words)}") if words else (name, label)


def _event_data_groups(account_id: int, event: str) -> list[tuple[str, list[tuple[str, ...]]]]:
    """Return the fields of an event's data as a list with a single group."""
    options: list[tuple[str, ...]] = [
        (f"event.{key.path}", key.path) for key in suggestions.suggest_event_keys(account_id, event)
    ]
    return [(gettext("Event data"), [*options, (ANY_EVENT_DATA, gettext("Another field of the event…"))])]


def _field_group(field: Field) -> str:
    if field.name in _SUBSCRIPTION_FIELDS:
        return _SUBSCRIPTIONS
    if field.name.startswith("campaign_"):
        return _CAMPAIGNS
    if field.name.startswith(("email_", "sms_", "contact_last_interacted")):
        return _LAST_DATES if field.type == "time" else _COUNTS
    return _LISTS if field.type == "id" else _CONTACT


def _with_current_field(
    groups: list[tuple[str, list[tuple[str, ...]]]], row: FilterRow
) -> list[tuple[str, list[tuple[str, ...]]]]:
    """Return the groups of fields, with the field of the row added unless a group offers it."""
    if not row.name or row.name == "group" or any(row.name == option[0] for _, fields in groups for option in fields):
        return groups
    label = row.field.title() if row.field else row.name
    if row.type == "history":
        label = labels.event(row.event)[2]
    elif row.name.startswith("event."):
        label = _event_field_label(label)
    return [*groups, (gettext("Current field"), [(row.name, label)])]


def _event_field_label(path: str) -> str:
    return gettext("%(field)s (of the event)", field=path)


def _predicates(row: FilterRow) -> list[tuple[str, str]]:
    if row.type in ("history", "group"):
        keys = ("performed", "not_performed") if row.type == "history" else ("any", "all", "none")
        return [(key, _predicate_label(row.type, key)) for key in keys]
    hidden = (
        ()
        if row.type not in _SYNONYM_PREDICATES
        else tuple(item for item in _SYNONYM_PREDICATES[row.type] if item != row.predicate)
    )
    if row.field is not None and row.field.id_kind == "segment":
        hidden = ("present", "blank")
    own = _ID_PREDICATE_LABELS.get(row.field.id_kind, {}) if row.field is not None else {}
    return [
        (key, gettext(own[key]) if key in own else _predicate_label(row.type, key))
        for key in PREDICATES_BY_TYPE.get(row.type, {})
        if key not in hidden
    ]


def _predicate_label(type_: str, key: str) -> str:
    return gettext(_TYPE_PREDICATE_LABELS.get(type_, {}).get(key) or _PREDICATE_LABELS[key])


COUNT_TIMEOUT_SECONDS = 1.5


class FilterView(NamedTuple):
    """The data of the template macro `rows.builder`.

    Without a `running_count`, `note` may say why the contacts are not counted.
    """

    rows: FilterRows
    place: str = SEGMENT
    sentence: str = ""
    running_count: BackgroundCount | None = None
    note: str = ""


async def load_view(account_id: int, rows: FilterRows, place: str = SEGMENT, counted: bool = True) -> FilterView:
    """Return the view of rows; wait up to COUNT_TIMEOUT_SECONDS for the count, for which the page polls after that.

    Without `counted`, no count is started.
    """
    view = await scan(build_view, account_id, rows, place, counted)
    if view.running_count is not None:
        await wait_for_count(view.running_count)
    return view


async def wait_for_count(running_count: BackgroundCount, seconds: float = COUNT_TIMEOUT_SECONDS) -> None:
    """Wait until a count is done, at most `seconds`."""
    until = time.monotonic() + seconds
    while not running_count.is_done and time.monotonic() < until:
        await asyncio.sleep(0.01)


def build_view(account_id: int, rows: FilterRows, place: str = SEGMENT, counted: bool = True) -> FilterView:
    """Return the view of rows and start a count; call it with `scan`, since it reads the database.

    Errors of complete rows are added to the rows. `place` is SEGMENT, or BRANCH in a flow, where rules can use the
    triggering event; contacts are not counted for such rules.
    """
    try:
        return _build_view(account_id, rows, place, counted)
    finally:
        rows.hide_personal_values()  # after the count, which compares the stored values


def _build_view(account_id: int, rows: FilterRows, place: str, counted: bool) -> FilterView:
    fill_options(account_id, rows, place)
    try:
        nodes, current = parse_rows(account_id, rows, place)
    except Invalid as error:
        rows.add_errors(error)
        return FilterView(rows, place)
    is_any = rows.awaits_event and not nodes
    sentence = gettext("Any such event") if is_any else explain.describe_filters(account_id, nodes, current)
    if not counted or rows.awaits_event:
        return FilterView(rows, place, sentence)
    if _depends_on_event(nodes):
        return FilterView(
            rows, place, sentence, note=gettext("The number of contacts depends on the trigger event of the flow.")
        )
    try:
        _count_rows(account_id, rows, nodes, current)
    except Invalid as error:
        rows.add_errors(error)
        return FilterView(rows, place, sentence)
    return FilterView(
        rows, place, sentence, members.start_count(account_id, rows.count_key, rows.complete_filters(), rows.seed)
    )


def parse_rows(account_id: int, rows: FilterRows, place: str = SEGMENT) -> tuple[list[Node], Scope]:
    """Parse the complete rows to conditions, and return the conditions and their scope.

    Raises Invalid with the errors at the paths of the rows.
    """
    scope = members.build_scope(account_id, writing=True)
    scope = scope._replace(place=FilterPlace.SPLIT) if place == BRANCH else scope
    return compiler.parse_filters(rows.complete_filters(), scope), scope


def _count_rows(account_id: int, rows: FilterRows, nodes: list[Node], current: Scope) -> None:
    """Set on every row, including rows inside groups, how many contacts match that rule alone."""
    pairs = list(_pair_rows(rows.rows, nodes))
    shares = members.count_each(account_id, [node for _, node in pairs], current)
    for (row, _), share in zip(pairs, shares, strict=True):
        row.share = share


def _pair_rows(rows: list[FilterRow], nodes: list[Node]) -> list[tuple[FilterRow, Node]]:
    pairs: list[tuple[FilterRow, Node]] = []
    for row, node in zip([row for row in rows if row.path], nodes, strict=True):
        pairs.append((row, node))
        if isinstance(node, ConditionGroup):
            pairs += _pair_rows(row.rows, node.parts)
    return pairs


def _depends_on_event(nodes: list[Node]) -> bool:
    """Return whether a rule uses the data of the triggering event or the time when the contact entered the flow."""
    for node in nodes:
        if isinstance(node, ConditionGroup):
            if _depends_on_event(node.parts):
                return True
        elif node.field.name.startswith("event.") or getattr(getattr(node, "query", None), "since", 0) == "flow_start":
            return True
    return False


# The sample of matching contacts, and the check of one contact.

_MAX_COLUMNS = 4
_MAX_CANDIDATES = 5


class Cell(NamedTuple):
    """A contact's actual value for a rule, and the kind that decides how the page shows it."""

    kind: str
    value: Any


class Sample(NamedTuple):
    """Contacts that match the rules: the labels of the columns, and each contact with its cells."""

    columns: list[str]
    people: list[tuple[Any, list[Cell]]]


class RuleResult(NamedTuple):
    """One rule as a sentence, whether a contact matches it, and the contact's value.

    `parts` are the results of the rules inside a group.
    """

    sentence: str
    matches: bool
    cell: Cell
    parts: "list[RuleResult]"


class ContactCheck(NamedTuple):
    """One contact checked against the rules; without `person`, the search results to choose a contact from."""

    search: str
    candidates: Sequence[Any]
    person: Any = None
    matches: bool = False
    results: list[RuleResult] = []


def load_sample(account_id: int, filter_view: FilterView) -> Sample:
    """Return contacts that the count sampled, with a column for each of the first `_MAX_COLUMNS` fields of the rules.

    Without a running count the sample is empty.
    """
    if filter_view.running_count is None:
        return Sample([], [])
    nodes = members.parse_filters(account_id, filter_view.running_count.filters)
    scope = members.build_scope(account_id)
    params = _sample_columns(nodes)
    headings = imports.list_data_labels(account_id)
    names = [_column_label(node, headings) for node in params]
    rows = [
        (
            contact,
            [_build_cell(account_id, node, explain.fetch_actual_value(node, scope, contact.id)) for node in params],
        )
        for contact in store.fetch_by_ids(list(filter_view.running_count.sample))
    ]
    return Sample(names, rows)


def check_contact(account_id: int, rows: FilterRows, search: str, person_id: int | None) -> ContactCheck:
    """Return the check of the contact `person_id` against the rows, with the contacts that match `search`.

    Without an existing contact it has only the search results. Raises Invalid if the rows are invalid.
    """
    candidates: Sequence[Any] = []
    if search:
        query = store.ContactQuery(search=search, limit=_MAX_CANDIDATES)
        candidates = store.fetch_page(account_id, query).rows
    if person_id is None:
        return ContactCheck(search, candidates)
    try:
        person = store.get(account_id, person_id)
    except NotFound:
        return ContactCheck(search, candidates)
    nodes, current = parse_rows(account_id, rows)
    answers = [_rule_result(account_id, node, explain.explain_node(node, current, person_id)) for node in nodes]
    return ContactCheck(search, candidates, person, explain.is_member(nodes, current, person_id), answers)


def _rule_result(account_id: int, node: Node, row: explain.FilterResult) -> RuleResult:
    parts = [_rule_result(account_id, *pair) for pair in zip(node.parts, row.rows, strict=True)] \
        if isinstance(node, ConditionGroup) else []  # fmt: skip
    cell = Cell("", None) if isinstance(node, ConditionGroup) else _build_cell(account_id, node, row.actual)
    return RuleResult(row.sentence, row.matches, cell, parts)


def _sample_columns(nodes: list[Node]) -> list[FieldCondition | EventCondition]:
    """Return the conditions whose fields become columns, each field or event once, at most `_MAX_COLUMNS`."""
    conditions: dict[tuple[str, str], FieldCondition | EventCondition] = {}
    for node in nodes:
        for leaf in _sample_columns(node.parts) if isinstance(node, ConditionGroup) else [node]:
            conditions.setdefault((leaf.field.name, leaf.query.event if isinstance(leaf, EventCondition) else ""), leaf)
    return list(conditions.values())[:_MAX_COLUMNS]


def _column_label(node: FieldCondition | EventCondition, headings: dict[str, str]) -> str:
    if isinstance(node, EventCondition):
        return labels.event(node.query.event)[2]
    return formats.data_label(node.field.label, headings) if node.field.type == "json" else node.field.title()


def _build_cell(account_id: int, node: FieldCondition | EventCondition, value: Any) -> Cell:
    if isinstance(node, EventCondition):
        return Cell("history", value)
    if node.field.id_kind:
        return Cell("names", [explain.fetch_name(account_id, node.field.id_kind, item) for item in value or []])
    if value in (None, "", []):
        return Cell("nothing", None)
    if node.field.type == "code":
        value = (
            [node.field.label_value(code) for code in value]
            if isinstance(value, list)
            else node.field.label_value(value)
        )
    kind = "time" if node.field.type == "time" else "names" if isinstance(value, list) else "plain"
    return Cell("yes" if isinstance(value, bool) else kind, value)

"""Base classes of step kinds, which parse, describe and execute their steps, and the creation of a step's messages."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import msgspec
from msgspec import UNSET, Struct, UnsetType, convert

from appliance.accounts import limits
from appliance.content.designs import utm
from appliance.content.designs.utm import UtmWrite
from appliance.content.templates import validation
from appliance.content.templates.validation import Content
from appliance.core import clock, signals
from appliance.core.errors import Faults
from appliance.core.i18n import gettext, gettext_noop
from appliance.core.validation import read_partial, sent_fields
from appliance.events import log
from appliance.events.log import NewEvent
from appliance.flows.branches import LISTED_KEY, STEPS_KEY
from appliance.flows.request_template import RequestSpec
from appliance.sending.messages import sms_rules
from appliance.sending.messages.ledger import FLOWS_DUE_NOW
from appliance.settings import config
from appliance.storage.database import fetch_one, rows
from appliance.storage.models import Account, Template
from appliance.storage.transactions import after_commit, require_write_transaction

_MAX_KEY_CHARACTERS = 100


class Node(NamedTuple):
    """One step of a compiled plan; `next` and the values of `branches` are step ids, or None for the end of the flow.

    `branches` has the first step of each branch by its key; an empty branch leads to `next`. The `next` of the last
    step in a branch is the step after the step that has the branch, so that no lookup is needed.
    """

    id: int
    kind: str
    props: dict[str, Any]
    next: int | None
    branches: Mapping[str, int | None] = MappingProxyType({})


class ActiveRun(Struct):
    """A run that is being executed. Times are in Unix milliseconds.

    The run is at the step `action_id`. If `step_visit_id` is set, it entered that step earlier and has waited there.
    """

    id: int
    account_id: int
    flow_id: int
    version: int
    contact_id: int | None
    event_id: int | None
    event_data: dict[str, Any]
    chain_depth: int
    test: bool
    started_at: int
    action_id: int | None
    step_visit_id: int | None
    due_at: int
    arrived_at: int = 0  # when it reached the step at which it waits; set by the engine


class StepResult(NamedTuple):
    """Where a run goes after a step: `on`, the key of a branch, `wait` (until Unix milliseconds), or `exit`.

    `outcome` is what the visit stores (`on`, the key of a branch, `skipped` or `exited`), and `reason` is a code, or
    None.
    """

    to: str
    until: int = 0
    outcome: str = ""
    reason: str | None = None


CONTINUE = StepResult("on", outcome="on")


def take(branch: str, reason: str | None = None) -> StepResult:
    """Return the result for a run that continues with the branch with this key; `reason` is a code, or None."""
    return StepResult(branch, outcome=branch, reason=reason)


YES, NO = take("yes"), take("no")


def wait_until(until: int) -> StepResult:
    """Return the result for a run that stays at its step until a time in Unix milliseconds."""
    return StepResult("wait", until)


def skip(reason: str) -> StepResult:
    """Return the result for a run whose step did nothing; `reason` is a code, and the run continues."""
    return StepResult("on", outcome="skipped", reason=reason)


def leave(reason: str) -> StepResult:
    """Return the result for a run that ends at its step; `reason` is the exit reason that the run stores."""
    return StepResult("exit", outcome="exited", reason=reason)


class SimulationRules(NamedTuple):
    """How runs of a simulation differ from real ones.

    With `has_own_times`, the time of each run is that at which it was due, not that of its batch. With a `seed`, random
    splits depend on contact and start instead of the run, so that two versions of a flow give a contact the same
    branch. `branches` are the keys of the branches that a user chose for random splits, by step id.
    """

    has_own_times: bool = False
    seed: int | None = None
    branches: Mapping[int, str] = MappingProxyType({})


NO_RULES = SimulationRules()


class StepContext(NamedTuple):
    """The flow, its version and the current time in Unix milliseconds, for all runs of one execution of a step.

    `notices` is the number of emails to users of the account, by step id, that were queued in visits that are not
    stored yet. `repeats` says whether runs of the version can come to a step again. `rules` are those of a simulation.
    """

    account_id: int
    flow_id: int
    flow_name: str
    version: int
    now: int
    notices: Counter[int]
    repeats: bool = False
    rules: SimulationRules = NO_RULES

    def get_time(self, run: ActiveRun) -> int:
        """Return the time of a run in Unix milliseconds: the current time, or with `has_own_times` its due time.

        In such a simulation, a run that has waited continues 1 ms after its due time. Otherwise a second wait for the
        same time of day would end at once, and not after a day as in reality.
        """
        return run.due_at + (run.step_visit_id is not None) if self.rules.has_own_times else self.now

    def get_random_key(self, run: ActiveRun) -> int:
        """Return the number by which a random split chooses the branch of a run."""
        if self.rules.seed is None:
            return run.id
        text = f"{self.rules.seed}:{run.contact_id}:{run.started_at}"
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=6).digest())


class StepField(NamedTuple):
    """A field of a step, for forms and for `/flows/spec`; its label and help are marked for translation."""

    name: str
    label: str
    type: str  # text, line, duration, filters, boolean, object, design, list, event, channel, choice, time, ...
    required: bool = False
    help: str = ""
    # For a `choice`: (value, label), with labels marked for translation
    options: tuple[tuple[str, str], ...] = ()
    # The values of `until` or `via` with which the field applies; empty if it always does
    applies_to: tuple[str, ...] = ()
    default: Any = None

    def applies(self, choice: str) -> bool:
        """Return whether the field applies to a step whose `until` or `via` has this value."""
        return not self.applies_to or choice in self.applies_to


class ParseContext(NamedTuple):
    """The account, the path of the step in the request, and the errors so far, for parsing a step.

    `new_id` returns an id that was never used in the flow, and `previous` is the stored step with the same id, if any.
    """

    account_id: int
    path: str
    faults: Faults
    new_id: Callable[[], int]
    previous: Mapping[str, Any] | None = None

    def at(self, key: str) -> "ParseContext":
        """Return the context for the part of the step at a key."""
        return self._replace(path=f"{self.path}.{key}")

    def add_fault(self, key: str, message: str) -> None:
        """Add an error at a key of the step, or at the step itself if the key is empty."""
        self.faults.add(f"{self.path}.{key}" if key else self.path, message)


def read_event_name(value: Any, key: str, context: ParseContext) -> Any:
    """Return the name of an event of the account or of the service; for any other value, add an error at `key`."""
    if value is None:
        context.add_fault(key, gettext("can't be blank"))
    elif not isinstance(value, str):
        context.add_fault(key, gettext("is invalid"))
    elif value not in log.RESERVED_NAMES and (error := log.find_name_error(value)):
        context.add_fault(key, error)
    return value


class StepKind(ABC):
    """A kind of step: how its steps are parsed, shown and executed; its label is marked for translation."""

    type: ClassVar[str]
    label: ClassVar[str]
    icon: ClassVar[str]
    # A step without `type` is of this kind if it has any of these keys. If a kind has none, its steps must have a
    # `type`.
    claims: ClassVar[frozenset[str]] = frozenset()
    # All keys of its steps except `id`, `type` and `branch_keys`.
    keys: ClassVar[frozenset[str]] = frozenset()
    # The keys of the branches of its steps (`flows.branches`); empty if these have no branches
    branch_keys: ClassVar[tuple[str, ...]] = ()
    # Whether steps of this kind are waits. Then the contacts in them are counted, and simulations report when a wait
    # begins.
    waits: ClassVar[bool] = False
    # The number of runs that are executed before the engine checks the time; 0 if any number is fast
    batch_size: ClassVar[int] = 0
    fields: ClassVar[tuple[StepField, ...]] = ()

    @abstractmethod
    def parse(self, raw: dict[str, Any], context: ParseContext) -> dict[str, Any]:
        """Return the stored props of a raw step, which has only `keys`; add every error to `context`."""

    def dump(self, props: dict[str, Any]) -> dict[str, Any]:
        """Return the props of a stored step as keys of a request; sending these changes nothing."""
        return dict(props)

    def list_branches(self, props: dict[str, Any]) -> dict[str, str]:
        """Return the label of each branch of a step with these props, by its key; empty for a step without branches."""
        return {"yes": gettext("Yes"), "no": gettext("No")} if self.branch_keys else {}

    def list_outcomes(self, props: dict[str, Any]) -> dict[str, str]:
        """Return the labels of the outcomes that show where a run went: by default those of the branches."""
        return self.list_branches(props)

    def list_filters(self, props: dict[str, Any]) -> list[Any]:
        """Return the filters, as sent, with which a step with these props compares contacts and events."""
        return list(props.get("filters") or [])

    def get_disclosures(self, props: dict[str, Any]) -> dict[str, Any]:
        """Return which data of contacts or events a step with these props discloses; empty if it discloses none.

        The runs of a flow show, for example, which contacts match a filter. So only a key that may read contacts can
        add such a step.
        """
        filters = self.list_filters(props)
        return {"filters": filters} if filters else {}

    def list_missing(self, props: dict[str, Any], account_id: int) -> list[tuple[str, str]]:
        """Return (key, message) for each error that keeps a flow with this step from being activated."""
        return []

    @abstractmethod
    def run(self, node: Node, runs: Sequence[ActiveRun], context: StepContext) -> list[StepResult]:
        """Execute a step for runs that are at it, in the current transaction; return a result for each, in order."""

    def get_request(self, props: dict[str, Any], account_id: int) -> RequestSpec:
        """Return the HTTP request of a step with these props; only for kinds that make requests.

        Raises UnusableRequest if its secrets cannot be decrypted.
        """
        raise NotImplementedError(self.type)

    def simulate(self, node: Node, run: ActiveRun, result: StepResult, context: StepContext) -> dict[str, Any]:
        """Return details for the timeline entry of a simulated step.

        The key `filters` has a `simulation_timeline.SplitReason` for each filter that the step tested; all other keys
        become the entry's `data`.
        """
        return {}

    @abstractmethod
    def summary(self, props: dict[str, Any], account_id: int) -> str:
        """Return a short text that says what a step with these props does."""

    def name(self, props: dict[str, Any], account_id: int) -> str:
        """Return the name of a step with these props within a sentence: its kind with its title, or what it does."""
        return gettext("“%(text)s”", text=self.summary(props, account_id))


# SQL for marketing messages: the order in which the contact's channel `x` is chosen, sendable channels first, and the
# skip reason of the chosen channel `h`
_MARKETING = (
    "(x.subscribed = 1 AND x.suppression IS NULL)",
    "CASE WHEN h.id IS NULL THEN 'no_channel' "
    "WHEN h.suppression IS NOT NULL THEN 'suppressed_' || h.suppression "
    "WHEN h.subscribed = 0 AND h.opt_out_at IS NOT NULL THEN 'unsubscribed' "
    "WHEN h.subscribed = 0 THEN 'no_consent' "
    "WHEN h.verified_at IS NULL AND :double THEN 'not_verified' END",
)
# The same for transactional messages, which need no consent; a subscribed address still comes first
_TRANSACTIONAL = (
    "(x.suppression IS NULL) * 2 + x.subscribed",
    "CASE WHEN h.id IS NULL THEN 'no_channel' WHEN h.suppression IS NOT NULL THEN 'suppressed_' || h.suppression END",
)
_INSERT_MESSAGES = (
    "INSERT INTO message (account_id, contact_id, flow_id, run_id, step_id, template_id, channel, recipient, "
    "recipient_key, sender, reply_to, status, skip_reason, source_type, transactional, test, provider, attempts, "
    "uncertain_count, due_at, created_at, updated_at, round) "
    "SELECT :account, contact, :flow, run, :step, :template, :channel, value, key, :sender, :reply_to, "
    "CASE WHEN why IS NOT NULL THEN 'skipped' WHEN :quiet IS NOT NULL AND NOT test THEN 'held' ELSE 'queued' END, "
    "why, 'flow', :transactional, test, CASE WHEN test THEN 'capture' ELSE :provider END, 0, 0, "
    "CASE WHEN why IS NULL THEN CASE WHEN test THEN :due ELSE coalesce(:quiet, :due) END END, :now, :now, round "
    "FROM (SELECT r.id AS run, r.contact_id AS contact, r.test AS test, h.value, h.key, {round} AS round, "
    "coalesce({reason}, :unavailable) AS why FROM run r LEFT JOIN channel h ON h.id = (SELECT x.id FROM channel x "
    "WHERE x.contact_id = r.contact_id AND x.kind = :kind ORDER BY {best} DESC, x.id LIMIT 1) "
    "WHERE r.id IN (SELECT value FROM json_each(:runs)) ORDER BY r.id) WHERE true "
    "ON CONFLICT (run_id, step_id, round) WHERE run_id IS NOT NULL DO NOTHING "
    "RETURNING run_id, id, contact_id, skip_reason, test"
)
# SQL for the number of earlier visits of the step by a run, each of which has created a message
_ROUND = "(SELECT count(*) FROM step_visit v WHERE v.run_id = r.id AND v.action_id = :step AND v.left_at IS NOT NULL)"
_SELECT_STEP = (
    "SELECT s.template_id, s.pinned, a.time_zone, a.transactional_allowed, json_extract(f.data, '$.quiet_hours') "
    "FROM step s JOIN flow f ON f.id = s.flow_id JOIN account a ON a.id = f.account_id "
    "WHERE s.flow_id = ? AND s.version = ? AND s.action_id = ?"
)


def create_messages(channel: str, node: Node, runs: Sequence[ActiveRun], context: StepContext) -> list[StepResult]:
    """Create the message of a step for each run that has none of this visit; return the results in order.

    If the contact may not get the message, a skipped message is created, and the result of the run has the skip reason.
    Messages beyond a limit of the account wait until the next day or month. Raises ValueError for a step without
    content.
    """
    require_write_transaction()
    values = _get_common_values(channel, node, context)
    best, reason = _TRANSACTIONAL if values["transactional"] else _MARKETING
    values["runs"] = json.dumps([run.id for run in runs])
    held_until = limits.find_hold(context.account_id, sum(not run.test for run in runs))
    values["quiet"] = max(filter(None, (values["quiet"], held_until)), default=None)
    message_rows = rows(
        _INSERT_MESSAGES.format(best=best, reason=reason, round=_ROUND if context.repeats else "0"), values
    )
    skipped_rows = [row for row in message_rows if row[3] is not None]
    limits.note_messages(context.account_id, sum(row[3] is None and not row[4] for row in message_rows))
    log.record_many([_build_skip_event(channel, row, node, context) for row in skipped_rows])
    if len(skipped_rows) < len(message_rows):
        after_commit(lambda: signals.wake("outbox"))
    reasons = {row[0]: row[3] for row in skipped_rows}
    return [skip(reasons[run.id]) if run.id in reasons else CONTINUE for run in runs]


def _get_common_values(channel: str, node: Node, context: StepContext) -> dict[str, Any]:
    """Return the SQL values that all messages of a step share; raises ValueError for a step without content."""
    row = fetch_one(_SELECT_STEP, (context.flow_id, context.version, node.id))
    if row is None or row[1] is None:
        raise ValueError(gettext("the step has no content"))
    template_id, pinned, zone, allowed, quiet_hours = row
    message = msgspec.json.decode(pinned)
    now, transactional = clock.now_ms(), bool(message["transactional"])
    settings = config.current()
    return {
        "account": context.account_id, "flow": context.flow_id, "step": node.id, "template": template_id,
        "channel": channel, "kind": "phone" if channel == "sms" else "email", "transactional": transactional,
        # The sender of an SMS depends on the recipient's country, and is chosen when the SMS is sent.
        "sender": None if channel == "sms" else message["sender"]["email"],
        "reply_to": None if channel == "sms" else message["sender"]["reply_to"],
        "double": message["double_opt_in"],
        "provider": settings.sms.transport if channel == "sms" else settings.email.transport,
        "quiet": (
            sms_rules.get_quiet_end(msgspec.json.decode(quiet_hours), zone, now)
            if quiet_hours and not transactional else None
        ),
        # The account may have disabled transactional messages after the flow was activated.
        "unavailable": "transactional_disabled" if transactional and not allowed else None,
        "due": FLOWS_DUE_NOW, "now": now,
    }  # fmt: skip


def _build_skip_event(channel: str, row: tuple[Any, ...], node: Node, context: StepContext) -> NewEvent:
    _, message_id, contact_id, reason, test = row
    return NewEvent(
        context.account_id, f"{channel}_skipped", contact_id,
        {"message_id": message_id, "campaign_id": None, "flow_id": context.flow_id, "step_id": node.id,
         "reason": reason},
        resource_uid=f"message:{message_id}", resource_name=context.flow_name, test=bool(test),
    )  # fmt: skip


# The content fields in the template of a step, in the order in which they are shown.
MESSAGE_FIELDS = ("subject", "preheader", "from_name", "from_email", "reply_to", "body", "design")
SERVICE_MESSAGES_OFF = gettext_noop("transactional messages are turned off for this account")


UTM_FIELD = StepField(
    "utm", gettext_noop("UTM parameters"), "utm",
    help=gettext_noop("One per line, such as source: newsletter. Leave empty to use those of the account."),
)  # fmt: skip


class _UtmField(Struct):
    utm: UtmWrite | None | UnsetType = UNSET


class MessageStep(StepKind):
    """Base class of steps that send a message.

    The stored props are `template_id`, `transactional` and, if the step has its own UTM parameters, `utm`. Parsed props
    also have `content`, the content fields of the request; absent fields keep their value in the template.
    """

    content_type: ClassVar[type[Struct]] = Content

    def parse(self, raw: dict[str, Any], context: ParseContext) -> dict[str, Any]:
        """Parse the content fields, `transactional` and `template_id`.

        Invalid content has the same errors as in a request for a template.
        """
        content = self._content(
            {name: raw[name] for name in MESSAGE_FIELDS if name in self.keys and name in raw}, context
        )
        self.check(content, context)
        transactional = raw.get("transactional")
        if transactional not in (None, True):
            context.add_fault("transactional", "is invalid")
        if transactional and not _is_allowed(context.account_id):
            context.add_fault("transactional", gettext(SERVICE_MESSAGES_OFF))
        own_utm = self._read_utm(raw, context)
        template_id = raw.get("template_id")
        if template_id is not None and not _template_exists(context.account_id, template_id):
            context.add_fault("template_id", "must exist")
        parsed = {"template_id": template_id, "transactional": transactional is True, "content": sent_fields(content)}
        return parsed if own_utm is None else parsed | {"utm": own_utm}

    def _read_utm(self, raw: dict[str, Any], context: ParseContext) -> dict[str, str] | None:
        """Return the UTM parameters of the step in their stored form, or None for those of the account."""
        if raw.get("utm") is None:
            return None
        request = read_partial(_UtmField, {"utm": raw["utm"]}, context.path)
        context.faults.merge(request.faults.fields)
        settings = request.value.utm
        if not isinstance(settings, UtmWrite):
            return None
        utm.validate(settings, f"{context.path}.utm.", context.faults)
        return utm.to_stored(settings)

    def _content(self, raw: dict[str, Any], context: ParseContext) -> Content:
        parsed = read_partial(self.content_type, raw, context.path)
        context.faults.merge(parsed.faults.fields)
        return convert(sent_fields(parsed.value), Content)

    def check(self, content: Content, context: ParseContext) -> None:
        """Add every error of the content to `context`; subclasses replace the rules."""
        validation.validate_content(context.account_id, content, f"{context.path}.", context.faults)

    def dump(self, props: dict[str, Any]) -> dict[str, Any]:
        """Return the content fields that are not empty, `transactional` if it is true, and `template_id`."""
        content = get_content(props)
        dumped = {name: content[name] for name in MESSAGE_FIELDS if name in self.keys and content.get(name)}
        if not has_sections(content):
            dumped.pop("design", None)
        if props.get("transactional"):
            dumped["transactional"] = True
        if props.get("utm") is not None:
            dumped["utm"] = {name: props["utm"].get(name) for name in utm.NAMES}
        return dumped | {"template_id": props.get("template_id")}

    def list_missing(self, props: dict[str, Any], account_id: int) -> list[tuple[str, str]]:
        """Return (key, message) for missing content, and for a transactional message if the account forbids these."""
        missing = self.list_missing_content(get_content(props))
        if props.get("transactional") and not _is_allowed(account_id):
            missing.append(("transactional", gettext(SERVICE_MESSAGES_OFF)))
        return missing

    def run(self, node: Node, runs: Sequence[ActiveRun], context: StepContext) -> list[StepResult]:
        """Create a message in the ledger for each run; all runs continue, also those whose message is skipped."""
        return create_messages(self.type, node, runs, context)

    @abstractmethod
    def list_missing_content(self, content: dict[str, Any]) -> list[tuple[str, str]]:
        """Return (key, message) for each required field that is missing in the content."""


def get_content(props: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a step: `content` of its props if it has that, else the fields of its template."""
    if "content" in props:
        return dict(props["content"])
    template = Template.get_or_none(Template.id == props.get("template_id"))
    return {} if template is None else {name: getattr(template, name) for name in MESSAGE_FIELDS}


def has_sections(content: dict[str, Any]) -> bool:
    """Return whether the content has a design that contains sections or sets a theme."""
    design = content.get("design")
    return isinstance(design, dict) and bool(design.get("sections") or design.get("theme"))


def _is_allowed(account_id: int) -> bool:
    return bool(Account.get_by_id(account_id).transactional_allowed)


def _template_exists(account_id: int, template_id: Any) -> bool:
    if type(template_id) is not int or not 0 < template_id < 2**63:
        return False
    return bool(Template.select().where(Template.account == account_id, Template.id == template_id).exists())


# A function that returns the stored props of an item of `branches`. It adds errors at a path below that of the item,
# which is the path of `context`.
ItemReader = Callable[[dict[str, Any], ParseContext], dict[str, Any]]


def read_branches(
    value: Any, context: ParseContext, keys: frozenset[str], read_item: ItemReader, sizes: range
) -> list[dict[str, Any]]:
    """Parse `branches` of a request and return the stored items, without their steps; add every error to `context`.

    `keys` are the props of an item, and `sizes` the allowed numbers of items. A branch with the `key` of a branch of
    the stored step keeps this key. All others get new keys, because a key is never used twice in a flow.
    """
    if value is None:
        value = []
    if not isinstance(value, list):
        context.add_fault(LISTED_KEY, gettext("is invalid"))
        return []
    if len(value) not in sizes:
        error = gettext("must have between %(min)s and %(max)s items", min=sizes[0], max=sizes[-1])
        context.add_fault(LISTED_KEY, error)
    free_keys = {item["key"] for item in (context.previous or {}).get(LISTED_KEY, ())}
    return [item for item in _read_items(value, context, keys, read_item, free_keys) if item is not None]


def _read_items(
    items: list[Any], context: ParseContext, keys: frozenset[str], read_item: ItemReader, free_keys: set[str]
) -> Iterator[dict[str, Any] | None]:
    for index, item in enumerate(items):
        path = f"{LISTED_KEY}[{index}]"
        if not isinstance(item, dict):
            context.add_fault(path, gettext("is invalid"))
            continue
        for name in item.keys() - keys - {"key", STEPS_KEY}:
            printable = name.encode("utf-8", "replace").decode().replace("\x00", "?")[:_MAX_KEY_CHARACTERS]
            context.add_fault(f"{path}.{printable}", gettext("is not a known field"))
        key = item.get("key")
        if key is not None and not isinstance(key, str):
            context.add_fault(f"{path}.key", gettext("is invalid"))
        if isinstance(key, str) and key in free_keys:
            free_keys.discard(key)
        else:
            key = f"b{context.new_id()}"
        yield {"key": key, **read_item(item, context.at(path))}

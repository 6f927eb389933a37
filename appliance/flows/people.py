"""The people of a flow: runs by where they stand and how they left, and one run with all that happened to it."""

from array import array
from typing import Any, Literal, NamedTuple

from msgspec import UNSET, UnsetType

from appliance.audience.contacts import store as contacts
from appliance.core import clock
from appliance.core.errors import Faults, NotFound
from appliance.core.fields import ContactId, DayOrWhen, PageQuery, Short
from appliance.core.pagination import Page
from appliance.flows import report
from appliance.sending.messages.ledger import Status
from appliance.storage.models import Account, Flow, Passage, Run, Step
from appliance.storage.models.message import OPEN
from appliance.storage.open import rows, scalar

RunStatus = Literal["live", "completed", "exited", "ignored"]
Outcome = Literal["waiting", "went_on", "on", "yes", "no", "skipped", "exited"]
Messages = Literal["any", "pending", "accepted", "opened", "clicked"] | Status
_FARTHEST = 2**53
_HAPPENED = "('live', 'completed', 'exited')"
_OUTCOMES = {
    "waiting": "p.outcome IS NULL",
    "went_on": "p.outcome IN ('on', 'yes', 'no', 'skipped')",
}
_MESSAGES = {
    "any": "1",
    "pending": f"m.status IN {OPEN}",
    "accepted": "m.status IN ('sent', 'delivered', 'bounced', 'complained')",
    "opened": "m.opened_at IS NOT NULL",
    "clicked": "m.clicked_at IS NOT NULL",
}


class RunQuery(PageQuery):
    """Filters of the runs of a flow; they add up.

    `outcome` and `message` are about a `step`; `reason` is why its people were skipped, left it or got no message, or
    without a step why runs ended (empty: for none). `since` is when they came, to the step if there is one.
    """

    status: RunStatus | UnsetType = UNSET
    step: int | UnsetType = UNSET
    outcome: Outcome | UnsetType = UNSET
    message: Messages | UnsetType = UNSET
    reason: Short | UnsetType = UNSET
    contact_id: ContactId | UnsetType = UNSET
    test: bool | UnsetType = UNSET
    since: DayOrWhen | UnsetType = UNSET


def flow_of(account_id: int, flow_id: int) -> Flow:
    """Return a flow that people may look at; raises NotFound."""
    found = Flow.get_or_none(
        Flow.account == account_id, Flow.id == flow_id, ~Flow.hidden, Flow.deleted_at.is_null()
    )  # fmt: skip
    if found is None:
        raise NotFound
    return found


class _Asked(NamedTuple):
    """A statement's FROM, conditions and order; the columns that name a run and when it came; the parameters."""

    tables: str
    where: list[str]
    order: str
    run_id: str
    came: str
    values: dict[str, Any]

    @property
    def alias(self) -> str:
        """The table whose rows are listed."""
        return self.run_id.partition(".")[0]

    def add(self, value: Any, condition: str, name: str) -> None:
        """Add a condition with its parameter, if there is a value."""
        if value is not UNSET:
            self.where.append(condition)
            self.values[name] = value


def page(account_id: int, flow_id: int, query: RunQuery) -> Page:
    """List runs of a flow, newest first; of a step in the order in which people came to it. Raises NotFound, Invalid.

    Triggers that started nothing are runs too, and listed only as `ignored`.
    """
    return _paged(_asked(account_id, flow_id, query), query)


def ids(account_id: int, flow_id: int, query: RunQuery) -> "array[int]":
    """Return all runs of a flow that a query names, in the order of the list; raises NotFound, Invalid."""
    asked = _asked(account_id, flow_id, query)
    sql = f"SELECT {asked.run_id} FROM {asked.tables} WHERE {' AND '.join(asked.where)} ORDER BY {asked.order}"
    return array("q", (row[0] for row in rows(sql, asked.values)))


def _asked(account_id: int, flow_id: int, query: RunQuery) -> _Asked:
    flow_of(account_id, flow_id)
    since = _check(account_id, query)
    if query.message is not UNSET:
        asked = _by_message(query)
    elif query.step is not UNSET:
        asked = _by_step(query)
    else:
        asked = _Asked("run r", ["r.flow_id = :flow"], "r.created_at DESC, r.id DESC", "r.id", "created_at", {})
        asked.add(query.reason, "r.exit_reason IS NOT DISTINCT FROM nullif(:reason, '')", "reason")
    asked.values["flow"] = flow_id
    asked.add(query.test, f"{asked.alias}.test = :test", "test")
    asked.add(since, f"{asked.alias}.{asked.came} >= :since", "since")
    _runs(query, asked)
    return asked


def _check(account_id: int, query: RunQuery) -> int | UnsetType:
    """Raise Invalid for filters that do not go together; answers since when."""
    faults = Faults()
    since: int | UnsetType = UNSET
    if isinstance(query.since, str):
        try:
            since = clock.parse_or_day(query.since, Account.get_by_id(account_id).time_zone)
        except (ValueError, OverflowError):
            faults.add("since", "is invalid")
    for name in ("outcome", "message"):
        if getattr(query, name) is not UNSET and query.step is UNSET:
            faults.add("step", "can't be blank")
    if query.outcome is not UNSET and query.message is not UNSET:
        faults.add("message", "is invalid")
    faults.check()
    return since


def _paged(asked: _Asked, query: PageQuery) -> Page:
    source = f"FROM {asked.tables} WHERE {' AND '.join(asked.where)}"
    total = int(scalar(f"SELECT count(*) {source}", asked.values))
    offset = min((query.page - 1) * query.size(), _FARTHEST)
    ids = []
    if offset < total:
        ids = [row[0] for row in rows(
            f"SELECT {asked.run_id} {source} ORDER BY {asked.order} LIMIT :limit OFFSET :offset",
            {**asked.values, "limit": query.size(), "offset": offset},
        )]  # fmt: skip
    return Page(by_ids(ids), total, query.page, query.size())


def _by_step(query: RunQuery) -> _Asked:
    asked = _Asked(
        "passage p", ["p.flow_id = :flow", "p.action_id = :step"], "p.entered_at DESC, p.id DESC", "p.run_id",
        "entered_at", {"step": query.step},
    )  # fmt: skip
    if isinstance(query.outcome, str):
        asked.add(query.outcome, _OUTCOMES.get(query.outcome, "p.outcome = :outcome"), "outcome")
    asked.add(query.reason, "p.reason IS NOT DISTINCT FROM nullif(:reason, '')", "reason")
    return asked


def _by_message(query: RunQuery) -> _Asked:
    asked = _Asked(
        "message m INDEXED BY message_of_flow", ["m.flow_id = :flow", "m.step_id = :step", "m.run_id IS NOT NULL"],
        "m.created_at DESC, m.id DESC", "m.run_id", "created_at", {"step": query.step},
    )  # fmt: skip
    asked.add(query.message, _MESSAGES.get(str(query.message), "m.status = :message"), "message")
    asked.add(query.reason, "m.skip_reason IS NOT DISTINCT FROM nullif(:reason, '')", "reason")
    return asked


def _runs(query: RunQuery, asked: _Asked) -> None:
    """Add the filters that are about the run itself, whatever leads to it."""
    mine = _Asked("run r", [], "", "r.id", "", asked.values)
    mine.add(query.status, "r.status = :status", "status")
    mine.add(query.contact_id, "r.contact_id = :contact", "contact")
    if asked.alias == "r":
        asked.where.extend(mine.where if query.status is not UNSET else [*mine.where, f"r.status IN {_HAPPENED}"])
    elif mine.where:
        asked.where.append(f"EXISTS (SELECT 1 FROM run r WHERE r.id = {asked.run_id} AND {' AND '.join(mine.where)})")


class ContactRunQuery(PageQuery):
    """Filter of the flows that a contact is or was in."""

    status: RunStatus | UnsetType = UNSET


def of_contact(account_id: int, contact_id: int, query: ContactRunQuery) -> Page:
    """List the runs of a contact through all flows that there are, newest first; raises NotFound."""
    contacts.get(account_id, contact_id)
    asked = _Asked(
        "run r",
        ["r.contact_id = :contact", "EXISTS (SELECT 1 FROM flow f WHERE f.id = r.flow_id AND f.deleted_at IS NULL)"],
        "r.created_at DESC, r.id DESC", "r.id", "created_at", {"contact": contact_id},
    )  # fmt: skip
    asked.add(query.status, "r.status = :status", "status")
    if query.status is UNSET:
        asked.where.append(f"r.status IN {_HAPPENED}")
    return _paged(asked, query)


def by_ids(ids: list[int]) -> list[Run]:
    """Load runs in the order of the ids given, each with the name of its flow as `flow_name`."""
    found = {row.id: row for row in Run.select().where(Run.id.in_(ids))} if ids else {}
    flows = Flow.select(Flow.id, Flow.name).where(Flow.id.in_({row.flow_id for row in found.values()}))
    names = {flow.id: flow.name for flow in flows} if found else {}
    for row in found.values():
        row.flow_name = names[row.flow_id]
    return [found[one] for one in ids if one in found]


def get(account_id: int, flow_id: int, run_id: int) -> Run:
    """Return a run of a flow; raises NotFound."""
    flow_of(account_id, flow_id)
    found = by_ids([run_id])
    if not found or found[0].flow_id != flow_id:
        raise NotFound
    return found[0]


class Passed(NamedTuple):
    """A step that a run came to, what it is, and the message that it wrote there, if it did."""

    passage: Passage
    type: str
    summary: str
    message_id: int | None
    message_status: str | None


def history(run: Run) -> list[Passed]:
    """Return the steps that a run came to, in their order, as they were in the version that it goes through."""
    steps = {row.action_id: row for row in Step.select().where(Step.flow == run.flow_id, Step.version == run.version)}
    wrote = {
        step_id: (number, status)
        for step_id, number, status in rows("SELECT step_id, id, status FROM message WHERE run_id = ?", (run.id,))
    }
    found = []
    for passage in Passage.select().where(Passage.run == run.id).order_by(Passage.id):
        step = steps.get(passage.action_id)
        words = report.summary(run.account_id, {**step.data, "type": step.kind}) if step else ""
        found.append(Passed(passage, step.kind if step else "", words, *wrote.get(passage.action_id, (None, None))))
    return found

"""The runs of a flow: listing them and the steps they visited, skipping their wait, and removing them from the flow."""

import json
from array import array
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.accounts import audit
from appliance.accounts.audit import Actor
from appliance.audience.contacts import store as contacts
from appliance.core import clock, signals
from appliance.core.errors import CurrentState, Faults, NotAllowed, NotFound, Transition, refuse_transition
from appliance.core.i18n import gettext, gettext_noop
from appliance.core.validation import ContactId, DayOrWhen, Id, PageQuery, Short
from appliance.flows import document, report, run_ends, store
from appliance.flows.branches import BRANCH_KEY
from appliance.flows.steps import BY_TYPE
from appliance.sending.messages.ledger import Status
from appliance.storage.database import Page, connection, rows, scalar
from appliance.storage.models import Account, Flow, Run, Step, StepVisit
from appliance.storage.models.message import OPEN
from appliance.storage.transactions import after_commit, require_write_transaction

RunStatus = Literal["live", "completed", "exited", "ignored"]
Outcome = Annotated[str, Meta(pattern=f"^(waiting|went_on|on|jumped|skipped|exited|{BRANCH_KEY})$")]
MessageFilter = Literal["any", "pending", "accepted", "opened", "clicked"] | Status
_MAX_OFFSET = 2**53
_STARTED_STATUSES = "('live', 'completed', 'exited')"
_OUTCOME_CONDITIONS = {
    "waiting": "p.outcome IS NULL",
    "went_on": "p.outcome <> 'exited'",
}
_MESSAGE_CONDITIONS = {
    "any": "1",
    "pending": f"m.status IN {OPEN}",
    "accepted": "m.status IN ('sent', 'delivered', 'bounced', 'complained')",
    "opened": "m.opened_at IS NOT NULL",
    "clicked": "m.clicked_at IS NOT NULL",
}


class RunQuery(PageQuery):
    """Filters of the runs of a flow; a run must match all of them.

    `outcome` and `message` need a `step`. What `reason` means depends on the other filters: without `step` why the run
    ended, with `step` why the step was skipped or left, and with `message` why the message was skipped. An empty
    `reason` selects runs without one.
    """

    status: Annotated[RunStatus, Meta(description="only those with this status")] | UnsetType = UNSET
    step: Annotated[int, Meta(description="only runs that reached this step")] | UnsetType = UNSET
    outcome: (
        Annotated[Outcome, Meta(description="with `step`: only runs that left it with this outcome, or wait there")]
        | UnsetType
    ) = UNSET
    message: (
        Annotated[MessageFilter, Meta(description="with `step`: only runs whose message from it has this status")]
        | UnsetType
    ) = UNSET
    reason: (
        Annotated[
            Short,
            Meta(
                description="with `step`: why it was skipped or left; otherwise why the run ended; empty for no reason"
            ),
        ]
        | UnsetType
    ) = UNSET
    contact_id: Annotated[ContactId, Meta(description="only those of this contact")] | UnsetType = UNSET
    test: Annotated[bool, Meta(description="true: only tests; false: no tests")] | UnsetType = UNSET
    since: (
        Annotated[
            DayOrWhen,
            Meta(description="only runs that started at or after this time, or reached the step, if one is given"),
        ]
        | UnsetType
    ) = UNSET


class _RunSelect(NamedTuple):
    """The parts of a SELECT: FROM, WHERE conditions, ORDER BY, and parameters.

    `run_id` is the column of the run id with its table alias, and `time_column` the column to which `since` applies.
    """

    tables: str
    where: list[str]
    order: str
    run_id: str
    time_column: str
    values: dict[str, Any]

    @property
    def alias(self) -> str:
        """Return the alias of the table whose rows are selected."""
        return self.run_id.partition(".")[0]

    def add(self, value: Any, condition: str, name: str) -> None:
        """Add a condition and its parameter `name`, unless the value is UNSET."""
        if value is not UNSET:
            self.where.append(condition)
            self.values[name] = value


def list_runs(account_id: int, flow_id: int, query: RunQuery) -> Page:
    """Return a page of the runs of a flow that match the query, newest first; with a step, by entry into that step.

    Ignored runs, which only record that an event started nothing, are listed only with the status `ignored`. Raises
    NotFound, or Invalid for filters that are invalid or cannot be combined.
    """
    return _fetch_page(_build_select(account_id, flow_id, query), query)


def list_run_ids(account_id: int, flow_id: int, query: RunQuery) -> "array[int]":
    """Return the ids of all runs that match the query, in the order of `list_runs`; raises the same errors."""
    select = _build_select(account_id, flow_id, query)
    sql = f"SELECT {select.run_id} FROM {select.tables} WHERE {' AND '.join(select.where)} ORDER BY {select.order}"
    return array("q", (row[0] for row in rows(sql, select.values)))


def _build_select(account_id: int, flow_id: int, query: RunQuery) -> _RunSelect:
    store.find(account_id, flow_id)
    since = _check_query(account_id, query)
    if query.message is not UNSET:
        select = _select_by_message(query)
    elif query.step is not UNSET:
        select = _select_by_step(query)
    else:
        select = _RunSelect("run r", ["r.flow_id = :flow"], "r.created_at DESC, r.id DESC", "r.id", "created_at", {})
        select.add(query.reason, "r.exit_reason IS NOT DISTINCT FROM nullif(:reason, '')", "reason")
    select.values["flow"] = flow_id
    select.add(query.test, f"{select.alias}.test = :test", "test")
    select.add(since, f"{select.alias}.{select.time_column} >= :since", "since")
    _add_run_filters(query, select)
    return select


def _check_query(account_id: int, query: RunQuery) -> int | UnsetType:
    """Return the value of `since` in a query as Unix milliseconds, or UNSET.

    Raises Invalid if `since` is invalid or filters cannot be combined.
    """
    faults = Faults()
    since: int | UnsetType = UNSET
    if isinstance(query.since, str):
        try:
            since = clock.parse_day_or_time(query.since, Account.get_by_id(account_id).time_zone)
        except (ValueError, OverflowError):
            faults.add("since", gettext("is invalid"))
    for name in ("outcome", "message"):
        if getattr(query, name) is not UNSET and query.step is UNSET:
            faults.add("step", gettext("can't be blank"))
    if query.outcome is not UNSET and query.message is not UNSET:
        faults.add("message", gettext("is invalid"))
    faults.check()
    return since


def _fetch_page(select: _RunSelect, query: PageQuery) -> Page:
    source = f"FROM {select.tables} WHERE {' AND '.join(select.where)}"
    total = int(scalar(f"SELECT count(*) {source}", select.values))
    offset = min((query.page - 1) * query.size(), _MAX_OFFSET)
    ids = []
    if offset < total:
        ids = [row[0] for row in rows(
            f"SELECT {select.run_id} {source} ORDER BY {select.order} LIMIT :limit OFFSET :offset",
            {**select.values, "limit": query.size(), "offset": offset},
        )]  # fmt: skip
    return Page(load_runs(ids), total, query.page, query.size())


def _select_by_step(query: RunQuery) -> _RunSelect:
    select = _RunSelect(
        "step_visit p", ["p.flow_id = :flow", "p.action_id = :step"], "p.entered_at DESC, p.id DESC", "p.run_id",
        "entered_at", {"step": query.step},
    )  # fmt: skip
    if isinstance(query.outcome, str):
        select.add(query.outcome, _OUTCOME_CONDITIONS.get(query.outcome, "p.outcome = :outcome"), "outcome")
    select.add(query.reason, "p.reason IS NOT DISTINCT FROM nullif(:reason, '')", "reason")
    return select


def _select_by_message(query: RunQuery) -> _RunSelect:
    select = _RunSelect(
        "message m INDEXED BY message_of_flow", ["m.flow_id = :flow", "m.step_id = :step", "m.run_id IS NOT NULL"],
        "m.created_at DESC, m.id DESC", "m.run_id", "created_at", {"step": query.step},
    )  # fmt: skip
    select.add(query.message, _MESSAGE_CONDITIONS.get(str(query.message), "m.status = :message"), "message")
    select.add(query.reason, "m.skip_reason IS NOT DISTINCT FROM nullif(:reason, '')", "reason")
    return select


def _add_run_filters(query: RunQuery, select: _RunSelect) -> None:
    """Add the filters on the run itself, status and contact, to a select of any table."""
    run_select = _RunSelect("run r", [], "", "r.id", "", select.values)
    run_select.add(query.status, "r.status = :status", "status")
    run_select.add(query.contact_id, "r.contact_id = :contact", "contact")
    if select.alias == "r":
        select.where.extend(
            run_select.where if query.status is not UNSET else [*run_select.where, f"r.status IN {_STARTED_STATUSES}"]
        )
    elif run_select.where:
        select.where.append(
            f"EXISTS (SELECT 1 FROM run r WHERE r.id = {select.run_id} AND {' AND '.join(run_select.where)})"
        )


class ContactRunQuery(PageQuery):
    """Filters of the runs of a contact."""

    status: Annotated[RunStatus, Meta(description="only those with this status")] | UnsetType = UNSET


def list_contact_runs(account_id: int, contact_id: int, query: ContactRunQuery) -> Page:
    """Return a page of a contact's runs in all flows that are not deleted, newest first; raises NotFound.

    Ignored runs are listed only with the status `ignored`.
    """
    contacts.get(account_id, contact_id)
    select = _RunSelect(
        "run r",
        ["r.contact_id = :contact", "EXISTS (SELECT 1 FROM flow f WHERE f.id = r.flow_id AND f.deleted_at IS NULL)"],
        "r.created_at DESC, r.id DESC", "r.id", "created_at", {"contact": contact_id},
    )  # fmt: skip
    select.add(query.status, "r.status = :status", "status")
    if query.status is UNSET:
        select.where.append(f"r.status IN {_STARTED_STATUSES}")
    return _fetch_page(select, query)


def load_runs(ids: list[int]) -> list[Run]:
    """Return the runs with these ids, in the order of `ids`, each with the name of its flow as `flow_name`.

    Unknown ids are left out.
    """
    runs = {row.id: row for row in Run.select().where(Run.id.in_(ids))} if ids else {}
    flows = Flow.select(Flow.id, Flow.name).where(Flow.id.in_({row.flow_id for row in runs.values()}))
    names = {flow.id: flow.name for flow in flows} if runs else {}
    for row in runs.values():
        row.flow_name = names[row.flow_id]
    return [runs[run_id] for run_id in ids if run_id in runs]


def get_run(account_id: int, flow_id: int, run_id: int) -> Run:
    """Return a run of a flow; raises NotFound."""
    store.find(account_id, flow_id)
    runs = load_runs([run_id])
    if not runs or runs[0].flow_id != flow_id:
        raise NotFound
    return runs[0]


class VisitedStep(NamedTuple):
    """A run's visit of a step, with the type and summary of the step, and the label of the branch that the run took.

    These texts are empty if the run's version no longer has the step; `branch` is also empty if the run took none.
    `message_id` and `message_status` describe the message that the step created for the run, or are None.
    """

    visit: StepVisit
    type: str
    summary: str
    message_id: int | None
    message_status: str | None
    branch: str


def list_visited_steps(run: Run) -> list[VisitedStep]:
    """Return the steps that a run visited, in order of entry, as they are defined in the version of the run."""
    steps = {row.action_id: row for row in Step.select().where(Step.flow == run.flow_id, Step.version == run.version)}
    messages = {
        step_id: (number, status)
        for step_id, number, status in rows("SELECT step_id, id, status FROM message WHERE run_id = ?", (run.id,))
    }
    visited = []
    for visit in StepVisit.select().where(StepVisit.run == run.id).order_by(StepVisit.id):
        step = steps.get(visit.action_id)
        summary = report.summarize_step(run.account_id, {**step.data, "type": step.kind}) if step else ""
        branches = BY_TYPE[step.kind].list_outcomes(step.data) if step else {}
        visited.append(
            VisitedStep(
                visit, step.kind if step else "", summary, *messages.get(visit.action_id, (None, None)),
                branch=branches.get(visit.outcome or "", ""),
            )
        )  # fmt: skip
    return visited


RunAction = Literal["move_on", "take_out"]
# The number of runs that one transaction changes, so that other writers do not wait.
ACTION_BATCH_SIZE = 200
ACTIONS = {
    "move_on": Transition(
        gettext_noop("A flow run with the status %(status)s cannot be moved to the next step."), "live", ("live",)
    ),
    "take_out": Transition(
        gettext_noop("A flow run with the status %(status)s cannot be removed."), "exited", ("live",)
    ),
}
_IS_INSIDE = "flow_id = ? AND status = 'live'"


class RunSelection(Struct):
    """Runs to act on: either `run_ids`, or all runs that wait in a step."""

    run_ids: Annotated[list[Id], Meta(max_length=10_000), Meta(description="ids of the runs")] | None | UnsetType = (
        UNSET
    )
    step: (
        Annotated[Id, Meta(description="alternatively, the id of a step, for all runs that wait there")]
        | None
        | UnsetType
    ) = UNSET


class RunActionResult(Struct):
    """The result of an action on several runs."""

    changed: Annotated[int, Meta(description="number of changed runs")]
    unchanged: Annotated[list[int], Meta(description="ids in the request that are not active runs of this flow")]


def act_on_run(account_id: int, flow_id: int, run_id: int, action: RunAction, by: Actor) -> Run:
    """Perform an action on one run, record it in the audit log, and return the run.

    Raises NotFound, NotAllowed if a test key acts on a run that is not a test, or Invalid (`invalid_transition`) if the
    run has ended.
    """
    require_write_transaction()
    run = get_run(account_id, flow_id, run_id)
    if by.is_test and not run.test:
        raise NotAllowed(gettext("A test key can only act on test runs."))
    if run.status != "live":
        raise refuse_transition(CurrentState(run.status, [], []), action, ACTIONS[action])
    act_on_runs(flow_id, [run_id], action)
    audit.record(by, account_id, f"flow_run_{action}", f"run:{run_id}", {"flow_id": flow_id})
    return get_run(account_id, flow_id, run_id)


def resolve_runs(account_id: int, flow_id: int, request: RunSelection) -> list[int]:
    """Return the run ids that a request selects; ids that the request names are not checked.

    Raises the errors of `check_selection`.
    """
    check_selection(account_id, request, flow_id)
    if isinstance(request.run_ids, list):
        return list(dict.fromkeys(request.run_ids))
    return [row[0] for row in rows(
        "SELECT run_id FROM step_visit WHERE flow_id = ? AND action_id = ? AND outcome IS NULL ORDER BY run_id",
        (flow_id, request.step),
    )]  # fmt: skip


def check_selection(account_id: int, request: RunSelection, flow_id: int) -> None:
    """Raise Invalid unless a request has either `run_ids` or a current or former step of the flow.

    Raises NotFound if the account has no such flow.
    """
    flow, faults = store.find(account_id, flow_id), Faults()
    run_ids = request.run_ids if isinstance(request.run_ids, list) else None
    step = request.step if isinstance(request.step, int) else None
    if run_ids is None and step is None:
        faults.add("run_ids", gettext("can't be blank"))
    elif run_ids is not None and step is not None:
        faults.add("step", gettext("is invalid"))
    if step is not None and not _has_step(flow, step):
        faults.add("step", gettext("must exist"))
    faults.check()


def _has_step(flow: Flow, step_id: int) -> bool:
    """Return whether a flow has a step with this id, or had one that a contact visited."""
    if any(step["id"] == step_id for _, step in document.walk(flow.steps)):
        return True
    return bool(rows("SELECT 1 FROM step_visit WHERE flow_id = ? AND action_id = ? LIMIT 1", (flow.id, step_id)))


def act_on_runs(flow_id: int, run_ids: Sequence[int], action: RunAction, tests_only: bool = False) -> list[int]:
    """Perform an action on the live runs among `run_ids` and return their ids; with `tests_only` only on test runs.

    `move_on` makes them due, which ends any wait. A run that waits because of the limit of entries an hour gets a due
    time before its creation, by which `entry_caps.EntryGate` recognizes that it may begin although the limit is
    reached. `take_out` ends the runs and cancels their messages, except those that are being sent.
    """
    require_write_transaction()
    live_ids = [row[0] for row in rows(
        f"SELECT id FROM run WHERE {_IS_INSIDE} AND test >= ? AND id IN (SELECT value FROM json_each(?))",
        (flow_id, tests_only, json.dumps(list(run_ids))),
    )]  # fmt: skip
    ids_json, now = json.dumps(live_ids), clock.now_ms()
    if action == "move_on":
        # A wait ends when its run is due. In a paused flow the runs do not advance until the flow is resumed.
        connection().execute(
            "UPDATE run SET due_at = CASE WHEN step_visit_id IS NULL AND due_at > ?2 THEN created_at - 1 "
            "ELSE min(coalesce(due_at, ?2), ?2) END, updated_at = ?2 WHERE id IN "
            "(SELECT value FROM json_each(?1))",
            (ids_json, now),
        ).fetchall()
        after_commit(lambda: signals.wake("flows"))
        return live_ids
    run_ends.cancel_messages(live_ids, now)
    return run_ends.end_runs(live_ids, "exited", "taken_out", now)


def audit_bulk_action(account_id: int, flow_id: int, action: RunAction, count: int, by: Actor) -> None:
    """Record in the audit log an action on `count` runs of a flow."""
    audit.record(by, account_id, f"flow_runs_{action}", f"flow:{flow_id}", {"runs": count})

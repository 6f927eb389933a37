"""Proposals: an agent makes them, and a user approves them, which carries them out, or returns them with a note.

An approval names the version of the subject that the user has seen (`version`). If the subject has changed since, it is
refused with 409, and the user reviews the proposal again. The user who created the agent's key counts as the author of
its proposals (docs/decisions.md#25).
"""

from collections.abc import Collection
from contextlib import suppress
from typing import Annotated, Any, Literal, NamedTuple, cast

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.accounts import access, approvals, audit, members, users
from appliance.accounts.audit import Actor
from appliance.agents.audiences import describe_segments
from appliance.agents.differences import Difference, find_size_fault, shorten
from appliance.agents.kinds import BY_NAME, KINDS
from appliance.agents.kinds.base import EmailChange, ProposalKind, Reach, hash_version
from appliance.audience.segments.references import find_named_segments
from appliance.audience.segments.store import describe_audience
from appliance.core import addresses, clock, validation
from appliance.core.errors import Conflict, Faults, Invalid, NotAllowed, NotFound
from appliance.core.hidden_characters import clean_text
from appliance.core.i18n import get_language_tag, gettext, gettext_noop, use_language
from appliance.core.validation import PageQuery, default
from appliance.flows import replays
from appliance.flows.replays import PreparedReplay, ReplayRequest
from appliance.sending.messages import system_emails
from appliance.sending.messages.system_emails import SystemEmail
from appliance.settings import config
from appliance.storage.database import Page, paginate, scalar
from appliance.storage.models import Account, ApiKey, AppGrant, FlowReplay, Proposal
from appliance.storage.transactions import require_write_transaction

Kind = Literal["send_campaign", "start_flow", "change_flow", "change_segment", "change_template"]
State = Literal["open", "approved", "returned", "withdrawn"]
# The open proposals of one agent, and the bytes of the changes of a proposal as JSON.
MAX_OPEN, MAX_CHANGES_BYTES = 50, 524_288
REPLAYED_DAYS = 90
# A replay that covers the time until it was requested begins at most this long after that.
_MAX_START_MS = 60_000
CHANGED = gettext_noop("What is proposed has changed since you saw it. Look at it again before you decide.")
_DECIDED = gettext_noop("This proposal is no longer open.")
# For this time after an email about a proposal, no further one is sent: the page and the navigation show new proposals.
_MAIL_INTERVAL_MS = 15 * 60_000


class ProposalWrite(Struct):
    """A new proposal of an agent."""

    kind: Annotated[Kind, Meta(description="what is proposed")]
    subject_id: Annotated[validation.Id, Meta(description="id of the campaign, flow, segment or template")]
    changes: (
        Annotated[
            dict[str, Any],
            Meta(
                extra={"bytes": MAX_CHANGES_BYTES},
                description="of `send_campaign`: `scheduled_at`; of the kinds that change something: the body of its "
                "PATCH, without `status` and `updated_at`",
            ),
        ]
        | UnsetType
    ) = UNSET
    note: (
        Annotated[
            str, Meta(max_length=2_000), default(""), Meta(description="the reason, shown to the user who decides")
        ]
        | UnsetType
    ) = UNSET


class ApproveProposal(Struct):
    """The approval of a proposal as it was read."""

    version: Annotated[
        str, Meta(max_length=64, extra={"line": True, "filled": True}), Meta(description="`version` as last read")
    ]


class ReturnProposal(Struct):
    """The return of a proposal to its agent."""

    note: (
        Annotated[str, Meta(max_length=1_000), Meta(description="what to change, shown to the agent")]
        | None
        | UnsetType
    ) = UNSET


class ProposalQuery(PageQuery):
    """Filters and page of the list of proposals."""

    state: Annotated[State, Meta(description="only proposals in this state")] | UnsetType = UNSET
    kind: Annotated[Kind, Meta(description="only proposals of this kind")] | UnsetType = UNSET


class Review(NamedTuple):
    """What a user reads before deciding about a proposal."""

    version: str  # of the subject, now
    is_changed: bool  # whether the subject has changed since the proposal was made
    differences: list[Difference]
    reach: Reach
    cost: float | None  # of the SMS parts, at the price that a user last used in a replay of a flow


def get_key_id(by: Actor) -> int | None:
    """Return the id of an API key, or None for another actor."""
    return int(by.name.removeprefix("key:")) if by.name.startswith("key:") else None


def get(account_id: int, proposal_id: int, by: Actor, kinds: Collection[str] = tuple(BY_NAME)) -> Proposal:
    """Return a proposal of one of the kinds; an agent gets only its own. Raises NotFound."""
    rows = Proposal.select(Proposal, ApiKey).join(ApiKey)
    row: Proposal | None = rows.where(Proposal.account == account_id, Proposal.id == proposal_id).first()
    if row is None or row.kind not in kinds or (by.is_agent and row.key_id != get_key_id(by)):
        raise NotFound
    return row


def fetch_page(account_id: int, query: ProposalQuery, by: Actor, kinds: Collection[str] = tuple(BY_NAME)) -> Page:
    """Return a page of proposals of the kinds, newest first; an agent gets only its own."""
    matches = Proposal.select(Proposal, ApiKey).join(ApiKey).where(
        Proposal.account == account_id, Proposal.kind.in_(list(kinds))
    )  # fmt: skip
    if by.is_agent:
        matches = matches.where(Proposal.key == get_key_id(by))
    for name in ("state", "kind"):
        if isinstance(getattr(query, name), str):
            matches = matches.where(getattr(Proposal, name) == getattr(query, name))
    return paginate(matches.order_by(Proposal.created_at.desc(), Proposal.id.desc()), query.page, query.size())


def count_open(account_id: int) -> int:
    """Return the number of proposals that wait for a decision."""
    return int(scalar("SELECT count(*) FROM proposal WHERE account_id = ? AND state = 'open'", (account_id,)))


def count_for_navigation(account_id: int) -> int | None:
    """Return the number of open proposals, or None for an account that never had an agent or a proposal."""
    sql = (
        "SELECT EXISTS (SELECT 1 FROM api_key WHERE account_id = ?1 AND agent) "
        "OR EXISTS (SELECT 1 FROM proposal WHERE account_id = ?1)"
    )
    return count_open(account_id) if scalar(sql, (account_id,)) else None


def read_changes(kind: ProposalKind, raw: dict[str, Any] | UnsetType) -> Any:
    """Return the changes of a proposal as the Struct of its kind; raises Invalid, also for unknown keys.

    A decoder would ignore an unknown key, and the agent would believe that the key was proposed.
    """
    changes, ignored = validation.read_with_ignored(kind.changes_type, {} if raw is UNSET else raw, "changes")
    if ignored:
        raise Invalid({name: [gettext("is not supported")] for name in ignored})
    return changes


def check(account_id: int, request: ProposalWrite, _: int | None = None) -> None:
    """Raise NotFound for an unknown subject, or Invalid with all faults of a new proposal.

    The check may render a message. The last parameter is the id of the path, which `api.endpoints.validator` passes; a
    new proposal has none.
    """
    kind = BY_NAME.get(request.kind) if isinstance(request.kind, str) else None
    if not isinstance(request.subject_id, int):
        return
    if not any(_exists(account_id, candidate, request.subject_id) for candidate in ([kind] if kind else KINDS)):
        raise Invalid({"subject_id": [gettext("must exist")]})
    if kind is None:
        return
    faults = Faults()
    changes = faults.collect(read_changes, kind, request.changes)
    faults.check()
    kind.check(account_id, request.subject_id, changes)
    fault = find_size_fault(_compare(kind, account_id, request.subject_id, changes))
    if fault is not None:
        raise Invalid({"changes" if request.changes else "subject_id": [fault]})


def _compare(
    kind: ProposalKind, account_id: int, subject_id: int, changes: Any, shows_conditions: bool = True
) -> list[Difference]:  # fmt: skip
    """Return what a proposal changes, and with `shows_conditions` the conditions of the segments that it names.

    The conditions of a segment may be read with `contacts:read` only.
    """
    differences = kind.compare(account_id, subject_id, changes)
    if shows_conditions:
        differences += describe_segments(account_id, kind.find_references(account_id, subject_id, changes))
    return differences


def _exists(account_id: int, kind: ProposalKind, subject_id: int) -> bool:
    try:
        kind.load(account_id, subject_id)
    except NotFound:
        return False
    return True


def prepare_replay(account_id: int, request: ProposalWrite) -> PreparedReplay | None:
    """Return a replay of the last 90 days with the proposed steps, for a proposal about a flow; None for others."""
    if request.kind not in ("start_flow", "change_flow"):
        return None
    steps = request.changes.get("steps", UNSET) if isinstance(request.changes, dict) else UNSET
    try:
        return replays.prepare(account_id, request.subject_id, ReplayRequest(days=REPLAYED_DAYS, steps=steps))
    except Invalid:
        return None  # A flow without steps or trigger cannot be replayed. The proposal may be to change that.


def create(account_id: int, request: ProposalWrite, by: Actor, replay: PreparedReplay | None = None) -> Proposal:
    """Store a checked proposal of an agent, start its replay, and notify the users who may decide by email.

    A program that drafts may make proposals too. Raises NotAllowed for a user or a test key, and Conflict if the key
    has an open proposal of the kind for the subject, or too many open ones.
    """
    require_write_transaction()
    kind, key_id = BY_NAME[request.kind], get_key_id(by)
    if key_id is None or by.is_test:
        raise NotAllowed(gettext("Only an API key that is not for tests makes proposals."))
    subject = kind.load(account_id, request.subject_id)
    is_open = (Proposal.key == key_id) & (Proposal.state == "open")
    same = is_open & (Proposal.kind == kind.name) & (Proposal.subject_id == request.subject_id)
    if Proposal.select().where(same).exists():
        raise Conflict(gettext("There is an open proposal for this already. Withdraw it first."))
    if Proposal.select().where(is_open).count() >= MAX_OPEN:
        raise Conflict(gettext("An agent may have %(limit)s open proposals.", limit=MAX_OPEN))
    now = clock.now_ms()
    row = Proposal(
        account=account_id, key=key_id, person=by.key_creator_id, kind=kind.name, subject_id=request.subject_id,
        subject_name=clean_text(subject.name or ""),
        note=clean_text(request.note).strip() if isinstance(request.note, str) else "",
        changes=request.changes if isinstance(request.changes, dict) else {},
        created_at=now, updated_at=now,
    )  # fmt: skip
    row.version = describe_version(row)
    row.save(force_insert=True)
    if replay is not None:
        _start_replay(replay, by)
    _notify_deciders(row)
    audit.record(by, account_id, "proposal_create", f"proposal:{row.id}", _describe(row))
    return row


def _start_replay(replay: PreparedReplay, by: Actor) -> None:
    """Start the replay of a proposal, replacing one that its agent started, but not while another actor's runs."""
    running = replays.find(replay.values["account"], replay.flow_id)
    if running is not None and running.requested_by == by.name:
        replays.cancel(replay.values["account"], replay.flow_id)
    with suppress(Conflict):
        replays.start(replay, by.name)


# What decides the result of a replay, besides the events: what is replayed, and how, which a user may choose.
_REPLAYED_VALUES = ("steps", "trigger", "goal", "live_version")
_REPLAY_OPTIONS = ("days", "seed", "order_event", "sms_price")


def find_replay(row: Proposal) -> tuple[FlowReplay | None, bool]:
    """Return (last replay of the proposal's flow or None, whether it replays exactly what is proposed).

    An agent may start a replay of other steps, times or prices, which says nothing about the proposal. This parses
    steps, so call it by `scan`.
    """
    if row.state != "open" or BY_NAME[row.kind].noun != "flow":
        return None, False
    try:
        replay = replays.find(row.account_id, row.subject_id)
        expected = prepare_replay(row.account_id, ProposalWrite(cast(Kind, row.kind), row.subject_id, row.changes))
    except (NotFound, Invalid):
        return None, False
    if replay is None or expected is None:
        return None, False
    is_of_user = replay.requested_by.startswith("user:")
    names = _REPLAYED_VALUES if is_of_user else (*_REPLAYED_VALUES, *_REPLAY_OPTIONS)
    values = msgspec.json.decode(msgspec.json.encode({name: expected.values[name] for name in names}))
    is_recent = is_of_user or replay.created_at - replay.until < _MAX_START_MS
    return replay, is_recent and all(getattr(replay, name) == value for name, value in values.items())


def _describe(row: Proposal) -> dict[str, Any]:
    noun = BY_NAME[row.kind].noun
    return {"kind": row.kind, noun: row.subject_id, "name": row.subject_name}


def find_subject(row: Proposal) -> Any:
    """Return the campaign, flow, segment or template of a proposal, or None if it was deleted."""
    try:
        return BY_NAME[row.kind].load(row.account_id, row.subject_id)
    except NotFound:
        return None


def describe_version(row: Proposal) -> str:
    """Return the version of what a proposal describes as it is now; empty if its subject was deleted.

    It changes with the segments that only the changes name, too: an agent may change these until something uses them.
    """
    subject = find_subject(row)
    if subject is None:
        return ""
    named = find_named_segments(row.account_id, row.changes)
    return hash_version([BY_NAME[row.kind].describe_version(subject), describe_audience(row.account_id, named)])


def review(account_id: int, proposal_id: int, by: Actor) -> Review:
    """Return what a proposal changes and whom it reaches; for a decided proposal, only whether its subject has changed.

    The function counts contacts and renders, so call it by `scan`. Raises NotFound.
    """
    row = get(account_id, proposal_id, by)
    kind, version = BY_NAME[row.kind], describe_version(row)
    if row.state != "open" or not version:
        return Review(version, version != row.version, [], Reach(), None)
    try:
        changes = read_changes(kind, row.changes)
        differences = _compare(kind, account_id, row.subject_id, changes, by.can_read_contacts)
        reach = kind.measure(account_id, row.subject_id, changes)
        if not by.can_read_contacts:
            # The parts of SMS depend on the values of contacts, as in a preflight (T45 in docs/threats.md).
            reach = reach._replace(sms_parts=None)
    except Invalid:
        # A newer release may no longer know the changes, and conditions may name what was deleted.
        return Review(version, True, [], Reach(), None)
    price = _find_sms_price(account_id) if reach.sms_parts is not None else None
    if find_size_fault(differences) is not None:
        differences = shorten(differences)
    cost = None if price is None or reach.sms_parts is None else reach.sms_parts * price
    return Review(version, version != row.version, differences, reach, cost)


def list_emails(account_id: int, proposal_id: int, by: Actor) -> list[EmailChange]:
    """Return the emails that an open proposal sends or changes; raises NotFound. It parses, so call it on a pool."""
    row = get(account_id, proposal_id, by)
    if row.state != "open":
        return []
    kind = BY_NAME[row.kind]
    try:
        return kind.list_emails(account_id, row.subject_id, read_changes(kind, row.changes))
    except (Invalid, NotFound):
        return []  # as in `review`


def _find_sms_price(account_id: int) -> float | None:
    """Return the price of an SMS part in the last replay that a user started, or None.

    Replays that API keys started are ignored, so that an agent cannot choose the price that a proposal shows.
    """
    sql = (
        "SELECT sms_price FROM flow_replay WHERE account_id = ? AND sms_price IS NOT NULL "
        "AND requested_by LIKE 'user:%' ORDER BY id DESC LIMIT 1"
    )
    return cast(float | None, scalar(sql, (account_id,)))


class _Authors(NamedTuple):
    """The columns of a campaign or flow that `approvals.can_approve` reads, filled from a proposal.

    The user who created the agent's key is the author.
    """

    account: Account
    account_id: int
    asked_by: int | None
    edited_by: int | None


# What a user needs, besides sending, to approve a change of an object.
_SUBJECT_SCOPES = {
    "campaign": "campaigns:send", "flow": "flows:write", "segment": "contacts:write", "template": "templates:write",
}  # fmt: skip


def require_decider(row: Proposal, by: Actor) -> None:
    """Raise NotAllowed unless `by` is a user who may send, and, if the account requires approval, who may approve this.

    Nobody may approve a proposal of their own if the account requires another user.
    """
    if by.user_id is None:
        raise NotAllowed(gettext("Only a signed-in user decides about proposals."))
    if not by.can_send:
        raise NotAllowed(gettext("Only a user who may send decides about proposals."), required_scope="campaigns:send")
    # Users may not approve what their own role does not allow them to do.
    needed = _SUBJECT_SCOPES[BY_NAME[row.kind].noun]
    user = members.find_active(row.account_id, by.user_id)
    if user is None or needed not in access.role_scopes(user.role):
        raise NotAllowed(gettext("Your role may not make this change."), required_scope=needed)
    if row.account.approval_required:
        authors = _Authors(row.account, row.account_id, row.person, row.person)
        if not approvals.can_approve(authors, by):
            message = approvals.OWN_CHANGE if by.can_approve else approvals.APPROVAL_REQUIRED
            raise NotAllowed(gettext(message), required_scope="campaigns:approve")


def can_decide(row: Proposal, by: Actor) -> bool:
    """Return whether a user may approve a proposal (`require_decider`)."""
    try:
        require_decider(row, by)
    except NotAllowed:
        return False
    return True


def prepare_approval(account_id: int, proposal_id: int, by: Actor) -> Any:
    """Return what the approval of a proposal needs, computed before its transaction.

    Raises NotFound, and Invalid, also if the changes have become too large for the page to show all of them. Returns
    None if the proposal is not open or its subject was deleted; `approve` then raises the error.
    """
    row = get(account_id, proposal_id, by)
    if row.state != "open" or find_subject(row) is None:
        return None  # The approval raises the error.
    kind = BY_NAME[row.kind]
    changes = read_changes(kind, row.changes)
    fault = find_size_fault(_compare(kind, account_id, row.subject_id, changes))
    if fault is not None:
        raise Invalid({"base": [fault]})
    return kind.prepare(account_id, row.subject_id, changes)


def approve(account_id: int, proposal_id: int, request: ApproveProposal, by: Actor, prepared: Any) -> Proposal:
    """Carry out a proposal for the user who approves it, in one transaction with the decision.

    Raises NotFound; NotAllowed (`require_decider`, and what the act itself requires); Conflict if the proposal is not
    open, or if what it describes is not at `request.version`; and what the act raises, such as Invalid with blockers.
    """
    require_write_transaction()
    row = _get_open(account_id, proposal_id, by)
    require_decider(row, by)
    version = describe_version(row)
    if not version or version != request.version:
        raise Conflict(gettext(CHANGED), version=version)
    kind = BY_NAME[row.kind]
    kind.carry_out(account_id, row.subject_id, read_changes(kind, row.changes), by, prepared)
    return _decide(row, "approved", by)


def return_to_agent(account_id: int, proposal_id: int, note: str | None, by: Actor) -> Proposal:
    """Return a proposal with a note that the agent can read.

    Raises NotFound, NotAllowed for a user who may not send, and Conflict if it is not open.
    """
    require_write_transaction()
    row = _get_open(account_id, proposal_id, by)
    if by.user_id is None or not by.can_send:
        raise NotAllowed(gettext("Only a user who may send decides about proposals."), required_scope="campaigns:send")
    row.answer = (note or "").strip() or None
    return _decide(row, "returned", by)


def withdraw(account_id: int, proposal_id: int, by: Actor) -> Proposal:
    """Withdraw a proposal of `by`; raises NotFound, also for one of another key, and Conflict if it is not open."""
    require_write_transaction()
    row = _get_open(account_id, proposal_id, by)
    if row.key_id != get_key_id(by):
        raise NotFound
    return _decide(row, "withdrawn", by)


def _get_open(account_id: int, proposal_id: int, by: Actor) -> Proposal:
    row = get(account_id, proposal_id, by)
    if row.state != "open":
        raise Conflict(gettext(_DECIDED), state=row.state)
    return row


def _decide(row: Proposal, state: State, by: Actor) -> Proposal:
    now = clock.now_ms()
    row.state, row.decided_by_id, row.decided_at, row.updated_at = state, by.user_id, now, now
    row.save()
    act = {"approved": "approve", "returned": "return", "withdrawn": "withdraw"}[state]
    audit.record(by, row.account_id, f"proposal_{act}", f"proposal:{row.id}", {**_describe(row), "agent": row.key_id})
    return get(row.account_id, row.id, by)


def _notify_deciders(row: Proposal) -> None:
    """Queue an email to the users who may decide about a proposal, unless one was sent within `_MAIL_INTERVAL_MS`."""
    require_write_transaction()
    now, account = clock.now_ms(), row.account
    last = scalar("SELECT max(mailed_at) FROM proposal WHERE account_id = ?", (account.id,))
    if last is not None and 0 <= now - last < _MAIL_INTERVAL_MS:
        return
    row.mailed_at = now
    row.save(only=[Proposal.mailed_at])
    needed = "campaigns:approve" if account.approval_required else "campaigns:send"
    roles = access.list_roles_with(account.id, needed)
    # An app has chosen its name itself, which would be words of a stranger in an email of the service.
    is_app = AppGrant.select().where(AppGrant.api_key == row.key_id).exists()
    data = {"agent": "" if is_app else row.key.name, "link": f"{config.base_url(config.current())}/proposals/{row.id}"}
    for user in members.list_active(account.id, roles):
        with use_language(users.choose_language(user, account)):
            content = _build_email(is_app)
        system_emails.queue_system_email(account, addresses.parse_email(user.email), None, content, data)


def _build_email(is_app: bool) -> SystemEmail:
    """Return the email with the name that a user gave to the key in its text; an app has none."""
    return SystemEmail(
        subject=gettext("A proposal is waiting for you"),
        heading=gettext("A proposal is waiting for you"),
        text=gettext("A connected app proposes a change. Nothing is sent or changed until a user approves it.")
        if is_app
        else gettext(
            "The agent “%(name)s” proposes a change. Nothing is sent or changed until a user approves it.",
            name="{{ data.agent }}",
        ),
        button=gettext("Review proposal"),
        link="{{ data.link }}",
        note=gettext("If you did not expect this, stop all agents on the page “Proposals”."),
        language=get_language_tag(),
    )

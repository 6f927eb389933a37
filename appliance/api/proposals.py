"""Endpoints of agents: their proposals, and the switch that stops them (docs/decisions.md#25)."""

from typing import Annotated, Any, cast

from msgspec import Meta, Struct

from appliance.accounts import access, agents
from appliance.accounts.access import ADMIN_SCOPE
from appliance.agents import proposals
from appliance.agents.differences import Difference
from appliance.agents.kinds import BY_NAME, KINDS
from appliance.agents.proposals import ApproveProposal, Kind, ProposalQuery, ProposalWrite, ReturnProposal, State
from appliance.api.auth import require_scope
from appliance.api.endpoints import ApiRequest, ApiResponse, Routes, validator
from appliance.api.http import page_headers
from appliance.api.schemas import Json, Moment
from appliance.core.clock import iso
from appliance.settings import config
from appliance.storage import models
from appliance.storage.transactions import commit, fetch, render, render_send, scan

ROUTES = Routes()


class Proposal(Struct):
    """What an agent proposes, and what a user decided about it."""

    id: int
    account_id: int
    kind: Annotated[Kind, Meta(description="what is proposed")]
    state: Annotated[State, Meta(description="`open` until a user decides or the agent withdraws it")]
    subject_id: Annotated[int, Meta(description="id of the campaign, flow, segment or template")]
    subject_name: Annotated[str, Meta(description="its name when the proposal was made")]
    changes: Annotated[Json, Meta(description="changes, as they were proposed")]
    note: Annotated[str, Meta(description="the agent's reason")]
    answer: Annotated[str, Meta(description="note of the user who returned it; null if there is none")] | None
    api_key_id: Annotated[int, Meta(description="id of the agent's API key")]
    agent_name: Annotated[str, Meta(description="name of the agent's API key")]
    decided_by: Annotated[int, Meta(description="id of the user who decided; null if no user did")] | None
    decided_at: Annotated[Moment, Meta(description="when it was decided or withdrawn")] | None
    created_at: Moment
    updated_at: Moment


class ProposalDetail(Proposal):
    """A proposal with all that a user needs to decide about it, as it is now."""

    version: Annotated[
        str,
        Meta(description="of what is proposed, as it is now; the approval must name it. Empty if it was deleted"),
    ]
    is_changed: Annotated[bool, Meta(description="whether what is proposed has changed since the proposal was made")]
    differences: Annotated[list[Difference], Meta(description="values before and after; empty once it is decided")]
    people: Annotated[int, Meta(description="contacts whom it reaches; null if only a replay can say")] | None
    people_before: Annotated[int, Meta(description="contacts in the segment now; null for other kinds")] | None
    sms_parts: Annotated[int, Meta(description="parts of all SMS; null for email, or if not yet known")] | None
    sms_cost: Annotated[float, Meta(description="cost of these parts; null if no price is known")] | None


def _list_readable_kinds(request: ApiRequest) -> list[str]:
    """Return the kinds of proposals whose subjects the credential may read."""
    return [kind.name for kind in KINDS if all(map(request.credential.has_scope, kind.read_scopes))]


def _require_kind_access(request: ApiRequest) -> None:
    """Raise a 403 error if the credential lacks a scope that a new proposal of this kind needs.

    A proposal shows how many contacts meet conditions, and the replay of a flow which contacts met them, so a key that
    chooses the conditions needs to read contacts and events (T45 in docs/threats.md).
    """
    kind = BY_NAME.get(str(request.body.kind)) if request.body is not None else None
    for scope in (*kind.read_scopes, *kind.write_scopes) if kind is not None else ():
        require_scope(request.credential, scope)


def _values(row: models.Proposal) -> dict[str, Any]:
    return {
        "id": row.id, "account_id": row.account_id, "kind": cast(Kind, row.kind), "state": cast(State, row.state),
        "subject_id": row.subject_id, "subject_name": row.subject_name, "changes": row.changes, "note": row.note,
        "answer": row.answer, "api_key_id": row.key_id, "agent_name": row.key.name, "decided_by": row.decided_by_id,
        "decided_at": iso(row.decided_at), "created_at": iso(row.created_at) or "",
        "updated_at": iso(row.updated_at) or "",
    }  # fmt: skip


def serialize_proposal(row: models.Proposal) -> Proposal:
    """Return the API representation of a proposal."""
    return Proposal(**_values(row))


def _load_detail(account_id: int, proposal_id: int, request: ApiRequest) -> ProposalDetail:
    row = proposals.get(account_id, proposal_id, request.caller, _list_readable_kinds(request))
    review = proposals.review(account_id, proposal_id, request.caller)
    reach = review.reach
    return ProposalDetail(
        **_values(row), version=review.version, is_changed=review.is_changed, differences=review.differences,
        people=reach.people, people_before=reach.people_before, sms_parts=reach.sms_parts, sms_cost=review.cost,
    )  # fmt: skip


@ROUTES.add(
    "GET", "/proposals", scope="campaigns:read", agent_scope="campaigns:read", query_type=ProposalQuery,
    response_type=Proposal, returns_list=True,
)  # fmt: skip
async def list_proposals(request: ApiRequest) -> ApiResponse:
    """List proposals of agents, newest first. An agent gets its own.

    Each kind needs the scope with which its subject can be read, such as `flows:read`; others are left out.
    """
    args = (request.account_id, request.query, request.caller, _list_readable_kinds(request))
    page = await fetch(proposals.fetch_page, *args)
    rows = await fetch(lambda: [serialize_proposal(row) for row in page.rows])
    return ApiResponse(rows, headers=page_headers(page))


@ROUTES.add(
    "POST", "/proposals", scope="campaigns:write", agent_scope="proposals:write", body_type=ProposalWrite,
    response_type=Proposal, status=201, has_conflicts=True, rate="renders",
    validate=validator(proposals.check, run=render, access=_require_kind_access),
)  # fmt: skip
async def create_proposal(request: ApiRequest) -> ApiResponse:
    """Propose what only a user may decide: to send a campaign, to start a flow, or to change what is in use.

    Only API keys make proposals: those of agents, and of programs that draft. The users who may decide get an email. A
    proposal about a flow starts a replay of the last 90 days. Also requires the scope with which its subject can be
    read; `change_segment` requires `events:read` too, and `change_flow` both `contacts:read` and `events:read`.
    """
    _require_kind_access(request)
    await render(proposals.check, request.account_id, request.body)
    replay = await render(proposals.prepare_replay, request.account_id, request.body)
    row = await commit(proposals.create, request.account_id, request.body, request.caller, replay)
    return ApiResponse(await fetch(serialize_proposal, row))


@ROUTES.add(
    "GET", "/proposals/{id}", scope="campaigns:read", agent_scope="campaigns:read", response_type=ProposalDetail,
    rate="renders",
)  # fmt: skip
async def get_proposal(request: ApiRequest) -> ApiResponse:
    """Get a proposal with what it changes and whom it reaches, as it is now.

    Without the scope with which its subject can be read, the response is 404; without `contacts:read`, `sms_parts` is
    null.
    """
    return ApiResponse(await scan(_load_detail, request.account_id, request.id, request))


@ROUTES.add(
    "POST", "/proposals/{id}/approve", scope="campaigns:send", users_only=True, body_type=ApproveProposal,
    response_type=Proposal, has_conflicts=True, rate="sends",
)  # fmt: skip
async def approve_proposal(request: ApiRequest) -> ApiResponse:
    """Approve a proposal, which carries it out. Only a signed-in user may, never an API key.

    The response is 409 if what is proposed has changed since `version` was read. In an account that requires approval,
    the user needs the right to approve; if it requires another user, the one who created the agent's key may not.
    """
    args = (request.account_id, request.id)
    prepared = await render_send(proposals.prepare_approval, *args, request.caller)
    row = await commit(proposals.approve, *args, request.body, request.caller, prepared)
    return ApiResponse(await fetch(serialize_proposal, row))


@ROUTES.add(
    "POST", "/proposals/{id}/return", scope="campaigns:send", users_only=True, body_type=ReturnProposal,
    body_required=False, response_type=Proposal, has_conflicts=True,
)  # fmt: skip
async def return_proposal(request: ApiRequest) -> ApiResponse:
    """Return a proposal to its agent with a note. Only a signed-in user may, never an API key."""
    note = request.body.note if isinstance(request.body.note, str) else None
    args = (request.account_id, request.id, note, request.caller)
    return ApiResponse(await fetch(serialize_proposal, await commit(proposals.return_to_agent, *args)))


@ROUTES.add(
    "POST", "/proposals/{id}/withdraw", scope="campaigns:write", agent_scope="proposals:write", response_type=Proposal,
    has_conflicts=True,
)  # fmt: skip
async def withdraw_proposal(request: ApiRequest) -> ApiResponse:
    """Withdraw an open proposal. Only the API key that made it can."""
    row = await commit(proposals.withdraw, request.account_id, request.id, request.caller)
    return ApiResponse(await fetch(serialize_proposal, row))


class Agent(Struct):
    """An agent: an active API key of this kind, with what it did in the last hour."""

    api_key_id: Annotated[int, Meta(description="id of its API key")]
    name: Annotated[str, Meta(description="name of its API key")]
    acts: Annotated[int, Meta(description="changes and proposals that it made in the last hour")]
    last_used_at: Annotated[Moment, Meta(description="when it made the last request; null for never")] | None


class Agents(Struct):
    """The agents of an account, and whether they are stopped."""

    stopped_at: Annotated[Moment, Meta(description="since when all agents are stopped; null if they are not")] | None
    acts_per_hour: Annotated[int, Meta(description="changes and proposals that each agent may make in an hour")]
    agents: Annotated[list[Agent], Meta(description="active agents, newest first")]


def _load_agents(account_id: int) -> Agents:
    account = models.Account.get_by_id(account_id)
    rows = [
        Agent(state.key.id, state.key.name, state.acts, iso(access.last_used_at(state.key)))
        for state in agents.list_agents(account_id)
    ]
    return Agents(iso(account.agents_stopped_at), config.current().limits.agent_acts_per_hour, rows)


@ROUTES.add("GET", "/agents", scope=ADMIN_SCOPE, response_type=Agents)
async def get_agents(request: ApiRequest) -> ApiResponse:
    """Get the agents of the account, and whether they are stopped."""
    return ApiResponse(await fetch(_load_agents, request.account_id))


@ROUTES.add("POST", "/agents/stop", scope=ADMIN_SCOPE, response_type=Agents)
async def stop_agents(request: ApiRequest) -> ApiResponse:
    """Stop all agents of the account: every further request of theirs gets 403."""
    await commit(agents.set_stopped, request.account_id, True, request.caller)
    return ApiResponse(await fetch(_load_agents, request.account_id))


@ROUTES.add("POST", "/agents/resume", scope=ADMIN_SCOPE, response_type=Agents)
async def resume_agents(request: ApiRequest) -> ApiResponse:
    """Resume the agents of the account."""
    await commit(agents.set_stopped, request.account_id, False, request.caller)
    return ApiResponse(await fetch(_load_agents, request.account_id))

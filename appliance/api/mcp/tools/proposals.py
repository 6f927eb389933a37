"""Tools with which an agent asks a person to decide: propose a send or a change, and read what was decided."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.agents.proposals import Kind, State
from appliance.api.mcp.tools.base import (
    Id,
    Json,
    Limit,
    Page,
    Tool,
    ToolCall,
    ToolOutput,
    ToolResult,
    pick,
    pick_all,
    read_paging,
)

_MAX_NOTE_CHARACTERS = 2_000


class Propose(Struct, forbid_unknown_fields=True):
    """What to propose."""

    kind: Annotated[Kind, Meta(description="`send_campaign` and `start_flow` send; the others change what is in use")]
    subject_id: Annotated[Id, Meta(description="id of the campaign, flow, segment or template")]
    note: Annotated[
        str,
        Meta(max_length=_MAX_NOTE_CHARACTERS, description="why, in a few sentences for the person who decides"),
    ]
    changes: (
        Annotated[
            Json,
            Meta(
                description="for send_campaign: `scheduled_at` if it is not to be sent at once; for changes: the "
                "fields to change with their new values, as in the body of its PATCH"
            ),
        ]
        | UnsetType
    ) = UNSET


class ProposalRow(Struct, omit_defaults=True):
    """A proposal and what was decided."""

    id: int
    kind: str
    state: Annotated[Literal["open", "approved", "returned", "withdrawn"], Meta(description="`open`: not decided yet")]
    subject_id: int
    created_at: str
    subject_name: str = ""
    note: str = ""
    answer: Annotated[str, Meta(description="what the person who returned it wants to have changed")] = ""
    decided_at: str = ""


class Proposed(ToolOutput, kw_only=True, omit_defaults=True):
    """The proposal as it was made; nothing happens until a person approves it."""

    proposal: ProposalRow


class ListProposals(Struct, forbid_unknown_fields=True):
    """Which proposals to list, the newest first."""

    state: State | UnsetType = UNSET
    page: Page = 1
    limit: Limit = 20


class ProposalList(ToolOutput, kw_only=True, omit_defaults=True):
    """A page of proposals."""

    total: int
    proposals: list[ProposalRow]
    next_page: int | None = None


async def _propose(call: ToolCall, wanted: Propose) -> ToolResult:
    body = {name: getattr(wanted, name) for name in wanted.__struct_fields__}
    proposal = pick(ProposalRow, await call.post("/proposals", body))
    return ToolResult(
        f"Proposal {proposal.id} waits for a person. Nothing has happened yet.", Proposed(proposal=proposal)
    )


async def _list_proposals(call: ToolCall, wanted: ListProposals) -> ToolResult:
    reply = await call.call("GET", "/proposals", {name: getattr(wanted, name) for name in wanted.__struct_fields__})
    paging = read_paging(reply)
    rows = pick_all(ProposalRow, reply.value)
    cut = [f"{len(rows)} of {paging.total} proposals; page {paging.next_page} has more"] if paging.next_page else []
    value = ProposalList(total=paging.total, proposals=rows, next_page=paging.next_page, cut=cut)
    return ToolResult(f"Proposals: {paging.total}.", value)


TOOLS = (
    Tool(
        "propose",
        "Propose to a person",
        "Ask a person to decide: to send a campaign, to start a flow, or to change a flow, segment or template that is "
        "in use. They see what changes and whom it reaches, and approve it or return it with a note. Run "
        "preflight or simulate_flow before.",
        Propose,
        Proposed,
        _propose,
        ("POST /proposals",),
        is_read_only=False,
        is_idempotent=False,
        is_for_agents=True,
    ),
    Tool(
        "list_proposals",
        "Proposals",
        "The proposals that this agent made, and what was decided: approved, or returned with a note to work in.",
        ListProposals,
        ProposalList,
        _list_proposals,
        ("GET /proposals",),
        is_for_agents=True,
    ),
)

"""Tools about campaigns that exist: list them, read the report of one, and compare several."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

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
    read_paging,
)

_MAX_COMPARED, _MAX_ROWS = 6, 20


class ListCampaigns(Struct, forbid_unknown_fields=True):
    """Which campaigns to list, the newest first."""

    phase: (
        Literal["draft", "scheduled", "holding", "sending", "paused", "completed", "cancelled"] | UnsetType
    ) = UNSET  # fmt: skip
    channel: Literal["email", "sms"] | UnsetType = UNSET
    search: Annotated[str, Meta(max_length=200, description="part of the name")] | UnsetType = UNSET
    awaiting_approval: bool | UnsetType = UNSET
    page: Page = 1
    limit: Limit = 20


class CampaignRow(Struct, omit_defaults=True):
    """A campaign in a list."""

    id: int
    name: str
    phase: str
    channel: str
    created_at: str
    updated_at: str
    subject: str = ""
    approval_state: str = ""
    scheduled_at: str = ""
    audience_count: int = 0
    stats: Annotated[Json, Meta(description="numbers of messages by their state")] = {}


class CampaignList(ToolOutput, kw_only=True, omit_defaults=True):
    """A page of campaigns."""

    total: int
    campaigns: list[CampaignRow]
    next_page: int | None = None


def make_row(campaign: Json) -> CampaignRow:
    """Return a campaign of the API as a row, with its subject line."""
    return pick(CampaignRow, campaign, subject=campaign["template"]["subject"] or "")


async def _list_campaigns(call: ToolCall, wanted: ListCampaigns) -> ToolResult:
    query = {name: getattr(wanted, name) for name in wanted.__struct_fields__}
    reply = await call.call("GET", "/campaigns", query)
    paging = read_paging(reply)
    rows = [make_row(campaign) for campaign in reply.value]
    cut = [f"{len(rows)} of {paging.total} campaigns; page {paging.next_page} has more"] if paging.next_page else []
    value = CampaignList(total=paging.total, campaigns=rows, next_page=paging.next_page, cut=cut)
    return ToolResult(f"{paging.total} campaigns match.", value)


class WhichCampaign(Struct, forbid_unknown_fields=True):
    """The campaign."""

    campaign_id: Id


class Figures(Struct, omit_defaults=True):
    """The figures of a campaign; rates are shares of the messages that the mail server accepted."""

    id: int
    name: str
    phase: str
    audience: int
    accepted: int
    subject: str = ""
    sent_at: str = ""
    open_rate: Annotated[float, Meta(description="opens by people; machines are left out")] | None = None
    click_rate: Annotated[float, Meta(description="clicks by people")] | None = None
    click_to_open_rate: float | None = None
    bounce_rate: float | None = None
    unsubscribe_rate: float | None = None
    complaint_rate: float | None = None


class Report(ToolOutput, kw_only=True, omit_defaults=True):
    """The report of a campaign."""

    figures: Figures
    links: Annotated[list[Json], Meta(description="links by clicks")] = []
    domains: Annotated[list[Json], Meta(description="results by mailbox provider")] = []
    problems: Annotated[list[Json], Meta(description="why messages did not arrive")] = []
    over_time: list[Json] = []
    sms: Json = {}
    experiment: Annotated[Json, Meta(description="results of an A/B test")] = {}


async def _read_figures(call: ToolCall, campaign_id: int) -> tuple[Figures, Json, Json]:
    """Return the figures of a campaign, the campaign, and its report."""
    campaign = await call.get(f"/campaigns/{campaign_id}")
    report = await call.get(f"/campaigns/{campaign_id}/report")
    opened, clicked = report["opens"]["people"], report["clicks"]["people"]
    figures = Figures(
        id=campaign["id"],
        name=campaign["name"],
        phase=campaign["phase"],
        subject=campaign["template"]["subject"] or "",
        sent_at=campaign["scheduled_at"] or "",
        audience=report["ledger"]["audience"]["count"],
        accepted=report["ledger"]["accepted"]["count"],
        open_rate=opened["rate"],
        click_rate=clicked["rate"],
        click_to_open_rate=round(clicked["count"] / opened["count"], 4) if opened["count"] else None,
        bounce_rate=report["bounces"]["rate"],
        unsubscribe_rate=report["unsubscribes"]["rate"],
        complaint_rate=report["complaints"]["rate"],
    )
    return figures, campaign, report


async def _get_report(call: ToolCall, wanted: WhichCampaign) -> ToolResult:
    figures, campaign, report = await _read_figures(call, wanted.campaign_id)
    experiment = await call.get(f"/campaigns/{wanted.campaign_id}/experiment") if campaign["experiment"] else {}
    cut = [
        f"{name} shows {_MAX_ROWS} of {len(report[name])}; api_call GET /campaigns/{wanted.campaign_id}/report has all"
        for name in ("links", "domains", "problems")
        if len(report[name]) > _MAX_ROWS
    ]
    value = Report(
        figures=figures,
        links=report["links"][:_MAX_ROWS],
        domains=report["domains"][:_MAX_ROWS],
        problems=report["problems"][:_MAX_ROWS],
        over_time=report["over_time"],
        sms=report["sms"] or {},
        experiment=experiment,
        cut=cut,
    )
    return ToolResult(f"Campaign {figures.id}: {figures.accepted} of {figures.audience} messages were accepted.", value)


class Compare(Struct, forbid_unknown_fields=True):
    """The campaigns to compare."""

    campaign_ids: Annotated[list[Id], Meta(min_length=2, max_length=_MAX_COMPARED)]


class Comparison(ToolOutput, kw_only=True, omit_defaults=True):
    """Campaigns side by side, in the order of the request."""

    campaigns: list[Figures]
    differences: Annotated[
        Json, Meta(description="for each rate the lowest and highest value and the campaigns that have them")
    ] = {}


_RATES = ("open_rate", "click_rate", "click_to_open_rate", "bounce_rate", "unsubscribe_rate", "complaint_rate")


def _find_extremes(campaigns: list[Figures], rate: str) -> Json | None:
    known: list[tuple[Any, int]] = [
        (getattr(figures, rate), figures.id) for figures in campaigns if getattr(figures, rate) is not None
    ]  # fmt: skip
    if len(known) < 2:
        return None
    low, high = min(known), max(known)
    return {"lowest": low[0], "lowest_campaign_id": low[1], "highest": high[0], "highest_campaign_id": high[1]}


async def _compare(call: ToolCall, wanted: Compare) -> ToolResult:
    campaigns = [(await _read_figures(call, campaign_id))[0] for campaign_id in dict.fromkeys(wanted.campaign_ids)]
    differences = {rate: extremes for rate in _RATES if (extremes := _find_extremes(campaigns, rate)) is not None}
    return ToolResult(f"{len(campaigns)} campaigns.", Comparison(campaigns=campaigns, differences=differences))


TOOLS = (
    Tool(
        "list_campaigns",
        "List campaigns",
        "Campaigns with their phase, subject and numbers, the newest first.",
        ListCampaigns,
        CampaignList,
        _list_campaigns,
        ("GET /campaigns",),
    ),
    Tool(
        "campaign_report",
        "Campaign report",
        "The report of a campaign: accepted, open rate, click rate, bounces, unsubscribes, spam complaints, links, "
        "mailbox "
        "providers, problems, and the result of an A/B test. Opens of machines are left out.",
        WhichCampaign,
        Report,
        _get_report,
        ("GET /campaigns/{id}", "GET /campaigns/{id}/report"),
    ),
    Tool(
        "compare",
        "Compare campaigns",
        f"The rates of two to {_MAX_COMPARED} campaigns side by side, for example to explain a drop.",
        Compare,
        Comparison,
        _compare,
        ("GET /campaigns/{id}", "GET /campaigns/{id}/report"),
    ),
)

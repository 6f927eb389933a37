"""Tools about the account as a whole: its state, and whether its email arrives."""

import asyncio
from typing import Annotated, Any

from msgspec import Meta, Struct

from appliance.api.mcp.tools.base import Json, Tool, ToolCall, ToolOutput, ToolResult, pick, pick_all

_RECENT_CAMPAIGNS = 5


class NoInput(Struct, forbid_unknown_fields=True):
    """The input of a tool that takes none."""


class Problem(Struct, omit_defaults=True):
    """Something that keeps the account from sending."""

    code: str
    message: str = ""


class Status(ToolOutput, kw_only=True, omit_defaults=True):
    """The state of the account."""

    name: str
    base_url: Annotated[str, Meta(description="where people open Campanero")]
    time_zone: str
    locale: Annotated[str, Meta(description="language of the account's messages")]
    version: str
    can_send: Annotated[bool, Meta(description="false: messages are not sent until `blockers` are solved")]
    blockers: list[Problem] = []
    using_sandbox: Annotated[bool, Meta(description="true: all messages are captured and reach nobody")]
    approval_required: Annotated[bool, Meta(description="true: another person approves campaigns and flows")]
    sending_stopped: bool
    email_from_name: str = ""
    email_from_email: str = ""
    counts: Annotated[Json, Meta(description="number of contacts, lists, campaigns and so on")] = {}
    usage: Annotated[Json, Meta(description="messages sent since `since`")] = {}
    queue: Annotated[Json, Meta(description="messages that wait to be sent")] = {}
    obstacles: Annotated[list[Json], Meta(description="what delays sending now")] = []


async def _get_status(call: ToolCall, _: NoInput) -> ToolResult:
    account, delivery = await asyncio.gather(call.get("/account"), call.get("/delivery/status"))
    status = pick(
        Status,
        {key: value for key, value in account.items() if key != "blockers"},
        blockers=pick_all(Problem, account["blockers"]),
        queue=delivery["queue"],
        obstacles=delivery["obstacles"],
    )
    if status.sending_stopped:
        summary = "Sending was stopped by a person."
    elif not status.can_send:
        summary = f"The account cannot send yet: {len(status.blockers)} blockers."
    elif status.using_sandbox:
        summary = "The account is in test mode: messages are captured and reach nobody."
    else:
        summary = f"The account can send; {status.queue['waiting']} messages are waiting."
    return ToolResult(summary, status)


class Domain(Struct, omit_defaults=True):
    """A sending domain: whether its DNS records are right."""

    id: int
    name: str
    status: str
    attention: str = ""
    dns_records: list[Json] = []


class RecentCampaign(Struct, omit_defaults=True):
    """A campaign that was sent, with the share of its messages that bounced, failed or were reported as spam."""

    id: int
    name: str
    accepted: int
    failed: int
    bounce_rate: float | None = None
    complaint_rate: float | None = None


class Deliverability(ToolOutput, kw_only=True, omit_defaults=True):
    """Whether email of the account arrives."""

    transport: str
    is_open: Annotated[bool, Meta(description="whether messages are sent now")]
    domains: list[Domain]
    obstacles: list[Json] = []
    throttled: Annotated[list[Json], Meta(description="mailbox providers to which sending is slowed down")] = []
    warm_up: list[Json] = []
    queue: Json = {}
    recent_campaigns: Annotated[
        list[RecentCampaign], Meta(description="rates are shares of accepted messages; needs campaigns:read")
    ] = []


def _compute_rate(count: int, accepted: int) -> float | None:
    return round(count / accepted, 4) if accepted else None


def _summarize_campaign(campaign: Any) -> RecentCampaign:
    stats = campaign["stats"]
    accepted = stats["accepted"]
    return RecentCampaign(
        campaign["id"], campaign["name"], accepted, stats["failed"], _compute_rate(stats["bounced"], accepted),
        _compute_rate(stats["complained"], accepted),
    )  # fmt: skip


async def _get_deliverability(call: ToolCall, _: NoInput) -> ToolResult:
    delivery = await call.get("/delivery/status")
    domains = pick_all(Domain, await call.get("/domains", limit=50))
    recent = []
    if call.can_call("GET /campaigns"):
        campaigns = await call.get("/campaigns", phase="completed", channel="email", limit=_RECENT_CAMPAIGNS)
        recent = [_summarize_campaign(campaign) for campaign in campaigns]
    unverified = sum(domain.status != "verified" for domain in domains)
    summary = (
        f"{len(domains)} sending domains, {unverified} not verified; "
        f"{len(delivery['obstacles'])} obstacles to sending now."
    )  # fmt: skip
    return ToolResult(
        summary,
        Deliverability(
            transport=delivery["transport"],
            is_open=delivery["open"],
            domains=domains,
            obstacles=delivery["obstacles"],
            throttled=delivery["groups"],
            warm_up=delivery["warm_up"],
            queue=delivery["queue"],
            recent_campaigns=recent,
        ),
    )


TOOLS = (
    Tool(
        "status",
        "Account status",
        "Whether the account can send now, what keeps it from sending, its sender, time zone, numbers of contacts and "
        "campaigns, and how many messages wait. Call it first.",
        NoInput,
        Status,
        _get_status,
        ("GET /account", "GET /delivery/status"),
    ),
    Tool(
        "deliverability",
        "Deliverability",
        "Whether email arrives: sending domains with their DNS records, mailbox providers that slow down or refuse, "
        "warm-up, "
        "and the bounce and spam complaint rates of the last campaigns.",
        NoInput,
        Deliverability,
        _get_deliverability,
        ("GET /delivery/status", "GET /domains"),
    ),
)

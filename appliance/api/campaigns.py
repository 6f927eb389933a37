"""Campaigns over the API."""

from collections.abc import Callable
from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from appliance.accounts import audit, idempotency
from appliance.accounts.acting import By
from appliance.accounts.approving import Reject
from appliance.api import shapes, shaping
from appliance.api.auth import require
from appliance.api.declare import Answer, Call, Routes, checked
from appliance.api.read import idempotency_key
from appliance.api.reply import Fault, page_headers
from appliance.campaigns import checks, groups, preflight, recipients, results, reviewing, send, states, store
from appliance.campaigns.figures import Report
from appliance.campaigns.findings import Finding
from appliance.campaigns.groups import CampaignExplained
from appliance.campaigns.recipients import RecipientQuery
from appliance.campaigns.rehearse import Failure, Lack, Texts
from appliance.campaigns.requests import CampaignCopy, CampaignCreate, CampaignPatch, CampaignQuery, SendRequest
from appliance.content.templates import store as templates
from appliance.core.fields import ContactId
from appliance.storage.models import Campaign
from appliance.storage.work import call, commit, render

# What the API answers about a draft that is looked at before its send.


class CheckedLink(Struct):
    """A link of the message that does not answer, or was not asked."""

    href: str
    why: str


class LinkFacts(Struct):
    """What came of asking where the links lead; each is asked once, beside the answer."""

    status: Literal["waiting", "running", "complete"]
    fine: int
    broken: list[CheckedLink]
    unchecked: list[CheckedLink]


class SmsFacts(Struct, rename={"from_": "from"}):
    """What is known of an SMS; of its parts nothing until the rehearsal is complete."""

    from_: str | None
    opt_out_hint: str | None
    parts: int | None
    is_exact: bool | None


class RehearsalFacts(Struct):
    """The message made for everybody, beside the answer: how far that is, and what was found so far."""

    status: Literal["waiting", "running", "complete", "failed"]
    total: int
    done: int
    failed: int
    failures: list[Failure]
    lacking: list[Lack]
    html_bytes: int
    sms: Texts | None


class PreflightFacts(Struct):
    """What a person decides by; `sms` is only there for an SMS, `links` and `rehearsal` once there is something to do.

    `audience` is the sum of `sendable` and of all numbers in `skipped`.
    """

    audience: int
    sendable: int
    skipped: dict[str, int]
    transport: str
    html_bytes: int
    sms: SmsFacts | UnsetType = UNSET
    links: LinkFacts | UnsetType = UNSET
    rehearsal: RehearsalFacts | UnsetType = UNSET


class Preflight(Struct):
    """Everything found, and the facts a person decides by."""

    ok: bool
    blockers: list[Finding]
    warnings: list[Finding]
    facts: PreflightFacts


def shape_preflight(found: preflight.Preflight) -> Preflight:
    """Shape what was found."""
    facts = msgspec.convert(found.facts, PreflightFacts)
    return Preflight(found.ok, found.blockers, found.warnings, facts)


ROUTES = Routes()


@ROUTES.add("GET", "/campaigns", scope="campaigns:read", query=CampaignQuery, returns=shapes.Campaign, many=True)
async def index(request: Call) -> Answer:
    """List campaigns, newest first."""
    page = await call(store.page, request.account_id, request.query)
    return Answer([shaping.campaign(row) for row in page.rows], headers=page_headers(page))


def _look_over(account_id: int, request: CampaignCreate | CampaignPatch | SendRequest, number: int | None) -> None:
    said = getattr(request, "channel", None)
    channel = store.get(account_id, number).channel if number else said if isinstance(said, str) else "email"
    checks.check(account_id, request, channel)


@ROUTES.add(
    "POST", "/campaigns", scope="campaigns:write", reads=CampaignCreate, returns=shapes.Campaign, status=201,
    inside=checked(_look_over, parses=True),
)  # fmt: skip
async def create(request: Call) -> Answer:
    """Create a campaign as a draft."""
    await render(templates.warm, request.account_id, request.body.template_attributes)
    user_id = request.credential.user_id
    return Answer(shaping.campaign(await commit(store.create, request.account_id, request.body, user_id)))


@ROUTES.add("GET", "/campaigns/{id}", scope="campaigns:read", returns=shapes.Campaign)
async def show(request: Call) -> Answer:
    """Get a campaign."""
    return Answer(shaping.campaign(await call(store.get, request.account_id, request.id)))


@ROUTES.add(
    "PATCH", "/campaigns/{id}", scope="campaigns:write", reads=CampaignPatch, returns=shapes.Campaign,
    inside=checked(_look_over, parses=True),
)  # fmt: skip
async def update(request: Call) -> Answer:
    """Update a campaign; `status` moves it."""
    if isinstance(request.body.status, str):
        require_send(request)
        await _warm(request)
    await render(store.warm, request.account_id, request.id, request.body.template_attributes)
    args = (send.change, request.account_id, request.id, request.body, request.by)
    if isinstance(request.body.status, str):
        data = {"status": request.body.status}
        return await _shown(await commit(audit.noting, request.by, "campaign_move", *args, data=data))
    done = await commit(*args)
    return await _shown(done)


async def _warm(request: Call) -> None:
    body = request.body
    await render(preflight.warm, request.account_id, request.id, body.template_attributes, body.trigger_attributes)


async def _shown(row: Campaign) -> Answer:
    """Return a campaign as a verb left it; the rows of a large one are counted here, where nobody waits for that."""
    return Answer(shaping.campaign(await call(store.sum_up, row)))


def require_send(request: Call) -> None:
    """Raise 403 for a credential that may write campaigns and not send them."""
    require(request.credential, "campaigns:send")


@ROUTES.add(
    "POST", "/campaigns/{id}/send", scope="campaigns:send", reads=SendRequest, body_required=False,
    returns=shapes.Campaign, idempotent=True, rate="sends", inside=checked(_look_over, parses=True),
)  # fmt: skip
async def go(request: Call) -> Answer:
    """Send a campaign: attributes are applied, the audience is fixed, delivery begins."""
    await render(store.warm, request.account_id, request.id, request.body.template_attributes)
    await _warm(request)
    key = idempotency_key(request.request)
    path = f"/campaigns/{request.id}/send"

    def verb() -> tuple[Campaign, bool]:
        sent: list[Campaign] = []

        def run() -> int:
            told = (request.account_id, request.id, request.body, request.by)
            sent.append(audit.noting(request.by, "campaign_send", send.go_live, *told))
            return int(request.id)

        once = idempotency.once(request.account_id, path, key, request.raw, run, request.credential.test)
        row = store.get(request.account_id, request.id) if once.replayed else sent[0]
        return row, once.replayed

    row, replayed = await commit(verb)
    return (await _shown(row))._replace(headers={"Idempotent-Replayed": "true"} if replayed else {})


def _move(name: str, verb: Callable[[int, int, By], Campaign], summary: str) -> None:
    async def handler(request: Call) -> Answer:
        if request.credential.test and not (await call(store.get, request.account_id, request.id)).test:
            raise Fault(403, "forbidden", "a test key moves only what test keys have sent")
        if name == "resume":
            # It may have been armed and never started: then it starts now
            await render(preflight.warm, request.account_id, request.id, None)
        told = (request.by, f"campaign_{name}", verb, request.account_id, request.id)
        return await _shown(await commit(audit.noting, *told, request.by))

    handler.__doc__ = summary
    ROUTES.add("POST", f"/campaigns/{{id}}/{name}", scope="campaigns:send", returns=shapes.Campaign)(handler)


_move("pause", states.pause, "Pause a live campaign.")
_move("resume", states.resume, "Let a paused campaign go on with its open rows.")
_move("cancel", states.cancel, "End a live or paused campaign for good.")


def _review(name: str, verb: Callable[..., Campaign], scope: str, summary: str) -> None:
    async def handler(request: Call) -> Answer:
        if request.credential.test and not (await call(store.get, request.account_id, request.id)).test:
            raise Fault(403, "forbidden", "a test key decides only about what test keys have sent")
        last = request.body.note or None if name == "reject" else request.by
        told = (request.by, f"campaign_{name}", verb, request.account_id, request.id, last)
        return await _shown(await commit(audit.noting, *told))

    handler.__doc__ = summary
    ROUTES.add(
        "POST", f"/campaigns/{{id}}/{name}", scope=scope, reads=Reject if name == "reject" else None,
        body_required=False, returns=shapes.Campaign,
    )(handler)  # fmt: skip


_review("ask_approval", reviewing.ask, "campaigns:write", "Let a campaign wait for somebody to approve of it.")
_review("approve", reviewing.approve, "campaigns:approve", "Let a campaign be sent as it is.")
_review("reject", reviewing.reject, "campaigns:approve", "Keep a campaign from being sent as it is.")


@ROUTES.add(
    "POST", "/campaigns/{id}/duplicate", scope="campaigns:write", reads=CampaignCopy, body_required=False,
    returns=shapes.Campaign, status=201,
)  # fmt: skip
async def duplicate(request: Call) -> Answer:
    """Make a new draft with the words and the audience of a campaign."""
    name = request.body.name if isinstance(request.body.name, str) else None
    args = (request.account_id, request.id, request.by.user_id, name)
    return Answer(shaping.campaign(await commit(store.duplicate, *args)))


@ROUTES.add("GET", "/campaigns/{id}/preflight", scope="campaigns:read", returns=Preflight, rate="renders")
async def look(request: Call) -> Answer:
    """Look at a draft as its send would."""
    return Answer(shape_preflight(await render(preflight.check, request.account_id, request.id, request.by)))


@ROUTES.add("DELETE", "/campaigns/{id}", scope="campaigns:write", returns=shapes.Campaign)
async def delete(request: Call) -> Answer:
    """Delete a campaign; open messages are cancelled, the ledger and its events stay."""
    told = (request.by, "campaign_delete", states.delete, request.account_id, request.id, request.by)
    return await _shown(await commit(audit.noting, *told))


# What became of campaigns over the API: the report, the people behind each number, and one of them explained.


class ExplainQuery(Struct):
    """Of whom."""

    contact_id: ContactId


@ROUTES.add("GET", "/campaigns/{id}/report", scope="campaigns:read", returns=Report)
async def report(request: Call) -> Answer:
    """Report what became of a campaign, each number with the path to its people."""
    return Answer(await call(results.of, request.account_id, request.id))


@ROUTES.add(
    "GET", "/campaigns/{id}/recipients", scope="campaigns:read", query=RecipientQuery, returns=shapes.Message,
    many=True,
)  # fmt: skip
async def people(request: Call) -> Answer:
    """List the people of a campaign with what became of their messages, newest first."""
    page = await call(recipients.page, request.account_id, request.id, request.query)
    return Answer([shaping.message(row) for row in page.rows], headers=page_headers(page))


@ROUTES.add("GET", "/campaigns/{id}/explain", scope="campaigns:read", query=ExplainQuery, returns=CampaignExplained)
async def why(request: Call) -> Answer:
    """Explain why a contact gets a campaign, got it or did not."""
    return Answer(await call(groups.explain, request.account_id, request.id, request.query.contact_id))

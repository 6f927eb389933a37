"""Endpoints of campaigns and their reports."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.accounts import approvals, audit, request_limits
from appliance.accounts.approvals import ApproveRequest, RejectRequest
from appliance.api import message_schemas, schemas
from appliance.api.auth import require_contacts_scope, require_contacts_scope_of_test_key, require_scope
from appliance.api.endpoints import ApiRequest, ApiResponse, Routes, name_action, validator
from appliance.api.http import ApiError, get_idempotency_key, page_headers
from appliance.api.messages import serialize_readable
from appliance.campaigns import (
    audience_explanation,
    experiment,
    experiment_results,
    local_preflight,
    preflight,
    recipients,
    repeats,
    results,
    send,
    states,
    store,
    trigger,
)
from appliance.campaigns.audience_explanation import AudienceExplanation
from appliance.campaigns.experiment import ChooseWinner
from appliance.campaigns.experiment_results import ExperimentResult
from appliance.campaigns.findings import Finding
from appliance.campaigns.local_preflight import SendTimes
from appliance.campaigns.preflight import PreparedSend
from appliance.campaigns.recipients import RecipientQuery
from appliance.campaigns.rehearsal import MissingValue, RenderFailure, SmsTotals
from appliance.campaigns.report import CampaignReport
from appliance.campaigns.special_preflight import MAX_COUNTED_LANGUAGES, LanguageCount
from appliance.campaigns.store import CampaignCopy, CampaignCreate, CampaignPatch, CampaignQuery, SendRequest
from appliance.campaigns.variants import ExperimentWrite, Setup
from appliance.content.templates import agent_drafts
from appliance.content.templates import store as templates
from appliance.core.clock import iso
from appliance.core.validation import ContactId, PageQuery
from appliance.storage.database import Page, paginate
from appliance.storage.models import Campaign
from appliance.storage.transactions import commit, fetch, render, render_preview, render_send, scan


class CheckedLink(Struct):
    """A link of the message that is broken or was not checked, and why."""

    href: Annotated[str, Meta(description="URL of the link")]
    why: Annotated[str, Meta(description="description of the problem")]


class LinkFacts(Struct):
    """The state of the link check, which runs in the background."""

    status: Annotated[Literal["waiting", "running", "complete"], Meta(description="progress of the link check")]
    fine: Annotated[int, Meta(description="number of links that work")]
    broken: Annotated[list[CheckedLink], Meta(description="links that do not work")]
    unchecked: Annotated[
        list[CheckedLink], Meta(description="links that were not checked, or whose server rejects automated requests")
    ]


class SmsFacts(Struct, rename={"from_": "from"}):
    """Sender, opt-out text and number of parts of an SMS. The number is an estimate until all messages are rendered."""

    from_: Annotated[str, Meta(description="sender; null if none is chosen")] | None
    opt_out_hint: Annotated[str, Meta(description="opt-out text at the end; null for none")] | None
    parts: Annotated[int, Meta(description="total number of SMS parts; null if not yet known")] | None
    is_exact: (
        Annotated[
            bool,
            Meta(description="whether the count is exact, from rendering every message; null if nothing is known yet"),
        ]
        | None
    )


class RehearsalFacts(Struct):
    """The state of rendering the message for all recipients, which runs in the background."""

    status: Annotated[Literal["waiting", "running", "complete", "failed"], Meta(description="progress")]
    total: Annotated[int, Meta(description="number of recipients to render for")]
    done: Annotated[int, Meta(description="number of recipients rendered so far")]
    failed: Annotated[int, Meta(description="number of recipients for whom rendering fails")]
    failures: Annotated[list[RenderFailure], Meta(description="first rendering failures")]
    lacking: Annotated[
        list[MissingValue], Meta(description="merge tags without a default for which some recipients have no value")
    ]
    html_bytes: Annotated[int, Meta(description="size of the largest email, in bytes")]
    sms: Annotated[SmsTotals, Meta(description="SMS parts and characters; null for email")] | None


class PreflightFacts(Struct):
    """Facts for the decision to send.

    `sms` is present only for SMS, `languages` if the message has translations, `links` if its links are checked, and
    `rehearsal` if it is rendered for all recipients. `audience` is the sum of `sendable` and of all numbers in
    `skipped`.
    """

    audience: Annotated[int, Meta(description="number of contacts in the audience")]
    sendable: Annotated[int, Meta(description="number of contacts that may receive it")]
    skipped: Annotated[dict[str, int], Meta(description="number of contacts that may not receive it, by reason")]
    transport: Annotated[str, Meta(description="transport; `capture` keeps messages on this machine")]
    html_bytes: Annotated[int, Meta(description="size of the HTML for a sample contact, in bytes; 0 for SMS")]
    sms: Annotated[SmsFacts, Meta(description="facts for SMS only")] | UnsetType = UNSET
    links: Annotated[LinkFacts, Meta(description="result of the link check")] | UnsetType = UNSET
    rehearsal: Annotated[RehearsalFacts, Meta(description="result of rendering for all recipients")] | UnsetType = UNSET
    languages: (
        Annotated[
            list[LanguageCount],
            Meta(
                max_length=MAX_COUNTED_LANGUAGES,
                description="recipients by language, the largest number first; at most 100 languages",
            ),
        ]
        | UnsetType
    ) = UNSET


class Preflight(Struct):
    """All blockers and warnings of a draft, and facts for the decision to send."""

    ok: Annotated[bool, Meta(description="true if the campaign can be sent")]
    blockers: Annotated[list[Finding], Meta(description="problems that block sending, most important first")]
    warnings: Annotated[list[Finding], Meta(description="warnings, which do not block")]
    facts: Annotated[
        PreflightFacts,
        Meta(
            description="facts to check before sending: audience, sendable and skipped contacts, transport, "
            "size, links, and the result of rendering for all recipients"
        ),
    ]


def serialize_preflight(findings: preflight.Preflight) -> Preflight:
    """Return the API representation of the findings of a preflight."""
    facts = msgspec.convert(findings.facts, PreflightFacts)
    return Preflight(findings.ok, findings.blockers, findings.warnings, facts)


ROUTES = Routes()


@ROUTES.add(
    "GET",
    "/campaigns",
    scope="campaigns:read",
    agent_scope="campaigns:read",
    query_type=CampaignQuery,
    response_type=schemas.Campaign,
    returns_list=True,
)
async def list_campaigns(request: ApiRequest) -> ApiResponse:
    """List campaigns, newest first."""
    page = await fetch(store.list_campaigns, request.account_id, request.query)
    return ApiResponse([schemas.serialize_campaign(row) for row in page.rows], headers=page_headers(page))


def _validate_campaign(
    account_id: int, request: CampaignCreate | CampaignPatch | SendRequest, campaign_id: int | None
) -> None:
    channel_field = getattr(request, "channel", None)
    channel, setup = channel_field if isinstance(channel_field, str) else "email", None
    if campaign_id:
        campaign = store.get(account_id, campaign_id)
        channel, setup = campaign.channel, campaign.setup
    store.validate_write(account_id, request, channel, setup=setup)


@ROUTES.add(
    "POST", "/campaigns", scope="campaigns:write", agent_scope="campaigns:write",
    body_type=CampaignCreate, response_type=schemas.Campaign, status=201,
    validate=validator(_validate_campaign, run=render),
)  # fmt: skip
async def create_campaign(request: ApiRequest) -> ApiResponse:
    """Create a campaign as a draft.

    The `event` of an A/B test or holdout requires `contacts:read` too, and `by_amount` requires `events:read`.
    `local_time` requires `contacts:read`.
    """
    _require_event_access(request)
    _require_zone_access(request)
    attributes, channel = request.body.template_attributes, request.body.channel or "email"
    content = await render(templates.prepare, request.account_id, attributes, None, channel) if attributes else None
    if request.caller.is_agent:
        trigger.refuse_confirmation(request.body.trigger_attributes)
    args = (store.create, request.account_id, request.body, request.caller.person_id, content)
    campaign = await commit(agent_drafts.run_and_mark, request.caller, "campaign_create", *args)
    return ApiResponse(schemas.serialize_campaign(campaign))


@ROUTES.add(
    "GET", "/campaigns/{id}", scope="campaigns:read", agent_scope="campaigns:read", response_type=schemas.Campaign
)
async def get_campaign(request: ApiRequest) -> ApiResponse:
    """Get a campaign."""
    return ApiResponse(schemas.serialize_campaign(await fetch(store.get, request.account_id, request.id)))


@ROUTES.add(
    "PATCH", "/campaigns/{id}", scope="campaigns:write", agent_scope="campaigns:write",
    body_type=CampaignPatch, response_type=schemas.Campaign,
    validate=validator(_validate_campaign, run=render),
)  # fmt: skip
async def update_campaign(request: ApiRequest) -> ApiResponse:
    """Update a campaign; `status` changes its state.

    A new `event` of an A/B test or holdout requires `contacts:read` too, and new `by_amount` requires `events:read`. So
    does a new `local_time` require `contacts:read`.
    """
    campaign = await fetch(store.get, request.account_id, request.id)
    _require_event_access(request, campaign.setup)
    _require_zone_access(request, (campaign.local_time, campaign.best_hour_until))
    prepared = preflight.NOT_PREPARED
    if isinstance(request.body.status, str):
        require_send_scope(request)
        prepared = await _prepare_send(request)
    content = await render(store.prepare, request.account_id, request.id, request.body.template_attributes)
    args = (send.update, request.account_id, request.id, request.body, request.caller, content, prepared)
    if isinstance(request.body.status, str):
        data = {"status": request.body.status}
        return await _campaign_response(
            await commit(audit.run_and_record, request.caller, "campaign_move", *args, data=data)
        )
    campaign = await commit(agent_drafts.run_and_mark, request.caller, "campaign_update", *args)
    return await _campaign_response(campaign)


def _require_event_access(request: ApiRequest, stored: Setup | None = None) -> None:
    """Raise a 403 error if the credential lacks the scope that the new event of a test requires.

    The figures of a test show how many contacts of the audience have its event, and with `by_amount` their amounts. A
    key that chooses the event and the audience could read them for any contact (T45 in docs/threats.md). The event that
    the test counts already is not new.
    """
    new = request.body.experiment
    if not isinstance(new, ExperimentWrite):
        return
    event, by_amount = (None, False) if stored is None else (stored.experiment.event, stored.experiment.by_amount)
    is_new_event = isinstance(new.event, str) and new.event != event
    if is_new_event:
        require_contacts_scope(request)
    has_amounts = by_amount if new.by_amount is UNSET else new.by_amount
    if has_amounts and (is_new_event or not by_amount):
        require_scope(request.credential, "events:read")


def _require_zone_access(request: ApiRequest, stored: tuple[str | None, int | None] | None = None) -> None:
    """Raise a 403 error if the credential chooses a new local time or best hour without the scope `contacts:read`.

    The time of a message would then reveal the time zone of its recipient, or the hours of the recipient's clicks (T45
    in docs/threats.md). `stored` has the present local time and `best_hour_until`.
    """
    new = (request.body.local_time, request.body.best_hour_until or None)
    if isinstance(new[0], str) and new != stored:
        require_contacts_scope(request)


async def _prepare_send(request: ApiRequest) -> PreparedSend:
    body = request.body
    args = (request.account_id, request.id, body.template_attributes, body.trigger_attributes)
    return await render_send(preflight.prepare_send, *args)


async def _campaign_response(row: Campaign) -> ApiResponse:
    """Return the response for a changed campaign.

    The messages of the campaign are counted here, after the write transaction, because counting the messages of a large
    campaign takes long.
    """
    return ApiResponse(schemas.serialize_campaign(await fetch(store.add_sums, row)))


def require_send_scope(request: ApiRequest) -> None:
    """Raise a 403 error unless the credential has the scope `campaigns:send`; `campaigns:write` is not enough.

    A test key also needs `contacts:read`.
    """
    require_scope(request.credential, "campaigns:send")
    require_contacts_scope_of_test_key(request)


def _has_only_parts_of_audience(request: ApiRequest) -> bool:
    """Return whether parts of `trigger_attributes.data` were sent by their aliases only, and not the whole."""
    used = request.parse_result.aliases if request.parse_result is not None else {}
    trigger = request.raw.get("trigger_attributes") if used else None
    is_whole = isinstance(trigger, dict) and "data" in trigger
    return not is_whole and any(field.startswith("trigger_attributes.data.") for field in used)


@ROUTES.add(
    "POST", "/campaigns/{id}/send", scope="campaigns:send", body_type=SendRequest, body_required=False,
    response_type=schemas.Campaign, idempotent=True, rate="sends", validate=validator(_validate_campaign, run=render),
)  # fmt: skip
async def send_campaign(request: ApiRequest) -> ApiResponse:
    """Send a campaign: apply the attributes, create the audience snapshot and start delivery.

    A test key also needs `contacts:read`, and so does a new `local_time`.
    """
    require_contacts_scope_of_test_key(request)
    if _has_only_parts_of_audience(request):
        body = await fetch(store.keep_stored_audience, request.account_id, request.id, request.body)
        request = request._replace(body=body)
    if request.body is not None and isinstance(request.body.local_time, str):
        campaign = await fetch(store.get, request.account_id, request.id)
        _require_zone_access(request, (campaign.local_time, campaign.best_hour_until))
    content = await render(store.prepare, request.account_id, request.id, request.body.template_attributes)
    prepared = await _prepare_send(request)
    key = get_idempotency_key(request.http)
    path = f"/campaigns/{request.id}/send"

    def write() -> tuple[Campaign, bool]:
        campaigns: list[Campaign] = []

        def run() -> int:
            args = (request.account_id, request.id, request.body, request.caller, content, prepared)
            campaigns.append(audit.run_and_record(request.caller, "campaign_send", send.go_live, *args))
            return int(request.id)

        replay_result = request_limits.run_once(
            request.account_id, path, key, request.raw, run, request.credential.is_test
        )
        row = store.get(request.account_id, request.id) if replay_result.is_replay else campaigns[0]
        return row, replay_result.is_replay

    row, replayed = await commit(write)
    return (await _campaign_response(row))._replace(headers={"Idempotent-Replayed": "true"} if replayed else {})


def _add_transition(name: str, verb: Callable[..., Campaign], summary: str) -> None:
    async def handler(request: ApiRequest) -> ApiResponse:
        if request.credential.is_test and not (await fetch(store.get, request.account_id, request.id)).test:
            raise ApiError(403, "forbidden", "A test key may act only on campaigns sent by test keys.")
        args: tuple[Any, ...] = (request.account_id, request.id, request.caller)
        if name == "resume":
            require_contacts_scope_of_test_key(request)
            # A scheduled campaign that was paused before its start is sent when it is resumed, which needs a preflight.
            args = (*args, await render_send(preflight.prepare_send, request.account_id, request.id))
        return await _campaign_response(
            await commit(audit.run_and_record, request.caller, f"campaign_{name}", verb, *args)
        )

    handler.__name__, handler.__doc__ = f"{name}_campaign", summary
    ROUTES.add("POST", f"/campaigns/{{id}}/{name}", scope="campaigns:send", response_type=schemas.Campaign)(handler)


_add_transition("pause", states.pause, "Pause an active campaign.")
_add_transition("resume", send.resume, "Resume a paused campaign with its remaining messages.")
_add_transition("cancel", states.cancel, "Cancel an active or paused campaign permanently.")


def _add_review_action(name: str, verb: Callable[..., Campaign], scope: str, summary: str) -> None:
    async def handler(request: ApiRequest) -> ApiResponse:
        if request.credential.is_test and not (await fetch(store.get, request.account_id, request.id)).test:
            raise ApiError(403, "forbidden", "A test key may act only on campaigns sent by test keys.")
        arguments: tuple[Any, ...] = (request.body.note or None if name == "reject" else request.caller,)
        if name == "ask_approval":
            arguments += (await render_send(preflight.prepare_send, request.account_id, request.id),)

        def write() -> Campaign:
            if name == "approve":
                approvals.require_unchanged(store.get(request.account_id, request.id), request.body.updated_at)
            args = (verb, request.account_id, request.id, *arguments)
            campaign: Campaign = audit.run_and_record(request.caller, f"campaign_{name}", *args)
            return campaign

        return await _campaign_response(await commit(write))

    name_action(handler, name, "campaign", summary)
    ROUTES.add(
        "POST",
        f"/campaigns/{{id}}/{name}",
        scope=scope,
        body_type={"approve": ApproveRequest, "reject": RejectRequest}.get(name),
        body_required=False,
        response_type=schemas.Campaign,
        has_conflicts=name == "approve",
    )(handler)


_add_review_action("ask_approval", send.request_approval, "campaigns:write", "Request approval of a campaign.")
_add_review_action("approve", send.approve_campaign, "campaigns:approve",
                   "Approve a campaign in its current state, or as it was read.")  # fmt: skip
_add_review_action("reject", send.reject_campaign, "campaigns:approve", "Reject a campaign in its current state.")


@ROUTES.add(
    "POST", "/campaigns/{id}/duplicate", scope="campaigns:write", agent_scope="campaigns:write",
    body_type=CampaignCopy, body_required=False,
    response_type=schemas.Campaign, status=201,
)  # fmt: skip
async def duplicate_campaign(request: ApiRequest) -> ApiResponse:
    """Create a draft with the content and audience of a campaign."""
    name = request.body.name if isinstance(request.body.name, str) else None
    args = (store.duplicate, request.account_id, request.id, request.caller, name)
    copy = await commit(agent_drafts.run_and_mark, request.caller, "campaign_create", *args)
    return ApiResponse(schemas.serialize_campaign(copy))


@ROUTES.add(
    "GET",
    "/campaigns/{id}/preflight",
    scope="campaigns:read",
    agent_scope="campaigns:read",
    response_type=Preflight,
    rate="renders",
)
async def preflight_campaign(request: ApiRequest) -> ApiResponse:
    """Check a draft for blockers and warnings before it is sent.

    Rendering for all recipients requires `contacts:read` too; without it, `rehearsal` is left out. An agent gets no
    `links`, because checking them requests the addresses in its draft.
    """
    check = partial(
        preflight.run_preflight, can_read_contacts=request.credential.can_read_contacts,
        can_check_links=not request.credential.is_agent,
    )  # fmt: skip
    findings = await render_preview(check, request.account_id, request.id, request.caller)
    return ApiResponse(serialize_preflight(findings))


@ROUTES.add("DELETE", "/campaigns/{id}", scope="campaigns:write", response_type=schemas.Campaign)
async def delete_campaign(request: ApiRequest) -> ApiResponse:
    """Delete a campaign. Open messages are cancelled; sent messages and events are kept."""
    args = (request.caller, "campaign_delete", states.delete, request.account_id, request.id, request.caller)
    return await _campaign_response(await commit(audit.run_and_record, *args))


class ExplainQuery(Struct):
    """The contact for whom the audience of the campaign is explained."""

    contact_id: Annotated[ContactId, Meta(description="id of the contact to explain; required")]


@ROUTES.add(
    "GET", "/campaigns/{id}/report", scope="campaigns:read", agent_scope="campaigns:read", response_type=CampaignReport
)
async def get_campaign_report(request: ApiRequest) -> ApiResponse:
    """Get the report of a campaign; each number has the path of its recipients."""
    return ApiResponse(await fetch(results.build_report, request.account_id, request.id))


@ROUTES.add(
    "GET", "/campaigns/{id}/send_times", scope="campaigns:read", agent_scope="campaigns:read", response_type=SendTimes
)
async def get_send_times(request: ApiRequest) -> ApiResponse:
    """Get the send times of a campaign with a local time, by time zone; nothing for other campaigns.

    It shows where contacts are, so it requires `contacts:read` too.
    """
    require_contacts_scope(request)
    return ApiResponse(await scan(local_preflight.get_send_times, request.account_id, request.id))


@ROUTES.add(
    "GET",
    "/campaigns/{id}/experiment",
    scope="campaigns:read",
    agent_scope="campaigns:read",
    response_type=ExperimentResult,
)
async def get_campaign_experiment(request: ApiRequest) -> ApiResponse:
    """Get the figures of a campaign's A/B test or holdout, and the conclusion; 404 if it has none."""
    return ApiResponse(await scan(experiment_results.get_result, request.account_id, request.id))


@ROUTES.add(
    "POST", "/campaigns/{id}/experiment/winner", scope="campaigns:send", body_type=ChooseWinner,
    response_type=schemas.Campaign,
)  # fmt: skip
async def choose_campaign_winner(request: ApiRequest) -> ApiResponse:
    """End the A/B test of a campaign and send a variant to all recipients who wait."""
    if request.credential.is_test and not (await fetch(store.get, request.account_id, request.id)).test:
        raise ApiError(403, "forbidden", "A test key may act only on campaigns sent by test keys.")
    decision = await scan(experiment.find_decision, request.account_id, request.id)
    args = (experiment.choose_winner, request.account_id, request.id, request.body.variant, request.caller, decision)
    return await _campaign_response(await commit(audit.run_and_record, request.caller, "campaign_winner", *args))


@ROUTES.add(
    "GET", "/campaigns/{id}/recipients", scope="campaigns:read", agent_scope="campaigns:read",
    query_type=RecipientQuery,
    response_type=message_schemas.Message, returns_list=True,
)  # fmt: skip
async def list_campaign_recipients(request: ApiRequest) -> ApiResponse:
    """List recipients of a campaign with the state of their messages, newest first."""
    page = await scan(recipients.list_recipients, request.account_id, request.id, request.query)
    return ApiResponse(await serialize_readable(request, page.rows), headers=page_headers(page))


@ROUTES.add(
    "GET",
    "/campaigns/{id}/explain",
    scope="campaigns:read",
    agent_scope="campaigns:read",
    query_type=ExplainQuery,
    response_type=AudienceExplanation,
)
async def explain_campaign_recipient(request: ApiRequest) -> ApiResponse:
    """Explain why a contact receives a campaign, received it or did not.

    Also requires `contacts:read`, because the answer says whether the contact is in the campaign's lists and segments.
    """
    require_contacts_scope(request)
    return ApiResponse(
        await scan(audience_explanation.explain_contact, request.account_id, request.id, request.query.contact_id)
    )


class Occurrence(Struct):
    """A date of a repeating campaign that is over: what was sent then, or why nothing was."""

    due_at: Annotated[schemas.Moment, Meta(description="date and time of the repetition")]
    outcome: Annotated[
        Literal["sent", "missed", "unchanged", "blocked"],
        Meta(
            description="`missed`: too late, after a downtime; `unchanged`: the content was not changed since the last "
            "send; `blocked`: a finding of the preflight, which made the campaign a draft"
        ),
    ]
    reason: Annotated[str, Meta(description="code of the finding of the preflight; null without one")] | None
    campaign_id: Annotated[int, Meta(description="id of the campaign that was sent; null if nothing was")] | None


@ROUTES.add(
    "GET", "/campaigns/{id}/occurrences", scope="campaigns:read", agent_scope="campaigns:read",
    query_type=PageQuery, response_type=Occurrence,
    returns_list=True,
)  # fmt: skip
async def list_campaign_occurrences(request: ApiRequest) -> ApiResponse:
    """List the dates of a repeating campaign that are over, latest first."""
    page = await fetch(_load_occurrences, request.account_id, request.id, request.query)
    occurrences = [Occurrence(iso(row.due_at) or "", row.outcome, row.reason, row.campaign_id) for row in page.rows]
    return ApiResponse(occurrences, headers=page_headers(page))


def _load_occurrences(account_id: int, campaign_id: int, query: PageQuery) -> Page:
    store.get_row(account_id, campaign_id)
    return paginate(repeats.list_occurrences(campaign_id), query.page, query.size())

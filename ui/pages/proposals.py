"""The pages of proposals: what agents propose, and the switch that stops all agents."""

from functools import partial
from typing import Any

from msgspec import structs
from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import access, agents
from appliance.agents import proposals
from appliance.agents.kinds import BY_NAME
from appliance.agents.proposals import ApproveProposal, ProposalQuery
from appliance.campaigns import preflight
from appliance.content.designs import document as designs
from appliance.core import errors, validation
from appliance.core.hidden_characters import show_hidden
from appliance.core.i18n import format_data_number, gettext, gettext_noop, pgettext, pgettext_noop
from appliance.flows import replays
from appliance.sending.messages import preview
from appliance.settings import config
from appliance.storage.models import Proposal, User
from appliance.storage.transactions import commit, fetch, render_for, render_preview, render_send, scan
from ui import formats, view
from ui.forms import Form, parse_int
from ui.guard import ignore_double_submit, signed_in
from ui.pages import approvals
from ui.session import Pages, Visit
from ui.widgets import replay_words

pages = Pages("ui_proposals", url_prefix="/proposals")

STATES = {
    "open": ("sched", pgettext_noop("proposal", "Open")),
    "approved": ("done", pgettext_noop("proposal", "Approved")),
    "returned": ("paused", pgettext_noop("proposal", "Returned")),
    "withdrawn": ("stopped", pgettext_noop("proposal", "Withdrawn")),
}  # fmt: skip


def _list_states() -> dict[str, tuple[str, str]]:
    return {key: (tone, pgettext("proposal", label)) for key, (tone, label) in STATES.items()}


_VERBS = {
    "send_campaign": gettext_noop("Approve and send"),
    "start_flow": gettext_noop("Approve and start"),
    "change_flow": gettext_noop("Approve change"),
    "change_segment": gettext_noop("Approve change"),
    "change_template": gettext_noop("Approve change"),
}
_APPROVED = gettext_noop("Approved.")
_RETURNED = gettext_noop("Returned. The agent can read your note.")
_DECIDED = gettext_noop("The status changed in the meantime. This page shows the current status.")


@pages.get("/", strict_slashes=False)
@signed_in("campaigns:read")
async def list_proposals(request: Request, visit: Visit) -> HTTPResponse:
    """Show the proposals of agents, and to owners and admins the agents with the switch."""
    state = request.args.get("state") or ("open" if "state" not in request.args else "")
    state = state if state in STATES else ""
    raw = {"page": parse_int(request.args.get("page"), 1, 1), "limit": 50, **({"state": state} if state else {})}
    page = await fetch(proposals.fetch_page, visit.account_id, validation.read(ProposalQuery, raw), visit.actor)
    has_agents = visit.can(access.ADMIN_SCOPE)
    return view.render(
        request, "proposals/index.html", page=page, state=state, states=_list_states(), kinds=BY_NAME,
        agents=await fetch(agents.list_agents, visit.account_id) if has_agents else [], may_stop=has_agents,
        limit=config.current().limits.agent_acts_per_hour, stopped_at=visit.account.agents_stopped_at,
        last_used=access.last_used_at,
    )  # fmt: skip


@pages.get("/<proposal_id:int>")
@signed_in("campaigns:read")
async def show_proposal(request: Request, visit: Visit, proposal_id: int) -> HTTPResponse:
    """Show a proposal with what it changes, whom it reaches, and the buttons of the decision."""
    return await _render_proposal(request, visit, proposal_id, Form(), 200)


async def _render_proposal(
    request: Request, visit: Visit, proposal_id: int, form: Form, status: int
) -> HTTPResponse:  # fmt: skip
    row = await fetch(proposals.get, visit.account_id, proposal_id, visit.actor)
    review = await scan(proposals.review, visit.account_id, proposal_id, visit.actor)
    kind, checklist = BY_NAME[row.kind], None
    if row.state == "open" and row.kind == "send_campaign" and review.version:
        # The agent may have put what it has read into a link, which is not approved yet.
        check = partial(preflight.run_preflight, can_check_links=False)
        result = await render_preview(check, visit.account_id, row.subject_id, visit.actor)
        # Who approves the proposal confirms a send to all contacts, whose number the page shows.
        result = structs.replace(
            result, blockers=[finding for finding in result.blockers if finding.code != "confirmation_required"]
        )
        checklist = approvals.build_checklist(result, row.subject_id, visit, is_later="scheduled_at" in row.changes)
    may_decide = row.state == "open" and bool(review.version) and visit.can("campaigns:send")
    return view.render(
        request, "proposals/show.html", status, proposal=row, review=review, kind=kind, form=form,
        state=_list_states()[row.state], verb=_VERBS[row.kind], checklist=checklist, may_decide=may_decide,
        may_approve=may_decide and await fetch(proposals.can_decide, row, visit.actor),
        subject_url=kind.path.format(row.subject_id) if review.version else "",
        decider=await fetch(_find_decider, row), cost=_format_cost(review.cost),
        **await scan(_load_replay, visit.account_id, row), **await _list_previews(visit, proposal_id),
    )  # fmt: skip


async def _list_previews(visit: Visit, proposal_id: int) -> dict[str, Any]:
    """Return `emails`, with their names and whether there is one before, and `sources`, the bodies that they show."""
    emails = await scan(proposals.list_emails, visit.account_id, proposal_id, visit.actor)
    # Open are sources whose words the preview, with its sample values, may not show: the plain-text version beside a
    # design, and a body with conditions.
    bodies = {str(fields["body"]) for email in emails for fields in (email.before, email.after)
              if fields is not None and fields["body"] and not designs.get_sections(fields["design"])}  # fmt: skip
    return {
        "emails": [(show_hidden(email.name), email.before is not None) for email in emails],
        "sources": {show_hidden(body) for body in bodies if "<" in body and "{%" not in body},
    }


@pages.get("/<proposal_id:int>/preview")
@signed_in("campaigns:read")
async def show_preview(request: Request, visit: Visit, proposal_id: int) -> HTTPResponse:
    """Show an email of a proposal, with sample values, as a document for a frame.

    `n` is its place in the proposal, from 1, and `side` is `before` or `after`. Images of other servers are not loaded:
    an agent may have put what it has read into their addresses, and they are not approved yet.
    """
    number, side = parse_int(request.args.get("n")), request.args.get("side")
    emails = await scan(proposals.list_emails, visit.account_id, proposal_id, visit.actor)
    email = emails[number - 1] if number <= len(emails) else None
    fields = None if email is None else email.before if side == "before" else email.after
    if fields is None:
        raise errors.NotFound

    def read() -> str:
        return preview.render_fields(visit.account_id, dict(fields)).html

    try:
        return view.render_email(await render_for(visit.account_id, read), has_remote_images=False)
    except errors.Invalid as error:
        return view.render_email_error(next(iter(error.fields.values()))[0])


def _find_decider(row: Proposal) -> str:
    user = User.get_or_none(User.id == row.decided_by_id) if row.decided_by_id is not None else None
    return str(user.name or user.email) if user is not None else ""


def _format_cost(cost: float | None) -> str:
    return "" if cost is None else format_data_number(round(cost, 2))


def _load_replay(account_id: int, row: Proposal) -> dict[str, Any]:
    """Return the replay of what is proposed: `replay`, `is_replaying`, `percent` and `headline`.

    A replay of something else has no headline; without a replay they are empty.
    """
    replay, is_own = proposals.find_replay(row)
    is_replaying = replay is not None and is_own and replay.state in ("waiting", "running")
    shown: dict[str, Any] = {
        "replay": replay, "is_replaying": is_replaying, "percent": 0, "headline": "", "replay_rows": [],
        "compares": False, "replayed_days": replay.days if replay and is_own else proposals.REPLAYED_DAYS,
    }  # fmt: skip
    if replay is None or not is_own:
        return shown
    shown["percent"] = round(100 * replays.get_progress(replay))
    result = replays.read_result(replay)
    if result is not None:
        words = replay_words.summarize(account_id, result, replay.days)
        shown |= {"headline": words["headline"], "replay_rows": words["rows"], "compares": words["compares"]}
    return shown


@pages.post("/<proposal_id:int>/approve")
@signed_in("campaigns:send")
@ignore_double_submit
async def approve_proposal(request: Request, visit: Visit, proposal_id: int) -> HTTPResponse:
    """Approve a proposal as the page showed it, which carries it out."""
    form = Form.from_request(request)
    body = ApproveProposal(version=form["version"][:64])
    try:
        prepared = await render_send(proposals.prepare_approval, visit.account_id, proposal_id, visit.actor)
        args = (visit.account_id, proposal_id, body, visit.actor, prepared)
        await commit(proposals.approve, *args)
    except errors.Conflict as error:
        form.errors["base"] = error.message
        return await _render_proposal(request, visit, proposal_id, form, 409)
    except errors.Invalid as error:
        messages = [message for texts in error.fields.values() for message in texts] or [error.message]
        form.errors["base"] = " ".join(formats.sentence(message) for message in dict.fromkeys(messages))
        return await _render_proposal(request, visit, proposal_id, form, 422)
    view.flash(request, gettext(_APPROVED))
    return view.redirect(request, f"/proposals/{proposal_id}")


@pages.post("/<proposal_id:int>/return", name="return")
@signed_in("campaigns:send")
async def return_proposal(request: Request, visit: Visit, proposal_id: int) -> HTTPResponse:
    """Return a proposal to its agent, with the note of the form."""
    note = Form.from_request(request)["note"][:1000]
    try:
        await commit(proposals.return_to_agent, visit.account_id, proposal_id, note, visit.actor)
    except errors.Conflict:
        view.flash(request, gettext(_DECIDED))
    else:
        view.flash(request, gettext(_RETURNED))
    return view.redirect(request, f"/proposals/{proposal_id}")


@pages.post("/agents")
@signed_in(access.ADMIN_SCOPE)
async def switch_agents(request: Request, visit: Visit) -> HTTPResponse:
    """Stop all agents of the account, or let them go on."""
    is_stopped = Form.from_request(request)["stopped"] == "yes"
    await commit(agents.set_stopped, visit.account_id, is_stopped, visit.actor)
    view.flash(request, gettext("All agents are stopped.") if is_stopped else gettext("The agents may go on."))
    return view.redirect(request, "/proposals")

"""The jump box: pages, acts, people and things by a few letters of their names."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from sanic import Request
from sanic.response import HTTPResponse

from appliance.audience.contacts import lists
from appliance.audience.contacts import store as contacts
from appliance.audience.contacts.requests import ContactQuery
from appliance.audience.segments import store as segments
from appliance.audience.segments.store import SegmentQuery
from appliance.campaigns import store as campaigns
from appliance.campaigns.requests import CampaignQuery
from appliance.content.templates import store as templates
from appliance.content.templates.requests import TemplateQuery
from appliance.core import fields
from appliance.flows import store as flows
from appliance.flows.requests import FlowQuery
from appliance.storage.work import call
from ui import rights, view, words
from ui.guard import signed_in
from ui.session import Pages, Visit

pages = Pages("ui_jump")
_FEW = 5
# What can be begun from anywhere: words, address, icon.
_ACTS = (
    ("New email", "/campaigns/new", "mail"),
    ("New SMS", "/campaigns/new?channel=sms", "smartphone"),
    ("Add a person", "/contacts/new", "user-plus"),
    ("Import people", "/contacts/imports/new", "upload"),
    ("New list", "/lists/new", "list"),
    ("New segment", "/segments/new", "list-filter"),
    ("New flow", "/flows/new", "workflow"),
    ("New template", "/templates/new", "layout-template"),
)
# Pages below those of the navigation; found by their names alone
_BELOW = (
    ("Outbox", "/outbox", "inbox"),
    ("Do not send", "/contacts/suppressions", "ban"),
    ("Imports", "/contacts/imports", "upload"),
    ("Answers", "/activity/answers", "inbox"),
    ("Pictures", "/templates/pictures", "image"),
    ("Documentation", "/docs", "book-open"),
)
_GROUPS = {
    "page": "Pages", "act": "Begin", "contact": "People", "campaign": "Campaigns", "flow": "Flows",
    "template": "Templates", "list": "Lists", "segment": "Segments",
}  # fmt: skip
# Things with names: group, how their page is asked for, its query, icon, where each lives.
_THINGS: tuple[tuple[str, Any, Any, str, str], ...] = (
    ("campaign", campaigns.page, CampaignQuery, "send", "/campaigns/{}"),
    ("flow", flows.page, FlowQuery, "zap", "/flows/{}"),
    ("template", templates.page, TemplateQuery, "layout-template", "/templates/{}/edit"),
    ("list", lists.page, lists.ListQuery, "list", "/lists/{}"),
    ("segment", segments.page, SegmentQuery, "users", "/segments/{}"),
)


class Place(NamedTuple):
    """Somewhere to go: its group, its name, its address, its icon, and what tells it from others."""

    group: str
    title: str
    href: str
    icon: str
    more: str = ""


@pages.get("/jump", name="jump")
@signed_in
async def jump(request: Request, visit: Visit) -> HTTPResponse:
    """What the letters name; without any the pages, the acts and the latest campaigns."""
    q = (request.args.get("q") or "").strip()[:100]
    found = await call(_found, visit.account_id, visit.user.role, q)
    groups = [(label, some) for key, label in _GROUPS.items() if (some := [one for one in found if one.group == key])]
    return view.page(request, "jump.html", q=q, count=len(found), groups=groups)


def _found(account_id: int, role: str, q: str) -> list[Place]:
    low = q.lower()
    here = [Place("page", one.label, one.href, one.icon) for one in view.items("") if low in one.label.lower()]
    below = [Place("page", title, href, icon) for title, href, icon in _below(role) if low and low in title.lower()]
    offered = [act for act in _ACTS if rights.may(role, "POST", act[1].partition("?")[0])]
    acts = [Place("act", title, href, icon) for title, href, icon in offered if low in title.lower()]
    return [*here, *below, *acts, *(_people(account_id, q) if q else ()), *_things(account_id, q)]


def _below(role: str) -> Iterator[tuple[str, str, str]]:
    yield from _BELOW
    for name, href, rulers in view.SETTINGS[1:]:
        if not rulers or role in view.RULERS:
            yield f"Settings: {name}", href, "settings"


def _people(account_id: int, q: str) -> Iterator[Place]:
    for one in contacts.page(account_id, fields.read(ContactQuery, {"search": q, "limit": _FEW})).rows:
        address = next((channel.value for channel in one.channels), "")
        title = words.name(one)
        yield Place("contact", title, f"/contacts/{one.id}", "users", address if address != title else "")


def _things(account_id: int, q: str) -> Iterator[Place]:
    linked = {item.href for item in view.items("")}
    for group, page, query, icon, href in _THINGS:
        if href.rpartition("/{}")[0] not in linked or (not q and group != "campaign"):
            continue
        raw: dict[str, Any] = {"limit": _FEW} | ({"search": q} if q else {})
        # What a campaign or a flow says is found with them
        asked = fields.read(query, raw | ({"standalone": True} if query is TemplateQuery else {}))
        for one in page(account_id, asked).rows:
            more = words.PHASES[one.phase][1] if group == "campaign" else ""
            yield Place(group, one.name or "Without a name", href.format(one.id), icon, more)

"""Keys for scripts: what they reach, made and shown once, revoked."""

from typing import Any

from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import keys, users
from appliance.core import errors
from appliance.settings import config
from appliance.storage.work import call, commit
from ui import once, view
from ui.forms import Form
from ui.guard import signed_in
from ui.pressed import one_press
from ui.session import Pages, Visit

pages = Pages("ui_keys", url_prefix="/settings/keys")
# What most keys are for, in the words of a scope; the rest is chosen one by one
REACHES = (
    ("full", "Everything", "All that the interface for scripts can do, sending included."),
    ("read", "Only look", "Reads everything and changes nothing."),
    ("send", "Send single messages", "Order confirmations and the like, and your own events. Reads no people."),
    ("own", "Chosen one by one", ""),
)
AREAS = (
    ("contacts", "Contacts, lists, segments"), ("templates", "Templates and pictures"), ("events", "Events"),
    ("campaigns", "Campaigns"), ("flows", "Flows"), ("messages", "Single messages"), ("domains", "Sending domains"),
    ("account", "Account, brand, webhooks"),
)  # fmt: skip
_ACTS = {"read": "look", "write": "change", "send": "send", "approve": "approve"}


@pages.get("/", name="index", strict_slashes=False)
@signed_in
async def index(request: Request, visit: Visit) -> HTTPResponse:
    """The keys that open something, and the one that was just made."""
    return await _page(request, visit, Form({"scope": "full"}), 200)


@pages.post("/", name="create", strict_slashes=False)
@signed_in
@one_press
async def create(request: Request, visit: Visit) -> HTTPResponse:
    """Make a key; the next page shows it, once."""
    form = Form.of(request)
    form.need("name", "Say what uses it, for example Shop.")
    scope = ",".join(form.all("scopes")) if form["scope"] == "own" else form["scope"]
    if not scope:
        form.wrong("scope", "Choose at least one thing that the key may do.")
    try:
        if form.errors:
            raise errors.Invalid({})
        asked = keys.KeyWrite(form["name"][:255], scope, form["test"] == "yes")
        _, made = await commit(keys.make, visit.account_id, asked, visit.by)
    except errors.Invalid as refused:
        return await _page(request, visit, form.take(refused) if refused.fields else form, 422)
    once.keep(visit.session.id, "key", {"key": made, "name": form["name"]})
    return view.go(request, "/settings/keys")


@pages.post("/<key_id:int>/revoke", name="revoke")
@signed_in
async def revoke(request: Request, visit: Visit, key_id: int) -> HTTPResponse:
    """End a key for good."""
    gone = await commit(keys.revoke, visit.account_id, key_id, visit.by)
    view.say(request, f"The key {gone.name} opens nothing any more.")
    return view.go(request, "/settings/keys")


def scopes() -> list[tuple[str, list[tuple[str, str]]]]:
    """Return what a key may do, by area: its name, and scope and word of each act."""
    return [
        (label, [(scope, word) for act, word in _ACTS.items() if (scope := f"{area}:{act}") in keys.SCOPES])
        for area, label in AREAS
    ]


def said(scope: str) -> str:
    """Say in words what a key reaches."""
    known = next((words for name, words, _ in REACHES if name == scope), None)
    if known:
        return known
    labels = dict(AREAS)
    parts: dict[str, list[str]] = {}
    for one in scope.split(","):
        area, _, act = one.strip().partition(":")
        parts.setdefault(labels.get(area, area), []).append(_ACTS.get(act, act))
    return "; ".join(f"{area}: {', '.join(acts)}" for area, acts in parts.items())


async def _page(request: Request, visit: Visit, form: Form, status: int) -> HTTPResponse:
    if visit.user.role not in ("owner", "admin"):
        raise errors.NotAllowed("Only owners and admins look after keys.")
    rows = await call(users.keys, visit.account_id)
    names: dict[int, Any] = {user.id: user.name for user in await call(users.members, visit.account_id)}
    return view.page(
        request, "settings/keys.html", status, form=form, found=rows, names=names, said=said, scopes=scopes(),
        reaches=REACHES, made=once.take(visit.session.id, "key"), base=config.base_url(config.current()),
        last_used=keys.last_used,
    )  # fmt: skip

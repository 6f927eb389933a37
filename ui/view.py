"""How a page is answered: whole, or only the block that the request's target names."""

from functools import cache, lru_cache
from typing import Any, NamedTuple

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup
from sanic import Request
from sanic.response import HTTPResponse

from appliance.core import assets, clock, data_dir
from ui import charts, files, rights, session, talk, words

# The keys that do something, as the help of the keyboard tells them.

# Keys, and what they do. Single ones can be switched off; none of them destroys anything.
KEYS = (
    ("Ctrl K", "jump to a page, a person, a campaign"),
    ("/", "search on this page"),
    ("c", "new email"),
    ("g h", "Home"),
    ("g c", "Campaigns"),
    ("g f", "Flows"),
    ("g t", "Templates"),
    ("g p", "People"),
    ("g l", "Lists"),
    ("g a", "Activity"),
    ("g i", "Inbox"),
    ("g s", "Settings"),
    ("j k", "next and previous row"),
    ("x", "select the row"),
    ("Shift x", "select up to the row"),
    ("Alt ↑ ↓", "move the step of a flow; arrows go between steps, a adds one"),
    ("Esc", "close, clear the selection"),
    ("?", "this list"),
)


# The pages in the sidebar and the tab bar, in their order.


class Item(NamedTuple):
    """One line of the navigation."""

    label: str
    href: str
    icon: str
    group: str
    is_here: bool


# Label, address, icon, group; those of the group people stand under Contacts.
_LINES = (
    ("Home", "/", "house", "main"),
    ("Campaigns", "/campaigns", "send", "main"),
    ("Flows", "/flows", "workflow", "main"),
    ("Templates", "/templates", "layout-template", "main"),
    ("Contacts", "/contacts", "users", "main"),
    ("Lists", "/lists", "list", "people"),
    ("Segments", "/segments", "list-filter", "people"),
    ("Forms", "/forms", "user-plus", "people"),
    ("Activity", "/activity", "activity", "main"),
    ("Inbox", "/inbox", "inbox", "main"),
    ("Brand", "/brand", "palette", "workspace"),
    ("Settings", "/settings", "settings", "workspace"),
)
RULERS = ("owner", "admin")
# The tabs of the settings: label, address, whether owners and admins alone see it.
SETTINGS = (
    ("Account", "/settings", False),
    ("Sending", "/settings/sending", False),
    ("Domains", "/settings/domains", False),
    ("Team", "/settings/team", True),
    ("API keys", "/settings/keys", True),
    ("Webhooks", "/settings/webhooks", False),
    ("Audit", "/settings/audit", True),
    ("Consent", "/settings/consent", False),
    ("Data", "/settings/data", False),
    ("Health", "/settings/doctor", False),
    ("You", "/settings/you", False),
)
# What stands in the tab bar of a phone; the rest is under More.
TABS = ("Home", "Campaigns", "Contacts", "Inbox")


def items(path: str) -> list[Item]:
    """Return the navigation with the line of this path marked."""
    return [Item(label, href, icon, group, _is_here(path, href)) for label, href, icon, group in _LINES]


def _is_here(path: str, href: str) -> bool:
    return path == href or (href != "/" and path.startswith(href + "/"))


# One short message for the next whole page of a session; kept in memory, because losing one in a restart hurts nobody.
_notices: dict[int, dict[str, Any]] = {}
# Macros are globals, so that a block rendered alone has them too; each may use those above it.
_PARTS = {
    "part": "all",
    "rows": "rows",
    "canvas": "canvas",
    "merge": "merge",
    "picture": "picture",
    "gallery": "gallery",
    "data": "data",
    "way": "sending",
    "branding": "brand",
    "composer": "compose",
    "table": "table",
    "crowd": "crowd",
    "flows": "flows",
    "chart": "charts",
    "live": "live",
    "approvals": "approval",
    "queue": "queue",
    "edit": "editor",
}


@cache
def environment() -> Environment:
    """Return the one template environment of the interface."""
    made = Environment(
        loader=assets.template_loader("ui/html"),
        autoescape=True,
        undefined=StrictUndefined,
        # They are what the program came with, as the static files are
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(words.FILTERS)
    made.globals |= {
        "static": files.url,
        "icon": icon,
        "words": words,
        "shortcuts": KEYS,
        "talking": talk,
        "charts": charts,
    }
    for name, file in _PARTS.items():
        made.globals[name] = made.get_template(f"parts/{file}.html").module
    return made


# A table of fifty people draws hundreds of the same few
@lru_cache(512)
def icon(name: str, label: str = "") -> Markup:
    """Draw an icon of the sprite; with a label it speaks, without one it is decoration."""
    speaks = Markup('role="img" aria-label="{}"').format(label) if label else Markup('aria-hidden="true"')
    return Markup('<svg class="icon" {}><use href="{}#{}"></use></svg>').format(speaks, files.url("icons.svg"), name)


def is_part(request: Request) -> bool:
    """Return whether the browser asks for a part of a page."""
    return request.headers.get("hx-request") == "true" and request.headers.get("hx-request-type") != "full"


def target(request: Request) -> str:
    """Return the id of the element that will be replaced, as the browser names it (`form#to`)."""
    return str(request.headers.get("hx-target") or "").partition("#")[2]


def page(
    request: Request, template: str, status: int = 200, /, *, also: tuple[str, ...] = (), **context: Any
) -> HTTPResponse:
    """Return a page, or the one block of it that the request's target names.

    A block is named like the id of its element (`-` as `_`). `also` names further blocks that follow a partial answer
    and replace the elements of the same id.
    """
    found = environment().get_template(template)
    block = target(request).replace("-", "_")
    if not (is_part(request) and block in found.blocks):
        return whole(request, template, status, **context)
    values = _context(request, context)
    body = _block(found, block, values)
    for other in also:
        if other != block:
            spot = other.replace("_", "-")
            body += f'<hx-partial hx-target="#{spot}" hx-swap="outerMorph">{_block(found, other, values)}</hx-partial>'
    return _html(body, status)


def pieces(
    request: Request, template: str, names: tuple[str, ...], status: int = 200, /, **context: Any
) -> HTTPResponse:
    """Return blocks of a page, one after the other; a script puts each where the element of its id stands."""
    found = environment().get_template(template)
    values = _context(request, context)
    return _html("".join(_block(found, name, values) for name in names), status)


def whole(request: Request, template: str, status: int = 200, /, **context: Any) -> HTTPResponse:
    """Return a whole page."""
    values = _context(request, context)
    visit = values["visit"]
    values["notice"] = _notice(visit.session.id) if visit else None
    return _html(environment().get_template(template).render(values), status)


def fragment(request: Request, template: str, status: int = 200, /, **context: Any) -> HTTPResponse:
    """Return a template that is a part of several pages, by itself."""
    return _html(environment().get_template(template).render(_context(request, context)), status)


def over(request: Request, template: str, status: int, /, **context: Any) -> HTTPResponse:
    """Return a part with what is shown in the page's dialog instead, so that the page stays with what was typed."""
    response = fragment(request, template, status, **context)
    response.headers.update({"hx-retarget": "#dialog", "hx-reswap": "innerHTML"})
    return response


def go(request: Request, where: str) -> HTTPResponse:
    """Send the browser to a page: 303 after a form, or the same word in a header for a partial request."""
    headers = {"hx-redirect": where} if request.headers.get("hx-request") == "true" else {"location": where}
    return HTTPResponse("", 200 if "hx-redirect" in headers else 303, headers, "text/html; charset=utf-8")


def say(request: Request, text: str, undo: tuple[str, dict[str, str]] | None = None, follow: str = "") -> None:
    """Leave a short message for the next whole page; `undo` is where its button posts, and what.

    What goes on for a while is told of at an address to `follow`: the message stays with whoever goes from page to
    page, until that address says `hush`.
    """
    _notices[request.ctx.visit.session.id] = {"text": text, "undo": undo, "follow": follow}


def hush(request: Request) -> None:
    """Take back the message of what is over now."""
    _notices.pop(request.ctx.visit.session.id, None)


def _notice(session_id: int) -> dict[str, Any] | None:
    found = _notices.get(session_id)
    if found and not found["follow"]:
        del _notices[session_id]
    return found


def _context(request: Request, context: dict[str, Any]) -> dict[str, Any]:
    visit = context.get("visit") or getattr(request.ctx, "visit", None)
    words.zone.set(visit.zone if visit else session.zone("UTC"))
    config = request.app.ctx.config
    return {
        "notice": None,
        **context,
        "visit": visit,
        "path": request.path,
        "allowed": lambda path, method="POST": visit is not None and rights.may(visit.user.role, method, path),
        "nav": items(request.path),
        "tabs": TABS,
        "settings_tabs": SETTINGS,
        "keys_on": session.keys_on(request),
        "theme": session.theme(request),
        "capture": config.email.transport == "capture",
        "sms_leave": config.sms.transport != "capture",
        "stop_file": data_dir.is_stopped(config.data_dir),
        "now": clock.now_ms(),
    }


def _block(template: Template, name: str, values: dict[str, Any]) -> str:
    context = template.new_context(values)
    # What a template sets for all of its blocks stands before its first word: read that far, and no further
    next(template.root_render_func(context), None)
    return "".join(template.blocks[name](context))


def _html(body: str, status: int) -> HTTPResponse:
    return HTTPResponse(body, status, {"vary": "HX-Request, HX-Target"}, "text/html; charset=utf-8")

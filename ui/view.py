"""Render pages, their blocks and framed emails; redirect, store notices for the next page, and stream files."""

import logging
import re
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit
from zoneinfo import ZoneInfo

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup, escape
from sanic import Request
from sanic.response import HTTPResponse

from appliance.accounts import accounts, passkeys
from appliance.content import media
from appliance.content.designs import links
from appliance.core import clock, data_dir, executable, i18n
from appliance.core.i18n import gettext, gettext_noop
from appliance.exports.streaming import AccessEnded, end_without_access
from appliance.settings import config
from appliance.storage.transactions import scan_chunk
from ui import documentation, formats, labels, other_accounts, session, static_files, transport_labels
from ui.forms.lookups import describe_time_zone
from ui.session import Visit
from ui.widgets import charts, experiment_views

# Keyboard shortcuts for the help page. Single-key shortcuts can be switched off; none of them deletes anything.
SHORTCUTS = (
    (gettext_noop("Ctrl K"), gettext_noop("Jump to a page, contact or campaign")),
    ("/", gettext_noop("Search this page")),
    ("c", gettext_noop("New campaign")),
    ("g h", gettext_noop("Home")),
    ("g c", gettext_noop("Campaigns")),
    ("g f", gettext_noop("Flows")),
    ("g t", gettext_noop("Templates")),
    ("g p", gettext_noop("Contacts")),
    ("g l", gettext_noop("Lists")),
    ("g a", gettext_noop("Activity")),
    ("g i", gettext_noop("Test inbox")),
    ("g s", gettext_noop("Settings")),
    ("j k", gettext_noop("Next or previous row")),
    ("x", gettext_noop("Select the row")),
    (gettext_noop("Shift x"), gettext_noop("Select all rows up to this one")),
    ("Alt ↑ ↓", gettext_noop("Move a step of a flow; the arrow keys alone go to another step, and A adds one")),
    ("Esc", gettext_noop("Close, or clear the selection")),
    ("?", gettext_noop("Show keyboard shortcuts")),
)


class NavigationItem(NamedTuple):
    """A link of the navigation."""

    label: str
    href: str
    icon: str
    group: str
    is_current: bool
    open_count: int = 0  # shown beside the label


# Label, URL, icon and group of each link; the group "people" is shown under Contacts.
_NAVIGATION = (
    (gettext_noop("Home"), "/", "house", "main"),
    (gettext_noop("Campaigns"), "/campaigns", "send", "main"),
    (gettext_noop("Flows"), "/flows", "workflow", "main"),
    (gettext_noop("Templates"), "/templates", "layout-template", "main"),
    (gettext_noop("Contacts"), "/contacts", "users", "main"),
    (gettext_noop("Lists"), "/lists", "list", "people"),
    (gettext_noop("Segments"), "/segments", "list-filter", "people"),
    (gettext_noop("Forms"), "/forms", "user-plus", "people"),
    (gettext_noop("Activity"), "/activity", "activity", "main"),
    (gettext_noop("Test inbox"), "/inbox", "inbox", "main"),
    (gettext_noop("Brand"), "/brand", "palette", "workspace"),
    (gettext_noop("Settings"), "/settings", "settings", "workspace"),
)
# The pages of the settings by group: label, URL, and whether only owners and admins see it.
SETTINGS_GROUPS = (
    (gettext_noop("Account"), (
        (gettext_noop("General"), "/settings", False), (gettext_noop("Profile"), "/settings/you", False),
    )),
    (gettext_noop("Messages"), (
        (gettext_noop("Sending"), "/settings/sending", False), (gettext_noop("Domains"), "/settings/domains", False),
        (gettext_noop("Tracking and consent"), "/settings/consent", False),
    )),
    (gettext_noop("Team and security"), (
        (gettext_noop("Team"), "/settings/team", True), (gettext_noop("Sign-in"), "/settings/sign-in", True),
        (gettext_noop("Roles"), "/settings/roles", True),
        (gettext_noop("Audit log"), "/settings/audit", True),
        (gettext_noop("Connected apps"), "/settings/apps", False),
    )),
    (gettext_noop("Data and system"), (
        (gettext_noop("Data"), "/settings/data", False), (gettext_noop("Backups"), "/settings/backups", True),
        (gettext_noop("Health check"), "/settings/doctor", False),
    )),
    (gettext_noop("Developers"), (
        (gettext_noop("API keys"), "/settings/keys", True), (gettext_noop("Webhooks"), "/settings/webhooks", False),
    )),
)  # fmt: skip
# The settings pages that only the first account has
INSTALLATION_TABS = ("/settings/backups",)
SETTINGS_TABS = tuple(tab for _, tabs in SETTINGS_GROUPS for tab in tabs)
# The URLs of the links of the tab bar on phones; all others are under More.
TAB_BAR = ("/", "/campaigns", "/contacts", "/inbox")


# Only accounts with agents have this link; it goes before that of the activity.
_PROPOSALS = (gettext_noop("Proposals"), "/proposals", "wand-sparkles", "main")


def list_navigation(path: str, open_proposals: int | None = None) -> list[NavigationItem]:
    """Return the links of the navigation, with the link that leads to this path marked as current.

    `open_proposals` is the number of open proposals of agents; None for no link to them.
    """
    items = [
        NavigationItem(gettext(label), href, icon, group, _is_current(path, href))
        for label, href, icon, group in _NAVIGATION
    ]
    if open_proposals is not None:
        label, href, icon, group = _PROPOSALS
        place = next(index for index, item in enumerate(items) if item.href == "/activity")
        items.insert(place, NavigationItem(gettext(label), href, icon, group, _is_current(path, href), open_proposals))
    return items


# The page of the accounts of the installation, which only its operators see, and the group that it is in.
_OPERATOR_TAB = (gettext_noop("Accounts"), "/settings/accounts", True)
_OPERATOR_GROUP = gettext_noop("Data and system")


def _list_settings(path: str, visit: session.Visit | None) -> list[tuple[str, list[tuple[str, str, bool, bool]]]]:
    """Return the pages of the settings by group as (label, URL, whether only for admins, whether it is this page).

    Pages of the installation are only for its first account, and the page of its accounts only for operators.
    """
    is_first = visit is not None and visit.account_id == accounts.FIRST_ACCOUNT_ID
    is_operator = visit is not None and visit.is_operator
    return [
        (gettext(group), [
            (gettext(label), href, is_admin_only, path == href or (href != "/settings" and _is_current(path, href)))
            for label, href, is_admin_only in (
                *tabs, *([_OPERATOR_TAB] if is_operator and group == _OPERATOR_GROUP else ())
            )
            if is_first or href not in INSTALLATION_TABS
        ])
        for group, tabs in SETTINGS_GROUPS
    ]  # fmt: skip


def _is_current(path: str, href: str) -> bool:
    return path == href or (href != "/" and path.startswith(href + "/"))


# The notice for the next whole page, by session id. It is kept in memory, because losing it in a restart does no harm.
_notices: dict[int, dict[str, Any]] = {}
# Macro files by the name of the global. They are globals, so that a block rendered alone has them too; each file may
# use the macros of the files above it.
_MACRO_FILES = {
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
    "report": "report",
    "experiment": "experiment",
    "utm": "utm",
    "live": "live",
    "approvals": "approval",
    "queue": "queue",
    "edit": "editor",
    "signup": "signup",
}


@cache
def template_environment() -> Environment:
    """Return the Jinja environment of the interface."""
    environment = Environment(
        loader=executable.template_loader("ui/html"),
        autoescape=True,
        undefined=StrictUndefined,
        # Templates are part of the program and do not change.
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.i18n"],
    )
    # Texts are marked as `_("...")` or `{% trans %}` and translated while a page is rendered.
    environment.install_gettext_callables(  # type: ignore[attr-defined]  # added by the extension
        i18n.translate, i18n.translate_plural, newstyle=True, pgettext=i18n.translate_in_context
    )
    environment.globals["ngettext"] = _ngettext
    environment.policies["ext.i18n.trimmed"] = True
    environment.filters.update(formats.FILTERS | labels.FILTERS | transport_labels.FILTERS)
    environment.filters["time_zone"] = describe_time_zone
    environment.globals |= {
        "static": static_files.url,
        "icon": icon,
        "formats": formats,
        "labels": labels,
        "shortcuts": SHORTCUTS,
        "charts": charts,
        "experiments": experiment_views,
    }
    for name, file in _MACRO_FILES.items():
        environment.globals[name] = environment.get_template(f"parts/{file}.html").module
    return environment


def _ngettext(singular: str, plural: str, count: int, /, **values: Any) -> Markup:
    """Return the form of an HTML text for a number, which `%(num)s` stands for; other values are escaped."""
    return Markup(i18n.translate_plural(singular, plural, count)) % {"num": i18n.format_number(count), **values}  # noqa: S704 - texts of the catalogues are ours


# A table of fifty contacts has hundreds of icons of a few kinds.
@lru_cache(512)
def icon(name: str, label: str = "") -> Markup:
    """Return an `<svg>` of the icon sprite; without a label the icon is hidden from screen readers."""
    speaks = Markup('role="img" aria-label="{}"').format(label) if label else Markup('aria-hidden="true"')
    return Markup('<svg class="icon" {}><use href="{}#{}"></use></svg>').format(
        speaks, static_files.url("icons.svg"), name
    )


def is_partial(request: Request) -> bool:
    """Return whether HTMX requests a part of a page."""
    return request.headers.get("hx-request") == "true" and request.headers.get("hx-request-type") != "full"


def target_id(request: Request) -> str:
    """Return the id of the element that the response will replace, from the HTMX header (`form#to` gives `to`)."""
    return str(request.headers.get("hx-target") or "").partition("#")[2]


def render(
    request: Request, template: str, status: int = 200, /, *, also: tuple[str, ...] = (), **context: Any
) -> HTTPResponse:
    """Render a page, or for a partial request only the block that is named like the target element, if there is one.

    A block is named after the id of its element, with `_` for `-`. The blocks in `also` are appended to a partial
    response and replace the elements with their ids.
    """
    template_ = template_environment().get_template(template)
    block = target_id(request).replace("-", "_")
    if not (is_partial(request) and block in template_.blocks):
        return render_whole(request, template, status, **context)
    values = _build_context(request, context)
    body = _render_block(template_, block, values)
    for other in also:
        if other != block:
            spot = other.replace("_", "-")
            part = _render_block(template_, other, values)
            body += f'<hx-partial hx-target="#{spot}" hx-swap="outerMorph">{part}</hx-partial>'
    return _html_response(body, status, values["visit"])


def render_blocks(
    request: Request, template: str, names: tuple[str, ...], status: int = 200, /, **context: Any
) -> HTTPResponse:
    """Render blocks of a page, one after the other; a script replaces the elements with the ids of the blocks."""
    template_ = template_environment().get_template(template)
    values = _build_context(request, context)
    body = "".join(_render_block(template_, name, values) for name in names)
    return _html_response(body, status, values["visit"])


def render_whole(request: Request, template: str, status: int = 200, /, **context: Any) -> HTTPResponse:
    """Render a whole page, with the session's notice."""
    values = _build_context(request, context)
    visit = values["visit"]
    values["notice"] = _pop_notice(request, visit.session.id) if visit else None
    return _html_response(template_environment().get_template(template).render(values), status, visit)


def render_fragment(request: Request, template: str, status: int = 200, /, **context: Any) -> HTTPResponse:
    """Render a template that is not a whole page, such as a fragment that several pages include."""
    values = _build_context(request, context)
    return _html_response(template_environment().get_template(template).render(values), status, values["visit"])


def render_dialog(request: Request, template: str, status: int, /, **context: Any) -> HTTPResponse:
    """Render a template into the page's dialog, so that the page keeps what the user typed."""
    response = render_fragment(request, template, status, **context)
    response.headers.update({"hx-retarget": "#dialog", "hx-reswap": "innerHTML"})
    return response


def redirect(request: Request, where: str) -> HTTPResponse:
    """Return a redirect: status 303, or the header `HX-Redirect` for HTMX."""
    headers = {"hx-redirect": where} if request.headers.get("hx-request") == "true" else {"location": where}
    return HTTPResponse("", 200 if "hx-redirect" in headers else 303, headers, "text/html; charset=utf-8")


def flash(
    request: Request, text: str, undo: tuple[str, dict[str, str]] | None = None, follow: str = "",
    link: tuple[str, str] | None = None,
) -> None:  # fmt: skip
    """Store a notice for the session's next whole page.

    `undo` is the URL and the form fields of an undo button, and `link` the URL and the text of a link to the result.
    `follow` is the URL where the page polls the progress of a job: such a notice stays on all pages until
    `clear_flash`.
    """
    _notices[request.ctx.visit.session.id] = {"text": text, "undo": undo, "follow": follow, "link": link}


def clear_flash(request: Request) -> None:
    """Remove the notice of the session, such as the notice of a finished job."""
    _notices.pop(request.ctx.visit.session.id, None)


def _pop_notice(request: Request, session_id: int) -> dict[str, Any] | None:
    row = _notices.get(session_id)
    if row and not row["follow"] and request.method != "HEAD":
        del _notices[session_id]
    return row


def _build_context(request: Request, context: dict[str, Any]) -> dict[str, Any]:
    visit = context.get("visit") or getattr(request.ctx, "visit", None)
    formats.current_zone.set(visit.zone if visit else ZoneInfo("UTC"))
    config = request.app.ctx.config
    return {
        "notice": None,
        # A form posts into the dialog only if it is in the dialog: on a page of its own it would be shown twice.
        "is_dialog": is_partial(request) and target_id(request) == "dialog",
        "nav": [
            item
            for item in list_navigation(request.path, visit.open_proposals if visit else None)
            if visit is None or visit.can_open(item.href)
        ],
        **context,
        "visit": visit,
        "path": request.path,
        "here": request.path + (f"?{request.query_string}" if request.query_string else ""),
        "help_url": documentation.help_url(request.path),
        "can": lambda scope: visit is not None and visit.can(scope),
        "tabs": TAB_BAR,
        "settings_tabs": _list_settings(request.path, visit) if request.path.startswith("/settings") else (),
        "keys_on": session.has_shortcuts(request),
        "theme": session.chosen_theme(request),
        "capture": config.email.transport == "capture",
        "passkey_origin": _passkey_origin(config),
        "sms_leave": config.sms.transport != "capture",
        "stop_file": data_dir.has_stop_file(config.data_dir),
        "now": clock.now_ms(),
        "language": i18n.get_language_tag(),
        "is_rtl": i18n.is_right_to_left(),
        "script_texts": static_files.script_texts(),
    }


def _passkey_origin(settings: Any) -> str:
    """Return the only origin at which passkeys work, or an empty text if there is none."""
    site = passkeys.find_site(settings)
    return site.origin if site is not None else ""


def _render_block(template: Template, name: str, values: dict[str, Any]) -> str:
    context = template.new_context(values)
    # A template sets the variables of its blocks before its first output, so running it to that point is enough.
    next(template.root_render_func(context), None)
    return "".join(template.blocks[name](context))


# "E-mail" in the text of a page: not in a tag, and not in an element whose text is a value or is copied.
_EMAIL_WORD = re.compile(r"\b([Ee])-(?=[Mm]ail)(?=[^<>]*<(?!/(?:title|option|textarea|pre|code|script|style)\b))")


def _html_response(body: str, status: int, visit: Visit | None) -> HTTPResponse:
    """Return a page, or a part of one, in which no line ends after the hyphen of "E-Mail" (U+2011 instead).

    If the user has several accounts, each form that writes gets a field with the id of the open account.
    """
    if visit is not None and visit.has_several_accounts:
        body = other_accounts.name_account(body, visit)
    if i18n.get_language() != i18n.DEFAULT_LANGUAGE:
        body = _EMAIL_WORD.sub("\\1\u2011", body)
    return HTTPResponse(body, status, {"vary": "HX-Request, HX-Target"}, "text/html; charset=utf-8")


log = logging.getLogger("campanero.pages")


async def stream_file(request: Request, name: str, kind: str, pieces: Iterable[bytes | str]) -> HTTPResponse | None:
    """Stream a download and return None, because the response is sent; an error before the first chunk is raised.

    A later error is logged and closes the connection, so that the browser reports an incomplete file. The same happens
    if the session ends, or the user's role loses a right or sight of contact data.
    """
    chunks = end_without_access(pieces, lambda: session.has_access(request))
    piece = await scan_chunk(request.ctx.visit.account_id, next, chunks, None)
    headers = {
        "content-disposition": _build_disposition(name), "cache-control": "no-store",
        "x-content-type-options": "nosniff", "content-security-policy": "default-src 'none'",
    }  # fmt: skip
    response: Any = await request.respond(status=200, headers=headers, content_type=kind)
    try:
        while piece is not None:
            if piece:
                await response.send(piece)
            if request.method == "HEAD":
                break
            piece = await scan_chunk(request.ctx.visit.account_id, next, chunks, None)
    except Exception as error:
        level, exc_info = (logging.INFO, False) if isinstance(error, AccessEnded) else (logging.ERROR, True)
        log.log(level, "pages: sending file %s failed: %s", name, error, exc_info=exc_info)
        if request.transport is not None:
            request.transport.abort()  # type: ignore[attr-defined]  # the library declares less than what it passes
        return None
    await response.eof()
    return None


def _build_disposition(name: str) -> str:
    """Return the Content-Disposition of a download (RFC 6266), with the exact name if it is not plain ASCII."""
    plain = re.sub(r"[^A-Za-z0-9 ._-]", "_", name)
    exact = "" if plain == name else f"; filename*=UTF-8''{quote(name, safe='')}"
    return f'attachment; filename="{plain}"{exact}'


# Emails inside a page are separate documents for a frame, with their own content security policy.

# Without a ">" the pattern matches up to the end, so that a text with many "<head " is read only once.
_HEAD_TAG = re.compile(r"<head(?:\s[^>]*)?(>|\Z)", re.IGNORECASE)
_BASE_TAG = '<base target="_blank">'
_NOTE = (
    '<!doctype html><html lang="{}"><head><title>{}</title><style>body{{font:15px system-ui,sans-serif;color:#5c6068;'
    "display:grid;place-items:center;min-height:80vh;text-align:center}}</style></head><body><p>{}</p></body></html>"
)
_EMAIL_POLICY = (
    "sandbox allow-popups allow-popups-to-escape-sandbox; default-src 'none'; style-src 'unsafe-inline'; "
    "img-src https: data: {}; font-src 'none'; form-action 'none'; base-uri 'none'; frame-ancestors 'self'"
)


def email_policy(has_remote_images: bool = True) -> str:
    """Return the content security policy of an email in a frame; it allows images over https and uploaded pictures.

    Without `has_remote_images`, only uploaded pictures are loaded.
    """
    place = urlsplit(config.base_url(config.current()))
    policy = _EMAIL_POLICY.format(f"{place.scheme}://{place.netloc}{media.URL_PATH}")
    return policy if has_remote_images else policy.replace("img-src https: ", "img-src ")


def render_email(html: str, has_remote_images: bool = True) -> HTTPResponse:
    """Return the HTML of an email as a document whose links open in a new window; for an empty email return a note.

    Without `has_remote_images`, images of other servers are not loaded. The tracking pixel is removed, so that
    displaying the email is not counted as an open.
    """
    if not html.strip():
        return _note_response(gettext("This email has no content yet."))
    html = links.remove_pixel(html)
    head = _HEAD_TAG.search(html)
    if head and head[1]:
        return _email_response(html[: head.end()] + _BASE_TAG + html[head.end() :], has_remote_images)
    if "<" not in html:
        html = "".join(f"<p>{escape(part)}</p>" for part in html.split("\n\n"))
    return _email_response(
        f'<!doctype html><html><head><meta charset="utf-8">{_BASE_TAG}</head><body>{html}</body></html>',
        has_remote_images,
    )


def sms_html(body: str) -> str:
    """Return the text of an SMS as HTML, or an empty string if it is blank."""
    style = "white-space:pre-wrap;overflow-wrap:anywhere;margin:16px;font:16px/1.5 sans-serif"
    html = f'<p dir="auto" style="{style}">{escape(body)}</p>'
    return html if body.strip() else ""


def render_email_error(why: str) -> HTTPResponse:
    """Return a document with the reason why an email cannot be shown."""
    return _note_response(gettext("No preview available: %(reason)s.", reason=why))


def _note_response(text: str) -> HTTPResponse:
    """Return a document with a text in place of an email."""
    return _email_response(_NOTE.format(i18n.get_language_tag(), escape(gettext("Preview")), escape(text)))


def _email_response(html: str, has_remote_images: bool = True) -> HTTPResponse:
    headers = {"content-security-policy": email_policy(has_remote_images), "referrer-policy": "no-referrer"}
    return HTTPResponse(html, 200, headers, "text/html; charset=utf-8")

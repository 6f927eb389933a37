"""Browser sessions: the signed-in user of a request, cookies, and secrets that are shown once."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any
from urllib.parse import quote, unquote, urlsplit
from zoneinfo import ZoneInfo

from sanic import Blueprint, Request
from sanic.response import HTTPResponse

from appliance.accounts import access, devices, login, members, operators, passkeys, sessions, users
from appliance.accounts.access import Rights
from appliance.accounts.audit import Actor
from appliance.accounts.oidc import flow
from appliance.agents import proposals
from appliance.audience.consent import Evidence
from appliance.core import clock, i18n
from appliance.core.errors import Unavailable
from appliance.events import user_agents
from appliance.sending.messages import delivery_status
from appliance.settings import config
from appliance.storage.models import TeamMember, User
from appliance.storage.transactions import commit, fetch
from ui import formats

_YEAR_SECONDS = 365 * 86400
_EMAIL_COOKIE = "email"
_PROVIDER_COOKIE = "provider"
THEMES = ("system", "light", "dark")
_HOME_SCOPES = ("campaigns:read", "contacts:read", "domains:read", "events:read", "flows:read", "messages:read")
# Sealed cookies of a sign-in with OpenID Connect: the request that was begun, and the person who came back.
OIDC_REQUEST, OIDC_PERSON = "oidc", "oidc-person"


class Visit:
    """A request of a signed-in user: session, user, account, rights of the role, actor and time zone.

    `memberships` are the accounts that the person may enter, this one among them, with the role in each.
    `queue_summary` is the sending summary that the sidebar shows, and `open_proposals` the number of open proposals of
    agents, None for an account without agents.
    """

    def __init__(self, request: Request, session: Any, memberships: list[TeamMember], rights: Rights) -> None:
        self.request = request
        self.memberships = memberships
        self.session = session
        self.user = session.user
        self.account = session.user.account
        self.account_id: int = self.account.id
        self.actor_id = f"user:{self.user.id}"
        self.rights = rights
        self.actor = Actor(
            self.actor_id, request.ctx.client, self.user.id, self.can("campaigns:approve"),
            can_send=self.can("campaigns:send"), can_read_contacts=not rights.is_masked,
            account_id=self.account_id,
        )  # fmt: skip
        self.zone = clock.find_time_zone(self.account.time_zone) or ZoneInfo("UTC")
        self.queue_summary = delivery_status.SendingSummary("idle")
        self.open_proposals: int | None = None

    def evidence(self) -> Evidence:
        """Return the consent evidence for changes that the user makes with this request."""
        return Evidence("ui", self.actor_id, self.request.ctx.client, self.request.headers.get("user-agent"))

    @property
    def has_several_accounts(self) -> bool:
        """Whether the user has other accounts besides the open one."""
        return len(self.memberships) > 1

    @property
    def is_operator(self) -> bool:
        """Whether the user manages the accounts of the installation."""
        return operators.is_operator(self.account_id, self.user.role)

    def can(self, scope: str) -> bool:
        """Return whether the user's role includes a scope."""
        return scope in self.rights.scopes

    def sees_home(self) -> bool:
        """Return whether the user's role may read everything that the Home page is about."""
        return all(self.can(scope) for scope in _HOME_SCOPES)

    def list_allowed(self, tabs: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Return the tabs whose pages the user's role may open; the second value of each is its URL."""
        return [tab for tab in tabs if self.can_open(tab[1])]

    def can_open(self, path: str, role: str | None = None) -> bool:
        """Return whether a role, by default the user's, may open the page at a path without its query and fragment.

        Raises sanic.exceptions.NotFound if there is no page.
        """
        if path == "/" and role is None and not self.sees_home():
            return False
        _, handler, _ = self.request.app.router.get(path.partition("#")[0].partition("?")[0], "GET", None)
        needs = getattr(handler, "needs", None)
        return needs is None or needs in access.role_scopes(self.user.role if role is None else role)


def is_secure(request: Request) -> bool:
    """Return whether the base URL of the service is https."""
    return config.is_https(request.app.ctx.config)


def cookie_name(request: Request) -> str:
    """Return the session cookie's name; over https the browser enforces the `__Host-` prefix."""
    return "__Host-campanero" if is_secure(request) else "campanero"


async def load_visit(request: Request) -> Visit | None:
    """Return the visit of a request with a valid session, else None.

    Record the use of the session, and set the language and time zone in which texts are formatted.
    """
    token = request.cookies.get(cookie_name(request))
    if not token:
        return None
    loaded = await fetch(_load_session, token, request.headers.get("hx-request") != "true")
    if loaded is None:
        return None
    session, memberships, rights, queue, proposal_count = loaded
    if sessions.needs_touch(session):
        # Pages can be read even if the database cannot be written to.
        with suppress(Unavailable):
            await commit(sessions.touch, session.id, request.ctx.client)
    visit = Visit(request, session, memberships, rights)
    visit.queue_summary = queue or visit.queue_summary
    visit.open_proposals = proposal_count
    # Texts are also made before the page is rendered, by the handler and its reading functions.
    formats.current_zone.set(visit.zone)
    if chosen := (visit.user.preferences or {}).get(users.LANGUAGE_PREFERENCE):
        i18n.set_language(chosen)
    return visit


def browser_language(request: Request) -> str:
    """Return the supported language that the browser prefers, or the default language."""
    return i18n.negotiate_language(request.headers.get("accept-language"))


def _load_session(
    token: str, whole: bool
) -> tuple[Any, list[TeamMember], Rights, delivery_status.SendingSummary | None, int | None] | None:
    """Return the session of a cookie's token, the user's memberships and rights, or None if there is no session.

    With `whole`, the last two values are set, for the sidebar: the sending summary, and the number of open proposals of
    agents (`proposals.count_for_navigation`).
    """
    session = sessions.find_by_cookie(token)
    if session is None:
        return None
    memberships = members.list_of(session.user_id)
    rights = access.get_rights(session.user.role)
    if not whole:
        return session, memberships, rights, None, None
    account_id = session.user.account_id
    summary = delivery_status.get_summary(account_id)
    return session, memberships, rights, summary, proposals.count_for_navigation(account_id)


def has_access(request: Request) -> bool:
    """Return whether a request's session still exists in the database, and its user has all rights of the visit.

    These are rights in the account of the visit, even if the session has opened another one meanwhile. The handler of
    the request must be wrapped by `guard.signed_in`.
    """
    visit: Visit = request.ctx.visit
    token = request.cookies.get(cookie_name(request))
    session = sessions.find_by_cookie(token) if token else None
    user = members.find_active(visit.account_id, session.user_id) if session is not None else None
    rights = access.get_rights(user.role) if user is not None else access.NO_RIGHTS
    if user is None or not visit.rights.scopes <= rights.scopes:
        return False
    return visit.rights.is_masked or not rights.is_masked


async def sign_in(
    request: Request, response: HTTPResponse, user: User, method: sessions.Method = "password",
    identity_id: int | None = None,
) -> None:  # fmt: skip
    """Start a session for a user and set its cookies; the browser's previous session is ended.

    `identity_id` is the identity at an OpenID Connect provider that the user signed in with. Raises
    login.InvalidCredentials if the user has been changed since the credentials were verified.
    """
    agent, device_token = request.headers.get("user-agent"), read_device_token(request)
    user_agents.parse_device(agent)  # The first parse takes a millisecond, which the writer should not wait for.
    args = (user, request.ctx.client, agent, device_token, method, identity_id)
    token = await commit(login.create_browser_session, *args)
    old = request.cookies.get(cookie_name(request))
    if old:
        await commit(sessions.end_by_cookie, old)
    response.add_cookie(
        cookie_name(request), token, path="/", httponly=True, samesite="Lax", secure=is_secure(request), max_age=None
    )
    _set_email(request, response, user.email)
    set_device_cookie(request, response, device_token)


def read_device_token(request: Request) -> str:
    """Return the value of this browser's device cookie (`accounts/devices.py`), or a new one to be set."""
    return devices.read_or_create_token(request.cookies.get(_device_cookie(request)))


def set_device_cookie(request: Request, response: HTTPResponse, token: str) -> None:
    """Set the cookie by which the next sign-in from this browser is known; it outlives sessions."""
    response.add_cookie(
        _device_cookie(request), token, path="/", httponly=True, samesite="Lax", secure=is_secure(request),
        max_age=devices.COOKIE_SECONDS,
    )  # fmt: skip


def _device_cookie(request: Request) -> str:
    return "__Host-device" if is_secure(request) else "device"


def is_passkey_page(request: Request) -> bool:
    """Return whether passkeys work at the address at which the browser has opened the page."""
    site = passkeys.find_site(config.current())
    return site is not None and request.host == urlsplit(site.origin).netloc


async def sign_out(request: Request, response: HTTPResponse) -> None:
    """End the session of this browser and delete its cookie."""
    token = request.cookies.get(cookie_name(request))
    if token:
        await commit(sessions.end_by_cookie, token)
    # A __Host- cookie is only accepted, even to expire it, with Secure and path /.
    response.add_cookie(
        cookie_name(request), "", path="/", httponly=True, samesite="Lax", secure=is_secure(request), max_age=0
    )
    _set_email(request, response, "")


def _set_email(request: Request, response: HTTPResponse, email: str) -> None:
    """Store the address of the user in the browser, for the sign-in page after the session has ended; "" deletes it."""
    response.add_cookie(
        _EMAIL_COOKIE, quote(email), path="/", httponly=True, samesite="Lax", secure=is_secure(request),
        max_age=sessions.MAX_SESSION_MS // 1000 if email else 0,
    )  # fmt: skip


def last_email(request: Request) -> str:
    """Return the address of the user who signed in last in this browser and did not sign out, else an empty string."""
    return unquote(request.cookies.get(_EMAIL_COOKIE) or "")[:254]


def last_provider(request: Request) -> str:
    """Return the key of the sign-in provider that was used last in this browser, else an empty string."""
    return (request.cookies.get(_PROVIDER_COOKIE) or "")[:32]


def remember_provider(request: Request, response: HTTPResponse, key: str) -> None:
    """Store the key of a sign-in provider in the browser for a year, so that the sign-in page offers it."""
    set_choice(request, response, _PROVIDER_COOKIE, key)


def chosen_theme(request: Request) -> str:
    """Return the theme chosen in this browser, `light` or `dark`; an empty string follows the system."""
    chosen = request.cookies.get("theme") or ""
    return chosen if chosen in ("light", "dark") else ""


def has_shortcuts(request: Request) -> bool:
    """Return whether single-key shortcuts are on in this browser (WCAG 2.1.4)."""
    return request.cookies.get("keys") != "off"


def set_choice(request: Request, response: HTTPResponse, name: str, chosen: str) -> None:
    """Store a display choice in a cookie for a year, so that the server renders pages accordingly."""
    response.add_cookie(
        name, chosen, path="/", httponly=True, samesite="Lax", secure=is_secure(request), max_age=_YEAR_SECONDS
    )


class Pages(Blueprint):
    """The blueprint of a page module, which sets the error format of all its routes and adds HEAD to GET.

    A server must support both methods (RFC 9110, section 9.1). Sanic leaves out the content of a response to HEAD.
    Without an error format, Sanic parses the source of every handler to find the format, which takes a fifth of a
    second at each start. `guard` renders errors anyway.
    """

    def route(
        self,
        uri: str,
        methods: Iterable[str] | None = None,
        *args: Any,
        error_format: str | None = None,
        **options: Any,
    ) -> Any:
        """Add a route as `Blueprint.route` does, but with HEAD besides GET, and the error format `html` by default."""
        methods = frozenset(methods or {"GET"})
        if "GET" in methods:
            methods |= {"HEAD"}
        return super().route(uri, methods, *args, error_format=error_format or "html", **options)


# Secrets that are shown once, such as a new API key. They are kept in memory until the next page shows them.

_secrets: dict[tuple[int, str], Any] = {}


def store_secret(session_id: int, kind: str, value: Any) -> None:
    """Keep a secret in memory until a page shows it (`pop_secret`); `kind` distinguishes the secrets of one session."""
    if len(_secrets) > 1000:
        _secrets.clear()
    _secrets[session_id, kind] = value


def forget_secrets(session_id: int) -> None:
    """Remove the secrets of a session that no page has shown yet."""
    for key in [key for key in _secrets if key[0] == session_id]:
        _secrets.pop(key, None)


def pop_secret(visit: Visit, kind: str) -> Any:
    """Return a secret and remove it, or return None. A HEAD request, which shows no page, does not remove it."""
    key = visit.session.id, kind
    return _secrets.get(key) if visit.request.method == "HEAD" else _secrets.pop(key, None)


def _oidc_cookie_name(request: Request, name: str) -> str:
    return f"{cookie_name(request)}-{name}"


def set_oidc_cookie(request: Request, response: HTTPResponse, name: str, value: str) -> None:
    """Set a cookie for the time that a sign-in with OpenID Connect may take; an empty value deletes it.

    It is sent when the browser comes back from the provider, which `SameSite=Strict` would prevent.
    """
    response.add_cookie(
        _oidc_cookie_name(request, name), value, path="/", httponly=True, samesite="Lax", secure=is_secure(request),
        max_age=int(flow.MAX_SECONDS) if value else 0,
    )  # fmt: skip


def read_oidc_cookie(request: Request, name: str) -> str:
    """Return the value of a cookie of a sign-in with OpenID Connect, or an empty string."""
    return request.cookies.get(_oidc_cookie_name(request, name)) or ""

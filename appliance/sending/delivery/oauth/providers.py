"""The authorization servers of Google and Microsoft: their URLs, and the scopes that sending needs.

Sources: Google, "Using OAuth 2.0 for Web Server Applications", "OAuth 2.0 Mechanism" of Gmail and "Choose Gmail API
scopes" (https://developers.google.com/identity/protocols/oauth2/web-server,
https://developers.google.com/workspace/gmail/imap/xoauth2-protocol); Microsoft, "OAuth 2.0 authorization code flow",
"device authorization grant" and "Authenticate an IMAP, POP or SMTP connection using OAuth"
(https://learn.microsoft.com/entra/identity-platform/v2-oauth2-auth-code-flow, .../v2-oauth2-device-code,
https://learn.microsoft.com/exchange/client-developer/legacy-protocols/how-to-authenticate-an-imap-pop-smtp-application-by-using-oauth).

The device authorization grant of Google does not allow scopes of Gmail ("OAuth 2.0 for TV and Limited-Input Device
Applications", allowed scopes), so it is offered for Microsoft only.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

from appliance.settings.schema import Email, Google, Microsoft

# What a consent is for: to log in to the SMTP server, or to call the HTTP API.
Use = Literal["smtp", "api"]


class OAuthProvider(NamedTuple):
    """An authorization server. `name` is the section of its settings, `email.NAME`, and its name in `relay.login`.

    The URLs are functions of the settings. `device_url` returns "" if the device flow (RFC 8628) is not allowed for
    these scopes. `more` are further parameters of the authorization request.
    """

    name: str
    label: str
    section: Callable[[Email], Google | Microsoft]
    authorize_url: Callable[[Email], str]
    token_url: Callable[[Email], str]
    device_url: Callable[[Email], str]
    scopes: dict[Use, str]
    more: dict[str, str]


def _microsoft_url(email: Email, name: str) -> str:
    section = email.microsoft
    base_url = (section.login_url or "https://login.microsoftonline.com").rstrip("/")
    return f"{base_url}/{section.tenant}/oauth2/v2.0/{name}"


# `openid email` lets the answer name the mailbox (OpenID Connect Core 1.0, section 5.4).
GOOGLE = OAuthProvider(
    "google",
    "Google",
    lambda email: email.google,
    lambda email: f"{(email.google.login_url or 'https://accounts.google.com').rstrip('/')}/o/oauth2/v2/auth",
    lambda email: f"{(email.google.login_url or 'https://oauth2.googleapis.com').rstrip('/')}/token",
    lambda email: "",
    {
        "smtp": "openid email https://mail.google.com/",
        "api": "openid email https://www.googleapis.com/auth/gmail.send",
    },
    # Without them Google returns a refresh token only the first time.
    {"access_type": "offline", "prompt": "consent"},
)
MICROSOFT = OAuthProvider(
    "microsoft",
    "Microsoft",
    lambda email: email.microsoft,
    lambda email: _microsoft_url(email, "authorize"),
    lambda email: _microsoft_url(email, "token"),
    lambda email: _microsoft_url(email, "devicecode"),
    {
        "smtp": "openid email offline_access https://outlook.office.com/SMTP.Send",
        "api": "openid email offline_access https://graph.microsoft.com/Mail.Send https://graph.microsoft.com/User.Read",
    },
    {"prompt": "select_account"},
)


def find_use(email: Email) -> tuple[str, Use] | None:
    """Return (name of the provider, use) of the consent that the settings of email need, or None if they need none.

    The transport that is the HTTP API of a provider has the name of the provider.
    """
    if email.transport in (GOOGLE.name, MICROSOFT.name):
        return email.transport, "api"
    if email.transport == "relay" and email.relay.login != "password":
        return email.relay.login, "smtp"
    return None

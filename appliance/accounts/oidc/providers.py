"""The OpenID Connect providers of an account, and whether its people may also sign in with a password.

A provider of the first account, whose owners run the installation, signs in people of every account, and has a button
on the sign-in page. A provider of another account signs in members of this account only, and has a sign-in page of its
own (docs/decisions.md#32-sign-in-with-openid-connect).
"""

import base64
import re
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.accounts import audit, members, users
from appliance.accounts.audit import Actor
from appliance.accounts.oidc import metadata, tokens
from appliance.accounts.oidc.metadata import ProviderError
from appliance.accounts.oidc.tokens import Client
from appliance.accounts.sessions import FIRST_ACCOUNT
from appliance.core import clock, crypto
from appliance.core.errors import Faults, Invalid, NotAllowed, NotFound
from appliance.core.i18n import gettext
from appliance.core.validation import PageQuery, sent_fields
from appliance.settings import config
from appliance.storage.database import Page, paginate, run
from appliance.storage.models import Account, Identity, SignInProvider
from appliance.storage.transactions import require_write_transaction

LOGIN_PATH = "/login/oidc"
MAX_PROVIDERS = 20
MAX_DOMAINS = 50
KEY_CHARACTERS = 16
_KEY = re.compile(f"[A-Za-z0-9]{{{KEY_CHARACTERS}}}")
_PURPOSE = "sign-in provider"
_DOMAIN = re.compile(r"(?=.{1,253}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?")

ButtonName = Annotated[
    str,
    Meta(max_length=60, extra={"line": True, "filled": True}),
    Meta(description="name of the provider, as the button on the sign-in page shows it"),
]
ClientId = Annotated[
    str,
    Meta(max_length=255, extra={"line": True, "filled": True}),
    Meta(description="client ID that the provider has given"),
]
ClientSecret = Annotated[
    str,
    Meta(max_length=1000, extra={"line": True}, extra_json_schema={"format": "password"}),
    Meta(description="client secret; never shown again; empty for a public client"),
]
Domains = Annotated[
    list[Annotated[str, Meta(max_length=253, extra={"line": True})]],
    Meta(max_length=MAX_DOMAINS),
    Meta(description="domains of verified email addresses whose owners may join without an invitation"),
]
# Not `owner`: only an owner may add owners, and not the person who manages the identity provider.
JoinRole = Annotated[
    Literal["admin", "editor", "author", "viewer"], Meta(description="role of those who join by their domain")
]
TrustMfa = Annotated[
    bool,
    Meta(
        description="whether a second factor of the provider (`mfa` in `amr`) replaces the code of a user with "
        "two-factor authentication"
    ),
]
IsEnabled = Annotated[bool, Meta(description="whether people can sign in with the provider")]


class ProviderWrite(Struct):
    """The fields of a new provider."""

    name: ButtonName
    issuer: Annotated[
        str,
        Meta(max_length=metadata.MAX_ISSUER_CHARACTERS, extra={"line": True, "filled": True}),
        Meta(description="issuer of the provider, a URL such as `https://accounts.google.com`; it cannot be changed"),
    ]
    client_id: ClientId
    client_secret: ClientSecret = ""
    domains: Domains = []
    role: JoinRole = "viewer"
    trust_mfa: TrustMfa = False
    enabled: IsEnabled = True


class ProviderPatch(Struct):
    """The fields of a provider that may be changed; fields that are not given stay unchanged."""

    name: ButtonName | UnsetType = UNSET
    client_id: ClientId | UnsetType = UNSET
    client_secret: ClientSecret | UnsetType = UNSET
    domains: Domains | UnsetType = UNSET
    role: JoinRole | UnsetType = UNSET
    trust_mfa: TrustMfa | UnsetType = UNSET
    enabled: IsEnabled | UnsetType = UNSET


def redirect_uri(provider: SignInProvider) -> str:
    """Return the redirect URI to register at a provider; no other provider has it (RFC 9700, section 4.4.2.2)."""
    return build_redirect_uri(provider.key)


def build_redirect_uri(key: str) -> str:
    """Return the redirect URI of the provider with this key."""
    return f"{config.base_url(config.current())}{LOGIN_PATH}/{key}/callback"


def sign_in_url(provider: SignInProvider) -> str:
    """Return the URL that begins a sign-in with a provider, for bookmarks and for pages of the company."""
    return f"{config.base_url(config.current())}{LOGIN_PATH}/{provider.key}"


def generate_key() -> str:
    """Return a random key for the URLs of a new provider."""
    return crypto.random_base62(KEY_CHARACTERS)


def to_client(provider: SignInProvider) -> Client:
    """Return the OAuth client that this service is to a provider: id, decrypted secret and redirect URI."""
    sealed = base64.b64decode(provider.client_secret) if provider.client_secret else b""
    secret = crypto.unseal(crypto.derive_key(_PURPOSE), _label(provider.key), sealed) if sealed else b""
    return Client(provider.client_id, (secret or b"").decode(), redirect_uri(provider))


def _seal(key: str, secret: str) -> str | None:
    if not secret:
        return None
    return base64.b64encode(crypto.seal(crypto.derive_key(_PURPOSE), _label(key), secret.encode())).decode()


def _label(key: str) -> str:
    return f"provider:{key}"


def find(key: str) -> SignInProvider:
    """Return the enabled provider with a key, with its account; raises NotFound."""
    provider: SignInProvider | None = None
    if _KEY.fullmatch(key):
        provider = (
            SignInProvider.select(SignInProvider, Account).join(Account)
            .where(SignInProvider.key == key, SignInProvider.enabled).first()
        )  # fmt: skip
    if provider is None:
        raise NotFound
    return provider


def list_on_sign_in_page(key: str = "") -> list[SignInProvider]:
    """Return the enabled providers that the sign-in page shows: those of the first account, and the one with `key`."""
    query = SignInProvider.select().where(
        SignInProvider.enabled & ((SignInProvider.account == FIRST_ACCOUNT) | (SignInProvider.key == key))
    )
    return list(query.order_by(SignInProvider.account, SignInProvider.id))


def list_for_account(account_id: int) -> list[SignInProvider]:
    """Return the enabled providers that may sign in the members of an account."""
    query = SignInProvider.select().where(
        SignInProvider.enabled, SignInProvider.account.in_({FIRST_ACCOUNT, account_id})
    )
    return list(query.order_by(SignInProvider.account, SignInProvider.id))


def list_for_user(user_id: int) -> list[SignInProvider]:
    """Return the enabled providers that may sign in a user."""
    account_ids = {FIRST_ACCOUNT, *(row.account_id for row in members.list_of(user_id))}
    query = SignInProvider.select().where(SignInProvider.enabled, SignInProvider.account.in_(account_ids))
    return list(query.order_by(SignInProvider.account, SignInProvider.id))


def may_sign_in(provider: SignInProvider, user_id: int) -> bool:
    """Return whether a provider may sign in a person to any account (`sessions.may_open`)."""
    account_ids = {row.account_id for row in members.list_of(user_id)}
    return bool(account_ids) and provider.account_id in {FIRST_ACCOUNT, *account_ids}


def get(account_id: int, provider_id: int) -> SignInProvider:
    """Return a provider of an account; raises NotFound."""
    provider = SignInProvider.get_or_none(SignInProvider.account == account_id, SignInProvider.id == provider_id)
    if provider is None:
        raise NotFound
    return provider


def fetch_page(account_id: int, query: PageQuery) -> Page:
    """Return a page of the providers of an account, newest first."""
    rows = SignInProvider.select().where(SignInProvider.account == account_id)
    return paginate(
        rows.order_by(SignInProvider.created_at.desc(), SignInProvider.id.desc()), query.page, query.size()
    )  # fmt: skip


def list_all(account_id: int) -> list[SignInProvider]:
    """Return all providers of an account, the oldest first."""
    return list(SignInProvider.select().where(SignInProvider.account == account_id).order_by(SignInProvider.id))


def validate(account_id: int, body: ProviderWrite | ProviderPatch, provider_id: int | None = None) -> None:
    """Raise Invalid with all errors of a provider's fields.

    `provider_id` is that of a changed provider, None for a new one.
    """
    faults = Faults()
    if isinstance(body, ProviderWrite):
        issuer = metadata.normalize_issuer(body.issuer) if isinstance(body.issuer, str) else ""
        if issuer and (fault := metadata.find_url_fault(issuer)):
            faults.add("issuer", fault)
        if SignInProvider.select().where(SignInProvider.account == account_id).count() >= MAX_PROVIDERS:
            faults.add("base", gettext("There are too many providers. Remove one first."))
    if isinstance(body.domains, list):
        for index, domain in enumerate(body.domains):
            if isinstance(domain, str) and not _DOMAIN.fullmatch(_normalize_domain(domain)):
                faults.add(f"domains[{index}]", gettext("is invalid"))
    if body.enabled is False and provider_id is not None:
        faults.collect(require_way_in, account_id, provider_id)
    faults.check()


def _normalize_domain(domain: str) -> str:
    """Return a domain in lower case without a leading @, as an address has it."""
    name = domain.strip().removeprefix("@").lower()
    try:
        return name if name.isascii() else name.encode("idna").decode()
    except UnicodeError:
        return name


def create(by: Actor, body: ProviderWrite, key: str = "") -> SignInProvider:
    """Add a provider to the actor's account; `key` is that of the redirect URI that is registered already.

    Raises NotAllowed unless the actor is an owner or admin, and Invalid with all errors.
    """
    require_write_transaction()
    account_id = users.get_admin(by).account_id
    validate(account_id, body)
    key = key if _KEY.fullmatch(key) and not SignInProvider.get_or_none(SignInProvider.key == key) else generate_key()
    now = clock.now_ms()
    provider = SignInProvider.create(
        account=account_id, key=key, name=body.name.strip(), issuer=metadata.normalize_issuer(body.issuer),
        client_id=body.client_id.strip(), client_secret=_seal(key, body.client_secret.strip()),
        domains=list(dict.fromkeys(_normalize_domain(domain) for domain in body.domains)), role=body.role,
        trust_mfa=body.trust_mfa, enabled=body.enabled, created_at=now, updated_at=now,
    )  # fmt: skip
    data = {"name": provider.name, "role": provider.role, "domains": provider.domains}
    audit.record(by, account_id, "provider_add", f"provider:{provider.id}", data)
    return provider


def update(by: Actor, provider_id: int, body: ProviderPatch) -> SignInProvider:
    """Change a provider; disabling it ends the sessions that began with it.

    Raises NotAllowed unless the actor is an owner or admin, NotFound, and Invalid with all errors.
    """
    require_write_transaction()
    account_id = users.get_admin(by).account_id
    provider = get(account_id, provider_id)
    validate(account_id, body, provider_id)
    values = {name: _stored_value(provider.key, name, value) for name, value in sent_fields(body).items()}
    changed = [name for name, value in values.items() if name == "client_secret" or getattr(provider, name) != value]
    if not changed:
        return provider
    for name in changed:
        setattr(provider, name, values[name])
    provider.updated_at = clock.now_ms()
    provider.save()
    if not provider.enabled:
        run(
            "DELETE FROM session WHERE identity_id IN (SELECT id FROM identity WHERE provider_id = ?)", (provider.id,)
        )  # fmt: skip
    data = {"name": provider.name, "changed": changed} | {
        name: values[name] for name in changed if name in ("role", "domains", "trust_mfa", "enabled")
    }
    audit.record(by, account_id, "provider_update", f"provider:{provider.id}", data)
    return provider


def _stored_value(key: str, name: str, value: Any) -> Any:
    if name == "client_secret":
        return _seal(key, value.strip())
    if name == "domains":
        return list(dict.fromkeys(_normalize_domain(domain) for domain in value))
    return value.strip() if isinstance(value, str) else value


def delete(by: Actor, provider_id: int) -> SignInProvider:
    """Delete a provider with its linked identities and the sessions that began with them.

    Raises NotAllowed, NotFound, and Invalid if no owner could sign in any more.
    """
    require_write_transaction()
    account_id = users.get_admin(by).account_id
    provider = get(account_id, provider_id)
    require_way_in(account_id, provider_id)
    provider.delete_instance()
    audit.record(by, account_id, "provider_delete", f"provider:{provider.id}", {"name": provider.name})
    return provider


async def find_fault(provider: SignInProvider) -> str | None:
    """Return why users could not sign in with a provider, in plain words, or None; this asks the provider itself.

    It reads the discovery document and the keys without the cache, and has the token endpoint check the client ID and
    its secret.
    """
    metadata.forget(provider.issuer)
    try:
        published = await metadata.discover(provider.issuer)
        if not await metadata.fetch_all_keys(published):
            return gettext("The provider publishes no key for signatures.")
        await tokens.check_client(published, to_client(provider))
    except ProviderError as error:
        return error.words
    return None


# Sign-in with a password.


def set_password_sign_in(by: Actor, is_allowed: bool) -> None:
    """Allow or refuse passwords for the actor's account; API keys and running sessions are not affected.

    Raises NotAllowed unless the actor is an owner, and Invalid unless an owner has signed in with a provider, so that
    the account always has a way in. `campanero user allow-password` allows passwords again.
    """
    require_write_transaction()
    owner = users.get_admin(by)
    if owner.role != "owner":
        raise NotAllowed(gettext("Only owners decide about passwords."), required_role="owner")
    validate_password_sign_in(owner.account_id, is_allowed)
    _store_password_sign_in(by, owner.account_id, is_allowed)


def validate_password_sign_in(account_id: int, is_allowed: bool) -> None:
    """Raise Invalid if passwords are refused although no owner has signed in with a provider of the account."""
    if not is_allowed and not _has_way_in(account_id):
        raise Invalid({"password": [gettext("is needed until an owner has signed in with a provider")]})


def allow_passwords(user_id: int, by: Actor) -> None:
    """Allow passwords for all accounts of a person, at the request of the operator of the installation."""
    require_write_transaction()
    for row in members.list_of(user_id):
        _store_password_sign_in(by, row.account_id, True)


def _store_password_sign_in(by: Actor, account_id: int, is_allowed: bool) -> None:
    changed = Account.update(password_sign_in=is_allowed).where(
        Account.id == account_id, Account.password_sign_in != is_allowed
    )
    if changed.execute():
        audit.record(by, account_id, "sign_in_update", f"account:{account_id}", {"password": is_allowed})


def _has_way_in(account_id: int, without_provider: int = 0, without_identity: int = 0) -> bool:
    """Return whether an enabled owner has signed in with an enabled provider.

    The provider `without_provider` and the identity `without_identity` do not count, because they are about to be
    removed.
    """
    owner_ids = [owner.id for owner in members.list_active(account_id, ("owner",))]
    query = (
        Identity.select().join(SignInProvider)
        .where(
            Identity.user.in_(owner_ids), Identity.last_used_at.is_null(False), Identity.id != without_identity,
            SignInProvider.enabled, SignInProvider.id != without_provider,
            SignInProvider.account.in_((FIRST_ACCOUNT, account_id)),
        )
    )  # fmt: skip
    return bool(query.exists())


def require_way_in(account_id: int, without_provider: int = 0, without_identity: int = 0) -> None:
    """Raise Invalid if passwords are refused and no owner could sign in without this provider or identity."""
    account = Account.get_by_id(account_id)
    if not account.password_sign_in and not _has_way_in(account_id, without_provider, without_identity):
        raise Invalid({"base": [gettext("No owner would be able to sign in. Allow passwords first.")]})

"""People at a provider who sign in as users: found by issuer and subject, linked by proof, or joined by their domain.

An address never links: the person who has it at the provider need not be the user (OpenID Connect Core 1.0, 5.7). A
user links an identity while signed in, or by entering the password of the user once. A person may become a new user,
but never an existing one, with a verified address in a listed domain, or with the link of an invitation to the verified
address.
"""

from typing import NamedTuple

from appliance.accounts import audit, invitations, login, members, users
from appliance.accounts.audit import Actor
from appliance.accounts.oidc import metadata, providers
from appliance.accounts.oidc.tokens import Claims
from appliance.accounts.users import NewUser
from appliance.core import addresses, clock
from appliance.core.errors import Invalid, NotFound
from appliance.core.i18n import gettext
from appliance.core.validation import PageQuery
from appliance.storage.database import Page, paginate
from appliance.storage.models import Identity, SignInProvider, User
from appliance.storage.transactions import require_write_transaction

MAX_IDENTITIES_PER_USER = 20
# The domains whose addresses Google itself gives out.
_HOSTED_BY_GOOGLE = ("gmail.com", "googlemail.com")


class SignedIn(NamedTuple):
    """A user who signs in with an identity, and whether the code of the second factor is needed as well."""

    user: User
    identity_id: int
    needs_code: bool


def find(provider: SignInProvider, claims: Claims) -> Identity | None:
    """Return the identity of a person at a provider, or None if it is not linked."""
    identity: Identity | None = Identity.get_or_none(
        Identity.provider == provider.id, Identity.issuer == claims.issuer, Identity.subject == claims.subject
    )
    return identity


def find_by_id(provider: SignInProvider, identity_id: int) -> Identity | None:
    """Return an identity of a provider, or None if it is no longer linked."""
    identity: Identity | None = Identity.get_or_none(Identity.provider == provider.id, Identity.id == identity_id)
    return identity


def enter(provider: SignInProvider, claims: Claims, ip: str) -> SignedIn | None:
    """Return the user of a linked identity, and store the address that the provider names now; None without a link.

    Raises InvalidCredentials if the user is disabled, or no longer in an account that the provider may sign in to.
    A second factor that the user has set up here is needed as well, unless the provider is trusted to check one and
    says that it did.
    """
    require_write_transaction()
    identity = find(provider, claims)
    if identity is None:
        return None
    user = identity.user
    if not providers.may_sign_in(provider, user.id):
        login.record_failure(user, ip)
        raise login.InvalidCredentials(gettext("This account can no longer sign in. Ask an owner of your team."))
    if claims.email and identity.email != claims.email:
        identity.email = claims.email
        identity.save(only=["email"])
    return SignedIn(user, identity.id, login.has_second_factor(user) and not (provider.trust_mfa and claims.has_mfa))


def prepare_join(provider: SignInProvider, claims: Claims) -> NewUser | None:
    """Return the new user that a person may become, with a random password, or None.

    The address must be verified and in a listed domain. At Google the organization that owns the account must be this
    domain, because a personal account can have any address ("OpenID Connect", claim `hd`). Call it outside of a write
    transaction, because hashing is slow.
    """
    if not claims.email_is_verified or claims.domain not in provider.domains:
        return None
    if claims.issuer == metadata.GOOGLE and claims.hosted_domain != claims.domain:
        return None
    return users.prepare_user(claims.email, users.generate_password(), claims.name or None)


def join(provider: SignInProvider, claims: Claims, new: NewUser, ip: str | None) -> SignedIn | None:
    """Create a user for a person and link the identity; None if any user has the address or the identity already."""
    require_write_transaction()
    current = providers.get(provider.account_id, provider.id)
    if not current.enabled or claims.domain not in current.domains or find(current, claims) is not None:
        return None
    if users.find_by_email(new.email) is not None:
        return None
    user = users.create(current.account_id, new, current.role)
    data = {"role": user.role, "provider": current.name}
    by = Actor(f"user:{user.id}", ip, user.id)
    audit.record(by, current.account_id, "user_join", f"user:{user.id}", data)
    return SignedIn(user, _create(current, claims, user, by).id, False)


def prepare_acceptance(claims: Claims, email: str) -> NewUser | None:
    """Return the new user that an invited person becomes, with a random password; None without proof of the address.

    The address at the provider must be verified, and the invited one. At Google an address of another host proves
    nothing without its organization, as in `prepare_join`. Call it outside of a write transaction.
    """
    try:
        address = addresses.parse_email(claims.email).key if claims.email else ""
    except ValueError:
        return None
    if not claims.email_is_verified or address != email:
        return None
    if claims.issuer == metadata.GOOGLE and claims.domain not in (claims.hosted_domain, *_HOSTED_BY_GOOGLE):
        return None
    return users.prepare_user(email, users.generate_password(), claims.name or None)


def accept_invitation(
    provider: SignInProvider, claims: Claims, invitation_id: int, token: str, new: NewUser, ip: str | None
) -> SignedIn:
    """Create the user of an invitation, link the identity, and delete the invitation.

    `new` is from `prepare_acceptance`. Raises NotFound if the link is no longer valid, and Invalid if the identity is
    already linked, the provider may not sign in to the account, or a user already has the address.
    """
    require_write_transaction()
    current = providers.get(provider.account_id, provider.id)
    if not current.enabled:
        raise NotFound
    user = invitations.accept(invitation_id, token, new, ip)
    return SignedIn(user, link(current, claims, user, ip).id, False)


def link(provider: SignInProvider, claims: Claims, user: User, ip: str | None) -> Identity:
    """Link an identity to a user who has proved to be this user; the caller must have verified the proof.

    Raises Invalid if the identity is linked already, the user has too many, or the provider may not sign in the user.
    """
    require_write_transaction()
    identity = find(provider, claims)
    if identity is not None:
        own = identity.user_id == user.id
        raise Invalid({"base": [
            gettext("This account is linked to you already.") if own
            else gettext("This account is linked to another user already.")
        ]})  # fmt: skip
    if not providers.may_sign_in(provider, user.id):
        raise Invalid({"base": [gettext("This provider belongs to another account of this installation.")]})
    if Identity.select().where(Identity.user == user.id).count() >= MAX_IDENTITIES_PER_USER:
        raise Invalid({"base": [gettext("Too many accounts are linked. Remove one first.")]})
    return _create(provider, claims, user, Actor(f"user:{user.id}", ip, user.id))


def _create(provider: SignInProvider, claims: Claims, user: User, by: Actor) -> Identity:
    identity = Identity.create(
        provider=provider.id, issuer=claims.issuer, subject=claims.subject, user=user.id, email=claims.email,
        created_at=clock.now_ms(),
    )  # fmt: skip
    members.record_for_person(by, user.id, "identity_link", {"provider": provider.name})
    return identity


def unlink(user_id: int, identity_id: int, by: Actor) -> Identity:
    """Remove an identity of a user and end the sessions that began with it.

    Raises NotFound, and Invalid if no owner of the account could sign in any more.
    """
    require_write_transaction()
    identity: Identity | None = Identity.get_or_none(Identity.user == user_id, Identity.id == identity_id)
    if identity is None:
        raise NotFound
    name = identity.provider.name
    for row in members.list_of(user_id):
        if row.role == "owner":
            providers.require_way_in(row.account_id, without_identity=identity.id)
    identity.delete_instance()
    members.record_for_person(by, user_id, "identity_unlink", {"provider": name})
    return identity


def list_by_user(user_id: int) -> list[Identity]:
    """Return the identities of a user with their providers, the oldest first."""
    query = Identity.select(Identity, SignInProvider).join(SignInProvider).where(Identity.user == user_id)
    return list(query.order_by(Identity.id))


def fetch_page(user_id: int, query: PageQuery) -> Page:
    """Return a page of the identities of a user with their providers, newest first."""
    rows = Identity.select(Identity, SignInProvider).join(SignInProvider).where(Identity.user == user_id)
    return paginate(rows.order_by(Identity.created_at.desc(), Identity.id.desc()), query.page, query.size())

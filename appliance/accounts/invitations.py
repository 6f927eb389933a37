"""Invitations of new team members: made by owners and admins, accepted with the link of an email.

The link is signed with the id and the expiry of its invitation, and never stored. A new link replaces the old one, and
accepting or revoking an invitation deletes it, so that a link works once (T13 in docs/threats.md).
"""

import hmac

from appliance.accounts import audit, members, users
from appliance.accounts.access import ADMIN_SCOPE, find_role, role_scopes
from appliance.accounts.audit import Actor
from appliance.accounts.users import NewUser
from appliance.core import addresses, clock, crypto
from appliance.core.errors import Faults, Invalid, NotFound
from appliance.core.i18n import gettext
from appliance.core.validation import PageQuery
from appliance.settings import config
from appliance.storage.database import Page, paginate
from appliance.storage.models import Account, Invitation, User
from appliance.storage.transactions import require_write_transaction

VALID_DAYS = 7
MAX_VALID_DAYS = 30
DAY_CHOICES = (1, 3, 7, 14, 30)  # of the page
MAX_SENT_PER_HOUR = 30
# Expired invitations are listed for this long, so that they can be sent again.
_KEEP_EXPIRED_MS = 30 * clock.DAY_MS
MAX_PENDING = 200


def invite(by: Actor, email: str, role: str, days: int = VALID_DAYS) -> Invitation:
    """Invite an address to the actor's account for some days; an older invitation of the address is replaced.

    `role` is a built-in name, or the id or name of an own role. Raises NotAllowed, or Invalid for an unknown role, an
    invalid address, one of a member of the account, or more than `MAX_PENDING` invitations. The inviting user does not
    learn whether another account has a user with the address; the recipient learns it from the page of the link.
    """
    require_write_transaction()
    actor = users.get_admin(by)
    address, faults = "", Faults()
    try:
        address = addresses.parse_email(email).key
    except ValueError:
        faults.add("email", gettext("can't be blank") if not email.strip() else gettext("is invalid"))
    known_role = find_role(actor.account_id, role)
    if known_role is None:
        faults.add("role", gettext("is not included in the list"))
    elif address:
        users.require_owner_for(actor, known_role)
    if not 1 <= days <= MAX_VALID_DAYS:
        faults.add("days", gettext("must be between %(low)s and %(high)s", low=1, high=MAX_VALID_DAYS))
    if address and members.select(actor.account_id).where(User.email == address).exists():
        faults.add("email", gettext("has already been taken"))
    faults.check()
    row = Invitation.get_or_none(Invitation.account == actor.account_id, Invitation.email == address)
    if row is None:
        if Invitation.select().where(Invitation.account == actor.account_id).count() >= MAX_PENDING:
            raise Invalid({"base": [gettext("There are too many open invitations. Revoke some of them first.")]})
        row = Invitation(account=actor.account_id, email=address, created_at=clock.now_ms())
    else:
        users.require_owner_for(actor, row.role)
    assert known_role is not None  # checked above
    row.role = known_role
    _renew(row, actor, days)
    audit.record(by, actor.account_id, "user_invite", f"invitation:{row.id}", {"role": known_role})
    return row


def validate(account_id: int, email: str, role: str) -> None:
    """Raise Invalid with the errors of an invitation: an unknown role, or the address of a member."""
    faults = Faults()
    if find_role(account_id, role) is None:
        faults.add("role", gettext("is not included in the list"))
    if members.select(account_id).where(User.email == email).exists():
        faults.add("email", gettext("has already been taken"))
    faults.check()


def renew(by: Actor, invitation_id: int) -> Invitation:
    """Give an invitation a new link, valid for as many days as the last one; raises NotFound or NotAllowed."""
    require_write_transaction()
    actor, row = _get_managed(by, invitation_id)
    _renew(row, actor, valid_days(row))
    audit.record(by, actor.account_id, "user_invite_resend", f"invitation:{row.id}", {"role": row.role})
    return row


def revoke(by: Actor, invitation_id: int) -> Invitation:
    """Delete an invitation, whose link stops working; raises NotFound or NotAllowed."""
    require_write_transaction()
    actor, row = _get_managed(by, invitation_id)
    row.delete_instance()
    audit.record(by, actor.account_id, "user_invite_revoke", f"invitation:{invitation_id}", {"role": row.role})
    return row


def _get_managed(by: Actor, invitation_id: int) -> tuple[User, Invitation]:
    """Return (admin behind an actor, invitation of the account) if the admin may manage it.

    Raises NotFound, and NotAllowed as `users.require_owner_for` does.
    """
    actor = users.get_admin(by)
    row = Invitation.get_or_none(Invitation.account == actor.account_id, Invitation.id == invitation_id)
    if row is None:
        raise NotFound
    users.require_owner_for(actor, row.role)
    return actor, row


def _renew(row: Invitation, actor: User, days: int) -> None:
    """Set sender and times of an invitation; the expiry always changes, because it is part of the signed link."""
    now = clock.now_ms()
    row.invited_by, row.sent_at = actor.id, now
    expires_at = now + days * clock.DAY_MS
    row.expires_at = expires_at + 1 if expires_at == row.expires_at else expires_at
    row.save()


def valid_days(row: Invitation) -> int:
    """Return for how many days the current link of an invitation is or was valid."""
    days: int = round((row.expires_at - row.sent_at) / clock.DAY_MS)
    return min(max(1, days), MAX_VALID_DAYS)


def fetch_page(account_id: int, query: PageQuery) -> Page:
    """Return a page of the pending and expired invitations of an account, newest first."""
    rows = Invitation.select().where(Invitation.account == account_id)
    return paginate(rows.order_by(Invitation.sent_at.desc(), Invitation.id.desc()), query.page, query.size())


def list_open(account_id: int) -> list[Invitation]:
    """Return the pending and expired invitations of an account, newest first, with the users who sent them."""
    rows = Invitation.select(Invitation, User).join(User).where(Invitation.account == account_id)
    return list(rows.order_by(Invitation.sent_at.desc(), Invitation.id.desc()))


def is_valid(row: Invitation) -> bool:
    """Return whether an invitation has not expired, and its sender may still give its role."""
    sender = members.find_active(row.account_id, row.invited_by_id)
    if sender is None or row.expires_at <= clock.now_ms():
        return False
    return ADMIN_SCOPE in role_scopes(sender.role) and (row.role != "owner" or sender.role == "owner")


def build_link(row: Invitation) -> str:
    """Return the URL of the page on which the invited person accepts."""
    return f"{config.base_url(config.current())}/invitations/{row.id}/{_sign(row)}"


def _sign(row: Invitation) -> str:
    return crypto.sign_token(f"invitation:{row.expires_at}", row.id)


def find(invitation_id: int, token: str) -> Invitation | None:
    """Return the invitation of a link, with sender and account loaded, or None.

    None means that the invitation is unknown, the token does not match, or `is_valid` is False.
    """
    rows = Invitation.select(Invitation, User, Account).join(User).switch(Invitation).join(Account)
    row: Invitation | None = rows.where(Invitation.id == invitation_id).first()
    if row is None or not hmac.compare_digest(_sign(row).encode(), token.encode("utf-8", "replace")):
        return None
    return row if is_valid(row) else None


def find_by_id(invitation_id: int) -> Invitation | None:
    """Return an invitation by its id if `is_valid` holds, with its sender loaded, else None; no token is checked."""
    row: Invitation | None = (
        Invitation.select(Invitation, User).join(User).where(Invitation.id == invitation_id).first()
    )
    return row if row is not None and is_valid(row) else None


def accept(invitation_id: int, token: str, new: NewUser, ip: str | None) -> User:
    """Create the user of an invitation and delete the invitation.

    Raises NotFound if the link is not valid or `new.email` is not the invited address, and Invalid if a user already
    has the address.
    """
    require_write_transaction()
    row = find(invitation_id, token)
    if row is None or row.email != new.email:
        raise NotFound
    user = users.create(row.account_id, new, row.role)
    row.delete_instance()
    data = {"role": row.role, "invited_by": f"user:{row.invited_by_id}"}
    by = Actor(f"user:{user.id}", ip, user.id, account_id=user.account_id)
    audit.record(by, user.account_id, "user_add", f"user:{user.id}", data)
    return user


def find_person(row: Invitation) -> User | None:
    """Return the person with the invited address who has a user already, or None."""
    person: User | None = User.get_or_none(User.email == row.email)
    return person


def join(invitation_id: int, token: str, user_id: int, ip: str | None) -> User:
    """Add a person who has a user already to the account of an invitation, and delete the invitation.

    Raises NotFound if the link is not valid or is for an address other than the person's, and Invalid for a member of
    the account, even a disabled one.
    """
    require_write_transaction()
    row = find(invitation_id, token)
    person = find_person(row) if row is not None else None
    if row is None or person is None or person.id != user_id:
        raise NotFound
    user = users.join(row.account_id, user_id, row.role)
    row.delete_instance()
    data = {"role": row.role, "invited_by": f"user:{row.invited_by_id}"}
    by = Actor(f"user:{user.id}", ip, user.id, account_id=user.account_id)
    audit.record(by, user.account_id, "user_add", f"user:{user.id}", data)
    return user


def find_expired(limit: int) -> list[int]:
    """Return the ids of up to `limit` invitations that expired more than 30 days ago."""
    before = clock.now_ms() - _KEEP_EXPIRED_MS
    return [row.id for row in Invitation.select(Invitation.id).where(Invitation.expires_at < before).limit(limit)]


def delete_expired(ids: list[int]) -> int:
    """Delete the given invitations that expired more than 30 days ago, and return their number."""
    require_write_transaction()
    before = clock.now_ms() - _KEEP_EXPIRED_MS
    return int(Invitation.delete().where(Invitation.id.in_(ids), Invitation.expires_at < before).execute())

"""Invitations of new team members: made by owners and admins, accepted with the link of an email.

The link is signed with the id and the expiry of its invitation, and never stored. A new link replaces the old one, and
accepting or revoking an invitation deletes it, so that a link works once (T13 in docs/threats.md).
"""

import hmac

from appliance.accounts import audit, members, users
from appliance.accounts.access import ROLES
from appliance.accounts.audit import Actor
from appliance.accounts.users import NewUser
from appliance.core import addresses, clock, crypto
from appliance.core.errors import Faults, Invalid, NotFound
from appliance.core.i18n import gettext
from appliance.settings import config
from appliance.storage.models import Account, Invitation, User
from appliance.storage.transactions import require_write_transaction

VALID_DAYS = 7
# Expired invitations are listed for this long, so that they can be sent again.
_KEEP_EXPIRED_MS = 30 * clock.DAY_MS
MAX_PENDING = 200


def invite(by: Actor, email: str, role: str) -> Invitation:
    """Invite an address to the actor's account; an older invitation of the address is replaced.

    Raises NotAllowed, or Invalid for an unknown role, an invalid address, one of a member of the account, or more than
    `MAX_PENDING` invitations. The
    inviting user does not learn whether another account has a user with the address; the recipient learns it from the
    page of the link.
    """
    require_write_transaction()
    actor = users.get_admin(by)
    address, faults = "", Faults()
    try:
        address = addresses.parse_email(email).key
    except ValueError:
        faults.add("email", gettext("can't be blank") if not email.strip() else gettext("is invalid"))
    if role not in ROLES:
        faults.add("role", gettext("is not included in the list"))
    elif address:
        users.require_owner_for(actor, role)
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
    row.role = role
    _renew(row, actor)
    audit.record(by, actor.account_id, "user_invite", f"invitation:{row.id}", {"role": role})
    return row


def renew(by: Actor, invitation_id: int) -> Invitation:
    """Give an invitation a new link, valid for VALID_DAYS; raises NotFound or NotAllowed."""
    require_write_transaction()
    actor, row = _get_managed(by, invitation_id)
    _renew(row, actor)
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
    """Return the admin behind an actor, and an invitation of the account that the admin may manage."""
    actor = users.get_admin(by)
    row = Invitation.get_or_none(Invitation.account == actor.account_id, Invitation.id == invitation_id)
    if row is None:
        raise NotFound
    users.require_owner_for(actor, row.role)
    return actor, row


def _renew(row: Invitation, actor: User) -> None:
    """Set sender and times of an invitation; the expiry always changes, because the link is made of it."""
    now = clock.now_ms()
    row.invited_by, row.sent_at = actor.id, now
    row.expires_at = max(now + VALID_DAYS * clock.DAY_MS, (row.expires_at or 0) + 1)
    row.save()


def list_open(account_id: int) -> list[Invitation]:
    """Return the pending and expired invitations of an account, newest first, with the users who sent them."""
    rows = Invitation.select(Invitation, User).join(User).where(Invitation.account == account_id)
    return list(rows.order_by(Invitation.sent_at.desc(), Invitation.id.desc()))


def is_valid(row: Invitation) -> bool:
    """Return whether an invitation has not expired, and its sender may still give its role."""
    sender = members.find_active(row.account_id, row.invited_by_id)
    if sender is None or row.expires_at <= clock.now_ms():
        return False
    return sender.role in users.ADMIN_ROLES and (row.role != "owner" or sender.role == "owner")


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

    Raises NotFound if the link is not valid or `new.email` is not the invited address, and Invalid if a user has the
    address by now.
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

    Raises NotFound if the link is not valid or is for another address than the person's, and Invalid for a member of
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

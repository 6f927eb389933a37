"""The accounts of the installation, as its operators see them: owners and admins of the first account."""

from typing import NamedTuple

from appliance.accounts import accounts, audit, limits, members, sessions
from appliance.accounts.audit import Actor
from appliance.core import clock
from appliance.core.errors import Invalid, NotAllowed, NotFound
from appliance.core.i18n import gettext
from appliance.storage.database import rows, scalar
from appliance.storage.models import Account, User
from appliance.storage.transactions import require_write_transaction

# The account of the operators, whose settings are those of the installation.
FIRST_ACCOUNT = 1
# The `stop_reason` of a closed account; its sending stays stopped after it is opened again, until a user resumes it.
CLOSED = "closed"


class AccountFacts(NamedTuple):
    """An account with its numbers of users, contacts, and messages sent this month, and the bytes of its images."""

    account: Account
    member_count: int
    contact_count: int
    sent_count: int
    picture_bytes: int


def is_operator(account_id: int, role: str) -> bool:
    """Return whether a user with a role in an account is an operator of the installation."""
    return account_id == FIRST_ACCOUNT and role in ("owner", "admin")


def require_operator(by: Actor) -> User:
    """Return the user behind an actor; raises NotAllowed unless the user is an operator of the installation."""
    user = members.find_active(by.account_id, by.user_id) if by.account_id is not None else None
    if user is None or not is_operator(user.account_id, user.role):
        message = gettext("Only owners and admins of the first account manage the accounts of this installation.")
        raise NotAllowed(message, required_role="admin")
    return user


def list_accounts() -> list[AccountFacts]:
    """Return all accounts with their numbers, sorted by name; it reads all contacts, so call it by `scan`."""
    member_counts = dict(
        rows("SELECT account_id, count(*) FROM team_member WHERE disabled_at IS NULL GROUP BY account_id")
    )
    all_accounts = list(Account.select().order_by(Account.name, Account.id))
    return [_load_facts(account, int(member_counts.get(account.id, 0))) for account in all_accounts]


def get_facts(account_id: int) -> AccountFacts:
    """Return an account with its numbers; raises NotFound."""
    sql = "SELECT count(*) FROM team_member WHERE disabled_at IS NULL AND account_id = ?"
    return _load_facts(accounts.get(account_id), int(scalar(sql, (account_id,))))


def _load_facts(account: Account, member_count: int) -> AccountFacts:
    use = limits.measure(account.id)
    return AccountFacts(account, member_count, use.contacts, use.messages_this_month, use.picture_bytes)


def create(name: str, owner_id: int | None, by: Actor) -> Account:
    """Create an account; the user with `owner_id` becomes its first owner, None leaves it without one.

    The name is cut to 255 characters. Raises Invalid for a blank name.
    """
    require_write_transaction()
    if not name.strip():
        raise Invalid({"name": [gettext("can't be blank")]})
    account = audit.run_and_record(by, "account_add", accounts.create, name.strip()[:255])
    if owner_id is not None:
        user = members.add(owner_id, account.id, "owner")
        audit.record(by, account.id, "user_add", f"user:{user.id}", {"role": "owner"})
    return account


def close(account_id: int, by: Actor) -> Account:
    """Close an account: its users are signed out, its keys stop working, and its sending stops; nothing is deleted.

    Links of messages that were sent keep working, so that recipients can still opt out. Raises NotFound, and Invalid
    for the first account and for a closed one.
    """
    require_write_transaction()
    account = _get(account_id)
    if account_id == FIRST_ACCOUNT:
        raise Invalid({"base": [gettext("The first account cannot be closed: it belongs to the operators.")]})
    if account.closed_at is not None:
        raise Invalid({"base": [gettext("The account is closed already.")]})
    account.closed_at, account.sending_stopped, account.stop_reason = clock.now_ms(), True, CLOSED
    account.save(only=["closed_at", "sending_stopped", "stop_reason"])
    sessions.delete_of_account(account_id)
    audit.record(by, account_id, "account_close", f"account:{account_id}")
    return account


def reopen(account_id: int, by: Actor) -> Account:
    """Open a closed account again; its sending stays stopped until a user resumes it. Raises NotFound and Invalid."""
    require_write_transaction()
    account = _get(account_id)
    if account.closed_at is None:
        raise Invalid({"base": [gettext("The account is not closed.")]})
    account.closed_at = None
    account.save(only=["closed_at"])
    audit.record(by, account_id, "account_reopen", f"account:{account_id}")
    return account


def _get(account_id: int) -> Account:
    account: Account | None = Account.get_or_none(Account.id == account_id)
    if account is None:
        raise NotFound
    return account

"""The commands of operators for the accounts of the installation: `campanero account …`."""

import argparse
from collections.abc import Callable
from typing import Any

from appliance.core.errors import Invalid, NotFound
from appliance.storage import transactions

# Called at the start of each command, before it uses the database.
Prepare = Callable[[argparse.Namespace], object]
# The options of `account limits`: name of the limit, and help.
_LIMIT_OPTIONS = (
    ("contacts", "how many contacts the account may have"),
    ("messages_per_day", "how many messages it may send a day, in its time zone"),
    ("messages_per_month", "how many messages it may send a calendar month"),
    ("picture_megabytes", "how many megabytes its images may take"),
    ("requests_per_minute", "how many API requests all its keys and users together may make a minute"),
    ("imports_at_once", "how many imports may run at once"),
)


def add(group: Any, add_command: Callable[..., Any], open_database: Prepare) -> None:
    """Add the commands to the group `account`; each calls `open_database` first."""

    def command(name: str, run: Callable[[argparse.Namespace], None], words: str) -> Any:
        def open_and_run(options: argparse.Namespace) -> None:
            open_database(options)
            run(options)

        return add_command(group, name, open_and_run, words)

    new = command("add", _add, "add an account and print its id")
    new.add_argument("name", metavar="NAME")
    new.add_argument("--owner", metavar="EMAIL", help="a user of the installation who becomes its first owner")
    command("list", _list, "list the accounts with their users, contacts and messages of this month")
    words = "close an account: its users cannot sign in and it sends nothing; links of sent messages keep working"
    for name, run, text in (("close", _close, words), ("reopen", _reopen, "open a closed account again")):
        command(name, run, text).add_argument("id", type=_parse_id, metavar="ID")
    limits = command("limits", _limit, "set limits of an account, and print them all")
    limits.add_argument("id", type=_parse_id, metavar="ID")
    for name, text in _LIMIT_OPTIONS:
        option = f"--{name.replace('_', '-')}"
        limits.add_argument(option, type=_parse_limit, metavar="N", help=f"{text}; none for no limit")

    address = command("address", _set_address, "set the public address of an account; print it and its former hosts")
    address.add_argument("id", type=_parse_id, metavar="ID")
    address.add_argument("--url", metavar="URL", help="such as https://mail.shop.example; none for that of base_url")
    address.add_argument("--remove", metavar="HOST", help="a former host whose links may stop working")


def _parse_id(text: str) -> int:
    number = int(text)
    if not 0 < number < 1 << 63:
        raise argparse.ArgumentTypeError("must be the id of an account")
    return number


def _parse_limit(text: str) -> int:
    """Return a limit, or -1 for the text `none`. Raises ArgumentTypeError, which argparse reports."""
    from appliance.accounts.limits import MAX_LIMIT

    if text == "none":
        return -1
    if not text.isdecimal() or int(text) > MAX_LIMIT:
        raise argparse.ArgumentTypeError(f"must be a number from 0 to {MAX_LIMIT}, or none")
    return int(text)


def _actor() -> Any:
    from appliance.accounts.audit import Actor

    return Actor("cli")


def _add(options: argparse.Namespace) -> None:
    from appliance.accounts import accounts, operators, users
    from appliance.core.validation import read

    if not users.has_users():
        words = "set up the installation first: campanero setup, or the link that campanero serve prints"
        raise Invalid({"base": [words]}, message=words)
    read(accounts.AccountWrite, {"name": options.name})
    owner = users.find_by_email(options.owner) if options.owner else None
    if options.owner and owner is None:
        raise NotFound(f"there is no user with the email address {options.owner}; use: campanero user add")
    owner_id = owner.id if owner is not None else None
    print(transactions.write(operators.create, options.name, owner_id, _actor()).id)


def _list(options: argparse.Namespace) -> None:
    from appliance.accounts import limits, operators

    for facts in sorted(operators.list_accounts(), key=lambda entry: entry.account.id):
        account = facts.account
        counts = facts.member_count, facts.contact_count, facts.sent_count
        words = ["{} users, {} contacts, {} sent this month".format(*counts)]
        words += [limits.describe(use) for use in limits.list_uses(account.id) if use.share >= limits.WARN_SHARE]
        if account.public_url:
            words.append(account.public_url)
        if account.closed_at is not None:
            words.append("closed")
        print(f"{account.id}  {account.name}: {', '.join(words)}")


def _close(options: argparse.Namespace) -> None:
    from appliance.accounts import operators

    transactions.write(operators.close, options.id, _actor())


def _reopen(options: argparse.Namespace) -> None:
    from appliance.accounts import operators

    transactions.write(operators.reopen, options.id, _actor())


def _limit(options: argparse.Namespace) -> None:
    from appliance.accounts import accounts, limits

    accounts.get(options.id)
    changes = {name: getattr(options, name) for name in limits.LABELS if getattr(options, name) is not None}
    if changes:
        transactions.write(limits.change, options.id, changes, _actor())
    current = limits.get(options.id)
    for name in limits.LABELS:
        limit = getattr(current, name)
        print(f"{name}: {'no limit' if limit is None else limit}")


def _set_address(options: argparse.Namespace) -> None:
    from appliance.accounts import accounts, public_urls

    if options.url is not None:
        url = "" if options.url == "none" else options.url
        transactions.write(public_urls.set_public_url, options.id, url, _actor())
    if options.remove is not None:
        transactions.write(public_urls.release_host, options.id, options.remove, _actor())
    account = accounts.get(options.id)
    print(public_urls.base_url_of(account))
    for host in public_urls.list_former_hosts(account):
        print(f"{host} (former)")

"""Commands about people who sign in: added, let in again when they forgot something; beside a running service too."""

import argparse
import sys
from collections.abc import Callable
from typing import Any

from appliance.db import work
from appliance.errors import NotFound

Opened = Callable[[argparse.Namespace], object]


def mount(group: Any, command: Callable[..., Any], opened: Opened) -> None:
    """Add the commands to the group `user`; `opened` opens the database of a command."""

    def add(name: str, function: Callable[[argparse.Namespace], None], words: str) -> Any:
        def run(options: argparse.Namespace) -> None:
            opened(options)
            function(options)

        made = command(group, name, run, words)
        made.add_argument("--email", required=True)
        return made

    made = add("add", _add, "add a person who signs in; the password is the first line of stdin")
    made.add_argument("--role", default="owner", help="owner, admin, editor, author or viewer")
    made.add_argument("--account", type=account_id, default=1, metavar="ID")
    add("password", _password, "give a person a new password, the first line of stdin; they are signed out everywhere")
    add("otp-off", _otp_off, "take the second factor from a person who lost it; they are signed out everywhere")


def account_id(text: str) -> int:
    """Return the id of an account from the command line; argparse reports any other text."""
    number = int(text)
    if not 0 < number < 1 << 63:
        raise argparse.ArgumentTypeError("must be the id of an account")
    return number


def read_password() -> str:
    """Read a password from the first line of stdin."""
    if sys.stdin.isatty():
        print("Password: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().rstrip("\r\n")


def _add(options: argparse.Namespace) -> None:
    from appliance.account import audit, users

    new, told = users.prepare(options.email, read_password()), {"role": options.role}
    args = (users.add, options.account, new, options.role)
    work.write(audit.noting, _by_command(), "user_add", *args, data=told)


def _password(options: argparse.Namespace) -> None:
    from appliance.account import passwords, team

    user, word = _person(options.email), read_password()
    passwords.check_length(word)
    work.write(team.reset_password, user.id, passwords.make(word), _by_command())


def _otp_off(options: argparse.Namespace) -> None:
    from appliance.account import second_factor

    work.write(second_factor.switch_off, _person(options.email).id, None, _by_command())


def _person(email: str) -> Any:
    from appliance.account import users

    found = users.of_address(email)
    if found is None:
        raise NotFound(f"nobody signs in with {email}")
    return found


def _by_command() -> Any:
    from appliance.account.acting import By

    return By("cli")

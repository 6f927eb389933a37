"""The command line for scripts: the commands with their options, and the exit code of each way to end.

A command exits with 0 when it is done, 1 if the service refused, 2 for a wrong command line or file, 3 if the service
cannot be reached, 4 without a valid key or scope, 130 after Ctrl C, and 141 if its output was closed.
"""

import argparse
import gc
import getpass
import os
import sys
from collections.abc import Callable
from typing import Any

from appliance.remote import COMMANDS, api_command, campaigns, contacts, content, messages, output, profiles
from appliance.remote.errors import (
    CLOSED_OUTPUT,
    DONE,
    INTERRUPTED,
    NOT_ALLOWED,
    REFUSED,
    WRONG_USAGE,
    CommandError,
    ServiceError,
    UsageError,
)
from appliance.remote.profiles import Profile

MAX_RETRIES = 20
_SCOPES_HEADER = "x-scopes"
Run = Callable[[argparse.Namespace], None]
RunConnected = Callable[[argparse.Namespace, Any], None]

EPILOG = """\
exit codes: 0 done, 1 the service refused, 2 wrong command line or file, 3 the service cannot be reached,
4 not signed in or not allowed, 130 interrupted

The service and the key are those of --profile, else of CAMPANERO_URL and CAMPANERO_KEY, else of the profile that
CAMPANERO_PROFILE names, else of the profile `default`."""


def add_commands(top: Any) -> None:
    """Add the commands to the subparsers `top`. Their list in the program's help is `describe_commands`."""

    def add(group: Any, name: str, words: str, run: Run, is_listed: bool = True) -> Any:
        parser = group.add_parser(
            name, description=f"{words[0].upper()}{words[1:]}.", epilog=EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter, **({"help": words} if is_listed else {}),
        )  # fmt: skip
        parser.set_defaults(run=run)
        parser.add_argument("--profile", metavar="NAME", help="use this profile")
        return parser

    def connected(group: Any, name: str, words: str, run: RunConnected, is_listed: bool = True) -> Any:
        parser = add(group, name, words, lambda options: _run_connected(options, run), is_listed)
        what = f"repeat a request that may succeed later, at most N times (default: 3, at most {MAX_RETRIES})"
        parser.add_argument("--retries", type=_parse_retries, default=3, metavar="N", help=what)
        if run is not api_command.run:
            parser.add_argument("--json", action="store_true", help="print JSON, as the API returns it")
        parser.add_argument("-q", "--jq", metavar="FILTER", help="print what this filter of jq makes of the JSON")
        return parser

    def new_group(name: str) -> Any:
        parser = top.add_parser(name, description=f"{COMMANDS[name][0].upper()}{COMMANDS[name][1:]}.")
        return parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    login = add(top, "login", f"{COMMANDS['login']}; the key is asked for, or the first line of stdin", _login, False)
    login.add_argument("url", metavar="URL", help="the address of the service, such as https://mail.example.com")
    add(top, "logout", COMMANDS["logout"], _logout, False)
    listed = add(top, "profiles", COMMANDS["profiles"], _list_profiles, False)
    listed.add_argument("--json", action="store_true", help="print JSON")
    api_command.add_options(connected(top, "api", COMMANDS["api"], api_command.run, False))

    group = new_group("contacts")
    words = "import a file and wait for the result"
    contacts.add_import_options(connected(group, "import", words, contacts.run_import))
    contacts.add_export_options(connected(group, "export", "export contacts", contacts.run_export))
    group = new_group("campaigns")
    campaigns.add_list_options(connected(group, "list", "list campaigns, newest first", campaigns.run_list))
    words = "show a campaign with its numbers"
    campaigns.add_show_options(connected(group, "show", words, campaigns.run_show))
    words = "check a campaign before it is sent; exit 1 if it cannot be sent"
    campaigns.add_id(connected(group, "preflight", words, campaigns.run_preflight))
    words = "send a campaign after a preflight, and after asking"
    campaigns.add_send_options(connected(group, "send", words, campaigns.run_send))
    campaigns.add_id(connected(group, "pause", "pause an active campaign", campaigns.run_pause))
    campaigns.add_id(connected(group, "resume", "resume a paused campaign", campaigns.run_resume))
    group = new_group("messages")
    messages.add_send_options(connected(group, "send", "send a single message", messages.run_send))
    messages.add_tail_options(connected(group, "tail", "print the last messages, the newest last", messages.run_tail))
    words = "record an event of a contact"
    messages.add_event_options(connected(new_group("events"), "send", words, messages.run_event))
    words = "print what a flow would do for a contact; nothing is sent"
    messages.add_simulate_options(connected(new_group("flows"), "simulate", words, messages.run_simulate))
    group = new_group("content")
    words = "write a file for each list, segment, template, form and flow"
    content.add_export_options(connected(group, "export", words, content.run_export))
    words = "create and change the objects of such files; nothing is sent"
    content.add_import_options(connected(group, "import", words, content.run_import))


def describe_commands() -> str:
    """Return the list of the commands for the help of the program."""
    others = {"completion": "print the completion of commands and options for bash, zsh or fish"}
    lines = "\n".join(f"    {name:<20}{words}" for name, words in {**COMMANDS, **others}.items())
    return f"commands for scripts, to a Campanero here or elsewhere:\n{lines}"


def _parse_retries(text: str) -> int:
    number = int(text)
    if not 0 <= number <= MAX_RETRIES:
        raise argparse.ArgumentTypeError(f"must be from 0 to {MAX_RETRIES}")
    return number


def run(arguments: list[str]) -> int:
    """Run the command that the arguments name, print its errors on stderr, and return its exit code."""
    try:
        "".join(arguments).encode()
    except UnicodeEncodeError:
        output.print_error("the command line must be valid UTF-8")
        return WRONG_USAGE
    parser = argparse.ArgumentParser(prog="campanero")
    add_commands(parser.add_subparsers(required=True, metavar="COMMAND"))
    options = parser.parse_args(arguments)
    try:
        options.run(options)
        sys.stdout.flush()
    except CommandError as error:
        output.print_error(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of the output, such as `head`, has closed it. Without this, Python would report an error when it
        # flushes stdout at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED_OUTPUT
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
        # The response does not have the structure of the API's responses: it is from another program, or another
        # version.
        output.print_error(f"the service gave an unexpected response ({type(error).__name__}: {error})")
        return REFUSED
    except OSError as error:
        output.print_error(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
        return WRONG_USAGE
    return DONE


def _run_connected(options: argparse.Namespace, run_command: RunConnected) -> None:
    profile = profiles.choose(options.profile)
    options.program = output.compile_filter(options.jq)
    run_command(options, _connect(profile, options.retries))


def _connect(profile: Profile, retries: int) -> Any:
    """Return a connection to the service of a profile."""
    # Importing httpx takes most of the start, and --help and usage errors need not wait for it.
    from appliance.remote.connection import Connection

    gc.enable()  # `appliance.__main__` has disabled it for the time of the imports
    return Connection(profile, retries)


def _login(options: argparse.Namespace) -> None:
    url = profiles.parse_url(options.url)
    name = profiles.parse_name(options.profile or os.environ.get(profiles.PROFILE_VARIABLE) or profiles.DEFAULT_NAME)
    profiles.warn_without_encryption(url)
    key = _read_key(url)
    account, headers = "", {}
    try:
        response = _connect(Profile(url, key), retries=0).request("GET", "/account")
        headers, account = dict(response.headers), str(response.json()["name"])
    except ServiceError as error:
        # A key without the scope `account:read` is valid for other requests.
        if error.response.status != 403 or error.response.code != "forbidden":
            raise
        headers = dict(error.response.headers)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise CommandError(f"{url} is no Campanero: it gave an invalid response") from None
    with profiles.change() as stored:
        stored[name] = Profile(url, key, account)
    place = f"account {output.clean_line(account)}" if account else "an account that the key may not read"
    print(f"Signed in to {place} at {url} (profile {name}).")
    print(f"Scopes: {output.clean_line(headers.get(_SCOPES_HEADER) or 'unknown')}")


def _read_key(url: str) -> str:
    """Return the key: typed on a terminal without being displayed, else the first line of stdin."""
    if sys.stdin.isatty():
        try:
            key = getpass.getpass(f"API key for {url}: ", stream=sys.stderr)
        except EOFError:
            key = ""
    else:
        key = sys.stdin.readline()
    if not key.strip():
        raise CommandError("no key was given; a key is created under Settings, API keys", NOT_ALLOWED)
    return key.strip()


def _logout(options: argparse.Namespace) -> None:
    name = options.profile or os.environ.get(profiles.PROFILE_VARIABLE) or profiles.DEFAULT_NAME
    with profiles.change() as stored:
        if stored.pop(name, None) is None:
            raise CommandError(f"there is no profile {name}")
    print(f"Deleted the profile {name}. Its key is still valid: revoke it under Settings, API keys.")


def _list_profiles(options: argparse.Namespace) -> None:
    if options.profile:
        raise UsageError("this lists all profiles")
    stored = profiles.load()
    rows = [(name, profile.url, profile.account) for name, profile in sorted(stored.items())]
    if options.json:
        output.print_json([{"name": name, "url": url, "account": account} for name, url, account in rows])
    else:
        output.print_table(("PROFILE", "URL", "ACCOUNT"), rows)

"""The command line (docs/decisions.md#17): exit 0 done, 1 refused or failed, 2 wrong command line."""

import argparse
import gc
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import peewee

from appliance import VERSION
from appliance.accounts import settings
from appliance.core import assets, clock, data_dir, logs, tokens
from appliance.core.errors import ConfigError, NotFound, Refused
from appliance.ops.backups import backup_commands, files, placing, upgrading
from appliance.sending.sms.providers import PROVIDERS
from appliance.settings import config
from appliance.settings.config import Loaded
from appliance.storage import disk_guard, identity, journal, migrations, work
from appliance.storage.identity import Unusable
from appliance.storage.migrations import MIGRATIONS, TooNew
from appliance.storage.open import TooOld, check_version, close_database, open_database

# Opens a data directory: its database, and the key that belongs to it.
#
# The first time both meet, the key's fingerprint is stored with the database. From then on neither is used without
# the other: another key answers 404 to every link in mail that was sent, and no longer knows who must not be written
# to.

DATABASE = "campanero.db"


def open_installation(directory: Path, tell: Callable[[str], None]) -> None:
    """Open the database with its schema and its key; a directory without data becomes a new installation.

    Raises identity.Unusable, tokens.WrongKey, or what `upgrading.upgrade` raises. `tell` hears what takes its time.
    """
    check_version()
    path = directory / DATABASE
    # Before the database is looked at: who makes an installation at this moment makes the database first
    traces = _traces(directory)
    found = identity.NEW if identity.is_empty(path) else identity.inspect(path)
    is_new = found.schema == 0
    if is_new and traces:
        state = "is empty" if path.exists() else "is missing"
        raise Unusable(
            f"{path} {state}, but {', '.join(traces)} beside it show that this is not a new installation: restore a "
            f"backup (campanero restore FILE{' --force' if path.exists() else ''}), or begin anew in an empty "
            "directory (--data)"
        )
    # A first start that was killed: no key was used with it yet
    is_unbound = found.key_fingerprint is None and not found.has_accounts
    try:
        identity.check_key(directory, found)
    except tokens.KeyMissing:
        if not is_unbound:
            raise
    open_database(path)
    journal.use(directory)
    if is_unbound:
        migrations.migrate()  # it holds nothing yet that a backup would keep
        tokens.create_key(directory)
    else:
        upgrading.upgrade(directory, tell)
    if found.key_fingerprint is None:
        tokens.check_key(identity.bind_key(), directory / tokens.FILE)


def must_exist(directory: Path) -> None:
    """Raise Unusable where nothing is yet: only `serve` and `setup` begin an installation."""
    if identity.is_empty(directory / DATABASE) and not _traces(directory):
        raise Unusable(f"there is nothing in {directory} yet: start with campanero serve, or name another by --data")


def _traces(directory: Path) -> list[str]:
    """Return the names of what only an installation that was used leaves beside its database."""
    single = [name for name in (tokens.FILE, journal.FILE) if (directory / name).exists()]
    folders = [name for name in (*placing.FOLDERS, files.FOLDER) if any((directory / name).glob("*"))]
    return single + folders


# Commands about people who sign in: added, let in again when they forgot something; beside a running service too.

Opened = Callable[[argparse.Namespace], object]


def mount_people(group: Any, command: Callable[..., Any], opened: Opened) -> None:
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
    from appliance.accounts import audit, users

    new, told = users.prepare(options.email, read_password()), {"role": options.role}
    args = (users.add, options.account, new, options.role)
    work.write(audit.noting, _by_command(), "user_add", *args, data=told)


def _password(options: argparse.Namespace) -> None:
    from appliance.accounts import passwords, users

    user, word = _person(options.email), read_password()
    passwords.check_length(word)
    work.write(users.reset_password, user.id, passwords.make(word), _by_command())


def _otp_off(options: argparse.Namespace) -> None:
    from appliance.accounts import second_factor

    work.write(second_factor.switch_off, _person(options.email).id, None, _by_command())


def _person(email: str) -> Any:
    from appliance.accounts import users

    found = users.of_address(email)
    if found is None:
        raise NotFound(f"nobody signs in with {email}")
    return found


def _by_command() -> Any:
    from appliance.accounts.acting import By

    return By("cli")


class Fault(Exception):
    """A command that cannot be done; its text is one line for stderr."""


def run(arguments: list[str]) -> int:
    """Run one command and answer its exit code."""
    try:
        "".join(arguments).encode()
    except UnicodeEncodeError:
        _tell("the command line must be valid UTF-8")
        return 2
    options = _parser().parse_args(arguments)
    if options.run is not _serve:
        gc.enable()
    try:
        return int(options.run(options) or 0)
    except (
        Fault, ConfigError, tokens.WrongKey, identity.Unusable, TooOld, TooNew, data_dir.InUse, data_dir.Foreign,
        upgrading.NotUpgraded,
    ) as error:  # fmt: skip
        return _say(str(error))
    except Refused as error:
        return _say(error.message or error.code)
    except OSError as error:
        return _say(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
    except (apsw.Error, peewee.PeeweeException) as error:
        # Damage in the middle of a database shows only where a command comes upon it
        if disk_guard.storage_error(error) is None:
            raise
        return _say(f"the database cannot be read or written ({error}): see campanero doctor")
    except KeyboardInterrupt:
        return 130
    finally:
        close_database()


def _say(text: str) -> int:
    _tell(text)
    return 1


def _tell(text: str) -> None:
    line = "".join(character if character.isprintable() else "?" for character in " ".join(text.split()))
    print(f"campanero: {line}", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="campanero",
        description="Email and SMS marketing for small teams, on one machine.",
        epilog="Every command takes --data and --config. Start with: campanero serve",
    )
    top = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    serve = _command(top, "serve", _serve, "run the service until it is told to stop")
    serve.add_argument("--listen", metavar="HOST:PORT", help="address to listen on (default: 127.0.0.1:8080)")
    setup = _command(top, "setup", _setup, "make the account and its owner; the password is the first line of stdin")
    setup.add_argument("--email", required=True)
    setup.add_argument("--name", metavar="ACCOUNT", help="name of the account")
    _people_and_keys(top)
    _command(top, "check", _check, "print the effective configuration, secrets masked; exit 1 if it is invalid")
    words = "look the installation over, a line for each check; exit 1 if one fails"
    doctor = _command(top, "doctor", _doctor, words)
    doctor.add_argument("--json", action="store_true", help="answer as JSON: ok, and each finding with what to paste")
    words = "also send one message the whole way into the built-in inbox, and read it as a recipient's server would"
    doctor.add_argument("--seed", action="store_true", help=words)
    doctor.add_argument("--account", type=account_id, metavar="ID", help="of the accounts look only at this one")
    backup_commands.mount(top, _command, _load)
    words = "say what the service is doing: sends, imports, exports, queue, today, storage; it need not run"
    status = _command(top, "status", _status, words)
    status.add_argument("--watch", action="store_true", help="draw it again every second, until Ctrl C")
    status.add_argument("--json", action="store_true", help="as JSON, for scripts; with --watch an object a line")
    _command(top, "recount", _recount, "judge all opens and clicks again by today's rules, and correct what they count")
    _command(top, "openapi", _openapi, "print the interface description (OpenAPI 3.1, YAML)")
    version = _command(top, "version", _version, "print the version")
    version.add_argument("--json", action="store_true", help="with the versions of what is inside")
    words = "print the licences of what is inside (of the executable)"
    version.add_argument("--licences", action="store_true", help=words)
    return parser


def _command(where: Any, name: str, function: Callable[[argparse.Namespace], int | None], words: str) -> Any:
    """Add a command with the options that every command has."""
    made = where.add_parser(name, help=words, description=words)
    made.add_argument("--data", metavar="DIR", type=_path, help="data directory (default: ./campanero-data)")
    default = "configuration (default: campanero.toml in the data directory)"
    made.add_argument("--config", metavar="FILE", type=_path, help=default)
    made.set_defaults(run=function)
    return made


def _path(text: str) -> str:
    """Return a path from the command line; argparse reports an empty one, as of a variable that is not set."""
    if not text.strip():
        raise argparse.ArgumentTypeError("must not be empty")
    return text


def _people_and_keys(top: Any) -> None:
    def group(name: str, words: str) -> Any:
        made = top.add_parser(name, help=words, description=words)
        return made.add_subparsers(title="commands", required=True, metavar="COMMAND")

    mount_people(group("user", "people who sign in"), _command, _open)
    key = _command(
        group("key", "keys for the API"), "create", _key_create, "make a key and print it, the only time it is shown"
    )
    key.add_argument("name", metavar="NAME")
    key.add_argument("--scope", default="full", help="full, read, send, or a comma list such as contacts:write")
    key.add_argument("--test", action="store_true", help="all it sends goes to the built-in inbox")
    key.add_argument("--account", type=account_id, default=1, metavar="ID")
    account = _command(
        group("account", "accounts of this installation"), "add", _account_add, "make a further account, print its id"
    )
    account.add_argument("name", metavar="NAME")


def _load(options: argparse.Namespace, page: dict[str, Any] | None = None) -> Loaded:
    given = {"data_dir": options.data, "listen": getattr(options, "listen", None)}
    path = options.config or os.environ.get("CAMPANERO_CONFIG")
    named = {name: value for name, value in given.items() if value}
    loaded = config.load(named, file=Path(path) if path else None, page=page)
    config.use(loaded.config, loaded)
    if lacks := PROVIDERS[loaded.config.sms.transport].lacks():
        raise ConfigError("; ".join(f"{name}: {words}" for name, words in lacks))
    clock.follow(os.environ.get("CAMPANERO_TEST_CLOCK"))
    return loaded


def _open(options: argparse.Namespace) -> Loaded:
    """Open the database for a command: with its schema, its settings of the pages and its key."""
    directory = Path(_load(options).config.data_dir)
    if options.run in (_serve, _setup):
        data_dir.make(directory)
    else:
        must_exist(directory)
    open_installation(directory, _tell)
    return _load(options, settings.read())


def _serve(options: argparse.Namespace) -> None:
    loaded = _load(options)
    directory, log = data_dir.make(Path(loaded.config.data_dir)), loaded.config.log
    with data_dir.locked(directory, loaded.config.listen):
        kept = logs.Kept(directory / log.file, int(log.file_mb * 1_000_000), log.files) if log.file else None
        logs.start(log.level, log.format, kept)
        data_dir.make_private(directory)
        placing.finish(directory)
        loaded = _open(options)
        for words in loaded.warnings:
            print(f"campanero: {words}", file=sys.stderr)
        if options.config:
            # What this process starts reads the same
            os.environ["CAMPANERO_CONFIG"] = str(Path(options.config).resolve())
        from appliance.http import server

        server.serve(loaded.config)


def _setup(options: argparse.Namespace) -> None:
    from appliance.accounts import audit, users
    from appliance.accounts.acting import By

    _open(options)
    if users.has_users():
        raise Fault("set-up was done before; use: campanero user add")
    new = users.prepare(options.email, read_password())
    work.write(audit.noting, By("cli"), "user_add", users.set_up, new, options.name)


def _key_create(options: argparse.Namespace) -> None:
    from appliance.accounts import keys
    from appliance.accounts.acting import By
    from appliance.core.fields import read

    _open(options)
    read(keys.KeyWrite, {"name": options.name})
    by = By("cli")
    print(work.write(keys.create, options.account, options.name, options.scope, options.test, by))


def _account_add(options: argparse.Namespace) -> None:
    from appliance.accounts import accounts, audit, users
    from appliance.accounts.acting import By
    from appliance.core.fields import read

    _open(options)
    if not users.has_users():
        raise Fault("set-up comes first: campanero setup, or the link that campanero serve prints")
    read(accounts.AccountWrite, {"name": options.name})
    made = work.write(audit.noting, By("cli"), "account_add", accounts.create, options.name.strip())
    print(made.id)


def _check(options: argparse.Namespace) -> None:
    loaded = _load(options)
    for words in loaded.warnings:
        print(f"campanero: {words}", file=sys.stderr)
    for name, info in config.leaves():
        value = config.value_of(loaded.config, name)
        shown = "***" if config.is_secret(info) and value else json.dumps(value, ensure_ascii=False)
        print(f"{name} = {shown}  # {loaded.sources[name]}")


def _doctor(options: argparse.Namespace) -> int:
    from appliance.ops import doctor as ops_doctor

    found = []
    for line in ops_doctor.look(lambda page: _load(options, page), options.seed, options.account):
        found.append(line)
        if not options.json:
            fix = f" [{' '.join(line.fix.split())}]" if line.fix else ""
            print(f"{line.level:<4}  {line.check}: {' '.join(line.words.split())}{fix}", flush=True)
    failed = any(line.level == "fail" for line in found)
    if options.json:
        print(json.dumps({"ok": not failed, "findings": [line._asdict() for line in found]}))
    return int(failed)


def _status(options: argparse.Namespace) -> None:
    from appliance.ops.status import look, screen

    loaded = _load(options)
    base = Path(loaded.config.data_dir) / "campanero.db"
    have = 0 if identity.is_empty(base) else identity.inspect(base).schema
    if have == 0:
        raise Fault(f"there is nothing in {base.parent} yet: start with campanero serve, or name another by --data")
    open_database(base)
    if have < len(MIGRATIONS):
        raise Fault(f"the database has schema {have}: the next start of the service brings it to {len(MIGRATIONS)}")
    if have > len(MIGRATIONS):
        raise TooNew(f"the database has schema {have}, this program knows {len(MIGRATIONS)}: use the newer program")
    screen.show(lambda: look.look(loaded.config), options.watch, options.json)


def _recount(options: argparse.Namespace) -> None:
    from appliance.tracking import hit_verdicts

    _open(options)
    looked, changed = hit_verdicts.judge_all()
    print(f"{looked} messages judged again, {changed} opens and clicks are another's now")


def _openapi(options: argparse.Namespace) -> None:
    config.use(_load(options).config)
    from appliance.api.document import document

    sys.stdout.write(document().decode())


def _version(options: argparse.Namespace) -> None:
    if options.licences:
        print(assets.licences(), end="")
    elif options.json:
        print(json.dumps({"version": VERSION, "components": assets.components()}))
    else:
        print(f"campanero {VERSION}")

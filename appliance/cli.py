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

from appliance import VERSION, bundled, clock, config, datadir, installation, logs, people_commands, tokens
from appliance.account import settings
from appliance.backups import backup_commands, placing, upgrading
from appliance.config import Loaded
from appliance.db import disk_guard, identity, work
from appliance.db.migrations import MIGRATIONS, TooNew
from appliance.db.open import TooOld, close_database, open_database
from appliance.errors import ConfigError, Refused
from appliance.sms.providers import PROVIDERS


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
        Fault, ConfigError, tokens.WrongKey, identity.Unusable, TooOld, TooNew, datadir.InUse, datadir.Foreign,
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
    doctor.add_argument(
        "--account", type=people_commands.account_id, metavar="ID", help="of the accounts look only at this one"
    )
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

    people_commands.mount(group("user", "people who sign in"), _command, _open)
    key = _command(
        group("key", "keys for the API"), "create", _key_create, "make a key and print it, the only time it is shown"
    )
    key.add_argument("name", metavar="NAME")
    key.add_argument("--scope", default="full", help="full, read, send, or a comma list such as contacts:write")
    key.add_argument("--test", action="store_true", help="all it sends goes to the built-in inbox")
    key.add_argument("--account", type=people_commands.account_id, default=1, metavar="ID")
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
        datadir.make(directory)
    else:
        installation.must_exist(directory)
    installation.open_installation(directory, _tell)
    return _load(options, settings.read())


def _serve(options: argparse.Namespace) -> None:
    loaded = _load(options)
    directory, log = datadir.make(Path(loaded.config.data_dir)), loaded.config.log
    with datadir.locked(directory, loaded.config.listen):
        kept = logs.Kept(directory / log.file, int(log.file_mb * 1_000_000), log.files) if log.file else None
        logs.start(log.level, log.format, kept)
        datadir.make_private(directory)
        placing.finish(directory)
        loaded = _open(options)
        for words in loaded.warnings:
            print(f"campanero: {words}", file=sys.stderr)
        if options.config:
            # What this process starts reads the same
            os.environ["CAMPANERO_CONFIG"] = str(Path(options.config).resolve())
        from appliance import server

        server.serve(loaded.config)


def _setup(options: argparse.Namespace) -> None:
    from appliance.account import audit, users
    from appliance.account.acting import By

    _open(options)
    if users.has_users():
        raise Fault("set-up was done before; use: campanero user add")
    new = users.prepare(options.email, people_commands.read_password())
    work.write(audit.noting, By("cli"), "user_add", users.set_up, new, options.name)


def _key_create(options: argparse.Namespace) -> None:
    from appliance.account import keys
    from appliance.account.acting import By
    from appliance.fields import read

    _open(options)
    read(keys.KeyWrite, {"name": options.name})
    by = By("cli")
    print(work.write(keys.create, options.account, options.name, options.scope, options.test, by))


def _account_add(options: argparse.Namespace) -> None:
    from appliance.account import accounts, audit, users
    from appliance.account.acting import By
    from appliance.fields import read

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
    from appliance import doctor

    found = []
    for line in doctor.look(lambda page: _load(options, page), options.seed, options.account):
        found.append(line)
        if not options.json:
            fix = f" [{' '.join(line.fix.split())}]" if line.fix else ""
            print(f"{line.level:<4}  {line.check}: {' '.join(line.words.split())}{fix}", flush=True)
    failed = any(line.level == "fail" for line in found)
    if options.json:
        print(json.dumps({"ok": not failed, "findings": [line._asdict() for line in found]}))
    return int(failed)


def _status(options: argparse.Namespace) -> None:
    from appliance.status import look, screen

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
    from appliance.engagement import rejudge

    _open(options)
    looked, changed = rejudge.judge_all()
    print(f"{looked} messages judged again, {changed} opens and clicks are another's now")


def _openapi(options: argparse.Namespace) -> None:
    config.use(_load(options).config)
    from appliance.api.document import document

    sys.stdout.write(document().decode())


def _version(options: argparse.Namespace) -> None:
    if options.licences:
        print(bundled.licences(), end="")
    elif options.json:
        print(json.dumps({"version": VERSION, "components": bundled.components()}))
    else:
        print(f"campanero {VERSION}")

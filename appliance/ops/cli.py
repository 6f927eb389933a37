"""The command line (docs/decisions.md#17).

A command exits with 0 on success, 1 on failure, 2 for an invalid command line, and 130 when Ctrl C interrupts it.
"""

import argparse
import gc
import json
import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import peewee

from appliance import VERSION
from appliance.accounts import settings
from appliance.core import clock, crypto, data_dir, executable, i18n, logs
from appliance.core.errors import ConfigError, NotFound, Refused
from appliance.ops import account_commands, support_bundle
from appliance.ops.backup_commands import add_backup_commands
from appliance.ops.backups import archive
from appliance.ops.backups import create as backups
from appliance.ops.standby.commands import add_standby_commands
from appliance.ops.standby.place import require_not_following
from appliance.remote import cli as remote_cli
from appliance.remote import completion
from appliance.sending.sms.providers import PROVIDERS
from appliance.settings import config
from appliance.settings.config import LoadedConfig
from appliance.storage import disk_guard, migrations, transactions
from appliance.storage.database import SqliteTooOld, close_database, open_database, rows
from appliance.storage.journal import UnusableJournal
from appliance.storage.migrations import MIGRATIONS, SchemaTooNew

if TYPE_CHECKING:
    from appliance.ops.doctor.checks import Finding

# The commands of the group `user` also work while the service runs.

OpenDatabase = Callable[[argparse.Namespace], object]


def add_user_commands(group: Any, command: Callable[..., Any], opened: OpenDatabase) -> None:
    """Add the commands of the group `user` to its subparsers `group`.

    `command` adds one command, as `_add_command` does; `opened` opens the database before each command.
    """

    def add(name: str, function: Callable[[argparse.Namespace], None], words: str) -> Any:
        def run(options: argparse.Namespace) -> None:
            opened(options)
            function(options)

        user_parser = command(group, name, run, words)
        user_parser.add_argument("--email", required=True)
        return user_parser

    user_parser = add(
        "add",
        _add_user,
        "add a user; the password is the first line of stdin. A user of another account joins with the password there",
    )
    user_parser.add_argument("--role", default="owner", help="owner, admin, editor, author or viewer")
    user_parser.add_argument("--account", type=parse_account_id, default=1, metavar="ID")
    add(
        "password",
        _reset_password,
        "set a new password, the first line of stdin; all sessions of the user end",
    )
    add(
        "otp-off",
        _disable_second_factor,
        "remove the second factor and the passkeys of a user; all sessions of the user end",
    )
    add(
        "allow-password",
        _allow_password,
        "allow everyone in the accounts of a user to sign in with a password again",
    )


def parse_account_id(text: str) -> int:
    """Parse an account id from the command line. Raises ValueError or ArgumentTypeError, which argparse reports."""
    number = int(text)
    if not 0 < number < 1 << 63:
        raise argparse.ArgumentTypeError("must be the id of an account")
    return number


def read_password() -> str:
    """Return the first line of stdin without its line ending.

    If stdin is a terminal, print a prompt on stderr first.
    """
    if sys.stdin.isatty():
        print("Password: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().rstrip("\r\n")


def _add_user(options: argparse.Namespace) -> None:
    from appliance.accounts import audit, users

    data, person = {"role": options.role}, users.find_by_email(options.email)
    if person is not None:
        join = (users.join, options.account, person.id, options.role)
        transactions.write(audit.run_and_record, _build_actor(), "user_add", *join, data=data)
        print(f"{person.email} has a user already, who joins the account and keeps the password.")
        return
    new_user = users.prepare_user(options.email, read_password())
    args = (users.create, options.account, new_user, options.role)
    transactions.write(audit.run_and_record, _build_actor(), "user_add", *args, data=data)


def _reset_password(options: argparse.Namespace) -> None:
    from appliance.accounts import passwords, users

    user, word = _find_user(options.email), read_password()
    passwords.check_length(word)
    transactions.write(users.reset_password, user.id, passwords.hash_password(word), _build_actor())


def _disable_second_factor(options: argparse.Namespace) -> None:
    from appliance import app
    from appliance.accounts import login

    app.connect_signals()  # The user gets an email about each passkey.
    transactions.write(login.disable_second_factor, _find_user(options.email).id, _build_actor())


def _allow_password(options: argparse.Namespace) -> None:
    from appliance.accounts.oidc import providers

    transactions.write(providers.allow_passwords, _find_user(options.email).id, _build_actor())


def _find_user(email: str) -> Any:
    from appliance.accounts import users

    user = users.find_by_email(email)
    if user is None:
        raise NotFound(f"there is no user with the email address {email}")
    return user


def _build_actor() -> Any:
    from appliance.accounts.audit import Actor

    return Actor("cli")


class CommandFailed(Exception):
    """A failed command; the message is the line that is printed on stderr."""


def run(arguments: list[str]) -> int:
    """Run the command that the arguments name, print its errors on stderr, and return its exit code."""
    try:
        "".join(arguments).encode()
    except UnicodeEncodeError:
        _print_error("the command line must be valid UTF-8")
        return 2
    options = _build_parser().parse_args(arguments)
    if options.run is not _serve:
        gc.enable()
    try:
        return int(options.run(options) or 0)
    except (
        CommandFailed,
        ConfigError,
        crypto.WrongKey,
        migrations.UnusableDatabase,
        SqliteTooOld,
        SchemaTooNew,
        UnusableJournal,
        data_dir.DirectoryInUse,
        data_dir.ForeignDirectory,
        backups.UpgradeFailed,
    ) as error:
        return _fail(str(error))
    except Refused as error:
        return _fail(error.message or error.code)
    except OSError as error:
        return _fail(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
    except (apsw.Error, peewee.PeeweeException) as error:
        # A damaged database can be opened; the error occurs only when a command reads the damaged part.
        if disk_guard.to_storage_error(error) is None:
            raise
        return _fail(f"the database cannot be read or written ({error}): see campanero doctor")
    except KeyboardInterrupt:
        return 130
    finally:
        close_database()


def _fail(text: str) -> int:
    _print_error(text)
    return 1


def _print_error(text: str) -> None:
    line = "".join(character if character.isprintable() else "?" for character in " ".join(text.split()))
    print(f"campanero: {line}", file=sys.stderr, flush=True)


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="campanero",
        description="Email and SMS marketing for small teams, on one machine.",
        epilog=f"""{remote_cli.describe_commands()}

Every command of the service takes --data and --config. Start with: campanero serve""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top = parser.add_subparsers(title="commands of the service", required=True, metavar="COMMAND")
    serve = _add_command(top, "serve", _serve, "run the service until it is stopped")
    serve.add_argument("--listen", metavar="HOST:PORT", help="address to listen on (default: 127.0.0.1:8080)")
    setup = _add_command(
        top, "setup", _setup, "create the account and its owner; the password is the first line of stdin"
    )
    setup.add_argument("--email", required=True)
    setup.add_argument("--name", metavar="ACCOUNT", help="name of the account (default: that of the email domain)")
    _add_account_commands(top)
    _add_command(top, "check", _check, "print the effective configuration, secrets masked; exit 1 if it is invalid")
    words = "check the installation, one line for each check; exit 1 if one fails"
    doctor = _add_command(top, "doctor", _doctor, words)
    doctor.add_argument("--json", action="store_true", help="print JSON: ok, and each finding with its meaning and fix")
    words = "also send a test message to the built-in inbox and check it as a receiving server would"
    doctor.add_argument("--seed", action="store_true", help=words)
    doctor.add_argument("--account", type=parse_account_id, metavar="ID", help="check only this account")
    doctor.add_argument("--tenant", action="store_true", help="leave out what concerns the whole installation")
    add_backup_commands(top, _add_command, _load_configuration)
    add_standby_commands(top, _add_command, _load_configuration, _connect_signals)
    words = "show sends, imports, exports, queue, today's numbers and storage; the service need not run"
    status = _add_command(top, "status", _status, words)
    status.add_argument("--watch", action="store_true", help="refresh every second until Ctrl C")
    status.add_argument("--json", action="store_true", help="print JSON; with --watch one object per line")
    support_bundle.add_command(top, _add_command, _load_configuration, _run_doctor)
    _add_command(
        top, "recount", _recount, "reclassify all opens and clicks with the current rules, and correct the counts"
    )
    _add_command(top, "openapi", _openapi, "print the OpenAPI 3.1 document as YAML")
    version = _add_command(top, "version", _version, "print the version")
    version.add_argument("--json", action="store_true", help="include the versions of components")
    words = "print the licences of the components of the executable"
    version.add_argument("--licences", action="store_true", help=words)
    words = "print the completion of commands and options for a shell"
    completion_parser = top.add_parser("completion", description=words)
    completion_parser.add_argument("shell", metavar="SHELL", choices=completion.SHELLS, help="bash, zsh or fish")
    completion_parser.set_defaults(run=lambda options: print(completion.write_script(parser, options.shell), end=""))
    remote_cli.add_commands(top)
    return parser


def _add_command(commands: Any, name: str, function: Callable[[argparse.Namespace], int | None], words: str) -> Any:
    """Add a command that takes `--data` and `--config`, and return its parser; `words` is its help text."""
    parser = commands.add_parser(name, help=words, description=words)
    parser.add_argument("--data", metavar="DIR", type=_parse_path, help="data directory (default: ./campanero-data)")
    default = "configuration (default: campanero.toml in the data directory)"
    parser.add_argument("--config", metavar="FILE", type=_parse_path, help=default)
    parser.set_defaults(run=function)
    return parser


def _parse_path(text: str) -> str:
    """Return a path from the command line. Raises ArgumentTypeError for a blank text, as from an unset variable."""
    if not text.strip():
        raise argparse.ArgumentTypeError("must not be empty")
    return text


def _add_account_commands(top: Any) -> None:
    def group(name: str, words: str) -> Any:
        parser = top.add_parser(name, help=words, description=words)
        return parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    add_user_commands(group("user", "users"), _add_command, _open_database)
    key = _add_command(
        group("key", "API keys"), "create", _key_create, "create an API key and print it, the only time it is shown"
    )
    key.add_argument("name", metavar="NAME")
    words = "full, read, send, or a comma list such as contacts:write; of an agent draft or some of its scopes"
    key.add_argument("--scope", default="full", help=words)
    key.add_argument("--agent", action="store_true", help="for an AI agent, which reads, drafts and proposes")
    key.add_argument("--test", action="store_true", help="its messages go to the built-in inbox")
    key.add_argument("--account", type=parse_account_id, default=1, metavar="ID")
    account_commands.add(group("account", "accounts of the installation"), _add_command, _open_database)
    agents = group("agents", "AI agents")
    for name, words in (("stop", "stop all agents of an account"), ("resume", "let the agents of an account go on")):
        switch = _add_command(agents, name, _agents_switch, words)
        switch.add_argument("--account", type=parse_account_id, default=1, metavar="ID")
        switch.set_defaults(is_stopped=name == "stop")


def _load_configuration(options: argparse.Namespace, page: dict[str, Any] | None = None) -> LoadedConfig:
    options_by_name = {"data_dir": options.data, "listen": getattr(options, "listen", None)}
    path = options.config or os.environ.get("CAMPANERO_CONFIG")
    named = {name: value for name, value in options_by_name.items() if value}
    loaded = config.load(named, file=Path(path) if path else None, page=page)
    config.set_current(loaded.config, loaded)
    if missing := PROVIDERS[loaded.config.sms.transport].find_setting_faults():
        raise ConfigError("; ".join(f"{name}: {words}" for name, words in missing))
    clock.use_offset_file(os.environ.get("CAMPANERO_TEST_CLOCK"))
    i18n.use_test_catalogues(os.environ.get("CAMPANERO_TEST_CATALOGUES"))
    return loaded


def _open_database(options: argparse.Namespace) -> LoadedConfig:
    """Open the database for a command, and return the configuration including the settings saved on pages.

    `serve` and `setup` create a missing installation; for any other command UnusableDatabase is raised.
    """
    directory = Path(_load_configuration(options).config.data_dir)
    require_not_following(directory)
    if options.run in (_serve, _setup):
        data_dir.create(directory)
    else:
        migrations.require_installation(directory)
    migrations.open_installation(directory, lambda: backups.upgrade_database(directory, _print_error))
    return _load_configuration(options, settings.load())


def _serve(options: argparse.Namespace) -> None:
    loaded = _load_configuration(options)
    if loaded.config.listen.endswith(":0"):
        options.listen = _choose_port(loaded.config.listen)
        loaded = _load_configuration(options)
    require_not_following(Path(loaded.config.data_dir))  # before the lock, which campanero follow has
    directory, log = data_dir.create(Path(loaded.config.data_dir)), loaded.config.log
    with data_dir.lock(directory, loaded.config.listen):
        log_file = logs.LogFile(directory / log.file, int(log.file_mb * 1_000_000), log.files) if log.file else None
        logs.configure(log.level, log.format, log_file)
        data_dir.make_private(directory)
        archive.finish_installation(directory)
        loaded = _open_database(options)
        for words in loaded.warnings:
            print(f"campanero: {words}", file=sys.stderr)
        if options.config:
            # Child processes find the configuration file through this variable.
            os.environ["CAMPANERO_CONFIG"] = str(Path(options.config).resolve())
        from appliance import app
        from appliance.http import server

        app.connect_signals()
        server.serve(loaded.config)


def _connect_signals() -> None:
    from appliance import app

    app.connect_signals()


def _choose_port(listen: str) -> str:
    """Return a listen address with a free port in place of port 0, so that links and messages name the real port."""
    host = listen.rpartition(":")[0]
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host.strip("[]"), 0))
        return f"{host}:{probe.getsockname()[1]}"


def _setup(options: argparse.Namespace) -> None:
    from appliance.accounts import audit, users
    from appliance.accounts.audit import Actor
    from appliance.sending.domains.records import name_organisation

    _open_database(options)
    if users.has_users():
        raise CommandFailed("the installation is already set up; use: campanero user add")
    new_user = users.prepare_user(options.email, read_password())
    name = options.name or name_organisation(new_user.email) or new_user.name
    transactions.write(audit.run_and_record, Actor("cli"), "user_add", users.create_first_owner, new_user, name)


def _key_create(options: argparse.Namespace) -> None:
    from appliance.accounts import access
    from appliance.accounts.audit import Actor
    from appliance.core.validation import read

    _open_database(options)
    read(access.KeyWrite, {"name": options.name})
    # Without an option for scopes, the key of an agent gets all scopes that agents may have.
    by, scope = Actor("cli"), "draft" if options.agent and options.scope == "full" else options.scope
    args = (options.account, options.name, scope, options.test, by, options.agent)
    print(transactions.write(access.issue_key, *args))


def _agents_switch(options: argparse.Namespace) -> None:
    from appliance.accounts import agents
    from appliance.accounts.audit import Actor

    _open_database(options)
    if not rows("SELECT 1 FROM account WHERE id = ?", (options.account,)):
        raise CommandFailed(f"there is no account {options.account}")
    transactions.write(agents.set_stopped, options.account, options.is_stopped, Actor("cli"))


def _check(options: argparse.Namespace) -> None:
    loaded = _load_configuration(options)
    for words in loaded.warnings:
        print(f"campanero: {words}", file=sys.stderr)
    print(*config.describe_settings(loaded), sep="\n")


def _run_doctor(options: argparse.Namespace) -> "Iterator[Finding]":
    from appliance.ops import doctor as ops_doctor

    def load(page: dict[str, Any] | None) -> LoadedConfig:
        loaded = _load_configuration(options, page)
        # A page that runs this command shows the findings in the language of its user.
        i18n.set_language(os.environ.get(executable.LANGUAGE_VARIABLE, i18n.DEFAULT_LANGUAGE))
        return loaded

    return ops_doctor.run_checks(load, options.seed, options.account, options.tenant)


def _doctor(options: argparse.Namespace) -> int:
    from appliance.ops.doctor import explanations

    findings = []
    for finding in _run_doctor(options):
        findings.append(finding)
        if not options.json:
            fix = f" [{' '.join(finding.fix.split())}]" if finding.fix else ""
            words = " ".join(finding.words.split())
            meaning = "" if finding.level == "ok" else f". {explanations.explain(finding)}"
            print(f"{finding.level:<4}  {finding.check}: {words}{meaning}{fix}", flush=True)
    failed = any(finding.level == "fail" for finding in findings)
    if options.json:
        explained = [
            finding._asdict()
            | {"title": explanations.name_check(finding.check), "meaning": explanations.explain(finding)}
            for finding in findings
        ]
        print(json.dumps({"ok": not failed, "findings": explained}))
    return int(failed)


def _status(options: argparse.Namespace) -> None:
    from appliance.ops import status as look
    from appliance.ops.status import terminal

    loaded = _load_configuration(options)
    path = Path(loaded.config.data_dir) / "campanero.db"
    require_not_following(path.parent)
    schema = 0 if migrations.is_missing_or_empty(path) else migrations.inspect_database(path).schema
    if schema == 0:
        raise CommandFailed(f"{path.parent} contains no installation: start with campanero serve, or use --data")
    open_database(path)
    if schema < len(MIGRATIONS):
        raise CommandFailed(
            f"the database has schema {schema}: the next start of the service migrates it to {len(MIGRATIONS)}"
        )
    if schema > len(MIGRATIONS):
        raise SchemaTooNew(
            f"the database has schema {schema}, but this program supports {len(MIGRATIONS)}: use a newer version"
        )
    terminal.show_status(lambda: look.collect_status(loaded.config), options.watch, options.json)


def _recount(options: argparse.Namespace) -> None:
    from appliance.tracking import hits

    _open_database(options)
    reclassified, changed = hits.rejudge_all()
    print(f"{reclassified} messages reclassified, {changed} opens and clicks changed")


def _openapi(options: argparse.Namespace) -> None:
    config.set_current(_load_configuration(options).config)
    from appliance.api.openapi import render_yaml

    sys.stdout.write(render_yaml().decode())


def _version(options: argparse.Namespace) -> None:
    if options.licences:
        print(executable.read_licences(), end="")
    elif options.json:
        print(json.dumps({"version": VERSION, "components": executable.list_components()}))
    else:
        print(f"campanero {VERSION}")

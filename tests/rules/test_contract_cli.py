"""The documented commands and options are those of the command line."""

import argparse
from typing import Any

import pytest

from appliance import remote
from appliance.accounts import passwords
from appliance.core.errors import Invalid
from appliance.ops import cli
from appliance.settings import config
from tests.rules.contract import cli as promised
from tests.rules.contract import limits
from tests.rules.contract.settings import SETTINGS


def _commands(parser: argparse.ArgumentParser, prefix: str = "") -> dict[str, argparse.ArgumentParser]:
    commands: dict[str, argparse.ArgumentParser] = {}
    inner: list[Any] = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for action in inner:
        for name, subparser in action.choices.items():
            commands |= _commands(subparser, f"{prefix}{name}.")
    return commands if inner else {prefix.rstrip("."): parser}


def _options(parser: argparse.ArgumentParser) -> set[str]:
    return {
        (action.option_strings[-1] if action.option_strings else str(action.metavar))
        for action in parser._actions
        if not isinstance(action, argparse._HelpAction)
    }


def test_commands_and_options() -> None:
    """The command line has exactly the documented commands with their options."""
    commands = _commands(cli._build_parser())
    remote_options = {name: _options(commands.pop(name)) for name in promised.REMOTE_COMMANDS}
    assert remote_options == promised.REMOTE_COMMANDS
    assert {name.partition(".")[0] for name in remote_options} == set(remote.COMMANDS)
    assert _options(commands.pop("completion")) == {"SHELL"}
    wanted = {name: set(options) for name, (origin, options) in promised.COMMANDS.items() if origin != "L"}
    later = {name for name, (origin, _) in promised.COMMANDS.items() if origin == "L"}
    for name, option in promised.OPTIONS:
        wanted[name].add(option)
    assert not later & set(commands), "take the mark away"
    assert {name: _options(parser) for name, parser in commands.items()} == {
        name: {*options, *promised.EVERYWHERE} for name, options in wanted.items()
    }


def test_defaults_of_options() -> None:
    """Absent options have the documented defaults."""
    commands = _commands(cli._build_parser())
    given = ["key", "create", "x"]
    options = cli._build_parser().parse_args(given)
    assert (options.scope, options.account) == (promised.DEFAULTS["scope"], promised.DEFAULTS["account"])
    assert commands["user.add"].get_default("role") == promised.DEFAULTS["role"]
    assert config.load({}, {}).config.data_dir == promised.DEFAULTS["data"]


def test_password_length() -> None:
    """A password has 10 to 1,024 characters."""
    least, most = promised.PASSWORD
    for length, word in ((least - 1, "short"), (most + 1, "long")):
        with pytest.raises(Invalid, match=f"is too {word}"):
            passwords.check_length("x" * length)
    for length in promised.PASSWORD:
        passwords.check_length("x" * length)


def test_rate_limits_are_settings() -> None:
    """The documented limits are the defaults of the settings."""
    for name, (a_minute, _) in limits.RATES.items():
        assert SETTINGS[f"limits.{name}_per_minute"] == a_minute
    assert SETTINGS["limits.body_bytes"] == limits.BODY_BYTES
    assert SETTINGS["limits.import_bytes"] == limits.IMPORT_BYTES

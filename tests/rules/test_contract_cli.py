"""The documented commands and options are those of the command line."""

import argparse
from typing import Any

import pytest

from appliance.accounts import passwords
from appliance.core.errors import Invalid
from appliance.ops import cli
from appliance.settings import config
from tests.rules.contract import cli as promised
from tests.rules.contract import limits
from tests.rules.contract.settings import SETTINGS


def _commands(parser: argparse.ArgumentParser, prefix: str = "") -> dict[str, argparse.ArgumentParser]:
    found: dict[str, argparse.ArgumentParser] = {}
    inner: list[Any] = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    for one in inner:
        for name, made in one.choices.items():
            found |= _commands(made, f"{prefix}{name}.")
    return found if inner else {prefix.rstrip("."): parser}


def _options(parser: argparse.ArgumentParser) -> set[str]:
    return {
        (one.option_strings[-1] if one.option_strings else str(one.metavar))
        for one in parser._actions
        if not isinstance(one, argparse._HelpAction)
    }


def test_commands_and_options() -> None:
    """The command line has exactly the documented commands with their options."""
    here = _commands(cli._build_parser())
    wanted = {name: set(options) for name, (origin, options) in promised.COMMANDS.items() if origin != "L"}
    later = {name for name, (origin, _) in promised.COMMANDS.items() if origin == "L"}
    for name, option in promised.OPTIONS:
        wanted[name].add(option)
    assert not later & set(here), "take the mark away"
    assert {name: _options(parser) for name, parser in here.items()} == {
        name: {*options, *promised.EVERYWHERE} for name, options in wanted.items()
    }


def test_defaults_of_options() -> None:
    """Absent options have the documented defaults."""
    here = _commands(cli._build_parser())
    given = ["key", "create", "x"]
    options = cli._build_parser().parse_args(given)
    assert (options.scope, options.account) == (promised.DEFAULTS["scope"], promised.DEFAULTS["account"])
    assert here["user.add"].get_default("role") == promised.DEFAULTS["role"]
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

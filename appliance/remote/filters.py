"""The filters of `--jq`, and the JSON that commands print, filtered or not.

The language is that of jq (jqlang.org), by libjq; it is imported only where an expression is given.
"""

import argparse
import json
from typing import Any

from appliance.remote import output
from appliance.remote.errors import CommandError, UsageError


def compile_filter(expression: str | None) -> Any:
    """Return the program of a jq expression, or None for none. Raises UsageError."""
    if expression is None:
        return None
    import jq  # an extension of a megabyte, which only this option needs

    try:
        return jq.compile(expression)
    except ValueError as error:
        raise UsageError(f"--jq: {error}") from None


def print_filtered(program: Any, content: str) -> None:
    """Print what a program makes of JSON: texts raw, other values as JSON. Raises CommandError if it fails."""
    try:
        for value in program.input_text(content):
            if isinstance(value, str):
                output.print_text(value)
            else:
                output.print_json(value)
    except ValueError as error:
        raise CommandError(f"--jq: {error}") from None


def is_json_wanted(options: argparse.Namespace) -> bool:
    """Return whether a command prints JSON instead of tables: for `--json` and `--jq`."""
    return bool(options.json) or options.program is not None


def print_result(options: argparse.Namespace, value: Any) -> None:
    """Print a value as JSON, or what `--jq` makes of it."""
    if options.program is None:
        output.print_json(value)
    else:
        print_filtered(options.program, json.dumps(value))

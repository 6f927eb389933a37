"""`campanero content`: export an account's lists, segments, templates, forms and flows as files, and import them."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from appliance.remote import output
from appliance.remote.content_account import export_content, import_content
from appliance.remote.output import is_json_wanted, print_result

if TYPE_CHECKING:
    from appliance.remote.connection import Connection


def add_export_options(parser: Any) -> None:
    """Add the options of `content export`."""
    parser.add_argument("directory", metavar="DIR", type=Path, help="directory of the files, also in a clone of Git")


def add_import_options(parser: Any) -> None:
    """Add the options of `content import`."""
    parser.add_argument("directory", metavar="DIR", type=Path, help="a directory that `content export` wrote")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be created and changed")


def run_export(options: argparse.Namespace, connection: "Connection") -> None:
    """Write a file for each object of the account. Files of objects that no longer exist are deleted."""
    with output.Progress() as progress:
        result = export_content(connection, options.directory, progress.show)
    if is_json_wanted(options):
        print_result(options, result)
    else:
        print(f"{options.directory}: {', '.join(f'{count} {state}' for state, count in result.items())}")


def run_import(options: argparse.Namespace, connection: "Connection") -> None:
    """Create or change the objects of all files (`import_content`), and print what was done with each changed one."""
    with output.Progress() as progress:
        result = import_content(connection, options.directory, progress.show, options.dry_run)
    if is_json_wanted(options):
        print_result(options, [row._asdict() for row in result.plan])
        return
    for row in result.plan:
        print(f"{row.action:<8}{row.file}")
    verb = "would be imported" if options.dry_run else "imported"
    unchanged = result.file_count - len(result.plan)
    print(f"files: {result.file_count}; {len(result.plan)} {verb}, {unchanged} unchanged")

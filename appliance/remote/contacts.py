"""`campanero contacts`: import a file and wait for the result; export contacts into a file."""

import argparse
import contextlib
import csv
import io
import json
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from appliance.remote import output
from appliance.remote.errors import CommandError, UsageError
from appliance.remote.output import is_json_wanted, print_result

if TYPE_CHECKING:
    from appliance.remote.connection import Connection

POLL_SECONDS = 0.5
_COUNTS = ("total", "created", "updated", "skipped", "failed", "warnings")


def add_import_options(parser: Any) -> None:
    """Add the options of `contacts import`."""
    parser.add_argument("file", metavar="FILE", help="CSV or JSON lines, up to 200 MiB (-: stdin)")
    parser.add_argument(
        "--list", action="append", metavar="LIST", help="add all contacts to the list with this id or name"
    )
    parser.add_argument("--map", action="append", metavar="COLUMN=FIELD", help="the field of a column; empty skips it")
    parser.add_argument("--consent-source", metavar="TEXT", help="where the contacts agreed, and to what")
    parser.add_argument("--no-opt-in", action="store_true", help="subscribe nobody")
    parser.add_argument("--suppressions", action="store_true", help="import addresses that must not be contacted")
    parser.add_argument("--options", metavar="JSON", help="further options of an import, as the API has them")
    parser.add_argument("--dry-run", action="store_true", help="only report what the import would do")
    parser.add_argument("--results", metavar="FILE", help="write the result of each row, with its reason, as CSV")
    parser.add_argument("--rejected", metavar="FILE", help="write only the rows that were rejected, as --results does")
    parser.add_argument("--no-wait", action="store_true", help="end once the file is uploaded")


def run_import(options: argparse.Namespace, connection: "Connection") -> None:
    """Import a file and wait for its end. Raises CommandError if the import fails or is cancelled.

    With `--no-wait` the command ends after the upload. Raises UsageError for wrong options or a file that cannot be
    read.
    """
    if options.no_wait and (options.results or options.rejected):
        raise UsageError("--results and --rejected need the end of the import: leave out --no-wait")
    values = _read_import_options(options)
    if options.list:
        values["list_ids"] = [_find_group(connection, "list", text) for text in options.list]
    form = {
        "options": json.dumps(values),
        "resource": "suppressions" if options.suppressions else "contacts",
    }
    with _open_input(options.file) as file:
        name = "stdin.csv" if options.file == "-" else Path(options.file).name
        job = connection.request(
            "POST", "/imports", query={"dry_run": True} if options.dry_run else None, data=form,
            files={"file": (name, file)},
        ).json()  # fmt: skip
    if not options.no_wait:
        job = _wait_for_import(connection, job)
    if options.results:
        save_download(connection, f"/imports/{job['id']}/results.csv", {}, options.results)
    if options.rejected:
        _save_rejected(connection, job["id"], options.rejected)
    if is_json_wanted(options):
        print_result(options, job)
    else:
        state = {**{name: job.get(name) for name in ("id", "status")}, **{name: job.get(name) for name in _COUNTS}}
        output.print_fields(state.items())
    if job.get("status") in ("failed", "cancelled"):
        raise CommandError(f"the import {'failed' if job['status'] == 'failed' else 'was cancelled'}: {job['error']}")


def _read_import_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the `options` of the request to the API. Raises UsageError."""
    try:
        values: Any = json.loads(options.options) if options.options else {}
    except ValueError as error:
        raise UsageError(f"--options is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise UsageError("--options is not a JSON object")
    fields = dict(text.rpartition("=")[::2] for text in options.map or [])
    if "" in fields:
        raise UsageError("--map needs COLUMN=FIELD")
    if fields:
        values["map"] = {column: field or None for column, field in fields.items()}
    if options.consent_source:
        values["consent_source"] = options.consent_source
    if options.no_opt_in:
        values["opt_in"] = False
    return values


def _find_group(connection: "Connection", kind: str, text: str | None) -> int | None:
    """Return the id of a list or segment (`kind`) that `text` gives by id or name; None if `text` is None.

    Raises UsageError unless exactly one object has the name, without regard to case.
    """
    if text is None or (text.isascii() and text.isdigit()):
        return int(text) if text else None
    pages = connection.pages(f"/{kind}s", {"search": text, "limit": 100})
    ids = [row["id"] for page in pages for row in page.items if row["name"].casefold() == text.casefold()]
    if len(ids) == 1:
        return int(ids[0])
    raise UsageError(f"there {f'are {len(ids)} {kind}s' if ids else f'is no {kind}'} with the name {text}")


@contextlib.contextmanager
def _open_input(name: str) -> Iterator[IO[bytes]]:
    """Yield a file, or stdin for `-`. Raises UsageError.

    Input from a pipe is first copied to a temporary file, because an upload begins with its size.
    """
    with contextlib.ExitStack() as stack:
        try:
            file: IO[bytes] = sys.stdin.buffer if name == "-" else stack.enter_context(Path(name).open("rb"))
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                pipe, file = file, stack.enter_context(tempfile.TemporaryFile())
                shutil.copyfileobj(pipe, file)
                file.seek(0)
        except OSError as error:
            raise UsageError(f"{name}: {error.strerror}") from None
        yield file


def _wait_for_import(connection: "Connection", job: dict[str, Any]) -> dict[str, Any]:
    """Return the import once it has ended, and show its progress on the terminal until then."""
    try:
        with output.Progress() as progress:
            while job["status"] in ("pending", "processing"):
                progress.show(f"importing: {job['processed']} rows", job["progress"])
                time.sleep(POLL_SECONDS)
                job = connection.call("GET", f"/imports/{job['id']}")
    except KeyboardInterrupt:
        output.print_note(f"The import goes on: campanero api GET /imports/{job['id']}")
        raise
    return job


def _save_rejected(connection: "Connection", import_id: int, name: str) -> None:
    """Write the header and the rejected rows of an import's results to a file, which is replaced at the end."""
    with tempfile.TemporaryFile() as results, _replacing(name) as file:
        with connection.stream(f"/imports/{import_id}/results.csv") as (_, chunks):
            results.writelines(chunks)
        results.seek(0)
        with (
            io.TextIOWrapper(results, encoding="utf-8", newline="") as source,
            io.TextIOWrapper(file, encoding="utf-8", newline="") as target,
        ):
            rows, writer = csv.reader(source), csv.writer(target)
            header = next(rows, [])
            place = header.index("result")
            try:
                writer.writerow(header)
                writer.writerows(row for row in rows if row[place] == "failed")
            except csv.Error as error:
                raise CommandError(f"the results of the import are not CSV: {error}") from None


def add_export_options(parser: Any) -> None:
    """Add the options of `contacts export`."""
    parser.add_argument("file", metavar="FILE", nargs="?", help="replaced once all has arrived (default: stdout)")
    parser.add_argument("--format", choices=("csv", "jsonl"), help="default: by the name of the file, else csv")
    parser.add_argument("--list", metavar="LIST", help="only contacts in the list with this id or name")
    parser.add_argument("--segment", metavar="SEGMENT", help="only contacts in the segment with this id or name")
    parser.add_argument("--tag", metavar="TAG", help="only contacts with this tag")
    parser.add_argument("--search", metavar="TEXT", help="only contacts whose name or address has this text")
    parser.add_argument("--status", metavar="STATUS", help="only contacts with this status, such as subscribed")


def run_export(options: argparse.Namespace, connection: "Connection") -> None:
    """Export contacts to a file, which is replaced once all have arrived, or to stdout.

    On stdout the format is CSV, or JSON lines with `--json`; in a file it depends on the file's name. `--format`
    overrides both. Raises UsageError for wrong options.
    """
    is_stdout = options.file in (None, "-")
    if options.program is not None and is_stdout:
        raise UsageError("--jq filters the result of writing a file; to filter contacts: campanero api GET /contacts")
    wants_lines = options.json if is_stdout else options.file.endswith((".jsonl", ".ndjson"))
    suffix = options.format or ("jsonl" if wants_lines else "csv")
    query = {
        "list_id": _find_group(connection, "list", options.list),
        "segment_id": _find_group(connection, "segment", options.segment),
        "tag": options.tag, "search": options.search, "status": options.status,
    }  # fmt: skip
    path = f"/exports/contacts.{suffix}"
    if is_stdout:
        with connection.stream(path, query) as (_, chunks):
            output.write_bytes(chunks)
        return
    size = save_download(connection, path, query, options.file)
    if is_json_wanted(options):
        print_result(options, {"file": options.file, "bytes": size})
    else:
        output.print_note(f"{options.file}: {size / 1e6:.1f} MB")


def save_download(connection: "Connection", path: str, query: dict[str, Any], name: str) -> int:
    """Write a download to a file, which is replaced once all has arrived, and return its size in bytes."""
    size = 0
    with output.Progress() as progress, _replacing(name) as file, connection.stream(path, query) as (_, chunks):
        for chunk in chunks:
            size += file.write(chunk)
            progress.show(f"{Path(name).name}: {size / 1e6:.1f} MB")
    return size


@contextlib.contextmanager
def _replacing(name: str) -> Iterator[IO[bytes]]:
    """Yield a temporary file, which replaces the file `name` once it is written without an error. Raises UsageError."""
    target = Path(name)
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    with contextlib.ExitStack() as stack:
        stack.callback(partial.unlink, missing_ok=True)
        try:
            with partial.open("xb") as file:
                yield file
            partial.replace(target)
        except OSError as error:
            raise UsageError(f"{name}: {error.strerror}") from None

"""`campanero api METHOD PATH`: one request to the API, with the options of `gh api` (cli.github.com/manual/gh_api)."""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from appliance.remote import output
from appliance.remote.errors import ServiceError, UsageError
from appliance.remote.output import print_filtered

if TYPE_CHECKING:
    from appliance.remote.connection import Connection

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
MAX_FIELD_DEPTH = 20
_NO_VALUE = object()  # of `ids[]` without a value
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_KEY = re.compile(r"[^\[\]=]+(?:\[[^\[\]]*\])*")


def read_file(name: str) -> bytes:
    """Return the content of a file, or of stdin for `-`. Raises UsageError."""
    try:
        return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror}") from None


def read_text(name: str) -> str:
    """Return the text of a file in UTF-8, or of stdin for `-`. Raises UsageError."""
    try:
        return read_file(name).decode()
    except UnicodeDecodeError:
        raise UsageError(f"{name} is not a text in UTF-8") from None


def convert_value(text: str) -> Any:
    """Return the value of `-F`: a JSON literal, an integer, the text of a file after `@`, or else the text."""
    literals = {"true": True, "false": False, "null": None}
    if text in literals:
        return literals[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return read_text(text[1:]) if text.startswith("@") else text


def build_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object from pairs of keys and values.

    `contact[name]` is a key inside of `contact`, and `ids[]` adds a value to the list `ids`, or only creates the list
    if there is no value. Raises UsageError for an invalid key, and one that is given twice or used as both a list and
    an object.
    """
    fields: dict[str, Any] = {}
    for key, value in pairs:
        if not _KEY.fullmatch(key) or key.count("[") > MAX_FIELD_DEPTH:
            raise UsageError(f"{key} is not a key such as name, contact[name] or ids[]")
        steps = re.findall(r"[^\[\]=]+|\[\]", key)
        place: Any = fields
        for step, following in zip(steps, [*steps[1:], None], strict=True):
            wanted = list if step == "[]" else dict
            if not isinstance(place, wanted):
                raise UsageError(f"{key}: the key is used in two ways")
            if following is not None:
                place = _enter(place, step, following)
            elif isinstance(place, list):
                place += [] if value is _NO_VALUE else [value]
            elif step in place:
                raise UsageError(f"{key}: the key is given twice")
            else:
                place[step] = value
    return fields


def _enter(place: Any, step: str, following: str) -> Any:
    """Return the list or object at a step of a key, created if it is absent; `following` is the step after it.

    In a list, its last object is used until that object has the key, so `steps[][a]=1 steps[][b]=2` is one object.
    """
    empty: Any = [] if following == "[]" else {}
    if step != "[]":
        return place.setdefault(step, empty)
    if not (place and isinstance(place[-1], dict) and following != "[]" and following not in place[-1]):
        place.append(empty)
    return place[-1]


def parse_pairs(options: argparse.Namespace) -> list[tuple[str, Any]]:
    """Return the keys and values of `-f` and `-F`, in their order on the command line.

    Raises UsageError for an option that is not KEY=VALUE, or whose file cannot be read. The value of `-F KEY[]` is
    `_NO_VALUE`.
    """
    pairs: list[tuple[str, Any]] = []
    for is_typed, text in options.fields or []:
        key, sign, value = text.partition("=")
        if not sign and is_typed and key.endswith("[]"):
            pairs.append((key, _NO_VALUE))
        elif not sign or not key:
            raise UsageError(f"{text} is not key=value")
        else:
            pairs.append((key, convert_value(value) if is_typed else value))
    return pairs


class FieldAction(argparse.Action):
    """Collects the values of `-f` and `-F` in one list of (True for `-F`, text)."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        """Add the value of an option to the list."""
        setattr(namespace, self.dest, [*(getattr(namespace, self.dest) or []), (bool(self.const), values)])


def add_field_options(parser: Any, what: str) -> None:
    """Add the options `-f` and `-F` for `what`, such as `the event's data`."""
    parser.add_argument(
        "-f", "--raw-field", dest="fields", action=FieldAction, const="", nargs=None, metavar="KEY=VALUE",
        help=f"add a text to {what}",
    )  # fmt: skip
    parser.add_argument(
        "-F", "--field", dest="fields", action=FieldAction, const="typed", nargs=None, metavar="KEY=VALUE",
        help=f"add a value to {what}: true, false, null, an integer, @FILE for its text (@- for stdin), else a text; "
        "KEY may be a[b] or list[]",
    )  # fmt: skip


def add_options(parser: Any) -> None:
    """Add the options of the command."""
    parser.add_argument("method", metavar="METHOD", type=str.upper, choices=METHODS, help=", ".join(METHODS))
    parser.add_argument("path", metavar="PATH", help="/campaigns/7, or a whole path such as /v1/my/campaigns/7")
    add_field_options(parser, "the query of a GET, else to the body")
    parser.add_argument(
        "--input", metavar="FILE", help="send this file of JSON as the body (-: stdin); -f is the query"
    )
    parser.add_argument("-H", "--header", action="append", metavar="NAME:VALUE", help="send this header")
    parser.add_argument("-i", "--include", action="store_true", help="print the status and the headers first")
    words = "print the objects of all pages of a list as one list; --jq gets each page by itself"
    parser.add_argument("--paginate", action="store_true", help=words)
    parser.add_argument("--count", action="store_true", help="print how many objects a list has")
    parser.add_argument("--silent", action="store_true", help="print nothing of the response")


def run(options: argparse.Namespace, connection: "Connection") -> None:
    """Send the request and print the response; the body of an error response is printed on stdout, too.

    Raises UsageError for options that exclude each other, and ServiceError for an error response.
    """
    method: str = options.method
    if options.paginate and (method != "GET" or options.include):
        raise UsageError("--paginate is for GET, without --include")
    if options.count and (method != "GET" or options.paginate or options.program is not None):
        raise UsageError("--count is for GET, without --paginate and --jq")
    program = options.program
    query, body = _build_request(options)
    headers = dict(_parse_header(text) for text in options.header or [])
    try:
        if options.count:
            _print_count(connection, options.path, query)
        elif options.paginate:
            _print_pages(connection, options, query, program)
        elif _can_stream(options):
            with connection.stream(options.path, query) as (streamed, chunks):
                _print_stream(streamed, chunks)
        else:
            response = connection.request(method, options.path, query=query, body=body, headers=headers)
            if options.include:
                _print_head(response.http_version, response.status_code, response.reason_phrase, response.headers)
            if not options.silent:
                _print_body(response, program)
    except ServiceError as error:
        if options.include:
            _print_head("HTTP/1.1", error.response.status, "", error.response.headers)
        if error.response.body and not options.silent:
            output.print_json(error.response.body)
        raise


def _can_stream(options: argparse.Namespace) -> bool:
    """Return whether the response is printed unchanged while it arrives, so that it may have any size."""
    is_changed = options.program is not None or options.header or options.include or options.silent
    return options.method == "GET" and not is_changed and not sys.stdout.isatty()


def _build_request(options: argparse.Namespace) -> tuple[dict[str, Any] | None, Any]:
    """Return the query and the body, each None if there is none. Raises UsageError."""
    pairs = parse_pairs(options)
    if options.input is None and options.method not in ("GET", "HEAD"):
        return None, build_fields(pairs) if pairs else None
    query: dict[str, Any] = {}
    for key, value in pairs:
        if key in query or value is _NO_VALUE:
            raise UsageError(f"{key}: a query has each key once, with a value")
        query[key] = value
    if options.input is None:
        return query or None, None
    try:
        return query or None, json.loads(read_file(options.input), parse_constant=_reject_constant)
    except ValueError as error:
        raise UsageError(f"{options.input} is not JSON: {error}") from None


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not a value of JSON")


def _parse_header(text: str) -> tuple[str, str]:
    name, sign, value = text.partition(":")
    if not sign or not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name) or not value.isprintable():
        raise UsageError(f"{text} is not a header such as Idempotency-Key: order-7")
    if name.lower() in ("authorization", "host", "content-length", "transfer-encoding"):
        raise UsageError(f"the header {name} cannot be set")
    return name, value.strip()


def _print_pages(
    connection: "Connection", options: argparse.Namespace, query: dict[str, Any] | None, program: Any
) -> None:
    """Print each page as it arrives: as part of one JSON list, or filtered by `--jq` if it is given."""
    is_first = True
    for page in connection.pages(options.path, query or {}, is_streamed=True):
        if not isinstance(page.items, list):
            raise UsageError(f"{options.path} is not a list")
        if options.silent:
            continue
        if program is not None:
            print_filtered(program, json.dumps(page.items))
            continue
        for item in page.items:
            print("[" if is_first else ",")
            output.print_json(item)
            is_first = False
    if program is None and not options.silent:
        print("[]" if is_first else "]")


def _print_count(connection: "Connection", path: str, query: dict[str, Any] | None) -> None:
    count = connection.request("HEAD", path, query=query).headers.get("x-total-count")
    if count is None:
        raise UsageError(f"{path} is not a list")
    print(output.clean_line(count))


def _print_stream(response: Any, chunks: Iterator[bytes]) -> None:
    output.write_bytes(chunks)
    if _is_json(response):
        print(flush=True)


def _is_json(response: Any) -> bool:
    return bool(response.headers.get("content-type", "").startswith("application/json"))


def _print_body(response: Any, program: Any) -> None:
    if program is not None:
        print_filtered(program, response.text)
    elif response.content and sys.stdout.isatty() and _is_json(response):
        try:
            output.print_json(response.json())
        except (ValueError, RecursionError):
            output.write_bytes((response.content,))
    elif response.content:
        _print_stream(response, iter((response.content,)))


def _print_head(version: str, status: int, reason: str, headers: Any) -> None:
    lines = [f"{version} {status} {reason}".rstrip(), *(f"{name}: {value}" for name, value in headers.items())]
    for line in lines:
        print(output.clean_line(line))
    print(flush=True)

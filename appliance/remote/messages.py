"""`campanero messages`, `events` and `flows`: send and follow single messages, record events, simulate flows."""

import argparse
import base64
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from appliance.remote import output
from appliance.remote.api_command import add_field_options, build_fields, parse_pairs, read_file, read_text
from appliance.remote.errors import CommandError, UsageError
from appliance.remote.output import is_json_wanted, print_result

if TYPE_CHECKING:
    from appliance.remote.connection import Connection

MAX_LINES = 1000
MAX_FOLLOWED = 100  # messages whose status is watched: a page of the list
DEFAULT_INTERVAL_SECONDS = 2.0


def add_send_options(parser: Any) -> None:
    """Add the options of `messages send`."""
    parser.add_argument("--to", required=True, metavar="ADDRESS", help="email address, or phone number for --sms")
    parser.add_argument("--subject", metavar="TEXT")
    parser.add_argument("--text", metavar="TEXT", help="the text, or @FILE (@-: stdin)")
    parser.add_argument("--html", metavar="HTML", help="the HTML, or @FILE (@-: stdin)")
    parser.add_argument("--template", type=int, metavar="ID", help="use this template instead of a subject and content")
    add_field_options(parser, "the values of merge tags such as {{ data.order }}")
    parser.add_argument("--attach", action="append", metavar="FILE", help="attach a file; 25 MB in all")
    parser.add_argument("--from", dest="sender", metavar="ADDRESS", help="ana@example.com or Ana <ana@example.com>")
    parser.add_argument("--reply-to", metavar="ADDRESS")
    parser.add_argument("--cc", action="append", metavar="ADDRESS")
    parser.add_argument("--bcc", action="append", metavar="ADDRESS")
    parser.add_argument("--sms", action="store_true", help="send an SMS with --text")
    parser.add_argument("--marketing", action="store_true", help="check consent, and add the footer and tracking")
    parser.add_argument("--at", metavar="TIME", help="send it then, such as 2026-12-01T09:00:00Z (default: now)")
    parser.add_argument("--idempotency-key", metavar="KEY", help="send it once for this key, for 7 days")


def run_send(options: argparse.Namespace, connection: "Connection") -> None:
    """Send a message. Raises UsageError for wrong options, and ServiceError if the service refuses the message."""
    values = {
        "to": options.to, "channel": "sms" if options.sms else None, "subject": options.subject,
        "text" if not options.sms else "body": _read_content(options.text), "html": _read_content(options.html),
        "template_id": options.template, "data": build_fields(parse_pairs(options)) or None, "from": options.sender,
        "reply_to": options.reply_to, "cc": options.cc, "bcc": options.bcc, "send_at": options.at,
        "transactional": False if options.marketing else None,
        "attachments": [_read_attachment(name) for name in options.attach or []] or None,
    }  # fmt: skip
    body = {name: value for name, value in values.items() if value is not None}
    message = connection.call("POST", "/messages", body=body, idempotency_key=options.idempotency_key)
    if is_json_wanted(options):
        print_result(options, message)
    else:
        output.print_fields((name, message[name]) for name in ("id", "status", "to", "subject"))


def _read_content(text: str | None) -> str | None:
    return read_text(text[1:]) if text is not None and text.startswith("@") else text


def _read_attachment(name: str) -> dict[str, str]:
    if name == "-":
        raise UsageError("an attachment needs the name of a file")
    return {"filename": Path(name).name, "content": base64.b64encode(read_file(name)).decode()}


def add_tail_options(parser: Any) -> None:
    """Add the options of `messages tail`."""
    parser.add_argument("-n", "--lines", type=int, default=10, metavar="N", help="the last N messages (default: 10)")
    parser.add_argument("--follow", action="store_true", help="go on with new messages and new statuses until Ctrl C")
    interval = f"seconds between two looks (default: {DEFAULT_INTERVAL_SECONDS:.0f})"
    parser.add_argument("--interval", type=float, default=DEFAULT_INTERVAL_SECONDS, metavar="SECONDS", help=interval)
    parser.add_argument("--campaign", type=int, metavar="ID", help="only messages of this campaign")
    parser.add_argument("--flow", type=int, metavar="ID", help="only messages of this flow")
    parser.add_argument("--status", metavar="STATUS", help="only messages with this status, such as bounced")
    parser.add_argument("--to", metavar="ADDRESS", help="only messages to this address")
    parser.add_argument("--since", metavar="TIME", help="only messages created since then, such as 2026-12-01")


def run_tail(options: argparse.Namespace, connection: "Connection") -> None:
    """Print the last messages, the newest last; with `--follow` also each new message and each new status."""
    if not 0 <= options.lines <= MAX_LINES or not 0.1 <= options.interval <= 3600:
        raise UsageError(f"--lines is from 0 to {MAX_LINES}, --interval from 0.1 to 3600")
    query = {
        "campaign_id": options.campaign, "flow_id": options.flow, "status": options.status, "to": options.to,
        "created_after": options.since,
    }  # fmt: skip
    # One request for both: a message that arrived between two requests would be known without having been printed.
    rows = _fetch(connection, query, max(options.lines, MAX_FOLLOWED) if options.follow else options.lines, 0)
    _print_messages(options, rows[max(len(rows) - options.lines, 0) :])
    known = {row["id"]: row["status"] for row in rows}
    newest = max([0, *known])
    while options.follow:
        time.sleep(options.interval)
        rows = _fetch(connection, query, MAX_FOLLOWED, newest)
        _print_messages(options, [row for row in rows if known.get(row["id"]) != row["status"]])
        known = {row["id"]: row["status"] for row in rows}
        newest = max([newest, *known])


def _fetch(connection: "Connection", query: dict[str, Any], count: int, after: int) -> list[dict[str, Any]]:
    """Return the last `count` messages, the newest last; with `after` also all that have a larger id than `after`."""
    rows: list[dict[str, Any]] = []
    for page in connection.pages("/messages", {**query, "limit": min(max(count, 1), 100)}):
        rows += page.items
        if len(rows) >= count and not (after and page.items and page.items[-1]["id"] > after):
            break
    wanted = [row for number, row in enumerate(rows) if number < count or (after and row["id"] > after)]
    # A message that is created between two requests moves others to the next page, so they may occur twice.
    return sorted({row["id"]: row for row in wanted}.values(), key=lambda row: int(row["id"]))


def _print_messages(options: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        if is_json_wanted(options):
            print_result(options, row)
            continue
        error = row.get("error") or {}
        reason = row.get("skip_reason") or (error.get("text") or error.get("message") if row["error"] else None)
        cells = [row["updated_at"], str(row["id"]), row["status"], row["to"], row["subject"], reason or ""]
        print("  ".join(output.format_cell(cell) for cell in cells if cell != ""), flush=True)


def add_event_options(parser: Any) -> None:
    """Add the options of `events send`."""
    parser.add_argument("event", metavar="EVENT", help="name of the event, such as order_paid: a-z, 0-9 and _")
    parser.add_argument("--email", metavar="ADDRESS", help="the contact's address")
    parser.add_argument("--contact", type=int, metavar="ID", help="the contact's id")
    parser.add_argument("--create-contact", action="store_true", help="create an unknown contact, without opt-in")
    parser.add_argument("--amount", type=float, metavar="NUMBER", help="value of the event, such as an order's total")
    parser.add_argument("--at", metavar="TIME", help="when it happened (default: now)")
    parser.add_argument("--idempotency-key", metavar="KEY", help="with the same key it is recorded once")
    add_field_options(parser, "the event's data")


def run_event(options: argparse.Namespace, connection: "Connection") -> None:
    """Record an event of a contact."""
    values = {
        "event": options.event, "contact_email": options.email, "contact_id": options.contact,
        "create_contact": options.create_contact or None, "amount": options.amount, "created_at": options.at,
        "data": build_fields(parse_pairs(options)) or None, "idempotency_key": options.idempotency_key,
    }  # fmt: skip
    body = {name: value for name, value in values.items() if value is not None}
    event = connection.call("POST", "/events", body=body)
    if is_json_wanted(options):
        print_result(options, event)
    else:
        output.print_fields((name, event[name]) for name in ("id", "event", "contact_id", "created_at"))


def add_simulate_options(parser: Any) -> None:
    """Add the options of `flows simulate`."""
    parser.add_argument("id", type=int, metavar="ID")
    parser.add_argument("--contact", type=int, metavar="ID", help="simulate it for this contact (default: a sample)")
    parser.add_argument("--email", metavar="ADDRESS", help="simulate it for the contact with this address")
    parser.add_argument("--start", metavar="TIME", help="when the simulation begins (default: now)")
    add_field_options(parser, "the data of the event that starts the flow")


def run_simulate(options: argparse.Namespace, connection: "Connection") -> None:
    """Print what a flow would do for a contact; nothing is sent or stored.

    Raises CommandError if no contact has the address of `--email`.
    """
    contact_id = options.contact
    if options.email is not None:
        if contact_id is not None:
            raise UsageError("give --contact or --email, not both")
        contact_id = _find_contact(connection, options.email)
    values = {"contact_id": contact_id, "start_at": options.start, "event": build_fields(parse_pairs(options)) or None}
    body = {name: value for name, value in values.items() if value is not None}
    simulation = connection.call("POST", f"/flows/{options.id}/simulate", body=body)
    if is_json_wanted(options):
        print_result(options, simulation)
    else:
        output.print_text(simulation["text"].rstrip("\n"))


def _find_contact(connection: "Connection", email: str) -> int:
    for page in connection.pages("/contacts", {"search": email, "limit": 100}):
        for contact in page.items:
            if any(channel["value"].casefold() == email.strip().casefold() for channel in contact["channels"]):
                return int(contact["id"])
    raise CommandError(f"there is no contact with the address {email}")

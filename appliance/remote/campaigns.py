"""`campanero campaigns`: list, show, check, send, pause and resume campaigns."""

import argparse
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from appliance.remote import output
from appliance.remote.errors import CommandError
from appliance.remote.output import is_json_wanted, print_result

if TYPE_CHECKING:
    from appliance.remote.connection import Connection

POLL_SECONDS = 1.0
_STATUSES = ("draft", "active", "paused", "completed")
# Reasons to wait that end only when a user allows sending again.
_STOPPED = {"sending_stopped", "stop_file"}
_BLOCKED = "the campaign cannot be sent"
_CONFIRMATION = "confirmation_required"  # code of the blocker of a campaign to all contacts
# Phases in which nothing is sent, or not before a user acts.
_RESTING = {"draft", "completed", "cancelled", "paused"}


def add_list_options(parser: Any) -> None:
    """Add the options of `campaigns list`."""
    parser.add_argument("--status", choices=_STATUSES, help="only campaigns with this status")
    parser.add_argument("--search", metavar="TEXT", help="only campaigns whose name has this text")
    parser.add_argument("--limit", type=int, default=30, metavar="N", help="at most N campaigns (default: 30)")


def run_list(options: argparse.Namespace, connection: "Connection") -> None:
    """List campaigns, newest first."""
    query = {"status": options.status, "search": options.search, "limit": min(options.limit, 100)}
    campaigns: list[dict[str, Any]] = []
    for page in connection.pages("/campaigns", query):
        campaigns += page.items
        if len(campaigns) >= options.limit:
            break
    campaigns = campaigns[: options.limit]
    if is_json_wanted(options):
        print_result(options, campaigns)
        return
    output.print_table(
        ("ID", "PHASE", "NAME", "CHANNEL", "RECIPIENTS", "SENT", "CREATED"),
        [
            (row["id"], row["phase"], row["name"], row["channel"], row["audience_count"], row["sent_count"],
             row["created_at"])
            for row in campaigns
        ],
    )  # fmt: skip


def add_show_options(parser: Any) -> None:
    """Add the options of `campaigns show`."""
    add_id(parser)
    parser.add_argument("--wait", action="store_true", help="wait until it has been sent, or somebody has to act")


def add_id(parser: Any) -> None:
    """Add the id of a campaign or flow."""
    parser.add_argument("id", type=int, metavar="ID")


def run_show(options: argparse.Namespace, connection: "Connection") -> None:
    """Show a campaign with its counts; with `--wait`, first wait until `_is_at_rest`."""
    campaign = connection.call("GET", f"/campaigns/{options.id}")
    _finish(options, connection, campaign)


def _finish(options: argparse.Namespace, connection: "Connection", campaign: dict[str, Any]) -> None:
    """Show the campaign; with `--wait`, first wait until `_is_at_rest`. Raises CommandError if it was then not sent."""
    _show(options, campaign := _wait(connection, campaign) if options.wait else campaign)
    if options.wait and campaign["phase"] != "completed":
        waiting = campaign.get("waiting")
        reason = waiting["text"] if waiting else campaign.get("pause_reason")
        raise CommandError(f"the campaign is not sent: {campaign['phase']}{f', {reason}' if reason else ''}")


def _show(options: argparse.Namespace, campaign: dict[str, Any]) -> None:
    if is_json_wanted(options):
        print_result(options, campaign)
        return
    stats, waiting = campaign["stats"], campaign.get("waiting")
    numbers = ("audience", "pending", "sent", "delivered", "bounced", "complained", "failed", "skipped", "uncertain")
    output.print_fields([
        ("id", campaign["id"]), ("name", campaign["name"]), ("phase", campaign["phase"]),
        ("channel", campaign["channel"]), ("subject", (campaign.get("template") or {}).get("subject")),
        ("scheduled", campaign["scheduled_at"]), ("waits", waiting["text"] if waiting else None),
        *((name, stats[name]) for name in numbers),
    ])  # fmt: skip


def _is_at_rest(campaign: dict[str, Any]) -> bool:
    waiting = campaign.get("waiting")
    return campaign["phase"] in _RESTING or (waiting is not None and waiting["reason"] in _STOPPED)


def _wait(connection: "Connection", campaign: dict[str, Any]) -> dict[str, Any]:
    """Return the campaign once it is at rest, and show its progress on the terminal until then."""
    with output.Progress() as progress:
        while not _is_at_rest(campaign):
            stats = campaign["stats"]
            total = stats["audience"]
            share = 1 - stats["pending"] / total if total else 0.0
            waiting = campaign.get("waiting")
            text = waiting["text"] if waiting else f"{campaign['phase']}: {stats['accepted']} of {total} sent"
            progress.show(text, share)
            time.sleep(POLL_SECONDS)
            campaign = connection.call("GET", f"/campaigns/{campaign['id']}")
    return dict(campaign)


def run_preflight(options: argparse.Namespace, connection: "Connection") -> None:
    """Print the findings of a preflight. Raises CommandError if the campaign cannot be sent."""
    preflight = connection.call("GET", f"/campaigns/{options.id}/preflight")
    if is_json_wanted(options):
        print_result(options, preflight)
    else:
        _print_findings(preflight, print)
        facts = preflight["facts"]
        skipped = sum(facts["skipped"].values())
        output.print_fields([
            ("audience", facts["audience"]), ("can get it", facts["sendable"]), ("skipped", skipped),
            *((f"  {reason}", count) for reason, count in facts["skipped"].items()),
            ("transport", facts["transport"]),
        ])  # fmt: skip
    if not preflight["ok"]:
        raise CommandError(_BLOCKED)


def _print_findings(preflight: dict[str, Any], write: Callable[[str], None]) -> None:
    for title, findings in (("blocker", preflight["blockers"]), ("warning", preflight["warnings"])):
        for finding in findings:
            write(output.clean_line(f"{title}: {finding['message']} ({finding['code']})"))


def add_send_options(parser: Any) -> None:
    """Add the options of `campaigns send`."""
    add_id(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--all", action="store_true", help="send it to all contacts, if no list or segment is chosen")
    parser.add_argument("--at", metavar="TIME", help="send it then, such as 2026-12-01T09:00:00Z (default: now)")
    parser.add_argument("--wait", action="store_true", help="wait until it has been sent, or somebody has to act")


def run_send(options: argparse.Namespace, connection: "Connection") -> None:
    """Run a preflight, ask for confirmation unless `--yes` is given, and send the campaign.

    The findings of the preflight are printed on stderr. Raises CommandError if the campaign is not a draft, if the
    preflight finds a blocker, or if the user does not confirm.
    """
    campaign = connection.call("GET", f"/campaigns/{options.id}")
    if campaign["phase"] != "draft":
        raise CommandError(f"the campaign is not a draft: it is {campaign['phase']}")
    preflight = connection.call("GET", f"/campaigns/{options.id}/preflight")
    _print_findings(preflight, output.print_note)
    blocking = {finding["code"] for finding in preflight["blockers"]} - ({_CONFIRMATION} if options.all else set())
    if blocking:
        raise CommandError("use --all to send it to all contacts" if blocking == {_CONFIRMATION} else _BLOCKED)
    if not options.yes:
        output.confirm(_ask(campaign, preflight["facts"], options))
    body: dict[str, Any] = {"confirm_send_to_all": True} if options.all else {}
    if options.at:
        body["scheduled_at"] = options.at
    campaign = connection.call("POST", f"/campaigns/{options.id}/send", body=body)
    _finish(options, connection, campaign)


def _ask(campaign: dict[str, Any], facts: dict[str, Any], options: argparse.Namespace) -> str:
    number = facts["sendable"]
    time_to_send = options.at or campaign["scheduled_at"]
    when = f"at {time_to_send}" if time_to_send else "now"
    people = f"{'ALL ' if options.all else ''}{number} contact{'' if number == 1 else 's'}"
    where = " (transport: capture, nothing leaves the machine)" if facts["transport"] == "capture" else ""
    return f'Send "{campaign["name"]}" by {campaign["channel"]} to {people} {when}?{where}'


def run_pause(options: argparse.Namespace, connection: "Connection") -> None:
    """Pause an active campaign."""
    _show(options, connection.call("POST", f"/campaigns/{options.id}/pause"))


def run_resume(options: argparse.Namespace, connection: "Connection") -> None:
    """Resume a paused campaign."""
    _show(options, connection.call("POST", f"/campaigns/{options.id}/resume"))

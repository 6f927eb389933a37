"""No reader makes an opt-out lose the race against the queue (P4); with `--full` in 10,000 tries."""

import re
import time
from dataclasses import dataclass, field

from tests.faults.conftest import Figures, StartRelayed
from tests.faults.test_changes_in_a_send import contact_ids, number_of, skip_reasons, unsubscribe_paths
from tests.kit.client import Client
from tests.kit.opt_out_race import LEAVE_LIST, ONE_CLICK, REASONS, Form, OptOut, choose_way, running_readers
from tests.kit.recipients import create_campaign, create_list, recipient_address, send_campaign, wait_until_completed
from tests.kit.reconciliation import reconcile
from tests.kit.smtp import Message, SmtpServer
from tests.kit.timeouts import extend_timeout

# A body that left right before the acknowledgement reaches the server within this time or not at all
IN_FLIGHT_SECONDS = extend_timeout(0.1)


def collect_forms(api: Client, sink: SmtpServer, ids: dict[str, int], list_id: int) -> dict[str, Form]:
    """Send a campaign to those who will opt out by a form, and return the form of each, by address.

    The form is that of one click, or of the preference page, to leave the list.
    """
    contacts = [number for address, number in ids.items() if choose_way(number_of(address)) in (ONE_CLICK, LEAVE_LIST)]
    api.patch(f"/lists/{list_id}", {"public": True}).expect(200)
    first_list = api.post("/lists", {"name": "Forms", "contact_ids": contacts}).expect(201)["id"]
    body = "<a href='{{ preferences_url }}'>Choose</a>"
    wait_until_completed(api, send_campaign(api, first_list, subject="First", body=body), timeout=300)
    forms = {address: Form(path, b"List-Unsubscribe=One-Click") for address, path in unsubscribe_paths(sink).items()}
    for message in sink.messages:
        if choose_way(number_of(message.to)) == LEAVE_LIST:
            match = re.search(r"/p/[\w-]+", message.html() or "")
            assert match
            forms[message.to] = Form(match[0], f"act=save&list_shown={list_id}-on".encode())
    return forms


@dataclass
class Verdict:
    """What arrived for those who opted out.

    `in_body`: the body had begun at the acknowledgement and ended after it. `in_flight`: the server had asked for the
    body before the acknowledgement and got its first byte after it, by these seconds. `lost`: it asked only afterwards.
    `withdrawn`: envelopes that had arrived and were followed by no body.
    """

    in_body: list[Message] = field(default_factory=list)
    in_flight: list[float] = field(default_factory=list)
    lost: list[Message] = field(default_factory=list)
    withdrawn: int = 0


def judge(sink: SmtpServer, opt_outs: list[OptOut]) -> Verdict:
    """Compare the times of all bodies with those of the acknowledgements."""
    verdict = Verdict()
    acknowledged_at = {recipient_address(opt_out.number): opt_out.acknowledged_at for opt_out in opt_outs}
    for message in sink.messages:
        end = acknowledged_at.get(message.to, float("inf"))
        if message.invited_at > end:
            verdict.lost.append(message)
        elif message.begun_at > end:
            verdict.in_flight.append(message.begun_at - end)
        elif message.time > end:
            verdict.in_body.append(message)
    envelopes = sum(entry.rcpt_to[0] in acknowledged_at for entry in sink.phases("data"))
    verdict.withdrawn = envelopes - sum(message.to in acknowledged_at for message in sink.messages)
    return verdict


def check_round(api: Client, path: str, messages: list[Message], opt_outs: list[OptOut]) -> int:
    """Check the ledger of a campaign, and return how many of these opt-outs came in time for it."""
    books, skipped = reconcile(api, path, messages), skip_reasons(api, path)
    arrived = {message.to for message in messages}
    assert (books.copies, books.missing, books.uncertain) == (0, 0, 0)
    for opt_out in opt_outs:
        recipient = recipient_address(opt_out.number)
        assert recipient in arrived or skipped[recipient] == REASONS[opt_out.way], (recipient, opt_out)
    return sum(recipient_address(opt_out.number) not in arrived for opt_out in opt_outs)


def test_no_opt_out_loses_the_race(
    relayed: StartRelayed, smtp_server: SmtpServer, full: bool, figures: Figures
) -> None:
    """Of thousands opted out right before the front of a send, nobody gets a body that left after the response."""
    tries, count = (10_000, 18_000) if full else (80, 300)
    api = relayed().client(validate=False, keep_alive=True)
    list_id = create_list(api, count)
    ids = contact_ids(api, list_id)
    forms = collect_forms(api, smtp_server, ids, list_id)
    smtp_server.clear()
    # The next message of a connection is claimed, and its envelope sent, while the server thinks about the one before
    smtp_server.rules.delay("body", 0.01)
    rounds: list[tuple[str, int, int]] = []  # path, numbers of the messages and opt-outs before
    with running_readers(smtp_server, api, ids, forms) as race:
        started = time.monotonic()
        while len(race.opt_outs) < tries:
            path = create_campaign(api, list_id, subject=f"Round {len(rounds)}")
            rounds.append((path, len(smtp_server.messages), len(race.opt_outs)))
            api.post(f"{path}/send").expect(200)
            race.follow(api, path, tries)
        seconds = time.monotonic() - started
    verdict, in_time = judge(smtp_server, race.opt_outs), 0
    for at, (path, message_count, opt_out_count) in enumerate(rounds):
        _, last_message, last_opt_out = rounds[at + 1] if at + 1 < len(rounds) else ("", None, None)
        messages, opt_outs = smtp_server.messages[message_count:last_message], race.opt_outs[opt_out_count:last_opt_out]
        in_time += check_round(api, path, messages, opt_outs)
    durations = sorted(opt_out.seconds for opt_out in race.opt_outs)
    figures.note(size=len(race.opt_outs), in_time=in_time, withdrawn_envelopes=verdict.withdrawn,
                 in_body=len(verdict.in_body), in_flight=len(verdict.in_flight), lost=len(verdict.lost),
                 longest_flight=f"{max(verdict.in_flight, default=0) * 1000:.0f} ms", rounds=len(rounds),
                 sent=len(smtp_server.messages), race=f"{seconds:.0f} s",
                 opt_out_median=f"{durations[len(durations) // 2] * 1000:.0f} ms")  # fmt: skip

    assert not verdict.lost, [(message.to, message.invited_at) for message in verdict.lost[:5]]
    assert all(seconds < IN_FLIGHT_SECONDS for seconds in verdict.in_flight), verdict.in_flight
    assert len(race.opt_outs) >= tries and verdict.withdrawn, "the readers never came close to the front"

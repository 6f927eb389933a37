"""How fast mail that comes back is understood, and how fast the real service takes it and writes what follows.

    python -m benchmarks.bench_inbound [MESSAGES]

The goal is 500 reports a second. The first figure is one core's, over all samples; the second goes over SMTP to a
process of its own, in four conversations, each report on disk before it is answered.
"""

import sys
import tempfile
import threading
import time
from pathlib import Path

from appliance.core import crypto
from appliance.inbound import bounce_mail
from appliance.sending.messages import links
from appliance.settings import config
from tests.journeys.test_returned_mail import verified
from tests.kit.bounces import EXPECTED_CLASSES, Placeholders, sample
from tests.kit.dns import DnsServer
from tests.kit.recipients import NO_RATE_LIMITS, create_list, send_campaign, wait_until_completed
from tests.kit.server import Server, free_port
from tests.kit.smtp import Message, SmtpServer
from tests.kit.smtp_client import SmtpClient

DOMAIN = "bakery.example"
PLACES = 4


def understood(rounds: int = 20) -> float:
    """Return the bounces a second that one core parses."""
    with tempfile.TemporaryDirectory() as directory:
        crypto.create_key(Path(directory))
        config.set_current(config.load({"data_dir": directory}, {}).config)
        marks = Placeholders(
            "reader@example.org", links.build_return_path(7, DOMAIN), links.build_message_id(7, DOMAIN),
            links.build_unsubscribe_url("https://mail.example.org", 7),
        )  # fmt: skip
        mails = [sample(name, marks) for name in EXPECTED_CLASSES]
        started_at = time.perf_counter()
        for _ in range(rounds):
            for raw in mails:
                bounce_mail.parse_reports(raw, 7)
        return rounds * len(mails) / (time.perf_counter() - started_at)


def returned(post: SmtpClient, messages: list[Message]) -> float:
    """Send a hard bounce for each message and return the bounces a second."""
    reports = []
    for message in messages:
        marks = Placeholders(message.to, message.mail_from or "", (message.header("Message-ID") or "").strip("<>"), "")
        reports.append((marks.return_path, sample("postfix_user_unknown", marks)))

    def deliver(part: list[tuple[str, bytes]]) -> None:
        with post.connect() as smtp:
            smtp.ehlo()
            for to, raw in part:
                assert smtp.sendmail("", [to], raw) == {}

    places = [threading.Thread(target=deliver, args=(reports[number::PLACES],)) for number in range(PLACES)]
    started_at = time.perf_counter()
    for place in places:
        place.start()
    for place in places:
        place.join()
    return len(reports) / (time.perf_counter() - started_at)


def main() -> None:
    """Run the measurements."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_500
    print(f"{understood():.0f} mails a second are understood, of {len(EXPECTED_CLASSES)} kinds")
    post, more = SmtpClient(free_port()), {"CAMPANERO_EMAIL__DIRECT__HELO": f"mail.{DOMAIN}"}
    with (
        SmtpServer() as relay, DnsServer() as dns,
        Server(relay=relay.port, env={**post.env, **dns.env, **more, **NO_RATE_LIMITS}).set_up() as server,
    ):  # fmt: skip
        api = server.set_postal_address().client()
        verified(api, dns)
        path = send_campaign(api, create_list(api, count))
        wait_until_completed(api, path)
        rate = returned(post, list(relay.messages))
        stats = api.get(path).expect(200)["stats"]
        print(f"{rate:.0f} reports a second are taken over SMTP and written; {stats['bounced']} of {count} bounced")
        server.stop()


if __name__ == "__main__":
    main()

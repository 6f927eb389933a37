"""Measures signing: `python -m benchmarks.bench_dkim [--messages 4000]`; not a test, run by hand.

Messages of a campaign are made as the sender makes them, unsigned, signed with RSA-2048 and with Ed25519 too, in turns
with `openssl speed` on one core, so that the figures are ratios of one run.
"""

import argparse
import hashlib
import os
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from appliance.core import clock
from appliance.sending.delivery import dkim
from appliance.sending.domains import keys
from appliance.sending.messages.ledger import COLUMNS, LedgerRow
from appliance.sending.messages.prepare import MessagePreparer
from appliance.sending.workers.renderer import Renderer
from appliance.storage import transactions
from appliance.storage.database import rows, run
from appliance.storage.models import DomainKey
from benchmarks.bench_sending import FIRST, UNLIMITED, fill, html
from benchmarks.bench_sending_rivals import Postfix
from tests.domain.home import Home
from tests.domain.test_domain_keys import create_domain
from tests.kit.dns import DnsServer
from tests.kit.sending_domains import add_verified_domain
from tests.kit.server import Server

PEOPLE = 400


def limit(seconds: float) -> float:
    """Return the RSA-2048 signatures a second that OpenSSL makes on one core, by wall clock."""
    command = ["openssl", "speed", "-elapsed", "-seconds", str(max(1, round(seconds))), "rsa2048"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    match = re.search(r"rsa 2048 bits\s+\S+s\s+\S+s\s+([\d.]+)", output)
    if match is None:
        raise AssertionError(output)
    return float(match[1])


def campaign(home: Home, size: int) -> list[LedgerRow]:
    """Send a campaign from a signed domain to some contacts, and return its rows."""
    contacts = [
        home.contact(
            f"p{n}@example.org", first_name=FIRST[n % 8], last_name=f"Adler{n}", data={"city": f"Bath{n % 50}"}
        )
        for n in range(PEOPLE)
    ]
    group = home.list_of(*(contact.id for contact in contacts)).id
    home.send(home.campaign(group, body=html(size), from_email="ana@bakery.example"))
    now = clock.now_ms()
    return [
        LedgerRow._make(row)._replace(first_attempt_at=now)
        for row in rows(f"SELECT {COLUMNS} FROM message ORDER BY id")
    ]


def making(ledger_rows: Sequence[LedgerRow], count: int, ahead: int) -> tuple[float, float]:
    """Make so many messages, as many at a time as the sender does; return how many a second, and microseconds of
    processor for each."""
    renderer, message_count = Renderer(), 0
    renderer.render(ledger_rows[:ahead])  # compiles
    spent, begin = time.process_time(), time.perf_counter()
    while message_count < count:
        first = message_count % len(ledger_rows)
        messages = renderer.render(ledger_rows[first : first + ahead])
        if any(message.prepared is None for message in messages):
            raise AssertionError(messages)
        message_count += len(messages)
    seconds = time.perf_counter() - begin
    renderer.close()
    return message_count / seconds, (time.process_time() - spent) / message_count * 1e6


def each(what: Callable[[], object], count: int = 2_000) -> float:
    """Return the processor microseconds of a call, the best of five rounds."""
    times = []
    for _ in range(5):
        begin = time.thread_time()
        for _ in range(count):
            what()
        times.append((time.thread_time() - begin) / count * 1e6)
    return min(times)


def pieces(content: bytes, signers: Sequence[dkim.Signer]) -> None:
    """Print the cost of each part of a signature for one message."""
    head, _, body = content.partition(b"\r\n\r\n")
    large = body * (60_000 // len(body) + 1)
    print(f"one message of {len(content) / 1024:.1f} KB, microseconds:")
    for name, text in ((f"{len(body) / 1024:.0f} KB", body), (f"{len(large) / 1024:.0f} KB", large)):
        plain, canonical = (
            each(lambda t=text: hashlib.sha256(t).digest()),
            each(lambda t=text: dkim.canonicalize_body(t)),
        )
        print(f"  body {name}: canonical form {canonical:.1f}, hash {plain:.1f}")
    print(f"  headers in canonical form {each(lambda: dkim.canonicalize_headers(head)):.1f}")
    for signer in signers:
        kind = type(signer.key).__name__.strip("_")
        alone = each(lambda s=signer: dkim.sign_data(s.key, head), 500)
        total = each(lambda s=signer: dkim.sign(content, (s,)), 500)
        print(f"  {kind}: signature alone {alone:.0f}, all of it {total:.0f}")


def only(*algorithms: str) -> None:
    """Activate the keys of these algorithms and no others."""
    now = clock.now_ms()
    marks = ", ".join("?" * len(algorithms)) or "NULL"
    transactions.write(
        run, f"UPDATE domain_key SET activated_at = iif(algorithm IN ({marks}), ?, NULL)", (*algorithms, now - 60_000)
    )


def send(server: Server, people: int, count: int, size: int, sender: str) -> float:
    """Send a campaign from an address to all contacts and return the messages a second."""
    api = server.client(validate=False, keep_alive=True)
    number = api.post("/campaigns", {"name": "Measured"}).expect(201)["id"]
    content = {"subject": "News for {{ contact.first_name }}", "body": html(size), "from_email": sender}
    begin = time.perf_counter()
    order = {"trigger_attributes": {"contact_list_id": people}, "template_attributes": content}
    api.post(f"/campaigns/{number}/send", order).expect(200)
    while (now := api.get(f"/campaigns/{number}").expect(200))["status"] != "completed":
        time.sleep(0.05)
    if now["stats"]["sent"] != count:
        raise AssertionError(now["stats"])
    return count / (time.perf_counter() - begin)


def sending(options: argparse.Namespace) -> None:
    """Print the rate of the whole service into `smtp-sink`, unsigned and signed in turns."""
    seconds: dict[str, list[float]] = {}
    floors = []
    with Postfix(options.postfix).sink() as port, DnsServer() as dns:
        env = UNLIMITED | dns.env | {"CAMPANERO_EMAIL__CONNECTIONS": "10"}
        env |= {"CAMPANERO_EMAIL__MESSAGES_PER_CONNECTION": "100000"}
        with Server(relay=port, env=env).set_up().start() as server:
            api = server.set_postal_address().client(validate=False)
            add_verified_domain(api, dns, "bakery.example")
            people = fill(api, options.messages)
            for _ in range(options.rounds):
                floors.append(limit(2))
                for sender in ("ana@unsigned.example", "ana@bakery.example"):
                    rate = send(server, people, options.messages, options.size, sender)
                    seconds.setdefault(sender, []).append(rate)
    floor = statistics.median(floors)
    print(f"load {os.getloadavg()[0]:.1f}; openssl {floor:,.0f}/s; the whole service, {options.messages} messages:")
    for sender, rates in seconds.items():
        rate = statistics.median(rates)
        print(f"  from {sender}: {rate:,.0f}/s, {rate / floor:.2f} of openssl")


def main() -> None:
    """Run the measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=4_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=9_000, help="bytes of the HTML; 20 KB on the wire")
    parser.add_argument("--ahead", type=int, default=40, help="messages made at once: 4 for each of 10 connections")
    parser.add_argument("--postfix", type=Path, help="where Debian's package is unpacked: measures sending too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        home = Home(Path(directory), email__dkim_ed25519=True)
        for key in transactions.write(keys.store_first_keys, create_domain(home), keys.generate_keys()):
            transactions.write(lambda k=key: keys.activate_key(DomainKey.get_by_id(k.id)))
        ledger_rows = campaign(home, options.size)
        pieces(
            MessagePreparer().build(ledger_rows[0]).prepared.envelope.content,
            keys.fetch_key_ring(home.account_id, "bakery.example").get_signers_at(clock.now_ms()),
        )
        seconds: dict[str, list[tuple[float, float]]] = {}
        floors = []
        for _ in range(options.rounds):
            floors.append(limit(2))
            for kinds in ((), ("rsa",), ("rsa", "ed25519")):
                only(*kinds)
                seconds.setdefault(" and ".join(kinds) or "unsigned", []).append(
                    making(ledger_rows, options.messages, options.ahead)
                )
            floors.append(limit(2))
        home.close()
    floor = statistics.median(floors)
    print(f"load {os.getloadavg()[0]:.1f}; openssl speed rsa2048, one core: {floor:,.0f}/s")
    for name, costs in seconds.items():
        rate, cpu = statistics.median(cost[0] for cost in costs), statistics.median(cost[1] for cost in costs)
        print(f"  made {name}: {rate:,.0f}/s, {cpu:.0f} us of processor each, {rate / floor:.2f} of openssl")
    print("  G7 is the line of rsa (goal 0.95)")
    if options.postfix:
        sending(options)


if __name__ == "__main__":
    main()

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
from appliance.sending.messages.ledger import COLUMNS, Claim
from appliance.sending.messages.prepare import MessagePreparer
from appliance.sending.workers.ready_queue import Renderer
from appliance.storage import transactions
from appliance.storage.database import rows, run
from appliance.storage.models import DomainKey
from benchmarks.bench_sending import FIRST, UNLIMITED, fill, html
from benchmarks.bench_sending_rivals import Postfix
from tests.domain.home import Home
from tests.domain.test_domain_keys import domain
from tests.kit.dns import DnsServer
from tests.kit.sending_domains import verified
from tests.kit.server import Server

PEOPLE = 400


def limit(seconds: float) -> float:
    """Return how many RSA-2048 signatures a second OpenSSL makes on one core, by the clock on the wall."""
    command = ["openssl", "speed", "-elapsed", "-seconds", str(max(1, round(seconds))), "rsa2048"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"rsa 2048 bits\s+\S+s\s+\S+s\s+([\d.]+)", said)
    if found is None:
        raise AssertionError(said)
    return float(found[1])


def campaign(home: Home, size: int) -> list[Claim]:
    """Send a campaign of a signed domain to some people, and return its rows."""
    made = [
        home.contact(
            f"p{n}@example.org", first_name=FIRST[n % 8], last_name=f"Adler{n}", data={"city": f"Bath{n % 50}"}
        )
        for n in range(PEOPLE)
    ]
    group = home.list_of(*(one.id for one in made)).id
    home.send(home.campaign(group, body=html(size), from_email="ana@bakery.example"))
    now = clock.now_ms()
    return [
        Claim._make(row)._replace(first_attempt_at=now) for row in rows(f"SELECT {COLUMNS} FROM message ORDER BY id")
    ]


def making(claims: Sequence[Claim], count: int, ahead: int) -> tuple[float, float]:
    """Make so many messages, as many at a time as the sender does; return how many a second, and microseconds of
    processor for each."""
    maker, done = Renderer(), 0
    maker.render(claims[:ahead])  # compiles
    spent, begin = time.process_time(), time.perf_counter()
    while done < count:
        first = done % len(claims)
        made = maker.render(claims[first : first + ahead])
        if any(one.prepared is None for one in made):
            raise AssertionError(made)
        done += len(made)
    seconds = time.perf_counter() - begin
    maker.close()
    return done / seconds, (time.process_time() - spent) / done * 1e6


def each(what: Callable[[], object], count: int = 2_000) -> float:
    """Return the microseconds of processor of a call, the best of five rounds."""
    found = []
    for _ in range(5):
        begin = time.thread_time()
        for _ in range(count):
            what()
        found.append((time.thread_time() - begin) / count * 1e6)
    return min(found)


def pieces(content: bytes, signers: Sequence[dkim.Signer]) -> None:
    """Print what the pieces of a signature take for one message."""
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
    for one in signers:
        kind = type(one.key).__name__.strip("_")
        alone = each(lambda o=one: dkim.sign_data(o.key, head), 500)
        print(
            f"  {kind}: signature alone {alone:.0f}, all of it {each(lambda o=one: dkim.sign(content, (o,)), 500):.0f}"
        )


def only(*algorithms: str) -> None:
    """Let these keys sign and no others."""
    now = clock.now_ms()
    marks = ", ".join("?" * len(algorithms)) or "NULL"
    transactions.write(
        run, f"UPDATE domain_key SET activated_at = iif(algorithm IN ({marks}), ?, NULL)", (*algorithms, now - 60_000)
    )


def send(server: Server, people: int, count: int, size: int, sender: str) -> float:
    """Send a campaign from an address to everybody and return how many messages a second left."""
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
    """Print how fast the whole service sends, unsigned and signed in turns, into `smtp-sink`."""
    found: dict[str, list[float]] = {}
    floors = []
    with Postfix(options.postfix).sink() as port, DnsServer() as dns:
        env = UNLIMITED | dns.env | {"CAMPANERO_EMAIL__CONNECTIONS": "10"}
        env |= {"CAMPANERO_EMAIL__MESSAGES_PER_CONNECTION": "100000"}
        with Server(relay=port, env=env).set_up().start() as server:
            api = server.give_address().client(validate=False)
            verified(api, dns, "bakery.example")
            people = fill(api, options.messages)
            for _ in range(options.rounds):
                floors.append(limit(2))
                for sender in ("ana@unsigned.example", "ana@bakery.example"):
                    rate = send(server, people, options.messages, options.size, sender)
                    found.setdefault(sender, []).append(rate)
    floor = statistics.median(floors)
    print(f"load {os.getloadavg()[0]:.1f}; openssl {floor:,.0f}/s; the whole service, {options.messages} messages:")
    for sender, rates in found.items():
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
        for key in transactions.write(keys.store_first_keys, domain(home), keys.generate_keys()):
            transactions.write(lambda k=key: keys.activate_key(DomainKey.get_by_id(k.id)))
        claims = campaign(home, options.size)
        pieces(
            MessagePreparer().build(claims[0]).prepared.envelope.content,
            keys.fetch_signers(home.account_id, "bakery.example"),
        )
        found: dict[str, list[tuple[float, float]]] = {}
        floors = []
        for _ in range(options.rounds):
            floors.append(limit(2))
            for kinds in ((), ("rsa",), ("rsa", "ed25519")):
                only(*kinds)
                found.setdefault(" and ".join(kinds) or "unsigned", []).append(
                    making(claims, options.messages, options.ahead)
                )
            floors.append(limit(2))
        home.close()
    floor = statistics.median(floors)
    print(f"load {os.getloadavg()[0]:.1f}; openssl speed rsa2048, one core: {floor:,.0f}/s")
    for name, costs in found.items():
        rate, cpu = statistics.median(one[0] for one in costs), statistics.median(one[1] for one in costs)
        print(f"  made {name}: {rate:,.0f}/s, {cpu:.0f} us of processor each, {rate / floor:.2f} of openssl")
    print("  G7 is the line of rsa (goal 0.95)")
    if options.postfix:
        sending(options)


if __name__ == "__main__":
    main()

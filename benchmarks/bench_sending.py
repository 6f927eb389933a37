"""Measures sending: `python -m benchmarks.bench_sending [--contacts 50000]`; not a test, run by hand.

A campaign goes to everybody through the real service into Debian's `smtp-sink`; `smtp-source` and threads of `smtplib`
send as many ready-made messages of the same size into the same sink, in turns, so that the figures are ratios of one
run. Then once more with people at work beside it, and once into a server that answers slowly.
"""

import argparse
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import Environment

from appliance.sending.delivery import mime
from appliance.sending.messages import compose, links
from appliance.sending.messages.compose import MessageSource, Sender
from appliance.sending.messages.encoded_email import EncodedMessage
from benchmarks.bench_import import memory
from benchmarks.bench_sending_rivals import Cost, Postfix, ready_made
from tests.domain.home import Home
from tests.kit.client import Client
from tests.kit.server import ROOT, Server
from tests.kit.smtp import SmtpServer
from tests.kit.timeouts import cpu_seconds, report_stolen_cpu_at_exit, wait_until_idle
from tests.kit.uploads import upload, wait_for_import

FIRST = ("Ann", "Jürgen", "Łukasz", "Nguyễn Thị", "Ольга", "<Lee>", "O'Brien", "Chloé")
FIELDS = "{{ contact.first_name | default: 'friend' }}", "{{ contact.last_name }}", "{{ contact.data.city }}", \
    "{{ contact.data.plan | upcase }}", "{{ contact.email }}", "{{ account.name }}"  # fmt: skip
PLAIN = (
    "<p style='margin:0 0 16px'>Our bread of the week is made of old grains: rye, spelt, emmer and a little honey. "
    "We bake at four, we open at eight, and on Saturdays we keep a loaf for you until noon.</p>\n"
)
_BASE_URL = "https://mail.example.org"
UNLIMITED = {"CAMPANERO_LIMITS__REQUESTS_PER_MINUTE": "0", "CAMPANERO_LIMITS__SENDS_PER_MINUTE": "0"}


def html(size: int) -> str:
    """Return a page of about this size, with six merge tags in thirty places and eight links."""
    parts = [f"<p>Dear {field}, this one is for you.</p>\n" for field in FIELDS * 5]
    parts += [
        f'<p><a href="https://bakery.example/bread/{n}?utm_source=mail">how we bake it</a></p>\n' for n in range(8)
    ]
    while sum(map(len, parts)) < size:
        parts.append(PLAIN)
    random.Random(1).shuffle(parts)
    return "<html><body><h1>News</h1>\n" + "".join(parts) + "</body></html>"


def fill(api: Client, count: int) -> int:
    """Import the contacts into one list and return its id."""
    people = api.post("/lists", {"name": "Everybody"}).expect(201)["id"]
    lines = ["email,first_name,last_name,city,plan"]
    lines += [f"person{n}@example.org,{FIRST[n % 8]}{n % 500},Adler{n % 977},Bath{n % 50},pro" for n in range(count)]
    wait_for_import(api, upload(api, "\n".join(lines), list_ids=[people], consent_source="bench"), 600)
    return int(people)


def campaign(server: Server, people: int, size: int, count: int) -> tuple[Cost, int]:
    """Send a campaign and wait until it is completed; return its cost and its id."""
    api = server.client(validate=False, keep_alive=True)
    number = api.post("/campaigns", {"name": "Measured"}).expect(201)["id"]
    content = {"subject": "News for {{ contact.first_name }}", "body": html(size)}
    order = {"trigger_attributes": {"contact_list_id": people}, "template_attributes": content}
    before, begin = cpu_seconds(server.pid), time.perf_counter()
    api.post(f"/campaigns/{number}/send", order).expect(200)
    while (now := api.get(f"/campaigns/{number}").expect(200))["status"] != "completed":
        time.sleep(0.2)
    cost = Cost(count, time.perf_counter() - begin, cpu_seconds(server.pid) - before)
    if now["stats"]["sent"] + now["stats"]["skipped"] != count:  # whoever opts out meanwhile is skipped
        raise AssertionError(now["stats"])
    return cost, number


class Meanwhile:
    """Another client that acts at an interval in seconds, and the milliseconds of each action."""

    def __init__(self, pause: float, what: Callable[[int], Any]) -> None:
        self.times: list[float] = []
        self._stop = threading.Event()
        self._what, self._pause = what, pause
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(self._pause):
            number += 1
            begin = time.perf_counter()
            self._what(number)
            self.times.append((time.perf_counter() - begin) * 1000)

    def end(self) -> str:
        """Stop, and return the times as text."""
        self._stop.set()
        self._thread.join()
        ordered = sorted(self.times)
        late = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
        median = ordered[len(ordered) // 2]
        return f"{len(ordered)} requests, p50 {median:.1f}, p99 {late:.1f}, longest {ordered[-1]:.1f} ms"


def say(name: str, costs: list[Cost]) -> float:
    """Print the median of some runs and return its rate."""
    rates = [cost.rate for cost in costs]
    rate, cpu = statistics.median(rates), statistics.median(cost.cpu_of_1000 for cost in costs)
    print(f"  {name:<28} {rate:>8,.0f}/s ({min(rates):,.0f} to {max(rates):,.0f}), {cpu:.3f} CPU-s per 1,000")
    return rate


def rounds(server: Server, people: int, port: int, postfix: Postfix, mail: Path, options: Any) -> None:
    """Run the contenders in turns, and print the ratios."""
    ours: list[Cost] = []
    theirs: list[Cost] = []
    threads: list[Cost] = []
    for _ in range(options.rounds):
        theirs.append(postfix.source(port, options.connections, options.contacts, mail))
        threads.append(ready_made(port, options.connections, options.contacts // 5, mail))
        ours.append(campaign(server, people, options.size, options.contacts)[0])
    print(f"{options.rounds} rounds of {options.contacts} messages of {mail.stat().st_size / 1024:.1f} KB:")
    floor, simple, rate = (
        say("smtp-source -d", theirs),
        say("smtplib threads, ready-made", threads),
        say("campanero", ours),
    )
    spent = statistics.median(cost.cpu for cost in ours) / statistics.median(cost.cpu for cost in theirs)
    print(f"  G1 {rate / floor:.2f} of smtp-source (goal 0.9); G2 {rate / simple:.2f} of smtplib (3); "
          f"G3 {spent:.1f} times smtp-source's processor (2)")  # fmt: skip


def beside(server: Server, people: int, options: Any, number: int) -> None:
    """Send while other clients read pages and opt out, and print their waiting times."""
    api, other = (server.client(validate=False, keep_alive=True) for _ in range(2))
    links = _ways_out(api, number, 400)
    reading = Meanwhile(0.005, lambda n: api.get(f"/contacts/{n % 1000 + 1}").expect(200))
    leaving = Meanwhile(0.05, lambda n: _opt_out(other, links[n % len(links)]))
    cost, _ = campaign(server, people, options.size, options.contacts)
    print(f"with people beside it: {cost.rate:,.0f}/s")
    print(f"  G10 pages: {reading.end()} (goal p99 15)")
    print(f"  one-click opt-outs: {leaving.end()} (goal p99 100)")


def _ways_out(api: Client, number: int, count: int) -> list[str]:
    problems: list[str] = []
    for page in range(1, count // 100 + 1):
        for row in api.get(f"/messages?campaign_id={number}&limit=100&page={page}").expect(200):
            text = api.get(f"/messages/{row['id']}").expect(200)["text"]
            problems.append(re.search(r"(/u/\S+)", text)[1])
    return problems


def _opt_out(api: Client, path: str) -> None:
    answer = api.request(
        "POST", path, b"List-Unsubscribe=One-Click", {"Content-Type": "application/x-www-form-urlencoded"}
    )
    if answer.status != 200:
        raise AssertionError(answer.status)


def slowly(options: Any) -> None:
    """Send to a server that delays each reply by 20 ms, and print the round trips per message."""
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "tests.kit.smtp_sink", "--spool", f"{directory}/spool", "--delay", "0.02"]
        sink = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        try:
            with made(int(sink.stdout.readline()), options) as server:
                people = fill(server.client(validate=False, keep_alive=True), 8_000)
                cost, _ = campaign(server, people, options.size, 8_000)
                share = cost.rate * 0.02 / options.connections
                print(f"20 ms away: {cost.rate:,.0f}/s; G4 {share:.2f} of a message each round trip (goal 0.9)")
        finally:
            sink.terminate()
            sink.wait(60)


def making(size: int) -> None:
    """Print the cost of rendering one message, and of Jinja2 filling the same HTML."""
    source = html(size)
    body = Environment(autoescape=True).from_string(
        source.replace("| default: 'friend'", "or 'friend'").replace("| upcase", "| upper")
    )
    with tempfile.TemporaryDirectory() as directory:
        home = Home(Path(directory))
        content = compose.compile_message(MessageSource("News for {{ contact.first_name }}", source, marketing=True))
        plain = EncodedMessage(content)
        tracked = EncodedMessage(compose.track_links(content, tuple(link.href for link in content.links), _BASE_URL))
        people = [_person(number) for number in range(2_000)]

        def mail(number: int, parts: EncodedMessage = tracked) -> None:
            stop = links.build_unsubscribe_url(_BASE_URL, number)
            values = people[number] | links.get_link_values(_BASE_URL, number)
            if parts is tracked:
                values["track"] = links.build_tracking_tokens(number)
            mime.write(
                parts.build_mail(
                    values,
                    Sender("a@example.org", "A", None),
                    number,
                    "b@example.org",
                    0.0,
                    (compose.build_unsubscribe_header(stop),),
                )
            )

        contenders = (mail, lambda number: mail(number, plain), lambda number: body.render(**people[number]))
        ours, untracked, theirs = (_each(what, len(people)) for what in contenders)
        home.close()
    print(f"making a message: {ours:.0f} us, {untracked:.0f} with links as they were written; "
          f"Jinja2 filling in its HTML alone: {theirs:.0f} us; G11 {ours / theirs:.2f} (goal 0.8)")  # fmt: skip


def _person(number: int) -> dict[str, Any]:
    data = {"city": f"Bath{number % 50}", "plan": "pro"}
    name, email = f"{FIRST[number % 8]}{number % 500}", f"person{number}@example.org"
    person = {"first_name": name, "last_name": f"Adler{number % 977}", "email": email, "data": data}
    return {"contact": person, "account": {"name": "Bakery"}, "brand": {"company_name": "Bakery"}}


def _each(what: Callable[[int], object], count: int) -> float:
    rounds = []
    for _ in range(5):
        begin = time.process_time()  # others may be at work beside it
        for number in range(count):
            what(number)
        rounds.append((time.process_time() - begin) / count * 1e6)
    return min(rounds)


def made(port: int, options: Any) -> Server:
    """Yield a service that is set up to send into a sink."""
    env = UNLIMITED | {"CAMPANERO_EMAIL__CONNECTIONS": str(options.connections)}
    env |= {"CAMPANERO_EMAIL__MESSAGES_PER_CONNECTION": "100000"}
    server = Server(relay=port, env=env, executable=options.executable).set_up().start()
    server.set_postal_address()
    wait_until_idle(server.pid)
    return server


def example(size: int, home: Path) -> Path:
    """Return one message of the campaign as it is sent, for the other senders."""
    with SmtpServer() as kit, made(kit.port, argparse.Namespace(connections=1, executable=None)) as other:
        people = fill(other.client(validate=False), 1)
        campaign(other, people, size, 1)
        path = home / "mail.eml"
        path.write_bytes(kit.messages[0].raw)
    return path


def main() -> None:
    """Run the measurements."""
    report_stolen_cpu_at_exit()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--contacts", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=9_000, help="bytes of the HTML; 20 KB on the wire")
    parser.add_argument("--connections", type=int, default=10)
    parser.add_argument("--postfix", type=Path, help="where Debian's package is unpacked, unless it is installed")
    parser.add_argument("--executable", type=Path, help="measure a built file instead of the sources")
    parser.add_argument("--only-rounds", action="store_true", help="nothing but the comparison")
    options = parser.parse_args()
    making(options.size)
    postfix = Postfix(options.postfix)
    with tempfile.TemporaryDirectory() as directory, postfix.sink() as port:
        mail = example(options.size, Path(directory))
        with made(port, options) as server:
            people = fill(server.client(validate=False, keep_alive=True), options.contacts)
            rounds(server, people, port, postfix, mail, options)
            print(f"G6 memory of its own: {memory(server.pid)['RssAnon'] / 1024:.0f} MB")
            if not options.only_rounds:
                number = server.client(validate=False).get("/campaigns?limit=1").expect(200)[0]["id"]
                beside(server, people, options, number)
    if not options.only_rounds:
        slowly(options)


if __name__ == "__main__":
    main()

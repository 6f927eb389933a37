"""Measures sending: `.venv/bin/python tests/bench_sending.py [--contacts 10000]`; not a test, run by hand."""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.kit.client import Client  # noqa: E402  (found only after the line above)
from tests.kit.server import Server  # noqa: E402  (found only after the line above)
from tests.kit.smtp_sink import read_spool  # noqa: E402  (found only after the line above)

PLAIN = (
    "<p style='margin:0 0 16px'>Our bread of the week is made of old grains: rye, spelt, emmer and a little honey. "
    "We bake at four, we open at eight, and on Saturdays we keep a loaf for you until noon.</p>\n"
)
PERSONAL = (
    "<p style='margin:0 0 16px'>Dear {{ contact.first_name | default: 'friend' }}, this one is for you: "
    '<a href="https://bakery.example/bread/%d">read how we bake it</a>.</p>\n'
)
UNLIMITED = {"CAMPANERO_LIMITS__REQUESTS_PER_MINUTE": "0", "CAMPANERO_LIMITS__SENDS_PER_MINUTE": "0"}


def html(size: int) -> str:
    """Return a page of about this size, with a merge tag and a link in every eighth paragraph."""
    page = "<html><body><h1>Hello {{ contact.first_name }}</h1><p id='who'>[{{ contact.email }}]</p>"
    number = 0
    while len(page) < size:
        page += PLAIN if number % 8 else PERSONAL % number
        number += 1
    return page + "</body></html>"


def email_of(number: int) -> str:
    """Return the address of a contact."""
    return f"person{number}@example.org"


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used, its threads included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mb(pid: int) -> float:
    """Return the most memory that a process has had resident."""
    return int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) / 1024


def fill(api: Client, count: int) -> int:
    """Create the contacts in one list and return its id."""
    people = api.post("/lists", {"name": "Everybody"}).expect(201)["id"]

    def create(number: int) -> None:
        person = {"email": email_of(number), "first_name": f"Name{number}", "list_ids": [people]}
        api.post("/contacts", person).expect(201)

    begin = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(create, range(count)))
    print(f"{count} contacts created over HTTP: {count / (time.monotonic() - begin):.0f}/s")
    return int(people)


def send(server: Server, people: int, size: int, count: int) -> None:
    """Send the campaign, wait until it is completed, and print what it cost."""
    api = server.client(validate=False)
    campaign = api.post("/campaigns", {"name": "Measured"}).expect(201)
    content = {"subject": "News for {{ contact.first_name }}", "body": html(size)}
    order = {"trigger_attributes": {"contact_list_id": people}, "template_attributes": content}
    before, begin = cpu_seconds(server.pid), time.monotonic()
    api.post(f"/campaigns/{campaign['id']}/send", order).expect(200)
    answered = time.monotonic() - begin
    while api.get(f"/campaigns/{campaign['id']}").expect(200)["status"] != "completed":
        time.sleep(0.1)
    took, cpu = time.monotonic() - begin, cpu_seconds(server.pid) - before
    print(f"send answered after {answered:.2f} s; completed after {took:.1f} s: {count / took:.0f} messages/s")
    print(f"processor: {cpu * 1000 / count:.2f} s per 1,000 messages; memory at most {peak_mb(server.pid):.0f} MB")


def verify(spool: Path, count: int) -> None:
    """Raise unless everybody got exactly one message, made for that person."""
    got: Counter[str] = Counter()
    sizes = 0
    for message in read_spool(spool):
        got[message.to] += 1
        sizes += len(message.raw)
        number = int(re.search(r"\d+", message.to)[0])
        page = message.html() or ""
        if message.subject != f"News for Name{number}" or f"[{message.to}]" not in page or "{{" in page:
            raise AssertionError(f"not personal: {message.to} {message.subject!r}")
    wrong = {who: times for who, times in got.items() if times != 1}
    missing = {email_of(number) for number in range(count)} - set(got)
    if wrong or missing:
        raise AssertionError(f"{len(missing)} missing, as {sorted(missing)[:5]}; {len(wrong)} repeated, as {wrong}")
    print(f"each of {count} got exactly one personal message, of {sizes / count / 1024:.1f} KB on the wire")


def main() -> None:
    """Run one measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--contacts", type=int, default=10_000)
    parser.add_argument("--size", type=int, default=20_000, help="bytes of the HTML")
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--delay", type=float, default=0, help="seconds before the relay answers a message")
    parser.add_argument("--executable", type=Path, help="measure a built file instead of the sources")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        spool = Path(directory, "spool")
        command = [sys.executable, "-m", "tests.kit.smtp_sink", "--spool", str(spool), "--delay", str(options.delay)]
        sink = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        try:
            port = int(sink.stdout.readline())
            env = UNLIMITED | {"CAMPANERO_EMAIL__CONNECTIONS": str(options.connections)}
            with Server(relay=port, env=env, executable=options.executable).set_up() as server:
                server.give_address()
                people = fill(server.client(validate=False, keep_alive=True), options.contacts)
                send(server, people, options.size, options.contacts)
                server.stop()
        finally:
            sink.terminate()
            sink.wait(60)
        verify(spool, options.contacts)


if __name__ == "__main__":
    main()

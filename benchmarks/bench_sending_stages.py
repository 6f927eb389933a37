"""Measures rendering and the SMTP path of a message alone: `python -m benchmarks.bench_sending_stages`; run by hand.

Both run on one thread in this process, in slices of a few milliseconds whose processor time is taken. The tenth of the
slices is hardly affected by what else the machine does, so two versions can be compared on a busy machine, in turns.
The SMTP path gets its replies and commits from memory: what the kernel and the writer take is left out.
"""

import argparse
import asyncio
import gc
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import uvloop

from appliance.content import brand
from appliance.content.brand import BrandWrite
from appliance.sending.delivery import smtp_connect
from appliance.sending.delivery.smtp_client import Reply, Server, SmtpClient
from appliance.sending.messages import queue
from appliance.sending.messages.ledger import LedgerRow
from appliance.sending.messages.queue_reader import QueueReader
from appliance.sending.workers.email_sender import EmailSender, EmailWorker
from appliance.sending.workers.renderer import RenderedMessage, Renderer
from appliance.storage import transactions
from appliance.storage.database import run
from benchmarks.bench_sending import FIRST, html
from tests.domain.home import Home

_MESSAGES, _REFILL = 480, 80


def queue_messages(directory: Path) -> tuple[Home, list[LedgerRow]]:
    """Send a campaign of `bench_sending` in a new installation, and return it with its queued messages."""
    home = Home(
        directory, base_url="https://mail.example.org", email__transport="relay", email__relay__host="127.0.0.1",
        email__relay__tls="none", email__allow_unverified_domains="true", email__connections="10",
        email__messages_per_connection="100000",
    )  # fmt: skip
    transactions.write(brand.update, home.account_id, BrandWrite(physical_address="1 Mill Lane, Bath"))
    contacts = [
        home.contact(
            f"person{number}@example.org", first_name=f"{FIRST[number % 8]}{number}", last_name=f"Adler{number}",
            data={"city": f"Bath{number % 50}", "plan": "pro"},
        )
        for number in range(_MESSAGES)
    ]  # fmt: skip
    people = home.list_of(*(contact.id for contact in contacts))
    home.send(home.campaign(people.id, subject="News for {{ contact.first_name }}", body=html(9_000)))
    transactions.write(run, "UPDATE message SET provider = 'relay'")
    candidates = QueueReader().fetch_candidates(_MESSAGES)
    return home, [row._replace(first_attempt_at=1_780_000_000_000) for row in candidates]


def measure(name: str, seconds: list[float], messages: int) -> None:
    """Print the processor time of a message in microseconds, from the slices of so many messages."""
    slices = sorted(duration / messages * 1e6 for duration in seconds)
    tenth, median = slices[len(slices) // 10], slices[len(slices) // 2]
    print(f"{name:<10} least {slices[0]:5.1f}  tenth {tenth:5.1f}  median {median:5.1f} us a message")


def render(ledger_rows: list[LedgerRow], rounds: int) -> list[RenderedMessage]:
    """Render all messages repeatedly, as refills of the queue do, and return them."""
    renderer, seconds = Renderer(), list[float]()
    rendered: list[RenderedMessage] = []
    for _ in range(rounds + 1):
        rendered.clear()
        for start in range(0, _MESSAGES, _REFILL):
            begin = time.thread_time()
            turns = [turn.result() for turn in renderer.render_turns(ledger_rows[start : start + _REFILL], 60.0)]
            seconds.append(time.thread_time() - begin)
            rendered += [message for turn in turns for message in turn]
    renderer.close()
    measure("rendering", seconds[_MESSAGES // _REFILL :], _REFILL)
    return rendered


class _Memory:
    """A transport whose server accepts each message and command at once."""

    def __init__(self, client: SmtpClient) -> None:
        self._client, self._loop, self._replies = client, asyncio.get_running_loop(), b""
        self.set_write_buffer_limits: Callable[..., None] = lambda high: None
        self.abort: Callable[[], None] = lambda: None

    def write(self, data: bytes) -> None:
        """Reply to the message and to the commands in `data` in the next iteration of the loop."""
        if not self._replies:
            self._loop.call_soon(self._answer)
        if len(data) > 1_000:
            self._replies += b"250 2.0.0 Ok\r\n"
        if data.endswith(b"DATA\r\n"):
            self._replies += b"250 2.1.0 Ok\r\n250 2.1.5 Ok\r\n354 End data with <CR><LF>.<CR><LF>\r\n"

    def _answer(self) -> None:
        replies, self._replies = self._replies, b""
        self._client.data_received(replies)


async def _connect(_provider: str) -> SmtpClient:
    client = SmtpClient(Server("127.0.0.1", 25, "none", max_messages=10**9))
    client.extensions = {"PIPELINING": "", "8BITMIME": "", "SIZE": "50000000"}
    client._banner = Reply(220, "ready")
    client.connection_made(_Memory(client))  # type: ignore[arg-type]  # it has what the client uses
    return client


def _claim_at_once(_function: Any, *arguments: Any, is_essential: bool = False) -> "Future[set[int] | None]":
    """Return a finished write, in place of `transactions.submit_record`; all candidates are claimed."""
    done: Future[set[int] | None] = Future()
    done.set_result({row.id for row in arguments[1]} if arguments else None)
    return done


async def send(rendered: list[RenderedMessage], rounds: int) -> None:
    """Send all messages repeatedly by ten workers."""
    sender, seconds = EmailSender("bench"), list[float]()
    context = sender._create_context()
    assert sender._mx_connections is not None
    context.ready_queue.is_exhausted = True
    for _ in range(rounds):
        now = time.monotonic()
        context.ready_queue._rendered.extend(message._replace(rendered_at=now) for message in rendered)
        workers = [EmailWorker(context, sender._mx_connections, sender._idle_connections) for _ in range(10)]
        gc.collect()
        begin = time.thread_time()
        await asyncio.gather(*(worker.run() for worker in workers))
        seconds.append(time.thread_time() - begin)
        for worker in workers:
            worker.abort()
    await context.ready_queue.close()
    measure("SMTP", seconds, len(rendered))


def main() -> None:
    """Run both measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        home, ledger_rows = queue_messages(Path(directory))
        gc.collect()
        gc.freeze()
        rendered = render(ledger_rows, options.rounds)
        transactions.start(before_write=queue.settle_log)
        smtp_connect.connect_to_provider = _connect
        transactions.submit_record = _claim_at_once  # type: ignore[assignment]  it stands for one function only
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(send(rendered, options.rounds))
        home.close()


if __name__ == "__main__":
    main()

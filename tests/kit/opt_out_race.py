"""Readers who opt out right before their turn in a running send, each reader in a process of its own.

The processes keep the times of acknowledgements exact: beside the SMTP server of the test, in one process, a response
would wait for its turn. For example::

    with running_readers(smtp, api, ids, forms) as race:
        race.follow(api, send_campaign(api, list_id), 1000)
    race.opt_outs[0].acknowledged_at
"""

import multiprocessing
import random
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.kit.client import Client
from tests.kit.recipients import recipient_address, wait_until_completed
from tests.kit.smtp import SmtpServer

READERS = 8
# How far ahead of the last stored message a contact is opted out: with four connections, four messages are in their
# bodies and four more are claimed, so a third of the tries are for messages that have left the queue already
MAX_LEAD = 24
# The ways out, by the reason that the ledger gives for the message: one click, leaving the campaign's list on the
# preference page, a suppression, deleting the contact
REASONS = ("unsubscribed", "unsubscribed", "suppressed_manual", "contact_deleted")
ONE_CLICK, LEAVE_LIST, SUPPRESS, DELETE = range(len(REASONS))
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}
# The front of a send while none runs: no contact has a number close to it
_NOWHERE = -1_000_000


class OptOut(NamedTuple):
    """An acknowledged opt-out: the number of the contact, the way out (index of `REASONS`), and what it took."""

    number: int
    way: int
    acknowledged_at: float
    seconds: float


class Form(NamedTuple):
    """A form that a contact submits to opt out."""

    path: str
    body: bytes


class _Share(NamedTuple):
    """The contacts of one reader, by number: ids, and forms."""

    offset: int
    ids: dict[int, int]
    forms: dict[int, Form]


class _Shared(NamedTuple):
    """What readers and test share."""

    front: Any
    is_over: Any
    results: Any
    start: Any


def choose_way(number: int) -> int:
    """Return by which way a contact opts out, as an index of `REASONS`."""
    return number // READERS % len(REASONS)


def _run_reader(url: str, key: str | None, share: _Share, shared: _Shared) -> None:
    """Opt out the contacts of a share as the front of the send comes close to them, until the race is over."""
    api, rng, untried = Client(url, key, validate=False, keep_alive=True), random.Random(share.offset), set(share.ids)
    shared.start.wait()
    while not shared.is_over.is_set():
        number = shared.front.value + 1 + rng.randrange(MAX_LEAD)
        number -= (number - share.offset) % READERS
        if number not in untried:
            time.sleep(0.001)
            continue
        untried.discard(number)
        started, way = time.time(), choose_way(number)
        _opt_out(api, share, number, way)
        acknowledged_at = time.time()
        shared.results.put(OptOut(number, way, acknowledged_at, acknowledged_at - started))


def _opt_out(api: Client, share: _Share, number: int, way: int) -> None:
    """Opt out a contact. Raises AssertionError if that is not acknowledged."""
    if way in (ONE_CLICK, LEAVE_LIST):
        response = api.request("POST", *share.forms[number], _FORM)
        assert response.status == 200, response.text
    elif way == SUPPRESS:
        api.post("/suppressions", {"address": recipient_address(number)}).expect(201)
    else:
        api.delete(f"/contacts/{share.ids[number]}").expect(200)


@dataclass
class Race:
    """The readers of a race, and the opt-outs that were acknowledged so far."""

    sink: SmtpServer
    shared: _Shared
    processes: list[Any]
    opt_outs: list[OptOut] = field(default_factory=list)

    def follow(self, api: Client, path: str, tries: int) -> None:
        """Opt contacts out while a campaign is sent, about `tries` of them; return once the campaign is completed."""
        already_stored, completed = len(self.sink.messages), list[Any]()
        waiting = threading.Thread(target=lambda: completed.append(wait_until_completed(api, path, timeout=600)))
        waiting.start()
        while waiting.is_alive():
            is_running = len(self.sink.messages) > already_stored and len(self.opt_outs) < tries
            self.shared.front.value = _number_of(self.sink.messages[-1].to) if is_running else _NOWHERE
            self.collect()
            time.sleep(0.002)
        self.shared.front.value = _NOWHERE
        assert completed, f"{path} was not completed"

    def collect(self) -> None:
        """Take the opt-outs that were acknowledged since."""
        while not self.shared.results.empty():
            self.opt_outs.append(self.shared.results.get())


def _number_of(recipient: str) -> int:
    return int(re.sub(r"\D", "", recipient))


@contextmanager
def running_readers(sink: SmtpServer, api: Client, ids: Mapping[str, int], forms: Mapping[str, Form]) -> Iterator[Race]:
    """Start the readers and yield the race, for contacts with these ids and forms, by address.

    `forms` needs only those who opt out by a form (`choose_way`). Raises AssertionError if an opt-out of a reader is
    not acknowledged.
    """
    context = multiprocessing.get_context("spawn")
    shared = _Shared(context.Value("q", _NOWHERE), context.Event(), context.Queue(), context.Barrier(READERS + 1))
    processes = []
    for offset in range(READERS):
        numbers = {number: address for address in ids if (number := _number_of(address)) % READERS == offset}
        share = _Share(offset, {number: ids[address] for number, address in numbers.items()},
                       {number: forms[address] for number, address in numbers.items() if address in forms})  # fmt: skip
        processes.append(context.Process(target=_run_reader, args=(api.url, api.key, share, shared)))
        processes[-1].start()
    race = Race(sink, shared, processes)
    try:
        shared.start.wait(120)
        yield race
        shared.is_over.set()
        deadline = time.monotonic() + 60
        while any(process.is_alive() for process in processes) and time.monotonic() < deadline:
            race.collect()  # a process ends only once its results are taken
            time.sleep(0.01)
        race.collect()
        assert [process.exitcode for process in processes] == [0] * READERS
    finally:
        for process in processes:
            process.kill()
            process.join()

"""Two machines that both believe to be the one that sends, in a network whose links to the store are cut."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.kit.network_namespaces import PLACE, STORE, Machine, Namespace, NotPermitted, namespaces
from tests.kit.recipients import create_list, send_campaign
from tests.kit.s3_server import S3Server
from tests.kit.server import relay_settings
from tests.kit.smtp import SmtpServer

SECONDS = 6
# A body that was on its way when the lease ended is still accepted.
IN_FLIGHT_SECONDS = 1.0

pytestmark = pytest.mark.full


class Pair:
    """Two machines on copies of the same data, in the middle of the same send, each with an SMTP server of its own."""

    def __init__(self, spaces: list[Namespace], sinks: list[SmtpServer], s3: S3Server) -> None:
        lease = {"CAMPANERO_LEASE__SECONDS": str(SECONDS), "CAMPANERO_LEASE__STORE": s3.store_url}
        lease |= {name: value for name, value in s3.env.items() if "__S3__" in name}
        self.machines = [
            Machine(space, relay_settings(sink.port) | {"CAMPANERO_EMAIL__RELAY__HOST": PLACE} | lease)
            for space, sink in zip(spaces, sinks, strict=True)
        ]
        self.spaces, self.sinks = spaces, sinks

    def start(self) -> None:
        """Begin a slow send on the first machine, copy its data, and start both."""
        first, second = self.machines
        first.set_up().start()
        first.set_postal_address()
        for sink in self.sinks:
            sink.rules.delay("body", 0.05)
        api = first.client(validate=False)
        send_campaign(api, create_list(api, 8_000))
        self.sinks[0].wait_for(20)
        first.stop()
        shutil.copytree(first.data, second.data, ignore=shutil.ignore_patterns("node.json", "serve.lock"))
        second.key = first.key
        first.start()
        second.start()
        self.sinks[0].wait_for(100)

    def count(self) -> list[int]:
        """Return how many messages each machine has sent."""
        return [len(sink.messages) for sink in self.sinks]

    def find_last_and_next(self, former: int, since: list[int]) -> tuple[float, float]:
        """Return when the machine `former` sent its last message, and the other its first after `since`."""
        other = 1 - former
        return self.sinks[former].messages[-1].time, self.sinks[other].messages[since[other]].time


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Yield two machines that are not started."""
    with ExitStack() as stack:
        try:
            spaces = stack.enter_context(namespaces(2))
        except (NotPermitted, FileNotFoundError) as error:
            pytest.skip(f"network namespaces are not permitted here: {error}")
        sinks = [stack.enter_context(SmtpServer(host=PLACE)) for _ in spaces]
        machines = Pair(spaces, sinks, stack.enter_context(S3Server(STORE)))
        for machine in machines.machines:
            stack.callback(machine.close)
        yield machines


def wait_until(is_true: Callable[[], bool], timeout: float) -> None:
    """Wait for a condition."""
    end = time.monotonic() + timeout
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.05)


def promote(machine: Machine) -> None:
    """Take the lease for a machine, as an operator does while the other one may still send, and start its service."""
    machine.stop()
    machine.cli("promote", "--lease-only", timeout=120)
    machine.start()


def expect_handover(pair: Pair, former: int, cut: Callable[[], None]) -> None:
    """Cut a link of the machine that sends, promote the other one, and heal the link; each stops before the other."""
    other = 1 - former
    before, cut_at = pair.count(), time.time()
    cut()
    promote(pair.machines[other])
    wait_until(lambda: pair.count()[other] > before[other] + 20, 60)
    last, following = pair.find_last_and_next(former, before)
    assert last <= cut_at + SECONDS + IN_FLIGHT_SECONDS and last <= following
    before = pair.count()
    pair.spaces[former].heal()
    pair.machines[former].wait_for_line("lease: sending stopped: another machine", timeout=180)
    time.sleep(SECONDS)
    assert pair.count()[former] == before[former] and pair.count()[other] > before[other]


def test_never_two_senders_in_a_partition(pair: Pair) -> None:
    """Whatever link is cut, one machine has stopped before the other sends, and none comes back by itself."""
    pair.start()
    assert pair.count()[1] == 0, "the second machine sent without the lease"
    expect_handover(pair, 0, pair.spaces[0].cut_store)
    expect_handover(pair, 1, pair.spaces[1].cut_answers)

"""Servers and zones that mean no good, or do not work: they cost their own recipients time, and nobody else."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import apsw
import pytest

from tests.direct.conftest import Starts, ended, post, send_to
from tests.kit.client import Client
from tests.kit.world import World


@contextmanager
def silent(address: str, port: int) -> Iterator[list[socket.socket]]:
    """Take connections and never say a word."""
    taken: list[socket.socket] = []
    with socket.create_server((address, port), backlog=200) as listener:

        def take() -> None:
            while True:
                try:
                    taken.append(listener.accept()[0])
                except OSError:
                    return

        threading.Thread(target=take, daemon=True).start()
        yield taken
        listener.shutdown(socket.SHUT_RDWR)


def test_servers_that_say_nothing_hold_up_nobody(direct: Starts, world: World) -> None:
    """More of them than there may be transactions: the mail of others does not wait for them, and nothing ends late."""
    addresses = [world.host(f"mx.mute{n}.example") for n in range(12)]
    for n in range(12):
        world.mx(f"mute{n}.example", f"mx.mute{n}.example")
    well = world.mail("mx.well.example", "well.example")
    server = direct(connections="2", command_timeout="60s")
    api = server.client()
    held = [silent(address, world.port) for address in addresses]
    for one in held:
        one.__enter__()
    try:
        send_to(api, *[f"p@mute{n}.example" for n in range(12)])
        api.wait("/delivery/status", lambda row: row["queue"]["waiting"] == 12)
        path = send_to(api, *[f"p{n}@well.example" for n in range(30)])
        well.wait_for(30, timeout=50)
        ended(api, post(api, "bo@well.example"), "sent")
        assert len(held) == 12, "those that say nothing hold their transactions still"
        assert api.wait(path, lambda row: row["stats"]["sent"] == 30)
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 50, "who waits for a server to speak does not hold up the end"
    finally:
        for one in held:
            one.__exit__(None, None, None)


@pytest.mark.parametrize(
    "records",
    [
        ["10 localhost."], ["10 127.0.0.1."], ["0 .", "10 nowhere.hostile.example."],
        [f"{n} mx{n}.nowhere.example." for n in range(60)], ["10 hostile-loop.example."],
        [f"10 {'x' * 63}.{'y' * 63}.example."], ["10 _under.score.example."],
    ],
    ids=["localhost", "address", "null-and-more", "many", "loop", "long", "underscore"],
)  # fmt: skip
def test_zones_that_lead_nowhere(
    records: list[str], api: Client, shared_world: World, request: pytest.FixtureRequest
) -> None:
    """Whatever a zone says of mail servers that are none, the message is put off or refused, soon and in words."""
    domain = f"{request.node.callspec.id}.zone.example"
    shared_world.dns.set("hostile-loop.example", "CNAME", "hostile-loop.example.")
    shared_world.dns.set("_under.score.example", "A", "10.0.0.1")
    shared_world.dns.set(domain, "MX", *records)
    row = api.wait(post(api, f"bo@{domain}"), lambda row: row["attempts"] >= 1, timeout=60)

    assert row["status"] in ("queued", "failed") and len(row["error"]["text"]) > 10


def test_what_is_kept_of_a_domain_may_be_damaged(direct: Starts, world: World) -> None:
    """Its mail is put off with words, attempt by attempt, and the mail of others does not notice."""
    world.mail("mx.harmed.example", "harmed.example")
    well = world.mail("mx.well.example", "well.example")
    server = direct(connections="2")
    api = server.client()
    here = apsw.Connection(str(server.data / "campanero.db"))
    here.set_busy_timeout(10_000)
    here.execute("INSERT INTO mail_policy VALUES ('harmed.example', '1', 'enforce', '[', 1, 9999999999999)")
    here.close()
    path = post(api, "bo@harmed.example")
    row = api.wait(path, lambda row: row["attempts"] >= 1)
    send_to(api, *[f"p{n}@well.example" for n in range(20)])
    well.wait_for(20)

    assert row["status"] == "queued" and row["error"]["code"] == "temporary"
    server.stop()


def test_replies_without_end_are_cut(api: Client, shared_world: World) -> None:
    """A greeting of megabytes is no greeting: the next server gets the mail."""
    loud = shared_world.server("loud.example")
    loud.rules.say("connect", b"220-" + b"x" * 100_000)
    shared_world.server("quiet.example")
    shared_world.mx("noise.example", "loud.example", "quiet.example")
    ended(api, post(api, "bo@noise.example"), "sent")

    assert len(shared_world.servers["quiet.example"].messages) == 1

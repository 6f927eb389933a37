"""Hostile or broken mail servers and DNS zones delay only their own recipients."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import apsw
import pytest

from tests.direct.conftest import StartDirect, post, send_to, wait_for_status
from tests.kit.client import Client
from tests.kit.mail_network import MailNetwork
from tests.kit.sampling import sampled


@contextmanager
def silent_listener(address: str, port: int) -> Iterator[list[socket.socket]]:
    """Accept connections and never send anything."""
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


def test_silent_servers_do_not_delay_others(direct: StartDirect, world: MailNetwork) -> None:
    """More silent servers than connections delay neither the mail to other servers nor the stop of the service."""
    addresses = [world.host(f"mx.mute{n}.example") for n in range(12)]
    for n in range(12):
        world.mx(f"mute{n}.example", f"mx.mute{n}.example")
    working = world.mail("mx.well.example", "well.example")
    server = direct(connections="2", command_timeout="60s")
    api = server.client()
    listeners = [silent_listener(address, world.port) for address in addresses]
    for listener in listeners:
        listener.__enter__()
    try:
        send_to(api, *[f"p@mute{n}.example" for n in range(12)])
        api.wait("/delivery/status", lambda row: row["queue"]["waiting"] == 12)
        path = send_to(api, *[f"p{n}@well.example" for n in range(30)])
        working.wait_for(30, timeout=50)
        wait_for_status(api, post(api, "bo@well.example"), "sent")
        assert len(listeners) == 12, "the silent servers still hold their connections"
        assert api.wait(path, lambda row: row["stats"]["sent"] == 30)
        started = time.monotonic()
        server.stop()
        assert time.monotonic() - started < 50, "a silent server delays the stop"
    finally:
        for listener in listeners:
            listener.__exit__(None, None, None)


@pytest.mark.parametrize("phase", sampled(["mail", "body"], ["mail"]))
def test_slow_transactions_do_not_hold_all_places(direct: StartDirect, world: MailNetwork, phase: str) -> None:
    """Servers that greet at once and then let every transaction time out hold at most half of the transactions.

    A server that waits before it takes the message is given up sooner if others wait; after the message was sent, its
    outcome is waited for, so the first messages to such servers may take the whole timeout.
    """
    for n in range(3):
        world.mail(f"mx.tarpit{n}.example", f"tarpit{n}.example").rules.delay(phase, 300)
    working = world.mail("mx.well.example", "well.example")
    server = direct(connections="4", command_timeout="10s", reply_timeout="10s", retry_after="300")
    api = server.client()
    send_to(api, *[f"p{n}@tarpit{n % 3}.example" for n in range(60)])
    time.sleep(2)
    path = send_to(api, *[f"p{n}@well.example" for n in range(30)])
    # Without a limit, it takes at least seven timeouts: each time, two places or three become free for others
    working.wait_for(30, timeout=30)
    assert api.wait(path, lambda row: row["stats"]["sent"] == 30)
    server.kill()


def test_a_slow_server_gets_mail_over_the_only_connection(direct: StartDirect, world: MailNetwork) -> None:
    """With one connection, a server that takes long to accept a sender is not given up each time."""
    slow = world.mail("mx.slow.example", "slow.example")
    slow.rules.delay("mail", 3)
    # A transaction is slow after a tenth of this, so after two seconds
    api = direct(connections="1", command_timeout="20s", retry_after="300").client()
    row = api.wait(post(api, "bo@slow.example"), lambda row: row["attempts"] >= 1)
    assert row["status"] == "sent"


@pytest.mark.parametrize(
    "records",
    [
        ["10 localhost."], ["10 127.0.0.1."], ["0 .", "10 nowhere.hostile.example."],
        [f"{n} mx{n}.nowhere.example." for n in range(60)], ["10 hostile-loop.example."],
        [f"10 {'x' * 63}.{'y' * 63}.example."], ["10 _under.score.example."],
    ],
    ids=["localhost", "address", "null-and-more", "many", "loop", "long", "underscore"],
)  # fmt: skip
def test_broken_mx_records(
    records: list[str], api: Client, shared_world: MailNetwork, request: pytest.FixtureRequest
) -> None:
    """With unusable MX records a message is soon deferred or fails, with a reason."""
    domain = f"{request.node.callspec.id}.zone.example"
    shared_world.dns.set("hostile-loop.example", "CNAME", "hostile-loop.example.")
    shared_world.dns.set("_under.score.example", "A", "10.0.0.1")
    shared_world.dns.set(domain, "MX", *records)
    row = api.wait(post(api, f"bo@{domain}"), lambda row: row["attempts"] >= 1, timeout=60)

    assert row["status"] in ("queued", "failed") and len(row["error"]["text"]) > 10


def test_a_damaged_policy_defers_only_its_domain(direct: StartDirect, world: MailNetwork) -> None:
    """A damaged row of a cached policy defers the mail of its domain; other mail is sent."""
    world.mail("mx.harmed.example", "harmed.example")
    working = world.mail("mx.well.example", "well.example")
    server = direct(connections="2")
    api = server.client()
    connection = apsw.Connection(str(server.data / "campanero.db"))
    connection.set_busy_timeout(10_000)
    connection.execute("INSERT INTO mail_policy VALUES ('harmed.example', '1', 'enforce', '[', 1, 9999999999999)")
    connection.close()
    path = post(api, "bo@harmed.example")
    row = api.wait(path, lambda row: row["attempts"] >= 1)
    send_to(api, *[f"p{n}@well.example" for n in range(20)])
    working.wait_for(20)

    assert row["status"] == "queued" and row["error"]["code"] == "temporary"
    server.stop()


def test_an_endless_greeting_is_cut_off(api: Client, shared_world: MailNetwork) -> None:
    """After a greeting that is too long, the next server of the domain gets the mail."""
    loud = shared_world.server("loud.example")
    loud.rules.reply_raw("connect", b"220-" + b"x" * 100_000)
    shared_world.server("quiet.example")
    shared_world.mx("noise.example", "loud.example", "quiet.example")
    wait_for_status(api, post(api, "bo@noise.example"), "sent")

    assert len(shared_world.servers["quiet.example"].messages) == 1

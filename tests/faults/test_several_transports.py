"""Several transports at once: rules, shares, and fall-over without losing or doubling a message (P2, P3)."""

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.conftest import FreshServer
from tests.kit.client import Client
from tests.kit.email_apis import FakeEmailApi, fails_with
from tests.kit.recipients import NO_RATE_LIMITS, create_list, send_campaign, wait_until_completed
from tests.kit.reconciliation import check_sum_of_stats, reconcile
from tests.kit.server import Server, relay_settings
from tests.kit.smtp import SmtpServer
from tests.kit.timeouts import cpu_seconds

FINAL = ("sent", "failed", "uncertain", "skipped", "cancelled")
CONNECTIONS = 2


class World(NamedTuple):
    """A service with two relays, which are the default transport and `backup`."""

    server: Server
    main: SmtpServer
    backup: SmtpServer

    @property
    def api(self) -> Client:
        """A client of the service."""
        return self.server.client(validate=False)

    @property
    def messages(self) -> list[Any]:
        """What both relays accepted."""
        return [*self.main.messages, *self.backup.messages]


def named(key: str, smtp: SmtpServer, **values: Any) -> dict[str, Any]:
    """Return the declaration of a further relay."""
    options = {"host": "127.0.0.1", "port": smtp.port, "tls": "none"}
    return {"key": key, "name": key.title(), "kind": "relay", "options": options, "connections": CONNECTIONS, **values}


def several(transports: list[dict[str, Any]], routes: list[dict[str, Any]], **more: str) -> dict[str, str]:
    """Return the environment with transports and rules beside a default transport."""
    values = {"TRANSPORTS": json.dumps(transports), "ROUTES": json.dumps(routes), "PROBE_AFTER": "1s",
              "CONNECTIONS": str(CONNECTIONS), "SLOW_DOWN": "1s"} | more  # fmt: skip
    return {f"CAMPANERO_EMAIL__{name}": value for name, value in values.items()}


class Start:
    """Starts services whose default relay and `backup` are two SMTP servers."""

    def __init__(self, fresh_server: FreshServer, main: SmtpServer, backup: SmtpServer) -> None:
        self._fresh_server, self._main, self._backup = fresh_server, main, backup

    def __call__(self, *routes: dict[str, Any], values: dict[str, Any] | None = None, **more: str) -> World:
        """Start a service with these rules; `values` are those of the backup, `more` are settings of email."""
        backup = named("backup", self._backup, **(values or {}))
        env = relay_settings(self._main.port) | several([backup], list(routes), **more) | NO_RATE_LIMITS
        server = self._fresh_server(env=env)
        server.set_postal_address()
        return World(server, self._main, self._backup)


@pytest.fixture
def start(fresh_server: FreshServer) -> Iterator[Start]:
    """Two relays, and services that use both."""
    with SmtpServer() as main, SmtpServer() as backup:
        yield Start(fresh_server, main, backup)


def send_single(world: World, to: str, **values: Any) -> Any:
    """Send a single email, and return its row once it is final."""
    body = {"to": to, "from_email": "ana@bakery.example", "subject": "Bread", "body": "<p>Fresh</p>"} | values
    number = world.api.post("/messages", body).expect(201)["id"]
    return world.api.wait(f"/messages/{number}", lambda row: row["status"] in FINAL, 30)


def count_by_provider(api: Client, path: str) -> Counter[str]:
    """Return how many messages of a campaign the ledger says each transport took."""
    number = path.rpartition("/")[2]
    return Counter(row["provider"] for row in api.all("/messages", campaign_id=number, status="sent"))


def test_shares_and_classes_are_kept(start: Start) -> None:
    """A campaign is divided between two relays, receipts go to one; the ledger says which one took each message."""
    world = start({"shares": {"backup": 1}, "traffic": "transactional"}, {"shares": {"default": 70, "backup": 30}})
    receipt = send_single(world, "ana@crowd.example", transactional=True)
    path = send_campaign(world.api, create_list(world.api, 300))
    wait_until_completed(world.api, path)
    books = reconcile(world.api, path, [m for m in world.messages if m.rcpt_to[0] != "ana@crowd.example"])
    counts = count_by_provider(world.api, path)

    assert receipt["provider"] == "backup" and world.backup.messages[0].rcpt_to == ["ana@crowd.example"]
    assert (books.accepted, books.copies, books.missing) == (300, 0, 0)
    assert counts == {"relay": len(world.main.messages), "backup": len(world.backup.messages) - 1}
    assert 50 <= counts["backup"] <= 130
    assert world.main.open_peak <= CONNECTIONS and world.backup.open_peak <= CONNECTIONS


def test_another_transport_takes_over_while_one_is_shut(start: Start) -> None:
    """While the preferred relay refuses connections the other sends, without attempts; then the first one returns."""
    world = start({"shares": {"default": 1, "backup": 0}})
    assert send_single(world, "first@crowd.example")["provider"] == "relay"
    world.main.stop()
    rows = [send_single(world, f"p{number}@crowd.example") for number in range(3)]
    path = send_campaign(world.api, create_list(world.api, 200))
    wait_until_completed(world.api, path)
    assert [(row["provider"], row["attempts"]) for row in rows] == [("backup", 1)] * 3
    assert count_by_provider(world.api, path) == {"backup": 200}
    world.main.start()
    deadline = time.monotonic() + 20
    number = 0
    while send_single(world, f"back{(number := number + 1)}@crowd.example")["provider"] != "relay":
        assert time.monotonic() < deadline, "the relay is not used again"
        time.sleep(0.2)
    assert len(world.messages) == 1 + 3 + 200 + number


def test_a_throttled_transport_is_relieved(start: Start) -> None:
    """After a 421 for a recipient group the other relay takes the group, and the first keeps the other groups."""
    world = start({"shares": {"default": 1, "backup": 0}}, SLOW_DOWN="60s")
    world.main.rules.reject("rcpt", "*@gmail.com", code=421, text="4.7.28 too many messages")
    rows = [send_single(world, f"p{number}@gmail.com") for number in range(3)]
    assert [(row["provider"], row["attempts"]) for row in rows] == [("backup", 1)] * 3
    assert send_single(world, "p@crowd.example")["provider"] == "relay"
    assert len(world.backup.messages) == 3


def test_a_message_in_doubt_does_not_fall_over(start: Start) -> None:
    """A message whose answer was lost waits for its own transport, although another one is open."""
    world = start({"shares": {"default": 1, "backup": 0}})
    world.main.rules.store_then_close("doubt@*", times=1)
    body = {"to": "doubt@crowd.example", "from_email": "ana@bakery.example", "subject": "Bread", "body": "<p>x</p>"}
    number = world.api.post("/messages", body).expect(201)["id"]
    row = world.api.wait(f"/messages/{number}", lambda row: row["status"] in FINAL, 30)
    assert (row["status"], row["provider"], row["attempts"]) == ("sent", "relay", 2)
    assert len(world.main.messages) == 2 and not world.backup.messages
    world.main.rules.store_then_close("lost@*", times=1)
    number = world.api.post("/messages", body | {"to": "lost@crowd.example"}).expect(201)["id"]
    world.main.wait_for(3)
    world.main.stop()
    assert send_single(world, "other@crowd.example")["provider"] == "backup"
    time.sleep(3)
    row = world.api.get(f"/messages/{number}").expect(200)
    assert row["provider"] == "relay" and "lost@crowd.example" not in {m.rcpt_to[0] for m in world.backup.messages}
    world.main.start()
    row = world.api.wait(f"/messages/{number}", lambda row: row["status"] in FINAL, 30)
    assert (row["status"], row["provider"]) == ("sent", "relay")


def test_fall_over_from_an_http_api(fresh_server: FreshServer) -> None:
    """A 429, a rejected key and a closed port of an API let a relay take over; nothing is sent twice."""
    with FakeEmailApi("postmark") as provider, SmtpServer() as backup:
        env = (
            provider.env
            | several([named("backup", backup)], [{"shares": {"default": 1, "backup": 0}}])
            | NO_RATE_LIMITS
        )
        server = fresh_server(env=env)
        server.set_postal_address()
        world = World(server, backup, backup)
        assert send_single(world, "api@crowd.example")["provider"] == "postmark"
        for kind in ("rate", "login", "account"):
            provider.rules.append(fails_with(kind, **({"headers": {"Retry-After": "30"}} if kind == "rate" else {})))
            row = send_single(world, f"{kind}@crowd.example")
            assert (row["provider"], row["attempts"]) == ("backup", 1), kind
            provider.rules.clear()
        provider.down()
        assert send_single(world, "down@crowd.example")["provider"] == "backup"
        provider.up()
        arrived = Counter(email.to for email in provider.accepted) + Counter(m.rcpt_to[0] for m in backup.messages)
        assert max(arrived.values()) == 1, arrived


@pytest.mark.full
def test_limits_and_warm_up_of_a_transport(start: Start) -> None:
    """What is above an hourly limit or the first day of a warm-up goes to the next transport; receipts do not wait."""
    world = start({"shares": {"backup": 1, "default": 0}}, values={"warm_up": True})
    path = send_campaign(world.api, create_list(world.api, 120))
    wait_until_completed(world.api, path)
    receipt = send_single(world, "ana@crowd.example", transactional=True)
    status = world.api.get("/delivery/status").expect(200)
    [default, backup] = status["transports"]
    report = world.api.get(f"{path}/report").expect(200)

    assert count_by_provider(world.api, path) == {"backup": 50, "relay": 70}
    assert {line["provider"]: line["accepted"] for line in report["transports"]} == {"relay": 70, "backup": 50}
    assert receipt["provider"] == "backup" and status["open"]
    assert (default["key"], default["name"], default["open"]) == ("relay", None, True)
    assert (backup["name"], backup["warm_up"]["cap"], backup["warm_up"]["used"]) == ("Backup", 50, 51)


def test_an_hourly_limit_of_a_transport(start: Start) -> None:
    """The limit of one transport is its own, also after a restart; the status says when it opens."""
    world = start({"shares": {"backup": 1, "default": 0}}, values={"rate_per_hour": 5})
    keys = [send_single(world, f"p{number}@crowd.example")["provider"] for number in range(7)]
    world.server.restart()
    keys.append(send_single(world, "last@crowd.example")["provider"])
    status = world.api.get("/delivery/status").expect(200)

    assert keys == 5 * ["backup"] + 3 * ["relay"]
    assert [item["open"] for item in status["transports"]] == [True, False] and status["open"]
    assert "limit of 5 an hour" in status["transports"][1]["text"]


def test_a_slow_transport_does_not_delay_another(start: Start) -> None:
    """While one relay takes seconds for each message, the messages of the other leave as usual."""
    world = start({"shares": {"backup": 1}, "recipients": ["slow.example"]})
    world.backup.rules.delay("body", 3)
    api = world.api
    body = {"from_email": "ana@bakery.example", "subject": "Bread", "body": "<p>x</p>"}
    for number in range(12):
        api.post("/messages", body | {"to": f"p{number}@slow.example"}).expect(201)
    started = time.monotonic()
    rows = [send_single(world, f"p{number}@crowd.example") for number in range(10)]
    assert {row["provider"] for row in rows} == {"relay"} and time.monotonic() - started < 12
    assert len(world.backup.messages) < 12 and world.backup.open_peak <= CONNECTIONS


def test_old_messages_after_a_change_to_direct_delivery(fresh_server: FreshServer) -> None:
    """Messages that were queued for a relay use at most `email.connections` of the many workers."""
    with SmtpServer() as relay:
        relay.rules.delay("body", 0.05)
        server = fresh_server(env=relay_settings(relay.port) | NO_RATE_LIMITS)
        server.set_postal_address()
        api = server.client(validate=False)
        list_id = create_list(api, 150)
        path = send_campaign(api, list_id)
        server.kill()
        server.env["CAMPANERO_EMAIL__TRANSPORT"] = "direct"
        relay.open_peak = 0
        server.start()
        wait_until_completed(api, path)
        assert len(relay.messages) >= 150 and relay.open_peak <= 4


def test_kills_and_failures_lose_and_double_nothing(start: Start, seed: int, full: bool) -> None:
    """With kills and relays that come and go, every message arrives; copies are only those of P3."""
    world, rng = start({"shares": {"default": 50, "backup": 50}}), random.Random(seed)
    count, kills = (8_000, 8) if full else (500, 2)
    path = send_campaign(world.api, create_list(world.api, count))
    for turn in range(kills):
        deadline = time.monotonic() + 60
        while len(world.messages) < count * (turn + 1) // (kills + 2) and time.monotonic() < deadline:
            time.sleep(0.01)
        shut = rng.choice((world.main, world.backup))
        shut.stop()
        time.sleep(rng.uniform(0, 0.3))
        world.server.kill()
        world.server.start()
        time.sleep(rng.uniform(0, 0.5))
        shut.start()
    row = wait_until_completed(world.api, path, 120)
    check_sum_of_stats(row["stats"])
    books = reconcile(world.api, path, world.messages)
    by_transport = Counter(m.rcpt_to[0] for m in world.messages)
    doubled = [address for address, number in by_transport.items() if number > 1]
    homes = {m.rcpt_to[0] for m in world.main.messages} & {m.rcpt_to[0] for m in world.backup.messages}

    assert (books.audience, books.missing, books.accepted + books.uncertain) == (count, 0, count)
    assert not homes, "a message went over two transports"
    assert len(doubled) <= 2 * kills * 2 * 2 * CONNECTIONS and books.copies <= 2 * kills * 2 * 2 * CONNECTIONS
    assert len(count_by_provider(world.api, path)) == 2


def test_a_rejected_sender_is_not_tried_in_a_loop(start: Start) -> None:
    """A relay that rejects the sender stays open, so its message waits before the next attempt."""
    world = start({"shares": {"default": 1, "backup": 0}}, PROBE_AFTER="60s")
    world.main.rules.reject("mail", code=550, text="5.7.1 sender address rejected")
    body = {"to": "ana@crowd.example", "from_email": "ana@bakery.example", "subject": "Bread", "body": "<p>x</p>"}
    number = world.api.post("/messages", body).expect(201)["id"]
    world.api.wait(f"/messages/{number}", lambda row: row["error"] is not None, 30)
    time.sleep(3)
    assert len(world.main.phases("mail")) == 1


@pytest.mark.full
def test_waiting_for_a_closed_transport_takes_no_processor_time(start: Start) -> None:
    """While messages wait for a relay that is shut, and another one is open, the service is idle."""
    world = start({"shares": {"backup": 1}, "recipients": ["closed.example"]}, PROBE_AFTER="60s")
    world.backup.stop()
    body = {"to": "a@closed.example", "from_email": "ana@bakery.example", "subject": "Bread", "body": "<p>x</p>"}
    number = world.api.post("/messages", body).expect(201)["id"]
    world.api.wait(f"/messages/{number}", lambda row: row["error"] is not None, 30)
    world.api.post("/messages", body | {"to": "b@closed.example"}).expect(201)
    time.sleep(3)
    used = cpu_seconds(world.server.pid)
    time.sleep(4)
    used = cpu_seconds(world.server.pid) - used
    assert used < 0.4

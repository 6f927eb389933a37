"""Email over the HTTP APIs of providers: one contract of outcomes, for all transports (P3)."""

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from appliance.sending.transports import TRANSPORTS
from tests.conftest import FreshServer
from tests.journeys.test_doctor import run_doctor
from tests.kit import recipients
from tests.kit.client import Client
from tests.kit.email_api_vendors import VENDORS
from tests.kit.email_apis import FakeEmailApi, fails_with, responds
from tests.kit.recipients import NO_RATE_LIMITS
from tests.kit.sampling import sampled
from tests.kit.server import Server
from tests.kit.sms_rules import Rule

FINAL = ("sent", "failed", "uncertain", "skipped", "cancelled")


class World(NamedTuple):
    """A service and the provider that its email transport uses."""

    api: Client
    provider: FakeEmailApi
    server: Server

    def send(self, name: str) -> int:
        """Send a single email and return its message id."""
        body = {
            "to": f"{name}@crowd.example", "from_email": "ana@bakery.example", "subject": "Bread",
            "body": "<p>Fresh</p>",
        }  # fmt: skip
        return int(self.api.post("/messages", body).expect(201)["id"])

    def settle(self, number: int, timeout: float = 30) -> Any:
        """Wait until a message is final, and return it."""
        return self.api.wait(f"/messages/{number}", lambda row: row["status"] in FINAL, timeout)

    def count(self, name: str) -> int:
        """Return how many emails to a recipient the provider accepted."""
        return len(self.provider.to(f"{name}@crowd.example"))


@pytest.fixture(scope="module", params=sampled(VENDORS, ["ses", "google"]))
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A service for each transport."""
    with FakeEmailApi(request.param) as provider, Server(env=provider.env | NO_RATE_LIMITS).set_up() as server:
        server.set_postal_address()
        yield World(server.client(validate=False), provider, server)
        server.stop()


@pytest.fixture(autouse=True)
def no_rules(request: pytest.FixtureRequest) -> Iterator[None]:
    """Remove the faults of a test, and wait until the transport is open again."""
    world = request.getfixturevalue("world") if "world" in request.fixturenames else None
    yield
    if world is None:
        return
    world.provider.rules.clear()
    world.api.wait("/delivery/status", lambda row: row["open"], 20)


def test_accepted_emails_keep_the_id_of_the_provider(world: World) -> None:
    """A response of acceptance ends the message, with the provider's id."""
    row = world.settle(world.send("anna"))
    [email] = world.provider.to("anna@crowd.example")

    assert (row["status"], row["attempts"], row["provider"]) == ("sent", 1, world.provider.vendor.name)
    assert row["provider_id"] == email.id and email.subject == "Bread" and "Fresh" in email.html


def test_rejections_are_classified(world: World) -> None:
    """A rejected recipient fails at once, and only an address that the provider calls invalid is suppressed."""
    provider, errors = world.provider, world.provider.vendor.errors
    provider.rules += [fails_with(kind, f"{kind}@*") for kind in ("invalid", "suppressed", "content") if kind in errors]
    provider.rules += [responds(400, "odd@*", {"message": "unknown user: something else"}), responds(413, "large@*")]
    kinds = [kind for kind in ("invalid", "suppressed", "content") if kind in errors] + ["odd", "large"]
    rows = {kind: world.settle(world.send(kind)) for kind in kinds}
    suppressed = {row["address"] for row in world.api.all("/suppressions")}

    assert {kind: (row["status"], row["error"]["code"]) for kind, row in rows.items()} == dict.fromkeys(
        rows, ("failed", "refused")
    )
    assert suppressed == {"invalid@crowd.example"}
    words, *_ = re.findall(r'[mM]essage": "([^"]+)"', json.dumps(errors["invalid"][1]))
    assert words in rows["invalid"]["error"]["text"]


def test_nothing_is_lost_or_doubled_by_definite_errors(world: World) -> None:
    """Errors that say that nothing was accepted are retried, and each email arrives once."""
    provider = world.provider
    provider.rules += [
        responds(503, "busy@*", times=1), responds(500, "broken@*", {"message": "internal error"}, times=1),
        fails_with("rate", "fast@*", times=1, headers={"Retry-After": "1"}),
    ]  # fmt: skip
    numbers = [world.send(name) for name in ("busy", "broken")]
    rows = [world.settle(number) for number in numbers]
    assert [(row["status"], row["attempts"]) for row in rows] == [("sent", 2)] * 2
    started = time.monotonic()
    row = world.settle(world.send("fast"))

    assert (row["status"], row["attempts"]) == ("sent", 1) and time.monotonic() - started >= 1
    assert [world.count(name) for name in ("busy", "broken", "fast")] == [1, 1, 1]


def test_lost_answers_are_in_doubt(world: World) -> None:
    """An email that may have been accepted is repeated once; an idempotent provider sends it only once."""
    provider = world.provider
    provider.rules += [
        Rule("reset@*", accept=True, reset=True, times=1), Rule("cut@*", cut=True, times=1),
        Rule("slow@*", accept=True, delay=2.5, times=1), responds(502, "gateway@*", "<h1>Bad gateway</h1>", accept=True,
        times=1), responds(200, "garbage@*", "\x00{", accept=True, times=1),
    ]  # fmt: skip
    # Some accept with an empty body, which cannot be cut
    is_empty = provider.vendor.name in ("sendgrid", "microsoft")
    names = [name for name in ("reset", "cut", "slow", "gateway", "garbage") if not is_empty or name != "cut"]
    numbers = [world.send(name) for name in names]
    rows = [world.settle(number) for number in numbers]

    assert [(row["status"], row["attempts"]) for row in rows] == [("sent", 2)] * len(names)
    copies = {world.count(name) for name in names}
    assert copies == {1 if provider.vendor.is_idempotent else 2}
    if not provider.vendor.is_idempotent:
        provider.rules.append(Rule("gone@*", accept=True, reset=True))
        row = world.settle(world.send("gone"))
        assert (row["status"], world.count("gone")) == ("uncertain", 2)


def test_a_rejected_key_pauses_the_transport(world: World) -> None:
    """Messages wait without an attempt while the key or account is rejected or the provider unreachable."""
    provider = world.provider
    for kind in ("login", "account"):
        provider.rules.append(fails_with(kind))
        number = world.send(kind)
        status = world.api.wait("/delivery/status", lambda row: not row["open"], 20)
        assert status["transport"] == provider.vendor.name
        world.api.wait(f"/messages/{number}", lambda row: row["status"] == "queued" and row["attempts"] == 0, 20)
        provider.rules.clear()
        row = world.settle(number)
        assert (row["status"], row["attempts"], world.count(kind)) == ("sent", 1, 1)
    provider.down()
    number = world.send("down")
    world.api.wait("/delivery/status", lambda row: not row["open"], 20)
    provider.up()
    row = world.settle(number)
    assert (row["status"], row["attempts"], world.count("down")) == ("sent", 1, 1)


def test_a_rejected_sender_pauses_the_campaign(world: World) -> None:
    """The recipients of a campaign whose From domain the provider rejects are not marked as failed."""
    world.provider.rules.append(fails_with("sender", "s*@crowd.example"))
    path = recipients.send_campaign(world.api, recipients.create_list(world.api, 30, "s"))
    campaign = world.api.wait(path, lambda row: row["status"] == "paused", 60)
    assert campaign["stats"]["failed"] == 0 and campaign["pause_reason"] == "transport", campaign
    world.provider.rules.clear()
    world.api.post(f"{path}/resume").expect(200)
    campaign = recipients.wait_until_completed(world.api, path)

    assert campaign["stats"]["sent"] == 30
    assert {world.count(f"s{number}") for number in range(30)} == {1}


def test_the_health_check_says_what_the_provider_says(world: World) -> None:
    """`campanero doctor` asks the provider about the key, and an answer that is none is a failure."""
    label = TRANSPORTS[world.provider.vendor.name].label
    level, text = run_doctor(world.server, 0)["email transport"]
    assert level == "ok" and text.startswith(f"{label}: "), text
    world.provider.rules.append(responds(401, look_ups=True))
    level, text = run_doctor(world.server, 1)["email transport"]
    assert level == "fail" and text.startswith(f"{label}: ") and "HTTP 401" in text, text


def test_the_rate_limit_holds(fresh_server: FreshServer) -> None:
    """Requests keep to the configured messages a second."""
    with FakeEmailApi("postmark") as provider:
        server = fresh_server(env=provider.env | NO_RATE_LIMITS | {"CAMPANERO_EMAIL__RATE_PER_SECOND": "20"})
        api = server.set_postal_address().client(validate=False)
        path = recipients.send_campaign(api, recipients.create_list(api, 41, "r"))
        provider.wait_for(1)
        started = time.monotonic()
        recipients.wait_until_completed(api, path)
        assert 1.7 < time.monotonic() - started < 20 and len(provider.accepted) == 41


def test_opt_outs_and_the_stop_switch_beat_the_queue(world: World) -> None:
    """An address that is suppressed while its message is queued gets nothing, and a STOP file stops all requests."""
    api, provider = world.api, world.provider
    list_id = recipients.create_list(api, 40, "o")
    stop_file = world.server.data / "STOP"
    stop_file.touch()
    path = recipients.send_campaign(api, list_id)
    api.wait(path, lambda row: row["stats"]["pending"] == 40, 30)
    api.post("/suppressions", {"address": "o7@crowd.example"}).expect(201)
    time.sleep(0.3)
    assert not [email for email in provider.accepted if email.to.startswith("o")]
    stop_file.unlink()
    campaign = recipients.wait_until_completed(api, path)

    assert (campaign["stats"]["sent"], campaign["stats"]["skipped"], world.count("o7")) == (39, 1, 0)


def test_kills_lose_nothing_and_copy_little(world: World) -> None:
    """Each kill leaves at most as many emails in doubt as requests were in flight, and all arrive."""
    api, provider, server = world.api, world.provider, world.server
    list_id = recipients.create_list(api, 120, "k")
    provider.rules.append(Rule("k*", accept=True, delay=0.01))
    before = len(provider.accepted)
    path = recipients.send_campaign(api, list_id)
    for count in (25, 70):
        provider.wait_for(before + count)
        server.kill()
        server.start()
    recipients.wait_until_completed(api, path)
    copies = Counter(email.to for email in provider.accepted if email.to.startswith("k"))

    assert len(copies) == 120
    assert sum(copies.values()) - 120 <= (0 if provider.vendor.is_idempotent else 2 * 4)
    assert api.get(path).expect(200)["stats"]["sent"] == 120


def test_messages_keep_the_transport_they_were_queued_for(world: World) -> None:
    """After a change of the transport, messages that wait are still sent by the provider they were queued for."""
    provider, server = world.provider, world.server
    stop_file = server.data / "STOP"
    stop_file.touch()
    numbers = [world.send(f"t{number}") for number in range(6)]
    server.stop()
    server.env["CAMPANERO_EMAIL__TRANSPORT"] = "capture"
    server.start()
    numbers += [world.send(f"t{number}") for number in range(6, 12)]
    stop_file.unlink()
    rows = [world.settle(number) for number in numbers]
    server.stop()
    server.env["CAMPANERO_EMAIL__TRANSPORT"] = provider.vendor.name
    server.start()

    assert {row["status"] for row in rows} == {"sent"}
    assert [row["provider"] for row in rows] == [provider.vendor.name] * 6 + ["capture"] * 6
    assert [world.count(f"t{number}") for number in range(12)] == [1] * 6 + [0] * 6

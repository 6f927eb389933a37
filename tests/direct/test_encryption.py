"""Encryption is taken where it is offered, and demanded where the recipient's domain demands it (MTA-STS)."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.direct.conftest import ended, post
from tests.kit.certificates import self_signed
from tests.kit.client import Client
from tests.kit.policies import PolicyServer
from tests.kit.server import Server
from tests.kit.world import World

DOMAINS = ("good.example", "clear.example", "wrong.example", "other.example", "mixed.example", "trial.example",
           "off.example", "broken.example", "moved.example", "kept.example")  # fmt: skip
GOOD = ("mx.good.example", "mx.mixed.example", "mx.kept.example")


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PolicyServer]:
    """A web server with the policies of domains."""
    with PolicyServer(tmp_path_factory.mktemp("policies"), DOMAINS, GOOD) as found:
        yield found


@pytest.fixture(scope="module")
def server(shared_world: World, rules: PolicyServer) -> Iterator[Server]:
    """A server that delivers to the shared world and asks for policies."""
    with Server(env=shared_world.env | rules.env).set_up() as found:
        found.give_address()
        yield found
        found.stop()


@pytest.fixture(scope="module")
def api(server: Server) -> Client:
    """A client of it."""
    return server.client()


def announce(world: World, domain: str, number: str = "1") -> None:
    """Let a domain say in DNS that it has a policy."""
    world.dns.set(f"_mta-sts.{domain}", "TXT", f"v=STSv1; id={number};")


def put_off(api: Client, address: str) -> Any:
    """Post a message that cannot go, and return it once it was tried."""
    return api.wait(post(api, address), lambda row: row["attempts"] >= 1)


def test_proven_encryption_where_a_policy_demands_it(api: Client, shared_world: World, rules: PolicyServer) -> None:
    """Enforced and possible: it goes encrypted to a server whose certificate bears its name, and to no other."""
    good = shared_world.mail("mx.good.example", starttls=True, certificate=rules.certificate)
    stranger = shared_world.server("stranger.example", starttls=True)
    shared_world.mx("good.example", "stranger.example", "mx.good.example")
    announce(shared_world, "good.example")
    rules.policy("good.example", "enforce", "*.good.example")
    ended(api, post(api, "bo@good.example"), "sent")

    assert [message.tls for message in good.messages] == [True] and stranger.connections == 0


@pytest.mark.parametrize(
    ("domain", "host", "options", "words"),
    [
        ("clear.example", "mx.clear.example", {}, "offers no STARTTLS"),
        ("wrong.example", "mx.wrong.example", {"starttls": True}, "certificate"),
        ("other.example", "mx.elsewhere.example", {"starttls": True}, "does not list its mail servers"),
    ],
)
def test_what_a_policy_forbids_is_not_sent(
    domain: str, host: str, options: dict[str, bool], words: str, api: Client, shared_world: World, rules: PolicyServer
) -> None:
    """No encryption, a certificate of another name, a server that is not named: put off, said why, nothing left."""
    mx = shared_world.mail(host, domain, **options)
    announce(shared_world, domain)
    rules.policy(domain, "enforce", f"mx.{domain}")
    row = put_off(api, f"bo@{domain}")

    assert row["status"] == "queued" and words in row["error"]["text"] and "MTA-STS" in row["error"]["text"]
    assert not mx.messages and not mx.phases("mail")


@pytest.mark.parametrize(
    ("domain", "mode"), [("trial.example", "testing"), ("off.example", "none"), ("broken.example", None)]
)
def test_what_no_policy_forbids_goes_in_clear(
    domain: str, mode: str | None, api: Client, shared_world: World, rules: PolicyServer
) -> None:
    """A policy on trial, one that is taken back and one that is none do not keep mail from a server in clear."""
    mx = shared_world.mail(f"mx.{domain}", domain)
    announce(shared_world, domain)
    if mode:
        rules.policy(domain, mode, "another.example")
    else:
        rules.say(domain, "version: STSv1\nmode: enforce\nmx: another.example\nmax_age: 86400", kind="text/html")
    ended(api, post(api, f"bo@{domain}"), "sent")

    assert [message.tls for message in mx.messages] == [False] and domain in rules.asked


def test_a_policy_that_moved_is_not_followed(api: Client, shared_world: World, rules: PolicyServer) -> None:
    """A redirect is no policy (RFC 8461, 3.3)."""
    mx = shared_world.mail("mx.moved.example", "moved.example")
    announce(shared_world, "moved.example")
    rules.say("moved.example", "version: STSv1\nmode: enforce\nmx: x.example\nmax_age: 86400", status=301)
    ended(api, post(api, "bo@moved.example"), "sent")

    assert len(mx.messages) == 1


def test_a_policy_that_was_there_outlives_dns_and_process(
    server: Server, api: Client, shared_world: World, rules: PolicyServer
) -> None:
    """Once known it holds for its time, though DNS says nothing any more and the service began anew."""
    mx = shared_world.mail("mx.kept.example", "kept.example", starttls=True, certificate=rules.certificate)
    announce(shared_world, "kept.example")
    rules.policy("kept.example", "enforce", "mx.kept.example")
    ended(api, post(api, "bo@kept.example"), "sent")
    shared_world.dns.remove("_mta-sts.kept.example")
    mx.tls_context = None
    server.restart()
    row = put_off(api, "cy@kept.example")

    assert "MTA-STS" in row["error"]["text"] and len(mx.messages) == 1
    assert rules.asked.count("kept.example") == 1


def test_a_handshake_that_fails_is_followed_by_clear_text(api: Client, shared_world: World) -> None:
    """Where nothing is demanded, encryption that does not come about is left away: at 454, and after a broken one."""
    busy = shared_world.mail("mx.busy.example", "busy.example", starttls=True)
    busy.rules.refuse("starttls", code=454, text="4.7.0 TLS not available")
    broken = shared_world.mail("mx.handshake.example", "handshake.example", starttls=True)
    broken.rules.say("starttls", b"220 go\r\n250 nonsense instead of a handshake\r\n")
    for domain in ("busy.example", "handshake.example"):
        ended(api, post(api, f"bo@{domain}"), "sent")

    assert (busy.connections, broken.connections) == (1, 2)
    assert not busy.messages[0].tls and not broken.messages[0].tls


def test_any_certificate_will_do_where_nothing_is_demanded(api: Client, shared_world: World) -> None:
    """A certificate of another name that nobody signed encrypts as well as any."""
    mx = shared_world.mail("mx.any.example", "any.example", starttls=True, certificate=self_signed("other.example"))
    ended(api, post(api, "bo@any.example"), "sent")

    assert mx.messages[0].tls

"""TLS is used where a server offers it, and required where the recipient's domain requires it (MTA-STS)."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import api
from tests.direct.conftest import StartDirect, post, wait_for_status
from tests.kit.certificates import self_signed
from tests.kit.client import Client
from tests.kit.clock import TestClock
from tests.kit.mail_network import MailNetwork
from tests.kit.mta_sts import PolicyServer
from tests.kit.server import Server

__all__ = ["api"]
DOMAINS = ("good.example", "clear.example", "wrong.example", "other.example", "mixed.example", "trial.example",
           "off.example", "broken.example", "moved.example", "kept.example", "aged.example")  # fmt: skip
GOOD = ("mx.good.example", "mx.mixed.example", "mx.kept.example", "mx.aged.example")


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PolicyServer]:
    """A web server that serves the MTA-STS policies of domains."""
    with PolicyServer(tmp_path_factory.mktemp("policies"), DOMAINS, GOOD) as running:
        yield running


@pytest.fixture(scope="module")
def server(shared_world: MailNetwork, rules: PolicyServer) -> Iterator[Server]:
    """A server that delivers to the shared world and fetches MTA-STS policies."""
    with Server(env=shared_world.env | rules.env).set_up() as running:
        running.set_postal_address()
        yield running
        running.stop()


def announce(world: MailNetwork, domain: str, number: str = "1") -> None:
    """Publish the DNS record of a domain's MTA-STS policy."""
    world.dns.set(f"_mta-sts.{domain}", "TXT", f"v=STSv1; id={number};")


def post_deferred(api: Client, address: str) -> Any:
    """Post a message that cannot be delivered and return it after its first attempt."""
    return api.wait(post(api, address), lambda row: row["attempts"] >= 1)


def test_an_enforced_policy_requires_a_verified_certificate(
    api: Client, shared_world: MailNetwork, rules: PolicyServer
) -> None:
    """With an enforced policy, mail goes encrypted to a listed server with a matching certificate, and to no other."""
    good = shared_world.mail("mx.good.example", starttls=True, certificate=rules.certificate)
    stranger = shared_world.server("stranger.example", starttls=True)
    shared_world.mx("good.example", "stranger.example", "mx.good.example")
    announce(shared_world, "good.example")
    rules.set_policy("good.example", "enforce", "*.good.example")
    wait_for_status(api, post(api, "bo@good.example"), "sent")

    assert [message.tls for message in good.messages] == [True] and stranger.connections == 0


@pytest.mark.parametrize(
    ("domain", "host", "options", "reason"),
    [
        ("clear.example", "mx.clear.example", {}, "offers no STARTTLS"),
        ("wrong.example", "mx.wrong.example", {"starttls": True}, "certificate"),
        ("other.example", "mx.elsewhere.example", {"starttls": True}, "does not list its mail servers"),
    ],
)
def test_a_policy_violation_defers_the_message(
    domain: str,
    host: str,
    options: dict[str, bool],
    reason: str,
    api: Client,
    shared_world: MailNetwork,
    rules: PolicyServer,
) -> None:
    """Without STARTTLS, with a wrong certificate or an unlisted server, the message is deferred with the reason."""
    mx = shared_world.mail(host, domain, **options)
    announce(shared_world, domain)
    rules.set_policy(domain, "enforce", f"mx.{domain}")
    row = post_deferred(api, f"bo@{domain}")

    assert row["status"] == "queued" and reason in row["error"]["text"] and "MTA-STS" in row["error"]["text"]
    assert not mx.messages and not mx.phases("mail")


@pytest.mark.parametrize(
    ("domain", "mode"), [("trial.example", "testing"), ("off.example", "none"), ("broken.example", None)]
)
def test_without_an_enforced_policy_clear_text_is_used(
    domain: str, mode: str | None, api: Client, shared_world: MailNetwork, rules: PolicyServer
) -> None:
    """A policy in testing mode, of mode `none` or of the wrong type does not prevent delivery in clear text."""
    mx = shared_world.mail(f"mx.{domain}", domain)
    announce(shared_world, domain)
    if mode:
        rules.set_policy(domain, mode, "another.example")
    else:
        rules.set_raw_policy(
            domain, "version: STSv1\nmode: enforce\nmx: another.example\nmax_age: 86400", kind="text/html"
        )
    wait_for_status(api, post(api, f"bo@{domain}"), "sent")

    assert [message.tls for message in mx.messages] == [False] and domain in rules.requested_domains


def test_a_policy_redirect_is_ignored(api: Client, shared_world: MailNetwork, rules: PolicyServer) -> None:
    """A redirect of the policy is not followed (RFC 8461, 3.3)."""
    mx = shared_world.mail("mx.moved.example", "moved.example")
    announce(shared_world, "moved.example")
    rules.set_raw_policy("moved.example", "version: STSv1\nmode: enforce\nmx: x.example\nmax_age: 86400", status=301)
    wait_for_status(api, post(api, "bo@moved.example"), "sent")

    assert len(mx.messages) == 1


def test_a_cached_policy_survives_dns_loss_and_a_restart(
    server: Server, api: Client, shared_world: MailNetwork, rules: PolicyServer
) -> None:
    """A cached policy applies until it expires, also after its DNS record is removed and the service restarts."""
    mx = shared_world.mail("mx.kept.example", "kept.example", starttls=True, certificate=rules.certificate)
    announce(shared_world, "kept.example")
    rules.set_policy("kept.example", "enforce", "mx.kept.example")
    wait_for_status(api, post(api, "bo@kept.example"), "sent")
    shared_world.dns.remove("_mta-sts.kept.example")
    mx.tls_context = None
    server.restart()
    row = post_deferred(api, "cy@kept.example")

    assert "MTA-STS" in row["error"]["text"] and len(mx.messages) == 1
    assert rules.requested_domains.count("kept.example") == 1


def test_a_policy_is_refreshed_before_it_expires(
    direct: StartDirect, world: MailNetwork, rules: PolicyServer, clock: TestClock
) -> None:
    """After half of its lifetime a policy is fetched again, so that it outlives a later failure (RFC 8461, 3.3)."""
    mx = world.mail("mx.aged.example", "aged.example", starttls=True, certificate=rules.certificate)
    announce(world, "aged.example")
    rules.set_policy("aged.example", "enforce", "mx.aged.example")
    api = direct(clock=clock, env=rules.env).client()
    fetched = []
    for hours in (0, 11, 2):
        clock.advance(hours=hours)
        wait_for_status(api, post(api, "bo@aged.example"), "sent")
        fetched.append(rules.requested_domains.count("aged.example"))
    world.dns.remove("_mta-sts.aged.example")
    mx.tls_context = None
    clock.advance(hours=13)
    row = post_deferred(api, "cy@aged.example")

    assert fetched == [1, 1, 2] and "MTA-STS" in row["error"]["text"]


def test_a_failed_handshake_falls_back_to_clear_text(api: Client, shared_world: MailNetwork) -> None:
    """Without a policy, a 454 to STARTTLS or a broken handshake leads to delivery in clear text."""
    busy = shared_world.mail("mx.busy.example", "busy.example", starttls=True)
    busy.rules.reject("starttls", code=454, text="4.7.0 TLS not available")
    broken = shared_world.mail("mx.handshake.example", "handshake.example", starttls=True)
    broken.rules.reply_raw("starttls", b"220 go\r\n250 nonsense instead of a handshake\r\n")
    for domain in ("busy.example", "handshake.example"):
        wait_for_status(api, post(api, f"bo@{domain}"), "sent")

    assert (busy.connections, broken.connections) == (1, 2)
    assert not busy.messages[0].tls and not broken.messages[0].tls


def test_any_certificate_is_accepted_without_a_policy(api: Client, shared_world: MailNetwork) -> None:
    """Without a policy, a self-signed certificate with another name is accepted."""
    mx = shared_world.mail("mx.any.example", "any.example", starttls=True, certificate=self_signed("other.example"))
    wait_for_status(api, post(api, "bo@any.example"), "sent")

    assert mx.messages[0].tls

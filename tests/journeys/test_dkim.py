"""Mail is signed and aligned, according to two verifiers that query the DNS test server."""

import re
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import apsw
import dkim as dkimpy
import pytest

from tests.journeys.test_sending import completed, create_list
from tests.kit import dkim as kit
from tests.kit.client import Client
from tests.kit.dkim import VerificationFailed
from tests.kit.dns import DnsServer
from tests.kit.email_apis import FakeEmailApi
from tests.kit.sending_domains import add_verified_domain, lookup_txt, publish_records
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer
from tests.kit.smtp_message import Message

LETTER = {"subject": "For {{ first_name }}", "body": "<h1>Hello</h1>"}
Verifier = Callable[[bytes], bool]


class World(NamedTuple):
    """A server that signs, the SMTP server that receives its mail, and the DNS server with its keys."""

    server: Server
    sink: SmtpServer
    dns: DnsServer

    @property
    def api(self) -> Client:
        """Return a client of the server, which may have been restarted."""
        return self.server.client()


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """A server that signs twice and sends from verified domains only; each test uses its own domain."""
    with SmtpServer() as sink, DnsServer() as dns:
        own = {"CAMPANERO_EMAIL__ALLOW_UNVERIFIED_DOMAINS": "false", "CAMPANERO_EMAIL__DKIM_ED25519": "true"}
        name = {"CAMPANERO_EMAIL__DIRECT__HELO": "mail.us.example"}  # the host that receives bounces
        with Server(relay=sink.port, env=dns.env | own | name).set_up() as server:
            yield World(server.set_postal_address(), sink, dns)


def verifiers(dns: DnsServer) -> Iterator[Verifier]:
    """Yield two independent verifiers, each with its own DNS look-ups."""

    def by_dkimpy(raw: bytes) -> bool:
        try:
            return bool(
                dkimpy.verify(raw, dnsfunc=lambda name, timeout=5: "".join(lookup_txt(dns, name.decode())).encode())
            )
        except dkimpy.DKIMException:
            return False

    def by_the_test_kit(raw: bytes) -> bool:
        try:
            return bool(kit.verify(raw, lambda name: lookup_txt(dns, name)))
        except VerificationFailed:
            return False

    yield by_dkimpy
    yield by_the_test_kit


def post(api: Client, path: str, **body: Any) -> dict[str, Any]:
    """Post and return the created object."""
    created: dict[str, Any] = api.post(path, body).expect(201)
    return created


def campaign(api: Client, list_id: int, sender: str) -> dict[str, Any]:
    """Send a campaign from a domain to a list, and return it."""
    created = post(api, "/campaigns", name="Letter")
    template = LETTER | {"from_email": f"ana@{sender}"}
    body = {"trigger_attributes": {"contact_list_id": list_id}, "template_attributes": template}
    response: dict[str, Any] = api.post(f"/campaigns/{created['id']}/send", body).expect(200)
    return response


def send_message(api: Client, to: str, sender: str) -> None:
    """Post a single message."""
    post(api, "/messages", to=to, subject="Receipt", body="<p>1 loaf</p>", from_email=f"ana@{sender}")


def wait_for_messages(world: World, to: str, count: int) -> list[Message]:
    """Wait for `count` messages to a domain and return them in order of arrival."""

    def received() -> list[Message]:
        return [message for message in world.sink.messages if message.to.endswith(f"@{to}")]

    end = time.monotonic() + 30
    while len(received()) < count:
        assert time.monotonic() < end, f"{len(received())} of {count} messages came"
        time.sleep(0.02)
    return received()


def organisation(address: str) -> str:
    """Return the organisational domain; the domains of these tests have two labels."""
    return ".".join(address.rpartition("@")[2].lower().split(".")[-2:])


def is_aligned(message: Message, dns: DnsServer) -> bool:
    """Return whether From, signature and return path have the same domain, and DMARC and SPF records exist."""
    (author,) = message.parsed["From"].addresses
    signature, _ = kit.signatures(message.raw)
    (policy,) = lookup_txt(dns, f"_dmarc.{organisation(author.addr_spec)}")
    sources = [text for text in lookup_txt(dns, message.mail_from.rpartition("@")[2]) if text.startswith("v=spf1 ")]
    domains = {organisation(address) for address in (author.addr_spec, signature.domain, message.mail_from)}
    return len(domains) == 1 and policy.startswith("v=DMARC1;") and len(sources) == 1


def test_every_kind_of_mail_is_signed_and_aligned(world: World) -> None:
    """Campaign, transactional, test and confirmation mail verifies, and fails with an added header."""
    api, dns = world.api, world.dns
    add_verified_domain(api, dns, "bakery.example")
    completed(api, campaign(api, create_list(api, 2, "Kinds"), "bakery.example"))
    send_message(api, "ann@kinds.example", "bakery.example")
    template = post(api, "/templates", name="T", from_email="ana@bakery.example", **LETTER)
    api.post(f"/templates/{template['id']}/send_test", {"email": "boss@kinds.example"}).expect(200)
    form = post(api, "/forms", name="News", double_opt_in=True)
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    assert api.request("POST", f"/f/{form['public_key']}", b"email=new%40kinds.example", headers).status == 200
    messages = wait_for_messages(world, "kinds.example", 5)
    assert {message.to.partition("@")[0] for message in messages} == {"p0", "p1", "ann", "boss", "new"}
    for message in messages:
        marketing = message.header("List-Id") is not None
        assert marketing == message.to.startswith("p")
        signature, second = kit.signatures(message.raw)
        assert (signature.tags["a"], signature.domain) == ("rsa-sha256", "bakery.example")
        assert (second.tags["a"], second.domain) == ("ed25519-sha256", "bakery.example")
        assert ("list-unsubscribe-post" in signature.headers) == ("feedback-id" in signature.headers) == marketing
        assert is_aligned(message, dns)
        assert re.fullmatch(r"b\+[0-9a-f]{28}@bounce\.bakery\.example", message.mail_from)
        assert len(message.text() or "") > 5 and message.raw.isascii()
        added_lines = [b"From: evil@evil.example", b"Subject: Win", b"Reply-To: evil@evil.example"]
        added_lines += [b"List-Unsubscribe: <https://evil.example/u>"] if marketing else []
        for verifies in verifiers(dns):
            assert verifies(message.raw)
            assert not any(verifies(line + b"\r\n" + message.raw) for line in added_lines)
            # The same at the end of the header, where servers on the way append
            assert not any(
                verifies(message.raw.replace(b"\r\n\r\n", b"\r\n" + line + b"\r\n\r\n", 1)) for line in added_lines
            )
    assert len({message.mail_from for message in messages}) == 5


def test_a_rotated_key_signs_later_messages(world: World) -> None:
    """The next key signs nothing until its DNS record is found, and all messages from then on."""
    api, dns = world.api, world.dns
    domain = add_verified_domain(api, dns, "next.example")
    rotated = api.post(f"/domains/{domain['id']}/rotate_key").expect(200)
    send_message(api, "ann@later.example", "next.example")
    wait_for_messages(world, "later.example", 1)
    publish_records(dns, rotated)
    api.post(f"/domains/{domain['id']}/verify").expect(200)
    send_message(api, "ann@later.example", "next.example")
    messages = wait_for_messages(world, "later.example", 2)
    old, new = (kit.signatures(message.raw)[0].tags["s"] for message in messages)
    assert (old[:3], new[:3]) == ("c1-", "c2-")
    assert all(verifies(message.raw) for verifies in verifiers(dns) for message in messages)


def test_a_resend_after_a_kill_has_the_same_bytes(world: World) -> None:
    """An uncertain message is resent with the same bytes, though the key was rotated meanwhile."""
    api, dns = world.api, world.dns
    domain = add_verified_domain(api, dns, "again.example")
    gate = world.sink.rules.store_then_hold("p1@doubt.example", times=1)
    sent = campaign(api, create_list(api, 3, "Doubt"), "again.example")
    gate.wait_reached()
    publish_records(dns, api.post(f"/domains/{domain['id']}/rotate_key").expect(200))
    rotated = api.post(f"/domains/{domain['id']}/verify").expect(200)
    assert [record["name"][:3] for record in rotated["dns_records"] if record["purpose"] == "dkim"] == ["c2-"]
    world.server.kill()
    gate.release()
    world.server.start()
    completed_campaign = completed(world.api, sent)
    first, again = world.sink.to("p1@doubt.example")
    assert first.raw == again.raw and first.mail_from == again.mail_from
    assert completed_campaign["stats"]["sent"] == 3 and all(verifies(again.raw) for verifies in verifiers(dns))


def test_an_unreadable_key_pauses_the_campaign(world: World) -> None:
    """With a DKIM key that cannot be decrypted nothing leaves, the campaign says why, and no attempt is counted."""
    domain = add_verified_domain(world.api, world.dns, "unreadable.example")
    list_id = create_list(world.api, 24, "Crowd")
    connection = apsw.Connection(str(world.server.data / "campanero.db"))
    connection.set_busy_timeout(10_000)
    connection.execute("UPDATE domain_key SET private_key = zeroblob(1400) WHERE domain_id = ?", (domain["id"],))
    connection.close()
    sent = campaign(world.api, list_id, "unreadable.example")
    paused = world.api.wait(f"/campaigns/{sent['id']}", lambda row: row["status"] == "paused")
    assert "the DKIM key c1-" in str(paused) and "of unreadable.example cannot be read" in str(paused)
    assert not [message for message in world.sink.messages if message.to.endswith("@crowd.example")]
    assert {row["attempts"] for row in world.api.get("/messages", campaign_id=sent["id"], limit=100).json} == {0}
    assert not world.api.get("/suppressions").json


@pytest.mark.parametrize("name", ["ses", "mailgun"])
def test_http_apis_get_the_signed_bytes(world: World, name: str) -> None:
    """A provider that takes MIME gets what the relay would get, and both verifiers accept its signature."""
    with FakeEmailApi(name) as provider:
        env = {key: value for key, value in world.server.env.items() if key.startswith("CAMPANERO_EMAIL__")}
        own = provider.env | {"CAMPANERO_EMAIL__ALLOW_UNVERIFIED_DOMAINS": "false"}
        world.server.env |= own
        try:
            world.server.restart()
            domain = f"{name}.example"
            purposes = {
                record["purpose"] for record in add_verified_domain(world.api, world.dns, domain)["dns_records"]
            }
            send_message(world.api, "ann@people.example", domain)
            [received] = provider.wait_for(1)
        finally:
            world.server.env |= env
            world.server.restart()
    assert received.raw is not None and "spf" not in purposes and "dkim" in purposes
    assert [verify(received.raw) for verify in verifiers(world.dns)] == [True, True]

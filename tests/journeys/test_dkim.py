"""What leaves the real process is signed and aligned, as two verifiers find who ask the stub DNS."""

import re
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import apsw
import dkim as dkimpy
import pytest

from tests.journeys.test_sending import completed, people
from tests.kit import dkim as kit
from tests.kit.client import Client
from tests.kit.dkim import NotSigned
from tests.kit.dns import DnsServer
from tests.kit.sending_domains import publish, text_of, verified
from tests.kit.server import Server
from tests.kit.smtp import SmtpServer
from tests.kit.smtp_message import Message

LETTER = {"subject": "For {{ first_name }}", "body": "<h1>Hello</h1>"}
Verifier = Callable[[bytes], bool]


class World(NamedTuple):
    """A server that signs, where its mail goes, and where everybody asks for its keys."""

    server: Server
    sink: SmtpServer
    dns: DnsServer

    @property
    def api(self) -> Client:
        """Return a client of the server, which may have been started again."""
        return self.server.client()


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """One server for all, which signs twice and relays from verified domains; each test has a domain of its own."""
    with SmtpServer() as sink, DnsServer() as dns:
        own = {"CAMPANERO_EMAIL__ALLOW_UNVERIFIED_DOMAINS": "false", "CAMPANERO_EMAIL__DKIM_ED25519": "true"}
        name = {"CAMPANERO_EMAIL__DIRECT__HELO": "mail.us.example"}  # where returned mail comes to
        with Server(relay=sink.port, env=dns.env | own | name).set_up() as server:
            yield World(server.give_address(), sink, dns)


def verifiers(dns: DnsServer) -> Iterator[Verifier]:
    """Yield both verifiers; each asks DNS for itself."""

    def by_dkimpy(raw: bytes) -> bool:
        try:
            return bool(
                dkimpy.verify(raw, dnsfunc=lambda name, timeout=5: "".join(text_of(dns, name.decode())).encode())
            )
        except dkimpy.DKIMException:
            return False

    def by_the_kit(raw: bytes) -> bool:
        try:
            return bool(kit.verify(raw, lambda name: text_of(dns, name)))
        except NotSigned:
            return False

    yield by_dkimpy
    yield by_the_kit


def post(api: Client, path: str, **body: Any) -> dict[str, Any]:
    """Post and answer what was made."""
    answer: dict[str, Any] = api.post(path, body).expect(201)
    return answer


def campaign(api: Client, group: int, sender: str) -> dict[str, Any]:
    """Send a campaign from a domain to a list."""
    made = post(api, "/campaigns", name="Letter")
    template = LETTER | {"from_email": f"ana@{sender}"}
    body = {"trigger_attributes": {"contact_list_id": group}, "template_attributes": template}
    answer: dict[str, Any] = api.post(f"/campaigns/{made['id']}/send", body).expect(200)
    return answer


def letter(api: Client, to: str, sender: str) -> None:
    """Post a single message."""
    post(api, "/messages", to=to, subject="Receipt", body="<p>1 loaf</p>", from_email=f"ana@{sender}")


def arrived(world: World, to: str, count: int) -> list[Message]:
    """Wait for so many messages to one domain and answer them as they came."""

    def found() -> list[Message]:
        return [one for one in world.sink.messages if one.to.endswith(f"@{to}")]

    end = time.monotonic() + 30
    while len(found()) < count:
        assert time.monotonic() < end, f"{len(found())} of {count} messages came"
        time.sleep(0.02)
    return found()


def organisation(address: str) -> str:
    """Return the domain that alignment is about; all of these tests end in one label."""
    return ".".join(address.rpartition("@")[2].lower().split(".")[-2:])


def is_aligned(message: Message, dns: DnsServer) -> bool:
    """Return whether From, the signing domain and the return path belong together, and DMARC and SPF records exist."""
    (author,) = message.parsed["From"].addresses
    signature, _ = kit.signatures(message.raw)
    (policy,) = text_of(dns, f"_dmarc.{organisation(author.addr_spec)}")
    sources = [text for text in text_of(dns, message.mail_from.rpartition("@")[2]) if text.startswith("v=spf1 ")]
    own = {organisation(one) for one in (author.addr_spec, signature.domain, message.mail_from)}
    return len(own) == 1 and policy.startswith("v=DMARC1;") and len(sources) == 1


def test_every_kind_of_mail_is_signed_and_aligned(world: World) -> None:
    """Marketing, transactional, test and confirmation mail: both verifiers accept it, and none with a header more."""
    api, dns = world.api, world.dns
    verified(api, dns, "bakery.example")
    completed(api, campaign(api, people(api, 2, "Kinds"), "bakery.example"))
    letter(api, "ann@kinds.example", "bakery.example")
    template = post(api, "/templates", name="T", from_email="ana@bakery.example", **LETTER)
    api.post(f"/templates/{template['id']}/send_test", {"email": "boss@kinds.example"}).expect(200)
    form = post(api, "/forms", name="News", double_opt_in=True)
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    assert api.request("POST", f"/f/{form['public_key']}", b"email=new%40kinds.example", headers).status == 200
    found = arrived(world, "kinds.example", 5)
    assert {one.to.partition("@")[0] for one in found} == {"p0", "p1", "ann", "boss", "new"}
    for message in found:
        marketing = message.header("List-Id") is not None
        assert marketing == message.to.startswith("p")
        signature, second = kit.signatures(message.raw)
        assert (signature.tags["a"], signature.domain) == ("rsa-sha256", "bakery.example")
        assert (second.tags["a"], second.domain) == ("ed25519-sha256", "bakery.example")
        assert ("list-unsubscribe-post" in signature.headers) == ("feedback-id" in signature.headers) == marketing
        assert is_aligned(message, dns)
        assert re.fullmatch(r"b\+[0-9a-f]{28}@bounce\.bakery\.example", message.mail_from)
        assert len(message.text() or "") > 5 and message.raw.isascii()
        more = [b"From: evil@evil.example", b"Subject: Win", b"Reply-To: evil@evil.example"]
        more += [b"List-Unsubscribe: <https://evil.example/u>"] if marketing else []
        for holds in verifiers(dns):
            assert holds(message.raw)
            assert not any(holds(line + b"\r\n" + message.raw) for line in more)
            # The same below the others, as a server on the way appends it
            assert not any(holds(message.raw.replace(b"\r\n\r\n", b"\r\n" + line + b"\r\n\r\n", 1)) for line in more)
    assert len({message.mail_from for message in found}) == 5


def test_a_key_that_follows_signs_what_comes_next(world: World) -> None:
    """A next key signs nothing before its record is there, and all that begins afterwards."""
    api, dns = world.api, world.dns
    domain = verified(api, dns, "next.example")
    rotated = api.post(f"/domains/{domain['id']}/rotate_key").expect(200)
    letter(api, "ann@later.example", "next.example")
    arrived(world, "later.example", 1)
    publish(dns, rotated)
    api.post(f"/domains/{domain['id']}/verify").expect(200)
    letter(api, "ann@later.example", "next.example")
    found = arrived(world, "later.example", 2)
    old, new = (kit.signatures(message.raw)[0].tags["s"] for message in found)
    assert (old[:3], new[:3]) == ("c1-", "c2-")
    assert all(holds(message.raw) for holds in verifiers(dns) for message in found)


def test_a_repeat_after_a_kill_is_the_same_bytes(world: World) -> None:
    """Killed while in doubt, and the key followed by another meanwhile: what goes again is what may have arrived."""
    api, dns = world.api, world.dns
    domain = verified(api, dns, "again.example")
    gate = world.sink.rules.store_then_hold("p1@doubt.example", times=1)
    made = campaign(api, people(api, 3, "Doubt"), "again.example")
    gate.wait_reached()
    publish(dns, api.post(f"/domains/{domain['id']}/rotate_key").expect(200))
    followed = api.post(f"/domains/{domain['id']}/verify").expect(200)
    assert [one["name"][:3] for one in followed["dns_records"] if one["purpose"] == "dkim"] == ["c2-"]
    world.server.kill()
    gate.release()
    world.server.start()
    done = completed(world.api, made)
    first, again = world.sink.to("p1@doubt.example")
    assert first.raw == again.raw and first.mail_from == again.mail_from
    assert done["stats"]["sent"] == 3 and all(holds(again.raw) for holds in verifiers(dns))


def test_an_unreadable_key_pauses_the_campaign(world: World) -> None:
    """A key that another secret.key was made for: nothing leaves, the campaign says why, nobody is blamed."""
    domain = verified(world.api, world.dns, "unreadable.example")
    group = people(world.api, 24, "Crowd")
    here = apsw.Connection(str(world.server.data / "campanero.db"))
    here.set_busy_timeout(10_000)
    here.execute("UPDATE domain_key SET private_key = zeroblob(1400) WHERE domain_id = ?", (domain["id"],))
    here.close()
    made = campaign(world.api, group, "unreadable.example")
    stopped = world.api.wait(f"/campaigns/{made['id']}", lambda row: row["status"] == "paused")
    assert "the DKIM key c1-" in str(stopped) and "of unreadable.example cannot be read" in str(stopped)
    assert not [one for one in world.sink.messages if one.to.endswith("@crowd.example")]
    assert {row["attempts"] for row in world.api.get("/messages", campaign_id=made["id"], limit=100).json} == {0}
    assert not world.api.get("/suppressions").json

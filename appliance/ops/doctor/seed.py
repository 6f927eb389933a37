"""Sends one message the whole way into the built-in inbox and reads it back as a recipient's server would.

It goes to nobody: whatever the transport, it is captured, and taken out of the inbox again. Its row stays, as a test.
"""

import hashlib
import http.client
import re
import ssl
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from email import message_from_bytes, policy
from email.utils import parseaddr
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_der_public_key

from appliance.core import addresses, clock
from appliance.ops.doctor import ground
from appliance.ops.doctor.findings import Line
from appliance.sending.delivery import dkim, resolver
from appliance.sending.delivery.resolver import Answer
from appliance.sending.messages import compose, senders
from appliance.sending.messages.ledger import AT_ONCE
from appliance.settings import config
from appliance.settings.schema import Config
from appliance.storage import work
from appliance.storage.models import Account, Message, MessageContent
from appliance.storage.open import fetch_one, run
from appliance.storage.work import writing

# Reads a mail as its recipient's server does: who signed it, where it comes back to, whether both fit its From.

Ask = Callable[[str, str], Answer]


def findings(source: bytes, mail_from: str, level: str, ask: Ask) -> Iterator[Line]:
    """Yield what a server would find; `level` is how bad it is where a signature is missing."""
    message = message_from_bytes(source, policy=policy.compat32)
    domain = _domain(parseaddr(str(message["From"]))[1])
    grave: Literal["warn", "fail"] = "fail" if level == "fail" else "warn"
    if domain.endswith(".invalid"):
        # A name that DNS never knows (RFC 2606): there is nothing to sign with and no record to propose
        words = f"no From address is set, so the test message was from @{domain}: no server outside takes such mail"
        yield Line(grave, "seed sender", words, "campanero: Settings, Sender, set the From address")
        return
    signed: list[str] = []
    for text in message.get_all("DKIM-Signature") or []:
        tags = _tags(str(text))
        fault = _fault(source, str(text), tags, ask)
        name = f"{tags.get('s')}._domainkey.{tags.get('d')}"
        if fault:
            yield Line("fail", "seed DKIM", f"{name}: {fault}")
        else:
            signed.append(tags["d"])
            yield Line("ok", "seed DKIM", f"signed by {tags['d']} ({name}), and the signature holds")
    if not message.get_all("DKIM-Signature"):
        fix = f"campanero: Settings, Sending domains, add {domain}"
        yield Line("fail" if grave == "fail" else "warn", "seed DKIM", f"mail from {domain} is not signed", fix)
    returns = _domain(mail_from)
    spf = _aligned(returns, domain) and _has(ask(returns, "TXT"), "v=spf1")
    if spf:
        yield Line("ok", "seed SPF", f"what bounces comes back to {returns}, which says who may send for it")
    else:
        why = "has no SPF record" if _aligned(returns, domain) else f"is not under {domain}"
        yield Line("warn", "seed SPF", f"what bounces comes back to {returns}, which {why}")
    yield from _dmarc(domain, bool(spf) or any(_aligned(one, domain) for one in signed), grave, ask)


def _dmarc(domain: str, is_met: bool, grave: str, ask: Ask) -> Iterator[Line]:
    parents = [domain.split(".", at)[-1] for at in range(domain.count("."))]
    found = next((name for name in parents if _has(ask(f"_dmarc.{name}", "TXT"), "v=DMARC1")), None)
    if found is None:
        fix = f'_dmarc.{domain}. TXT "v=DMARC1; p=none"'
        yield Line("warn", "seed DMARC", f"{domain} has no DMARC record; large mailbox providers want one", fix)
    if not is_met:
        words = f"neither a signature nor the return path belongs to {domain}: DMARC is not met"
        yield Line("fail" if grave == "fail" else "warn", "seed DMARC", words)
    elif found is not None:
        yield Line("ok", "seed DMARC", f"met for {domain}")


def _fault(source: bytes, header: str, tags: dict[str, str], ask: Ask) -> str | None:
    """Return what is wrong with a signature (RFC 6376, 6.1), or None."""
    head, _, body = source.partition(b"\r\n\r\n")
    if b64decode(tags.get("bh", "")) != hashlib.sha256(dkim.canonical_body(body)).digest():
        return "the body is not the one that was signed"
    answer = ask(f"{tags.get('s')}._domainkey.{tags.get('d')}", "TXT")
    if answer.state != "found":
        return f"the key cannot be read: {answer.words}"
    lines: dict[str, list[bytes]] = {}
    for line in dkim.canonical_head(head):
        lines.setdefault(line.partition(b":")[0].decode("latin-1"), []).append(line)
    data = b""
    for name in tags.get("h", "").lower().split(":"):
        left = lines.get(name.strip(), [])
        data += left.pop() + b"\r\n" if left else b""
    bare = header[: header.rindex("b=") + 2].replace("\r\n", "").replace("\n", "")
    data += dkim.canonical_head(f"DKIM-Signature: {bare}".encode())[0]
    return None if any(_holds(one, tags, data) for one in answer.records) else "the published key is another one"


def _holds(record: str, tags: dict[str, str], data: bytes) -> bool:
    try:
        public, value = b64decode(_tags(record).get("p", "")), b64decode(tags.get("b", ""))
        if tags.get("a") == "ed25519-sha256":
            Ed25519PublicKey.from_public_bytes(public).verify(value, hashlib.sha256(data).digest())
            return True
        key = load_der_public_key(public)
        if not isinstance(key, RSAPublicKey):
            return False
        key.verify(value, data, PKCS1v15(), SHA256())
    except (InvalidSignature, UnsupportedAlgorithm, ValueError):
        return False
    return True


def _tags(text: str) -> dict[str, str]:
    parts = (part.partition("=") for part in text.split(";"))
    return {name.strip(): "".join(value.split()) for name, _, value in parts if name.strip()}


def _domain(address: str) -> str:
    return address.rpartition("@")[2].lower()


def _aligned(name: str, domain: str) -> bool:
    return name == domain or name.endswith(f".{domain}") or domain.endswith(f".{name}")


def _has(answer: Answer, start: str) -> bool:
    return any(one.lower().startswith(start.lower()) for one in answer.records)


# The name is of nobody for ever (RFC 2606)
_TO = "seed@campanero.invalid"
_PATIENCE_SECONDS = 30.0
_LOOK_SECONDS = 0.1


def send(directory: Path, account_id: int | None) -> Iterator[Line]:
    """Send a message from the account's own address and look at it as it arrived."""
    if not ground.runs(directory):
        yield Line("fail", "seed", "the service does not run, so nothing is sent", "campanero serve")
        return
    account = _account(account_id)
    if account is None:
        yield Line("fail", "seed", "there is no such account", "campanero setup --email you@example.com")
        return
    number = work.write(_put, account)
    try:
        arrived = _wait(number)
        if arrived is None:
            status = fetch_one("SELECT status, error_text FROM message WHERE id = ?", (number,)) or ("gone", None)
            yield Line(
                "fail", "seed", f"message {number} did not arrive in {_PATIENCE_SECONDS:.0f} s: it is {status[0]}"
            )
            return
        sender = senders.resolve(account, None)
        yield Line("ok", "seed", f"message {number} from {sender} arrived in the built-in inbox")
        level = "fail" if config.current().email.transport != "capture" else "warn"
        yield from findings(arrived[1], arrived[0], level, resolver.lookup)
        yield _one_click(arrived[1])
    finally:
        work.write(_end, number)


def _account(account_id: int | None) -> Account | None:
    """Return the account, else the first one; read to the end, for a query that is not holds on to its moment."""
    found = list(Account.select().where((Account.id == account_id) if account_id else True).order_by(Account.id))
    return found[0] if found else None


def _put(account: Account) -> int:
    """Queue the message, with the headers of marketing mail."""
    writing()
    now, to = clock.now_ms(), addresses.email(_TO)
    sender = senders.resolve(account, None)
    message = Message.create(
        account=account, channel="email", recipient=to.value, recipient_key=to.key, sender=sender, status="queued",
        subject="Seed", source_type="test", transactional=True, test=True, provider="capture", due_at=AT_ONCE,
        created_at=now, updated_at=now,
    )  # fmt: skip
    domain = sender.rpartition("@")[2]
    headers = compose.marketing_headers(message.id, None, account.name, f"account-{account.id}", domain, account.id)
    MessageContent.create(message=message, subject="Seed", body="<p>Is this read as it was sent?</p>",
                          headers=dict(headers))  # fmt: skip
    return int(message.id)


def _wait(number: int) -> tuple[str, bytes] | None:
    end = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < end:
        found = fetch_one("SELECT mail_from, source FROM captured WHERE message_id = ?", (number,))
        if found is not None:
            return str(found[0]), bytes(found[1])
        time.sleep(_LOOK_SECONDS)
    return None


def _end(number: int) -> None:
    writing()
    run("DELETE FROM captured WHERE message_id = ?", (number,))
    run(
        "UPDATE message SET status = 'cancelled', due_at = NULL WHERE id = ? AND status IN ('queued', 'held')",
        (number,),
    )


def _door(here: Config) -> http.client.HTTPConnection:
    """Return a connection to our own door, whoever its certificate is of: we know where we go."""
    target, port = config.reached(here.listen)
    if not here.tls.certificate:
        return http.client.HTTPConnection(target, port, timeout=5)
    look = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    look.check_hostname, look.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection(target, port, timeout=5, context=look)


def _one_click(source: bytes) -> Line:
    """Follow the way out as its header says it, to our own door; looking changes nothing (RFC 8058)."""
    head = source.partition(b"\r\n\r\n")[0].replace(b"\r\n ", b" ").replace(b"\r\n\t", b" ").decode("utf-8", "replace")
    found = re.search(r"^List-Unsubscribe: *<(https?://[^>]+)>", head, re.MULTILINE | re.IGNORECASE)
    if found is None or "List-Unsubscribe=One-Click" not in head:
        return Line("fail", "seed one-click", "the headers of one-click unsubscribing are missing")
    parts = urlsplit(found[1])
    try:
        door = _door(config.current())
        door.request("GET", parts.path, headers={"Host": parts.netloc})
        status = door.getresponse().status
        door.close()
    except OSError as error:
        return Line("fail", "seed one-click", f"our own door does not answer: {error}")
    if status != 200:
        return Line("fail", "seed one-click", f"our own door answers {status} to {parts.path}")
    words = f"the link leads to {parts.scheme}://{parts.netloc}, and our door answers"
    if parts.scheme != "https":
        return Line(
            "warn", "seed one-click", f"{words}; mailbox providers follow https only", 'base_url = "https://..."'
        )
    return Line("ok", "seed one-click", words)

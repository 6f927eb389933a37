"""Reads a mail as its recipient's server does: who signed it, where it comes back to, whether both fit its From."""

import hashlib
from base64 import b64decode
from collections.abc import Callable, Iterator
from email import message_from_bytes, policy
from email.utils import parseaddr
from typing import Literal

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_der_public_key

from appliance.delivery import dkim
from appliance.delivery.resolver import Answer
from appliance.doctor.findings import Line

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

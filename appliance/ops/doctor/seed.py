"""The optional test message of `doctor`, which is sent to the built-in inbox and checked as a receiving server would.

The message goes to the built-in inbox whatever transport is configured, and is removed from the inbox afterwards. Its
row in the ledger stays, marked as a test.
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

from appliance.accounts.public_urls import base_url_of
from appliance.core import addresses, clock
from appliance.core.i18n import gettext
from appliance.ops.doctor import checks
from appliance.ops.doctor.checks import Finding
from appliance.sending.delivery import dkim, dns_lookup
from appliance.sending.delivery.dns_lookup import DnsAnswer
from appliance.sending.messages import compose, senders
from appliance.sending.messages.ledger import DUE_NOW
from appliance.settings import config
from appliance.settings.schema import Config
from appliance.storage import transactions
from appliance.storage.database import fetch_one, run
from appliance.storage.models import Account, Message, MessageContent
from appliance.storage.transactions import require_write_transaction

Lookup = Callable[[str, str], DnsAnswer]


def check_received_message(source: bytes, mail_from: str, level: str, lookup: Lookup) -> Iterator[Finding]:
    """Check DKIM, SPF and DMARC of a message as a receiving server would.

    `source` is the whole message, `mail_from` its return path. `level` is the level of findings that would prevent
    delivery, such as a missing signature: `fail`, or `warn` while the transport is the built-in inbox.
    """
    message = message_from_bytes(source, policy=policy.compat32)
    domain = _domain_of(parseaddr(str(message["From"]))[1])
    grave: Literal["warn", "fail"] = "fail" if level == "fail" else "warn"
    if domain.endswith(".invalid"):
        # The domain is reserved (RFC 2606) and has no DNS records, so there is no record to propose.
        words = gettext(
            "no From address is set (set it under Settings, General), so the test message was from @%(domain)s, which "
            "mail servers reject",
            domain=domain,
        )
        yield Finding(grave, "seed sender", words)
        return
    signing_domains: list[str] = []
    for text in message.get_all("DKIM-Signature") or []:
        tags = _parse_tags(str(text))
        fault = _find_signature_fault(source, str(text), tags, lookup)
        name = f"{tags.get('s')}._domainkey.{tags.get('d')}"
        if fault:
            yield Finding("fail", "seed DKIM", f"{name}: {fault}")
        else:
            signing_domains.append(tags["d"])
            yield Finding(
                "ok",
                "seed DKIM",
                gettext("signed by %(domain)s (%(name)s); the signature is valid", domain=tags["d"], name=name),
            )
    if not message.get_all("DKIM-Signature"):
        yield Finding(
            "fail" if grave == "fail" else "warn",
            "seed DKIM",
            gettext("email from %(domain)s is not signed (add the domain under Settings, Domains)", domain=domain),
        )
    return_domain = _domain_of(mail_from)
    is_spf_aligned = _is_aligned(return_domain, domain) and _has_record(lookup(return_domain, "TXT"), "v=spf1")
    if is_spf_aligned:
        yield Finding(
            "ok",
            "seed SPF",
            gettext("the return path %(return_domain)s has an SPF record", return_domain=return_domain),
        )
    else:
        words = (
            gettext("the return path %(name)s has no SPF record", name=return_domain)
            if _is_aligned(return_domain, domain)
            else gettext("the return path %(name)s is not under %(domain)s", name=return_domain, domain=domain)
        )
        yield Finding("warn", "seed SPF", words)
    yield from _check_dmarc(
        domain,
        bool(is_spf_aligned) or any(_is_aligned(signing_domain, domain) for signing_domain in signing_domains),
        grave,
        lookup,
    )


def _check_dmarc(domain: str, is_met: bool, grave: str, ask: Lookup) -> Iterator[Finding]:
    parents = [domain.split(".", at)[-1] for at in range(domain.count("."))]
    record_domain = next((name for name in parents if _has_record(ask(f"_dmarc.{name}", "TXT"), "v=DMARC1")), None)
    if record_domain is None:
        fix = f'_dmarc.{domain}. TXT "v=DMARC1; p=none"'
        yield Finding(
            "warn",
            "seed DMARC",
            gettext("%(domain)s has no DMARC record, which large mailbox providers require", domain=domain),
            fix,
        )
    if not is_met:
        words = gettext("neither a signature nor the return path belongs to %(domain)s: DMARC fails", domain=domain)
        yield Finding("fail" if grave == "fail" else "warn", "seed DMARC", words)
    elif record_domain is not None:
        yield Finding("ok", "seed DMARC", gettext("passes for %(domain)s", domain=domain))


def _find_signature_fault(source: bytes, header: str, tags: dict[str, str], lookup: Lookup) -> str | None:
    """Return why a DKIM signature is invalid (RFC 6376, section 6.1), or None if it is valid.

    `source` is the whole message, `header` the value of the signature's header, and `tags` its tags by name.
    """
    head, _, body = source.partition(b"\r\n\r\n")
    if b64decode(tags.get("bh", "")) != hashlib.sha256(dkim.canonicalize_body(body)).digest():
        return gettext("the body differs from the signed one")
    answer = lookup(f"{tags.get('s')}._domainkey.{tags.get('d')}", "TXT")
    if answer.state != "found":
        return gettext("the public key cannot be read: %(error)s", error=answer.error)
    lines: dict[str, list[bytes]] = {}
    for line in dkim.canonicalize_headers(head):
        lines.setdefault(line.partition(b":")[0].decode("latin-1"), []).append(line)
    data = b""
    for name in tags.get("h", "").lower().split(":"):
        remaining = lines.get(name.strip(), [])
        data += remaining.pop() + b"\r\n" if remaining else b""
    bare = header[: header.rindex("b=") + 2].replace("\r\n", "").replace("\n", "")
    data += dkim.canonicalize_headers(f"DKIM-Signature: {bare}".encode())[0]
    return (
        None
        if any(_verify_signature(record, tags, data) for record in answer.records)
        else gettext("the published key does not match: it is another key")
    )


def _verify_signature(record: str, tags: dict[str, str], data: bytes) -> bool:
    try:
        public, value = b64decode(_parse_tags(record).get("p", "")), b64decode(tags.get("b", ""))
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


def _parse_tags(text: str) -> dict[str, str]:
    parts = (part.partition("=") for part in text.split(";"))
    return {name.strip(): "".join(value.split()) for name, _, value in parts if name.strip()}


def _domain_of(address: str) -> str:
    return address.rpartition("@")[2].lower()


def _is_aligned(name: str, domain: str) -> bool:
    return name == domain or name.endswith(f".{domain}") or domain.endswith(f".{name}")


def _has_record(answer: DnsAnswer, start: str) -> bool:
    return any(record.lower().startswith(start.lower()) for record in answer.records)


# The domain `invalid` is reserved (RFC 2606), so this address reaches no one.
_RECIPIENT = "seed@campanero.invalid"
_ARRIVAL_TIMEOUT_SECONDS = 30.0
_POLL_SECONDS = 0.1


def check_test_message(directory: Path, account_id: int | None) -> Iterator[Finding]:
    """Send a test message from the From address of an account, and check it on arrival.

    `account_id` None means the first account. The running service sends the message, so the check fails if the service
    is not running.
    """
    if not checks.describe_process(directory):
        yield Finding("fail", "seed", gettext("the service is not running, so nothing is sent"), "campanero serve")
        return
    account = _find_account(account_id)
    if account is None:
        yield Finding("fail", "seed", gettext("the account does not exist"), "campanero setup --email you@example.com")
        return
    number = transactions.write(_queue_message, account)
    try:
        arrived = _wait_for_message(number)
        if arrived is None:
            status = fetch_one("SELECT status, error_text FROM message WHERE id = ?", (number,)) or ("gone", None)
            yield Finding(
                "fail",
                "seed",
                gettext(
                    "message %(number)s did not arrive within %(seconds)s s: its status is %(status)s",
                    number=number,
                    seconds=f"{_ARRIVAL_TIMEOUT_SECONDS:.0f}",
                    status=status[0],
                ),
            )
            return
        sender = senders.resolve_email(account, None)
        yield Finding(
            "ok",
            "seed",
            gettext("message %(number)s from %(sender)s arrived in the test inbox", number=number, sender=sender),
        )
        level = "fail" if config.current().email.transport != "capture" else "warn"
        yield from check_received_message(arrived[1], arrived[0], level, dns_lookup.lookup)
        yield _check_one_click(arrived[1])
    finally:
        transactions.write(_remove_message, number)


def _find_account(account_id: int | None) -> Account | None:
    """Return the account, or the first account if `account_id` is None; None if the account does not exist.

    The query is read to its end, because an unfinished query would hide the later arrival of the message.
    """
    accounts = list(Account.select().where((Account.id == account_id) if account_id else True).order_by(Account.id))
    return accounts[0] if accounts else None


def _queue_message(account: Account) -> int:
    """Queue the test message with the headers of marketing email, and return its id."""
    require_write_transaction()
    now, to = clock.now_ms(), addresses.parse_email(_RECIPIENT)
    sender = senders.resolve_email(account, None)
    message = Message.create(
        account=account, channel="email", recipient=to.value, recipient_key=to.key, sender=sender, status="queued",
        subject="Seed", source_type="test", transactional=True, test=True, provider="capture", due_at=DUE_NOW,
        created_at=now, updated_at=now,
    )  # fmt: skip
    domain = sender.rpartition("@")[2]
    headers = compose.build_marketing_headers(
        base_url_of(account), message.id, None, account.name, f"account-{account.id}", domain, account.id
    )
    MessageContent.create(message=message, subject="Seed", body="<p>Is this read as it was sent?</p>",
                          headers=dict(headers))  # fmt: skip
    return int(message.id)


def _wait_for_message(number: int) -> tuple[str, bytes] | None:
    deadline = time.monotonic() + _ARRIVAL_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        row = fetch_one("SELECT mail_from, source FROM captured_message WHERE message_id = ?", (number,))
        if row is not None:
            return str(row[0]), bytes(row[1])
        time.sleep(_POLL_SECONDS)
    return None


def _remove_message(number: int) -> None:
    require_write_transaction()
    run("DELETE FROM captured_message WHERE message_id = ?", (number,))
    run(
        "UPDATE message SET status = 'cancelled', due_at = NULL WHERE id = ? AND status IN ('queued', 'held')",
        (number,),
    )


def _connect_to_service(settings: Config) -> http.client.HTTPConnection:
    """Return a connection to the running service.

    The certificate of the service is not verified, because no certificate is issued for the local address.
    """
    target, port = config.reachable_address(settings.listen)
    if not settings.tls.certificate:
        return http.client.HTTPConnection(target, port, timeout=5)
    tls_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls_context.check_hostname, tls_context.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection(target, port, timeout=5, context=tls_context)


def _check_one_click(source: bytes) -> Finding:
    """Check that the headers for one-click unsubscribe (RFC 8058) are present and that the service serves their link.

    The request is a GET, which unsubscribes no one.
    """
    head = source.partition(b"\r\n\r\n")[0].replace(b"\r\n ", b" ").replace(b"\r\n\t", b" ").decode("utf-8", "replace")
    match = re.search(r"^List-Unsubscribe: *<(https?://[^>]+)>", head, re.MULTILINE | re.IGNORECASE)
    if match is None or "List-Unsubscribe=One-Click" not in head:
        return Finding("fail", "seed one-click", gettext("the headers for one-click unsubscribe are missing"))
    parts = urlsplit(match[1])
    try:
        connection = _connect_to_service(config.current())
        connection.request("GET", parts.path, headers={"Host": parts.netloc})
        status = connection.getresponse().status
        connection.close()
    except OSError as error:
        return Finding("fail", "seed one-click", gettext("the service does not answer: %(error)s", error=error))
    if status != 200:
        return Finding(
            "fail",
            "seed one-click",
            gettext("the service answers %(status)s to %(path)s", status=status, path=parts.path),
        )
    words = gettext("the link leads to %(url)s, and the service answers", url=f"{parts.scheme}://{parts.netloc}")
    if parts.scheme != "https":
        return Finding(
            "warn",
            "seed one-click",
            gettext("%(words)s; mailbox providers accept only https", words=words),
            'base_url = "https://..."',
        )
    return Finding("ok", "seed one-click", words)

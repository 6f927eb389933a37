"""Checks of connections: email and SMS transports, ports, DNS records and From addresses."""

import asyncio
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from appliance.core import i18n
from appliance.core.crypto import EXPIRES_SOON_DAYS
from appliance.core.errors import DeliveryError
from appliance.core.i18n import gettext, gettext_noop, translate_stored
from appliance.ops.doctor import checks
from appliance.ops.doctor.checks import Finding
from appliance.sending.delivery import connection_errors, relay_ports, smtp_connect
from appliance.sending.delivery.mx_routes import DIRECT
from appliance.sending.delivery.oauth import PROVIDERS as PROVIDERS_OF_MAILBOXES
from appliance.sending.domains import dns_checks, records, store
from appliance.sending.domains import records as spelling
from appliance.sending.domains.records import Record
from appliance.sending.messages import oauth_grants
from appliance.sending.messages import senders as rules
from appliance.sending.sms.providers import PROVIDERS
from appliance.sending.sms.providers.base import Provider
from appliance.sending.transports import TRANSPORTS
from appliance.sending.transports.base import Transport
from appliance.settings import config, transports
from appliance.settings.schema import Email
from appliance.storage.database import rows
from appliance.storage.models import Account, SendingDomain

_ANSWER_SECONDS = 15
_CONNECT_SECONDS = 5.0


def check_email_transport(_: Path) -> Iterator[Finding]:
    """Check that each relay or HTTP API accepts a connection and the login. No message is sent.

    For direct delivery, check instead that well-known mail servers can be reached and that the HELO name is in DNS.
    """
    email = config.current().email
    if email.transport == transports.CAPTURE:
        words = gettext("test mode: messages are captured in the test inbox")
        meaning = gettext("Test mode is on: emails go to the test inbox, and nothing is sent to your contacts.")
        yield Finding("ok", "email transport", words, meaning=meaning)
        return
    for key in transports.list_keys(email):
        named, own = transports.find_named(key, email), transports.build_settings(key, email)
        if own.transport == DIRECT:
            yield from _check_direct()
        elif own.transport in TRANSPORTS:
            transport = TRANSPORTS[own.transport]
            yield _check_api(transport, own, named.name if named else transport.label)
        else:
            yield _check_relay(own, named.name if named else key)


def check_consent(_: Path) -> Iterator[Finding]:
    """Check the OAuth 2.0 consent of the mailbox that sends, if the transport needs one. No token is requested."""
    needed = oauth_grants.find_needed_status()
    if needed is None:
        return
    label, status = PROVIDERS_OF_MAILBOXES[needed[0]].label, needed[1]
    fix = f"{config.base_url(config.current())}/settings/sending/connect/{needed[0]}"
    match status.state:
        case "missing":
            yield Finding("fail", "consent", gettext("no mailbox is connected with %(provider)s", provider=label), fix)
        case "rejected":
            yield Finding("fail", "consent", status.failure, fix)
        case "expiring":
            words = gettext("that of %(provider)s ends in %(days)s days", provider=label, days=status.days_left)
            yield Finding("warn", "consent", words, fix)
        case _:
            mailbox = status.email or gettext("the mailbox")
            yield Finding("ok", "consent", gettext("%(provider)s: %(mailbox)s", provider=label, mailbox=mailbox))


def check_outgoing_ports(_: Path) -> Iterator[Finding]:
    """Report which SMTP ports of the relay can be reached from this machine, and which to use if its own cannot.

    All ports are tried once, at the same time (`relay_ports.probe_ports`). There is no finding without a relay.
    """
    settings = config.current().email
    if settings.transport != "relay" or not settings.relay.host:
        return
    configured = settings.relay.port
    states = asyncio.run(relay_ports.probe_ports(settings.relay.host, configured))
    listed = {
        is_open: ", ".join(str(port) for port in states if states[port] is is_open) or gettext("none")
        for is_open in (True, False)
    }
    words = gettext(
        "%(host)s: can be reached: %(open)s; cannot be reached: %(shut)s",
        host=settings.relay.host, open=listed[True], shut=listed[False],
    )  # fmt: skip
    if states[configured]:
        yield Finding("ok", "outgoing ports", words)
        return
    port = relay_ports.choose_port(states, configured)
    if port is not None:
        fix = f'[email.relay]\nport = {port}\ntls = "{relay_ports.encryption_of(port)}"'
        yield Finding("fail", "outgoing ports", words, fix)
        return
    meaning = gettext(
        "The mail server cannot be reached over any SMTP port. If your hosting company blocks these ports, select an "
        "email service over HTTPS under Settings, Sending."
    )
    yield Finding("fail", "outgoing ports", words, '[email]\ntransport = "ses"  # or another HTTP API', meaning)


def _check_direct() -> Iterator[Finding]:
    port_block = asyncio.run(smtp_connect.find_port_block())
    yield (
        Finding("fail", "email transport", port_block)
        if port_block
        else Finding("ok", "email transport", gettext("direct: mail servers can be reached"))
    )
    for helo_finding in smtp_connect.check_helo_name():
        yield Finding(helo_finding.level, "HELO name", helo_finding.message, helo_finding.record)


def _check_relay(email: Email, name: str) -> Finding:
    try:
        asyncio.run(asyncio.wait_for(smtp_connect.check_relay_login(email), _ANSWER_SECONDS))
    except DeliveryError as error:
        phrases = [f"{name}: {translate_stored(str(error))}", *([translate_stored(error.help)] if error.help else [])]
        return Finding("fail", "email transport", "; ".join(phrases))
    except TimeoutError:
        words = gettext("%(name)s: no answer within %(seconds)s s", name=name, seconds=_ANSWER_SECONDS)
        return Finding("fail", "email transport", words)
    if email.relay.username:
        return Finding("ok", "email transport", gettext("%(name)s: answers and accepts the login", name=name))
    return Finding("ok", "email transport", gettext("%(name)s: answers", name=name))


def _check_api(transport: Transport, email: Email, name: str) -> Finding:
    try:
        words = asyncio.run(asyncio.wait_for(transport.check(email), _ANSWER_SECONDS))
    except DeliveryError as error:
        return Finding("fail", "email transport", f"{name}: {translate_stored(error.text)}")
    except TimeoutError:
        words = gettext("%(name)s: no answer within %(seconds)s s", name=name, seconds=_ANSWER_SECONDS)
        return Finding("fail", "email transport", words)
    return Finding("ok", "email transport", f"{name}: {words}")


def check_listeners(directory: Path) -> Iterator[Finding]:
    """Check that the service answers at each listen address; if it is stopped, check that it could listen there.

    Without `inbound.listen`, report how bounces are received, or warn that they are not.
    """
    settings = config.current()
    yield from _check_listener("listen", settings.listen, directory, b"")
    submission = settings.submission
    if submission.listen:
        yield from _check_listener("submission.listen", submission.listen, directory, b"220")
    if submission.listen_tls:
        yield from _check_listener("submission.listen_tls", submission.listen_tls, directory, b"")
    if settings.inbound.listen:
        yield from _check_listener("inbound.listen", settings.inbound.listen, directory, b"220")
    elif settings.email.transport == DIRECT:
        words = gettext("off: bounces are not received, so sending to dead addresses continues")
        yield Finding("warn", "inbound.listen", words, '[inbound]\nlisten = "0.0.0.0:25"')
    else:
        words = gettext("off; bounces are only received through the webhooks of the relay")
        is_connected = settings.email.feedback_secret or any(msgspec.structs.astuple(settings.email.hooks))
        yield Finding("ok" if is_connected else "note", "inbound.listen", words)


def _check_listener(name: str, address: str, directory: Path, greeting: bytes) -> Iterator[Finding]:
    target, port = config.reachable_address(address)
    try:
        with socket.create_connection((target, port), _CONNECT_SECONDS) as connection:
            reply = connection.recv(100) if greeting else b""
    except OSError as error:
        if checks.describe_process(directory):
            reason = connection_errors.explain_failure(error).message
            yield Finding(
                "fail",
                name,
                gettext(
                    "%(address)s does not answer, although the service is running: %(reason)s",
                    address=address,
                    reason=reason,
                ),
            )
        else:
            yield from _check_port_is_free(name, address, target, port)
        return
    if not reply.startswith(greeting):
        yield Finding(
            "fail",
            name,
            gettext("another program answers at %(address)s: %(reply)s", address=address, reply=f"{reply[:60]!r}"),
        )
    elif not checks.describe_process(directory):
        yield Finding(
            "fail", name, gettext("another program answers at %(address)s; the service cannot start", address=address)
        )
    else:
        yield Finding("ok", name, gettext("%(address)s answers", address=address))


def _check_port_is_free(name: str, address: str, target: str, port: int) -> Iterator[Finding]:
    try:
        with socket.create_server((target, port), family=socket.AF_INET6 if ":" in target else socket.AF_INET):
            meaning = gettext("Campanero is not running, so nothing can be opened. Ask your administrator to start it.")
            yield Finding("ok", name, gettext("%(address)s is free for the service", address=address), meaning=meaning)
    except OSError as error:
        yield Finding(
            "fail",
            name,
            gettext("cannot listen on %(address)s: %(value)s", address=address, value=error.strerror or error),
        )


def check_base_url(_: Path) -> Iterator[Finding]:
    """Check that the base URL of links is https and that browsers trust its certificate."""
    settings = config.current()
    base = config.base_url(settings)
    parts = urlsplit(base)
    if parts.scheme == "https":
        yield from _check_public_certificate(base, parts.hostname or "", parts.port or 443)
        return
    if settings.email.transport == "capture":
        yield Finding("note", "links", gettext("%(base)s; use https before sending real email", base=base))
        return
    words = gettext(
        "%(base)s is not https, which mailbox providers require for one-click unsubscribe (RFC 8058)", base=base
    )
    yield Finding("warn", "links", words, 'base_url = "https://mail.example.com"')


def _check_public_certificate(base: str, host: str, port: int) -> Iterator[Finding]:
    """Connect to the base URL and verify its certificate as a browser would.

    Warn if the base URL cannot be reached, or if the certificate expires within EXPIRES_SOON_DAYS.
    """
    try:
        with (
            socket.create_connection((host, port), _CONNECT_SECONDS) as plain,
            ssl.create_default_context().wrap_socket(plain, server_hostname=host) as safe,
        ):
            certificate = safe.getpeercert() or {}
    except ssl.SSLCertVerificationError as error:
        yield Finding(
            "fail",
            "links",
            gettext(
                "%(base)s: browsers do not trust its certificate: %(verify_message)s",
                base=base,
                verify_message=error.verify_message,
            ),
        )
        return
    except OSError as error:
        yield Finding(
            "warn",
            "links",
            gettext(
                "%(base)s cannot be reached from this machine: %(message)s",
                base=base,
                message=translate_stored(connection_errors.explain_failure(error).message),
            ),
            meaning=gettext(
                "The links of your emails may not open. Click one in a test email; if it does not open, ask your "
                "administrator to correct this before your next campaign."
            ),
        )
        return
    ends = datetime.fromtimestamp(ssl.cert_time_to_seconds(str(certificate["notAfter"])), UTC)
    days = (ends - datetime.now(UTC)).days
    yield Finding(
        "warn" if days < EXPIRES_SOON_DAYS else "ok",
        "links",
        gettext("%(base)s; its certificate is valid for %(days)s days", base=base, days=days),
        meaning=gettext(
            "Browsers will soon warn people who click a link in your emails. Ask your administrator for a new "
            "certificate."
        )
        if days < EXPIRES_SOON_DAYS
        else "",
    )


_ANY_MESSAGE_ID = 1


def check_sms_transport(_: Path) -> Iterator[Finding]:
    """Sign in to the SMS provider, report its warnings, and check that it can post callbacks to the base URL.

    The callbacks are delivery reports and incoming SMS. No SMS is sent.
    """
    name = config.current().sms.transport
    if name == "capture":
        words = gettext("test mode: messages are captured in the test inbox")
        meaning = gettext("Test mode is on: SMS go to the test inbox, and nothing is sent to your contacts.")
        yield Finding("ok", "SMS transport", words, meaning=meaning)
        return
    provider = PROVIDERS[name]
    try:
        words = asyncio.run(asyncio.wait_for(provider.check_login(), _ANSWER_SECONDS))
    except (DeliveryError, TimeoutError) as error:
        reason = translate_stored(str(error)) or gettext("no answer")
        yield Finding("fail", "SMS transport", f"{name}: {reason}")
    else:
        yield Finding("ok", "SMS transport", f"{name}: {translate_stored(words)}")
    for words in provider.list_warnings():
        yield Finding("warn", "SMS transport", words)
    yield _check_sms_callbacks(provider)


def _check_sms_callbacks(provider: Provider) -> Finding:
    base = config.base_url(config.current())
    callback_url = f"{base}/hooks/{provider.hooks[-1]}"
    if not provider.build_callback_url(_ANY_MESSAGE_ID):
        words = gettext(
            "the provider cannot reach %(base)s: delivery reports and replies such as STOP are not received", base=base
        )
        return Finding("warn", "SMS callbacks", words, 'base_url = "https://mail.example.com"')
    return Finding(
        "ok",
        "SMS callbacks",
        gettext("configure the provider to post incoming SMS to %(callback_url)s", callback_url=callback_url),
    )


def check_domains(_: Path, account_id: int | None) -> Iterator[Finding]:
    """Look up the DNS records of every enabled sending domain without changing the stored results."""
    enabled = SendingDomain.select().where(SendingDomain.enabled).order_by(SendingDomain.id)
    domains = list(enabled if account_id is None else enabled.where(SendingDomain.account == account_id))
    if not domains:
        is_real = config.current().email.transport != "capture"
        words = gettext("none: real email must be sent from a domain of yours (add it under Settings, Domains)")
        yield Finding("warn" if is_real else "note", "domains", words)
    for domain in domains:
        expected_records = records.get_records(domain)
        checked_records = dns_checks.check_records(expected_records, domain.name)
        invalid_records = [checked for checked in checked_records if checked.valid != "valid"]
        for record in invalid_records:
            if record.value:
                yield _report_record(domain, record)
        yield from _report_unnamed_records(domain, [checked for checked in invalid_records if not checked.value])
        if not invalid_records:
            yield Finding(
                "ok",
                f"domain {domain.name}",
                gettext("all %(count)s records are correct", count=len(checked_records)),
            )


def _report_unnamed_records(domain: SendingDomain, waiting: list[Record]) -> Iterator[Finding]:
    """Yield a finding for each reason why DNS records have no value yet, with the names of the records."""
    for problem in dict.fromkeys(record.problem for record in waiting):
        unnamed_records = [record for record in waiting if record.problem == problem]
        named = ", ".join(f"{record.record_type} {record.name}" for record in unnamed_records)
        is_grave = any(record.required for record in unnamed_records) and config.current().email.transport != "capture"
        fix = 'base_url = "https://mail.example.com"' if problem == records.describe_missing_public_name() else ""
        yield Finding(
            "fail" if is_grave else "warn", f"domain {domain.name}", f"{named}: {translate_stored(problem or '')}", fix
        )


def _report_record(domain: SendingDomain, record: Record) -> Finding:
    name = f"domain {domain.name}"
    problem = translate_stored(record.problem or gettext_noop("not found"))
    description = f"{record.record_type} {record.name}: {problem}"
    if record.valid == "unknown":
        return Finding("warn", name, gettext("%(record)s (lookup failed)", record=description))
    is_grave = record.required and config.current().email.transport != "capture"
    value = f"{record.priority} {record.value}".strip()
    quoted_value = f'"{value}"' if record.record_type == "TXT" else f"{value}."
    return Finding(
        "fail" if is_grave else "warn", name, description, f"{record.name}. {record.record_type} {quoted_value}"
    )


class _UsedAddress(NamedTuple):
    """A From address, the id of its account, and a text that names the account or campaign that uses it."""

    account_id: int
    address: str
    used_by: str


def check_senders(_: Path, account_id: int | None) -> Iterator[Finding]:
    """Check that the domain of every From address of accounts and of active or paused campaigns is verified."""
    email_settings = config.current().email
    users: dict[tuple[int, str], list[str]] = {}
    for used in _list_used_addresses(account_id):
        users.setdefault((used.account_id, used.address), []).append(used.used_by)
    for (number, address), used_by in users.items():
        by = i18n.format_list(used_by)
        domain = spelling.domain_of_address(address)
        if store.is_verified(number, domain):
            words = gettext("%(address)s (%(by)s): signed by its own domain; DMARC passes", address=address, by=by)
            attention = store.get_attention(number, domain)
            yield Finding(
                "warn" if attention else "ok",
                "from",
                f"{words}; {store.describe_attention(attention)}" if attention else words,
                meaning=gettext(
                    "Emails from this address are still accepted, but an entry of its domain is missing or wrong. "
                    "Open the domain under Settings, Domains to see what to correct."
                )
                if attention
                else "",
            )
            continue
        is_grave = email_settings.transport != "capture" and not email_settings.allow_unverified_domains
        name = spelling.display_domain(domain)
        words = gettext(
            "%(address)s (%(by)s): %(name)s is not verified (add it under Settings, Domains), so email is not signed "
            "and DMARC fails",
            address=address,
            by=by,
            name=name,
        )
        yield Finding("fail" if is_grave else "warn", "from", words)


def _list_used_addresses(account_id: int | None) -> Iterator[_UsedAddress]:
    accounts = Account.select().order_by(Account.id)
    for account in accounts if account_id is None else accounts.where(Account.id == account_id):
        address = rules.resolve_email(account, None)
        if account.email_from_email or not address.endswith(".invalid"):
            yield _UsedAddress(account.id, address, gettext("account %(id)s", id=account.id))
        live = rows(
            "SELECT c.name, t.from_email FROM campaign c JOIN template t ON t.id = c.template_id "
            "WHERE c.account_id = ? AND c.deleted_at IS NULL AND c.status IN ('active', 'paused') ORDER BY c.id",
            (account.id,),
        )
        for name, chosen in live:
            used = rules.resolve_email(account, chosen)
            if not used.endswith(".invalid"):
                yield _UsedAddress(account.id, used, gettext("campaign “%(name)s”", name=name))

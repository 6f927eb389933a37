"""Open SMTP connections to the relay, the capture server or the mail servers of a domain.

Also check this machine as a sender: its EHLO name in DNS, and whether it can connect to other mail servers at all.
"""

import asyncio
import base64
import ipaddress
import random
import socket
import ssl
import threading
from collections.abc import Callable
from functools import cache
from itertools import groupby
from typing import Literal, NamedTuple

from appliance.core.errors import ClientRejected, ConnectionFailed, Deferred, DeliveryError, RecipientRejected
from appliance.core.i18n import gettext_noop, gettext_stored
from appliance.sending.delivery import connection_errors, dns_lookup, mx_routes, safe_http
from appliance.sending.delivery.connection_errors import Cause
from appliance.sending.delivery.oauth import tokens
from appliance.sending.delivery.smtp_client import (
    ConnectionLost,
    EncryptionFailed,
    Reply,
    Server,
    SmtpClient,
    TokenSource,
    connection_error,
)
from appliance.settings import config, transports
from appliance.settings.config import parse_seconds
from appliance.settings.schema import Email

# Errors are stored in English, and translated where they are shown.
UNREACHABLE = gettext_stored("%(host)s:%(port)s cannot be reached: %(error)s")
_TLS_FAILED = gettext_stored("TLS with %(host)s:%(port)s failed: %(error)s")
_NO_STARTTLS = gettext_stored("%(host)s offers no STARTTLS; nothing was sent in clear text")
_CLEAR_TEXT_PASSWORD = gettext_noop("the password would be sent in clear text: set tls to starttls or tls")
_MAX_UNSENT_BYTES = 16_384
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
ContextFactory = Callable[[], ssl.SSLContext]
_own_hostname = ""
_hostname_lock = threading.Lock()


async def open_connection(server: Server, context: ContextFactory = ssl.create_default_context) -> SmtpClient:
    """Connect to a server, encrypt and log in as its settings require, and return the open connection.

    Raises ClientRejected for a failed TLS handshake, a rejected login or an unusable setting, ConnectionFailed if the
    server cannot be reached, and the error of `connection_error` if the server rejects the connection. With
    `tls="offered"`, raises EncryptionFailed if the server offers STARTTLS but the handshake fails.
    """
    client = SmtpClient(server)
    try:
        await _open_socket(client, context if server.tls == "tls" else None)
        await _start_session(client, context)
    except ssl.SSLError as error:
        client.abort()
        cause = connection_errors.explain_failure(error)
        text = _TLS_FAILED % {"host": server.host, "port": server.port, "error": cause.message}
        raise _with_cause(ClientRejected(text), cause) from None
    except (OSError, ConnectionLost) as error:
        client.abort()
        cause = connection_errors.explain_failure(error, server.connect_timeout)
        text = UNREACHABLE % {"host": server.host, "port": server.port, "error": cause.message}
        raise _with_cause(ConnectionFailed(text), cause) from None
    except DeliveryError as error:
        await client.close()
        if error.smtp is not None and not error.cause:
            _with_cause(error, connection_errors.BUSY if error.smtp < 500 else connection_errors.CONNECTION_REJECTED)
        raise
    except EncryptionFailed:
        client.abort()
        raise
    except asyncio.CancelledError:
        client.abort()
        raise
    return client


def _with_cause(error: DeliveryError, cause: Cause) -> DeliveryError:
    """Set `cause` and `help` of an error from the cause of a failed connection, and return the error."""
    error.cause, error.help = cause.name, cause.help
    return error


async def _open_socket(client: SmtpClient, context: ContextFactory | None) -> None:
    server = client.server
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(server.connect_timeout):
            transport, _ = await loop.create_connection(
                lambda: client, server.address or server.host, server.port,
                ssl=None if context is None else context(),
                ssl_handshake_timeout=None if context is None else server.connect_timeout,
            )  # fmt: skip
    except ValueError as error:
        if isinstance(error, OSError):
            raise  # an untrusted certificate raises an error that is both a ValueError and an OSError
        # Python cannot encode the host name, so DNS was not queried
        raise ClientRejected(f"{server.host!r} is not a valid host name: {error}") from None
    connection = transport.get_extra_info("socket")
    if connection is not None:
        # Each write is a complete step of the client; waiting for a full packet would cost 40 ms for each message
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Bytes in the system's send buffer count as sent. With a buffer that holds whole large messages, a connection
        # that breaks in the middle of one would leave its outcome unknown without need
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _MAX_UNSENT_BYTES)


async def _start_session(client: SmtpClient, context: ContextFactory) -> None:
    _require_success(await client.read_banner())
    await _ehlo(client)
    server = client.server
    encrypted = server.tls == "tls"
    if server.tls == "starttls":
        if "STARTTLS" not in client.extensions:
            raise ClientRejected(_NO_STARTTLS % {"host": server.host})
        _require_success(await client.send_command("STARTTLS"))
        await client.encrypt(context())
        await _ehlo(client)
        encrypted = True
    if server.tls == "offered" and "STARTTLS" in client.extensions:
        await _try_to_encrypt(client, context)
    if server.username or server.token_source is not None:
        if not encrypted and server.host not in _LOOPBACK:
            raise ClientRejected(_CLEAR_TEXT_PASSWORD)
        await (_log_in(client) if server.token_source is None else _log_in_with_token(client, server.token_source))


async def _try_to_encrypt(client: SmtpClient, context: ContextFactory) -> None:
    """Send STARTTLS and start TLS. Raises EncryptionFailed if the handshake fails.

    A server that rejects the command, although it offers it, is used without encryption.
    """
    reply = await client.send_command("STARTTLS")
    if not reply.is_good:
        return
    try:
        await client.encrypt(context())
    except (OSError, ConnectionLost, ValueError) as error:
        raise EncryptionFailed(str(error) or type(error).__name__) from None
    await _ehlo(client)


async def _ehlo(client: SmtpClient) -> None:
    """Send EHLO and store the extensions of the server, or HELO without extensions if it does not know EHLO.

    Raises the error of `connection_error` if both are rejected.
    """
    name = client.server.helo or await _get_own_hostname()
    reply = await client.send_command(f"EHLO {name}")
    if not reply.is_good and reply.code in (500, 502, 550):
        reply = await client.send_command(f"HELO {name}")
        _require_success(reply)
        client.extensions = {}
        return
    _require_success(reply)
    lines = (line.partition(" ") for line in reply.text.splitlines()[1:])
    client.extensions = {word.upper(): parameters.strip() for word, _, parameters in lines}


async def _get_own_hostname() -> str:
    """Return the host name of this machine; it is resolved once, in a thread because name servers may be slow."""
    return _own_hostname or await asyncio.get_running_loop().run_in_executor(None, _resolve_own_hostname)


def _resolve_own_hostname() -> str:
    global _own_hostname
    with _hostname_lock:
        _own_hostname = _own_hostname or socket.getfqdn()
        return _own_hostname


async def _log_in(client: SmtpClient) -> None:
    server = client.server
    mechanisms = client.extensions.get("AUTH", "").upper().split()
    user, password = server.username.encode(), server.password.encode()
    if "PLAIN" in mechanisms:
        credentials = base64.b64encode(b"\0" + user + b"\0" + password).decode()
        _require_login(await client.send_command(f"AUTH PLAIN {credentials}"))
    elif "LOGIN" in mechanisms:
        reply = await client.send_command("AUTH LOGIN")
        for credential in (user, password):
            if reply.code != 334:
                break
            reply = await client.send_command(base64.b64encode(credential).decode())
        _require_login(reply)
    else:
        raise ClientRejected(f"login is not possible: {server.host} offers {', '.join(mechanisms) or 'no mechanism'}")


async def _log_in_with_token(client: SmtpClient, source: TokenSource) -> None:
    """Log in with XOAUTH2 (developers.google.com, "OAuth 2.0 Mechanism").

    An access token may be revoked before it expires, so a rejected one is replaced and tried once more. Raises the
    errors of `TokenSource.get` and of a rejected login.
    """
    server = client.server
    mechanisms = client.extensions.get("AUTH", "").upper().split()
    if "XOAUTH2" not in mechanisms:
        offered = ", ".join(mechanisms) or "no mechanism"
        raise ClientRejected(f"login with OAuth 2.0 is not possible: {server.host} offers {offered}")
    reply = await _send_token(client, await source.get())
    if reply.code in (334, 535):
        source.discard()
        reply = await _send_token(client, await source.get())
    _require_login(reply)


async def _send_token(client: SmtpClient, token: str) -> Reply:
    """Send the initial response of XOAUTH2 and return the final reply of the server.

    The server describes an error in a challenge (334), which is answered with an empty line.
    """
    initial = f"user={client.server.username}\x01auth=Bearer {token}\x01\x01"
    reply = await client.send_command(f"AUTH XOAUTH2 {base64.b64encode(initial.encode()).decode()}")
    return await client.send_command("") if reply.code == 334 else reply


def _require_login(reply: Reply) -> None:
    if reply.code != 235:
        raise _with_cause(
            connection_error(reply if reply.code >= 400 else reply._replace(code=535)), connection_errors.LOGIN_REJECTED
        )


def _require_success(reply: Reply) -> None:
    if not reply.is_good:
        raise connection_error(reply)


# Direct delivery: the mail servers of a domain are tried in order of preference, with TLS if they offer it.

# RFC 5321, 5.1 requires at least two addresses to be tried; many more could take an hour for one message
_MAX_MX_ADDRESSES = 6


class MxTarget(NamedTuple):
    """The mail servers of a domain as (preference, name), best first, and their recipient group.

    With `requires_verified_tls` a server must offer STARTTLS and present a valid certificate for its name (MTA-STS).
    """

    domain: str
    hosts: tuple[tuple[int, str], ...]
    group: str
    requires_verified_tls: bool = False

    @property
    def key(self) -> str:
        """Return the key under which connections are shared: the same servers and the same TLS requirement."""
        hosts = " ".join(f"{preference}:{name}" for preference, name in self.hosts)
        return f"verified {hosts}" if self.requires_verified_tls else hosts


def get_helo_name() -> str:
    """Return the name for EHLO: `email.direct.helo` or the host of `base_url`, an IP address as an address literal."""
    settings = config.current()
    name = settings.email.direct.helo or config.base_host(settings)
    try:
        literal = ipaddress.ip_address(name)
    except ValueError:
        return name
    return f"[{'IPv6:' if literal.version == 6 else ''}{literal}]"


async def connect_to_mx(target: MxTarget) -> SmtpClient:
    """Open a connection to the first server of a domain that accepts one, in order of preference (D24).

    At most `_MAX_MX_ADDRESSES` addresses are tried. If none accepts, raises Deferred if one was reached, else
    ConnectionFailed. Without any address to try, raises RecipientRejected if all addresses are private, else Deferred.
    """
    errors: list[str] = []
    smtp_error: DeliveryError | None = None
    candidates, is_private = await _candidate_addresses(target, errors)
    for host, address in candidates:
        try:
            return await _open_mx_connection(target, host, address)
        except ConnectionFailed as error:
            smtp_error = error if error.smtp is not None else smtp_error
            errors.append(error.text)
        except DeliveryError as error:
            smtp_error = error
            errors.append(error.text)
    text = "; ".join(dict.fromkeys(errors))[:900] or f"{target.domain} has no mail server that can be found"
    if target.requires_verified_tls:
        text = f"{target.domain} accepts mail only over verified TLS (MTA-STS): {text}"
    if smtp_error is not None:
        raise Deferred(text, smtp_error.smtp, smtp_error.enhanced)
    if candidates:
        raise ConnectionFailed(text)
    if is_private:
        raise RecipientRejected(text, None, "5.4.4")
    raise Deferred(text, None, "4.4.4")


async def _candidate_addresses(target: MxTarget, errors: list[str]) -> tuple[list[tuple[str, str]], bool]:
    """Return at most `_MAX_MX_ADDRESSES` pairs (server, IP address) to try, in order.

    Also return whether all servers that were looked up have private addresses only. The lowest preference comes first;
    servers of equal preference are shuffled. The reason why a server has no address is appended to `errors`.
    """
    candidates: list[tuple[str, str]] = []
    lookups: list[mx_routes.Addresses] = []
    for _, group in groupby(target.hosts, key=lambda host: host[0]):
        equals = list(group)
        random.shuffle(equals)
        for _, host in equals[:_MAX_MX_ADDRESSES]:
            if len(candidates) >= _MAX_MX_ADDRESSES or len(lookups) >= 2 * _MAX_MX_ADDRESSES:
                break
            lookups.append(addresses := await mx_routes.find_addresses_async(host))
            if not addresses.addresses:
                errors.append(addresses.error or f"{host} does not exist")
            candidates += [(host, address) for address in random.sample(addresses.addresses, len(addresses.addresses))]
    return candidates[:_MAX_MX_ADDRESSES], bool(lookups) and all(lookup.is_private for lookup in lookups)


async def _open_mx_connection(target: MxTarget, host: str, address: str) -> SmtpClient:
    server = _mx_server(host, address, "starttls" if target.requires_verified_tls else "offered")
    if target.requires_verified_tls:
        return await open_connection(server, _verifying_context)
    try:
        return await open_connection(server, _opportunistic_context)
    except EncryptionFailed:
        # Another attempt to encrypt would fail too. Without TLS an eavesdropper learns no more than if the server had
        # not offered it
        return await open_connection(server._replace(tls="none"))


def _mx_server(host: str, address: str, tls: str) -> Server:
    email = config.current().email
    return Server(
        host, email.direct.port, tls, helo=get_helo_name(), connect_timeout=parse_seconds(email.connect_timeout),
        command_timeout=parse_seconds(email.command_timeout), reply_timeout=parse_seconds(email.reply_timeout),
        max_messages=email.messages_per_connection, address=address,
    )  # fmt: skip


@cache
def _opportunistic_context() -> ssl.SSLContext:
    """Return a TLS context that accepts any certificate and old ciphers.

    Many mail servers have a certificate for another name, and the alternative to unverified TLS is clear text.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    return context


@cache
def _verifying_context() -> ssl.SSLContext:
    return ssl.create_default_context()


# Checks of this machine as a sender: the EHLO name and the outgoing port.
#
# Receiving servers check the EHLO name in DNS (D18): it must resolve to the sending IP address, and that address must
# have a PTR record with the name. They treat a sender that fails this like a compromised machine.

_PROBE_TIMEOUT_SECONDS = 20.0


class CheckResult(NamedTuple):
    """The result of a check; `record` is the DNS record to add, or an empty string if no record is missing."""

    level: Literal["ok", "warn", "fail"]
    message: str
    record: str = ""


def is_full_hostname(name: str) -> bool:
    """Return whether an EHLO name can be public.

    A single label, an address literal in brackets, and names under `.local` or `.localhost` cannot.
    """
    return "." in name and not name.startswith("[") and name.rpartition(".")[2].lower() not in ("local", "localhost")


def check_helo_name() -> list[CheckResult]:
    """Check the EHLO name in DNS; return one result for each of its IPv4 addresses, or the reason why it has none.

    Blocks on name servers.
    """
    name = get_helo_name()
    if not is_full_hostname(name):
        return [CheckResult("fail", f"{name} is not a full host name; set email.direct.helo to one that is in DNS")]
    answer = dns_lookup.lookup(name, "A")
    if answer.state == "failed":
        return [CheckResult("warn", f"{name} cannot be looked up: {answer.error}")]
    if answer.state != "found":
        return [CheckResult("fail", f"{name} has no address: {answer.error}", f"{name}. A <address of this machine>")]
    return [_check_reverse_dns(name, address) for address in answer.records]


def _check_reverse_dns(name: str, address: str) -> CheckResult:
    if not safe_http.is_public(address):
        return CheckResult("warn", f"{name} resolves to {address}, which is not a public address")
    answer = dns_lookup.lookup_ptr(address)
    if answer.state == "failed":
        return CheckResult("warn", f"the name of {address} (PTR) cannot be looked up: {answer.error}")
    if name.lower() in (record.lower() for record in answer.records):
        return CheckResult("ok", f"{name} is {address}, and {address} is {name}")
    ptr_state = f"is named {', '.join(answer.records)}" if answer.records else "has no name"
    message = f"{address} {ptr_state} in reverse DNS (PTR), not {name}; your hosting provider can change that"
    return CheckResult("fail", message, f"{'.'.join(reversed(address.split('.')))}.in-addr.arpa. PTR {name}.")


async def find_port_block() -> str | None:
    """Return a message if outgoing connections to mail servers seem to be blocked, else None.

    They seem to be blocked if no mail server of the domains in `email.direct.probes` replies, because these servers
    are never all down at once. Return None also if none of these domains has a server to try.
    """
    names = config.current().email.direct.probes
    results = await asyncio.gather(*map(_can_connect, names))
    if not results or any(results) or all(result is None for result in results):
        return None
    return (
        f"no mail server answers on port {config.current().email.direct.port}, not even those of {', '.join(names)}: "
        "outgoing connections to this port seem to be blocked here. Ask your network provider to open it, or send "
        "through a relay"
    )  # fmt: skip


async def _can_connect(domain: str) -> bool | None:
    """Return whether a mail server of a domain replies within `_PROBE_TIMEOUT_SECONDS`.

    None means that no server could be tried.
    """
    route = await mx_routes.find_route_async(domain)
    if route.error is not None:
        return None
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT_SECONDS):
            client = await connect_to_mx(MxTarget(domain, route.hosts, route.group))
    except (ConnectionFailed, TimeoutError):
        return False
    except DeliveryError as error:
        return None if error.smtp is None else True
    await client.close()
    return True


# The email providers with a fixed server: the relay and the capture server.


class _ConsentTokens(NamedTuple):
    """The access tokens of the consent in email settings, for the login at the relay."""

    email: Email

    async def get(self) -> str:
        return await tokens.get_access_token(self.email.relay.login, "smtp", self.email)

    def discard(self) -> None:
        tokens.discard(self.email.relay.login, "smtp", self.email)


def build_relay_server(email: Email) -> Server:
    """Return the relay of the email settings as a server to connect to."""
    relay = email.relay
    return Server(
        relay.host, relay.port, relay.tls, relay.username, relay.password,
        connect_timeout=parse_seconds(email.connect_timeout), command_timeout=parse_seconds(email.command_timeout),
        reply_timeout=parse_seconds(email.reply_timeout),
        max_messages=email.messages_per_connection,
        token_source=None if relay.login == "password" else _ConsentTokens(email),
    )  # fmt: skip


_capture_port: int | None = None


def set_capture_port(port: int | None) -> None:
    """Store the local port of the built-in capture server; None means that it is not running."""
    global _capture_port
    _capture_port = port


def _capture_server() -> Server:
    if _capture_port is None:
        raise ClientRejected("the capture server is not running")
    return Server("127.0.0.1", _capture_port, "none", helo="localhost", max_messages=1_000_000)


async def connect_to_provider(provider: str) -> SmtpClient:
    """Open a connection to the server of a transport: the capture server, or a relay with the key `provider`.

    Raises ClientRejected (also for an unknown transport), Deferred or ConnectionFailed.
    """
    if provider == transports.CAPTURE:
        return await open_connection(_capture_server())
    email = config.current().email
    if transports.get_kind(provider, email) != "relay":
        raise ClientRejected(f"{provider} is not an email provider of this installation")
    return await open_connection(build_relay_server(transports.build_settings(provider, email)))


async def check_relay_login(email: Email) -> None:
    """Connect to the relay of the email settings, log in, and close the connection.

    A login with OAuth 2.0 asks the provider for a new access token. Raises the errors of `open_connection`.
    """
    if email.relay.login != "password":
        await tokens.get_access_token(email.relay.login, "smtp", email, is_check=True)
    await (await open_connection(build_relay_server(email))).close()

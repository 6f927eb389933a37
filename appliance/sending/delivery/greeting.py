"""The beginning of an SMTP conversation: connect, greet, encrypt, log in. Whatever fails here blames no recipient."""

import asyncio
import base64
import socket
import ssl
import threading
from collections.abc import Callable

from appliance.core.errors import DeliveryError, Ours, Unreachable
from appliance.sending.delivery import causes
from appliance.sending.delivery.causes import Cause
from appliance.sending.delivery.dialogue import Dialogue
from appliance.sending.delivery.offered import Lost, NotEncrypted
from appliance.sending.delivery.replies import Reply, before_anybody
from appliance.sending.delivery.send import Server

_MAX_UNSENT = 16_384
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
Context = Callable[[], ssl.SSLContext]
_name = ""
_asking = threading.Lock()


async def connect(server: Server, context: Context = ssl.create_default_context) -> Dialogue:
    """Open a conversation that is ready for an envelope; raises Unreachable, Temporary or Ours.

    Where encryption is only taken if it is offered, NotEncrypted says that the server cannot do what it offers.
    """
    dialogue = Dialogue(server)
    try:
        await _open(dialogue, context if server.tls == "tls" else None)
        await _greet(dialogue, context)
    except ssl.SSLError as error:
        dialogue.abort()
        cause = causes.of(error)
        raise _because(Ours(f"TLS with {server.host}:{server.port} failed: {cause.words}"), cause) from None
    except (OSError, Lost) as error:
        dialogue.abort()
        cause = causes.of(error, server.connect_timeout)
        raise _because(Unreachable(f"{server.host}:{server.port} cannot be reached: {cause.words}"), cause) from None
    except DeliveryError as error:
        await dialogue.close()
        if error.smtp is not None and not error.cause:
            _because(error, causes.BUSY if error.smtp < 500 else causes.REJECTED)
        raise
    except NotEncrypted:
        dialogue.abort()
        raise
    except asyncio.CancelledError:
        dialogue.abort()
        raise
    return dialogue


def _because(error: DeliveryError, cause: Cause) -> DeliveryError:
    """Note on an error why there was no conversation, and return it."""
    error.cause, error.help = cause.name, cause.help
    return error


async def _open(dialogue: Dialogue, context: Context | None) -> None:
    server = dialogue.server
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(server.connect_timeout):
            transport, _ = await loop.create_connection(
                lambda: dialogue, server.address or server.host, server.port,
                ssl=None if context is None else context(),
                ssl_handshake_timeout=None if context is None else server.connect_timeout,
            )  # fmt: skip
    except ValueError as error:
        if isinstance(error, OSError):
            raise  # a certificate that is not trusted is both
        # Of Python's own encoding of names; no name server was ever asked
        raise Ours(f"{server.host!r} cannot be the name of a host: {error}") from None
    connection = transport.get_extra_info("socket")
    if connection is not None:
        # Each write is a whole step of the conversation; waiting to fill a packet costs 40 ms a message
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # What the system holds for us cannot be told from what has left: were that whole large messages, a connection
        # that breaks within one would leave a doubt where there is none
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _MAX_UNSENT)


async def _greet(dialogue: Dialogue, context: Context) -> None:
    _good(await dialogue.banner())
    await _ehlo(dialogue)
    server = dialogue.server
    encrypted = server.tls == "tls"
    if server.tls == "starttls":
        if "STARTTLS" not in dialogue.offers:
            raise Ours(f"{server.host} offers no STARTTLS; nothing was sent in clear text")
        _good(await dialogue.command("STARTTLS"))
        await dialogue.encrypt(context())
        await _ehlo(dialogue)
        encrypted = True
    if server.tls == "offered" and "STARTTLS" in dialogue.offers:
        await _try_to_encrypt(dialogue, context)
    if server.username:
        if not encrypted and server.host not in _LOOPBACK:
            raise Ours("the password would be sent in clear text: set tls to starttls or tls")
        await _log_in(dialogue)


async def _try_to_encrypt(dialogue: Dialogue, context: Context) -> None:
    """Encrypt as a server offers it; one that says that it cannot do so now is spoken to as it is."""
    reply = await dialogue.command("STARTTLS")
    if not reply.is_good:
        return
    try:
        await dialogue.encrypt(context())
    except (OSError, Lost, ValueError) as error:
        raise NotEncrypted(str(error) or type(error).__name__) from None
    await _ehlo(dialogue)


async def _ehlo(dialogue: Dialogue) -> None:
    """Return who we are and learn what the server offers; an old one that knows no EHLO offers nothing."""
    name = dialogue.server.helo or await _own_name()
    reply = await dialogue.command(f"EHLO {name}")
    if not reply.is_good and reply.code in (500, 502, 550):
        reply = await dialogue.command(f"HELO {name}")
        _good(reply)
        dialogue.offers = {}
        return
    _good(reply)
    lines = (line.partition(" ") for line in reply.text.splitlines()[1:])
    dialogue.offers = {word.upper(): rest.strip() for word, _, rest in lines}


async def _own_name() -> str:
    """Return the name of this machine; a name server that is slow holds up nobody but who greets first."""
    return _name or await asyncio.get_running_loop().run_in_executor(None, _ask_name)


def _ask_name() -> str:
    global _name
    with _asking:
        _name = _name or socket.getfqdn()
        return _name


async def _log_in(dialogue: Dialogue) -> None:
    server = dialogue.server
    ways = dialogue.offers.get("AUTH", "").upper().split()
    user, password = server.username.encode(), server.password.encode()
    if "PLAIN" in ways:
        words = base64.b64encode(b"\0" + user + b"\0" + password).decode()
        _welcome(await dialogue.command(f"AUTH PLAIN {words}"))
    elif "LOGIN" in ways:
        reply = await dialogue.command("AUTH LOGIN")
        for part in (user, password):
            if reply.code != 334:
                break
            reply = await dialogue.command(base64.b64encode(part).decode())
        _welcome(reply)
    else:
        raise Ours(f"login is not possible: {server.host} offers {', '.join(ways) or 'no way'}")


def _welcome(reply: Reply) -> None:
    if reply.code != 235:
        raise _because(before_anybody(reply if reply.code >= 400 else reply._replace(code=535)), causes.LOGIN)


def _good(reply: Reply) -> None:
    if not reply.is_good:
        raise before_anybody(reply)

"""Ways out, one file each."""

from appliance.core.errors import Ours
from appliance.sending.delivery import greeting
from appliance.sending.delivery.dialogue import Dialogue
from appliance.sending.delivery.send import Server
from appliance.settings import config
from appliance.settings.config import seconds
from appliance.settings.schema import Email


def relay_of(email: Email) -> Server:
    """Return the server that these settings name."""
    relay = email.relay
    return Server(
        relay.host, relay.port, relay.tls, relay.username, relay.password,
        connect_timeout=seconds(email.connect_timeout), command_timeout=seconds(email.command_timeout),
        reply_timeout=seconds(email.reply_timeout),
        most_messages=email.messages_per_connection,
    )  # fmt: skip


def _relay() -> Server:
    return relay_of(config.current().email)


_capture_port: int | None = None


def capture_at(port: int | None) -> None:
    """Return where the built-in capture server listens."""
    global _capture_port
    _capture_port = port


def _capture() -> Server:
    if _capture_port is None:
        raise Ours("the capture server is not running")
    return Server("127.0.0.1", _capture_port, "none", helo="localhost", most_messages=1_000_000)


# A new way out is one function and one line here
SERVERS = {"relay": _relay, "capture": _capture}


async def connect(provider: str) -> Dialogue:
    """Open a conversation of a provider by the name in a message's row; raises Ours, Temporary or Unreachable."""
    server_of = SERVERS.get(provider)
    if server_of is None:
        raise Ours(f"{provider} is no way out of this installation")
    return await greeting.connect(server_of())


async def greet(email: Email) -> None:
    """Open a conversation with the relay that these settings name, log in, and close it; raises as `connect` does."""
    await (await greeting.connect(relay_of(email))).close()

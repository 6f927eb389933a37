"""Links that belong to one message: signed, short, and without a row of their own."""

import re

from appliance.core import tokens
from appliance.settings import config

UNSUBSCRIBE, VIEW, MESSAGE_ID, BOUNCE = "u", "v", "mid", "b"
PREFERENCES, CONFIRM, LEAVE = "p", "d", "l"
CLICK, OPEN = "c", "o"
# Who guesses one in 2^64 has counted a click; nothing else depends on it
_MAC_BYTES = 8
_TOKEN = 19  # characters: 48 bits of the message's id, 64 of its MAC
_NUMBER = re.compile(r"[1-9][0-9]{0,5}")


def unsubscribe(message_id: int) -> str:
    """Return the address of a message's unsubscribe page; a POST there opts out (RFC 8058)."""
    return f"{config.base_url(config.current())}/u/{tokens.sign(UNSUBSCRIBE, message_id)}"


def preferences(message_id: int) -> str:
    """Return the address of the page where the recipient of a message says what they want to get."""
    return f"{config.base_url(config.current())}/p/{tokens.sign(PREFERENCES, message_id)}"


def confirm(confirmation_id: int) -> str:
    """Return the address of the page where something is confirmed; a POST there confirms it."""
    return f"{config.base_url(config.current())}/d/{tokens.sign(CONFIRM, confirmation_id)}"


def leave_address(message_id: int, host: str) -> str:
    """Return the address to which a mail, whatever it says, unsubscribes the recipient of a message (RFC 2369, 3.2)."""
    return f"unsubscribe+{tokens.sign_hex(LEAVE, message_id, 16)}@{host}"


def view(message_id: int) -> str:
    """Return the address that shows a message in the browser."""
    return f"{config.base_url(config.current())}/v/{tokens.sign(VIEW, message_id)}"


def internet_message_id(message_id: int, domain: str) -> str:
    """Return a message's Message-ID without brackets: unique, the same on every attempt (docs/decisions.md#7)."""
    return f"{tokens.sign(MESSAGE_ID, message_id, 8)}@{domain}"


def message_of(internet_message_id_header: str) -> int | None:
    """Return which message a Message-ID of ours belongs to, or None."""
    return tokens.read(MESSAGE_ID, internet_message_id_header.strip("<> ").partition("@")[0], 8)


def return_path(message_id: int, host: str) -> str:
    """Return the return path that names a message, on the host that takes what comes back."""
    return f"b+{tokens.sign_hex(BOUNCE, message_id)}@{host}"


def returned_to(local_part: str) -> int | None:
    """Return which message a local part of a return path belongs to, or None if it is none of ours."""
    prefix, _, token = local_part.partition("+")
    return tokens.read_hex(BOUNCE, token) if prefix.lower() == "b" else None


def counting(message_id: int) -> dict[str, str]:
    """Return the tokens by which a message's opens and clicks are known, as merge tags name them (`rewriting.ROOT`)."""
    return {
        "click": click(message_id),
        "open": tokens.sign(OPEN, message_id, _MAC_BYTES),
    }


def click(message_id: int) -> str:
    """Return the token by which a message's clicks are known, of letters and signs that every SMS can hold."""
    return tokens.sign(CLICK, message_id, _MAC_BYTES)


def read_click(token: str) -> tuple[int, int] | None:
    """Return message and number of a link that leads through us, or None if it is not ours."""
    number = token[_TOKEN + 1 :]
    if token[_TOKEN : _TOKEN + 1] != "-" or _NUMBER.fullmatch(number) is None:
        return None
    message_id = tokens.read(CLICK, token[:_TOKEN], _MAC_BYTES)
    return None if message_id is None else (message_id, int(number))


def read_open(token: str) -> int | None:
    """Return the message of the picture that tells an open, or None if it is not ours."""
    return tokens.read(OPEN, token, _MAC_BYTES)

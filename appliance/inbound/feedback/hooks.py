"""What mail services post about our mail: read by the file of each, believed, and written once."""

import hashlib
import logging
from collections.abc import Iterator
from typing import NamedTuple

from appliance.core import clock
from appliance.core.errors import NotAllowed, NotFound, Unavailable
from appliance.inbound.feedback import record
from appliance.inbound.feedback.providers import PROVIDERS
from appliance.inbound.feedback.providers.shared import Left, Received, Told, forged
from appliance.inbound.feedback.record import InHand
from appliance.sending.delivery import safe_http
from appliance.storage.open import rows
from appliance.storage.work import writing

# Facts in one transaction: few milliseconds, so that nobody waits for a service that posts a thousand at once
_CHUNK = 50
_CERTIFICATE_BYTES = 65_536
_QUIET_SECONDS = 60.0
_quiet_until: dict[str, float] = {}

log = logging.getLogger("campanero.hooks")


def is_open(name: str) -> bool:
    """Return whether a hook exists: whoever posts there has a secret in the settings."""
    provider = PROVIDERS.get(name)
    return provider is not None and bool(provider.secret())


async def read(name: str, received: Received) -> Told:
    """Return what a request says; raises NotFound, NotAllowed where it is forged, Invalid, or Unavailable."""
    provider = PROVIDERS.get(name)
    secret = provider.secret() if provider is not None else ""
    if provider is None or not secret:
        raise NotFound
    try:
        return await provider.read(received, secret, _fetch)
    except NotAllowed:
        say(name)
        raise


def say(name: str) -> None:
    """Tell the operator, now and then, that something is refused: a wrong secret looks like nothing ever comes back."""
    if clock.steady() >= _quiet_until.get(name, 0):
        _quiet_until[name] = clock.steady() + _QUIET_SECONDS
        log.warning("a request to /hooks/%s was refused: its signature is missing, wrong or too old", name)


async def _fetch(url: str) -> bytes:
    try:
        answer = await safe_http.get(url, most=_CERTIFICATE_BYTES)
    except safe_http.Unreached:
        raise Unavailable("the service that signed this cannot be reached", "unavailable", 30) from None
    if answer.status != 200:
        raise Unavailable("the service that signed this cannot be asked", "unavailable", 30)
    return answer.body


def parts(told: Told) -> Iterator[Told]:
    """Cut what was told into pieces for one transaction each; the token goes with the first."""
    yield told._replace(facts=told.facts[:_CHUNK])
    for start in range(_CHUNK, len(told.facts), _CHUNK):
        yield Told(told.facts[start : start + _CHUNK])


class Written(NamedTuple):
    """Whose recipients have left and did not before, and what keeps a fact from being written yet, if anything."""

    left: tuple[Left, ...]
    held: InHand | None


def write(name: str, told: Told, body: bytes) -> Written:
    """Write facts with what follows from them; one that must wait keeps no other waiting.

    Raises NotAllowed where a token comes again with another body, or Unavailable.
    """
    writing()
    if told.token is not None:
        _once(name, told.token, body)
    held = None
    for fact in told.facts:
        try:
            record.apply(fact)
        except InHand as waits:
            held = waits
    believed = (left for left in told.left if record.is_recipient(left.message_id, left.recipient))
    return Written(tuple(left for left in believed if record.is_new(name, left.key)), held)


def _once(name: str, token: str, body: bytes) -> None:
    """Let a token count for one body; a repeat of both is a provider who has not heard our answer."""
    mine = f"token:{token}:{hashlib.sha256(body).hexdigest()}"
    known = rows("SELECT key FROM told WHERE source = ? AND key >= ? AND key < ?",
                 (name, f"token:{token}:", f"token:{token};"))  # fmt: skip
    if known and (mine,) not in known:
        raise forged()
    record.is_new(name, mine)

"""STOP and START: the person's own act from their number, in one account (docs/decisions.md#9)."""

from typing import NamedTuple

from appliance.audience.contacts import consent, suppress
from appliance.audience.contacts.consent import Evidence
from appliance.audience.contacts.records import CHANNELS
from appliance.audience.contacts.suppress import Case
from appliance.core import tokens
from appliance.core.addresses import Address
from appliance.storage.open import fetch_one
from appliance.storage.work import writing

SOURCE = "keyword"
_STOPPED = (
    "SELECT created_at FROM suppression WHERE account_id = ? AND kind = 'phone' AND address_hash = ? "
    "AND reason = 'stop_keyword'"
)


class Said(NamedTuple):
    """Who wrote what, and the message of ours that it may answer."""

    address: Address
    body: str
    message_id: int | None
    test: bool
    actor: str = "recipient"  # or whoever read it as what it was

    @property
    def evidence(self) -> Evidence:
        """How it came about, with the words themselves."""
        return Evidence(SOURCE, self.actor, text=self.body[:1000], message_id=self.message_id, test=self.test)


def leave(account_id: int, said: Said) -> bool:
    """Opt a number out of everything of an account, whether it is somebody's or not; False if it was before."""
    writing()
    case = Case("stop_keyword", SOURCE, diagnostic=said.body[:200] or None)
    return suppress.add(account_id, said.address, case, said.evidence)[1]


def has_left(address: Address, account_id: int) -> bool:
    """Return whether a STOP from a number is in force in an account."""
    return fetch_one(_STOPPED, (account_id, _hash(address))) is not None


def may_return(address: Address, account_id: int) -> bool:
    """Return whether a START means something to an account: somebody has the number, or a STOP from it is in force."""
    known = "SELECT 1 FROM channel WHERE account_id = ? AND kind = 'phone' AND key = ?"
    return fetch_one(known, (account_id, address.key)) is not None or has_left(address, account_id)


def come_back(account_id: int, said: Said, is_home: bool) -> bool:
    """Opt a number in again where it wrote to; elsewhere only what its STOP took away is given back.

    False if nothing changes: it was in, or a complaint or an erasure keeps it out.
    """
    writing()
    stopped = fetch_one(_STOPPED, (account_id, _hash(said.address)))
    found = CHANNELS.find("account_id = ? AND kind = 'phone' AND key = ?", (account_id, said.address.key))
    if not found:
        back = stopped is not None and consent.returned_nobodys(account_id, said.address, said.evidence)
        return back and consent.suppression(account_id, "phone", _hash(said.address)) not in consent.KEEPS_OUT
    channel = found[0]
    if is_home:
        was_in = channel.subscribed and stopped is None
        return consent.returned(channel, said.evidence) and not was_in
    if stopped is None:
        return False
    # Who was never in, or had left before by other ways, is not brought in by what they wrote to somebody else
    if channel.opt_in_at is not None and (channel.opt_out_at or 0) >= stopped[0]:
        return consent.returned(channel, said.evidence)
    consent.lift(channel, ("stop_keyword",), "recipient", said.evidence)
    return True


def _hash(address: Address) -> bytes:
    return tokens.address_hash(address.kind, address.key)

"""Counts where the contacts of an import stand in the end: each once, however many lines name it."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from appliance.imports.chunk import Outcome
from appliance.storage.open import rows

# How a contact stands, as `Outcome.state` says it; a place of the list is what is kept of a contact in one byte
STATES = (
    "", "subscribed", "unsubscribed:file", "unsubscribed:before", "unsubscribed:not_opted_in",
    "suppressed:complaint", "suppressed:erased", "suppressed:hard_bounce", "suppressed:soft_bounce",
    "suppressed:manual", "suppressed:stop_keyword",
)  # fmt: skip
_NUMBER = {state: number for number, state in enumerate(STATES)}
_decode = msgspec.msgpack.Decoder(tuple[list[int], list[Any]]).decode


class Arriving:
    """How the contacts of a running import stand, by their id: a byte each, for a million of them too.

    Those that nothing special is known of are counted where they are made; no other line names them.
    """

    def __init__(self, import_id: int) -> None:
        """Take over what earlier transactions of the import wrote."""
        self._states = bytearray()
        chunks = rows("SELECT outcomes FROM import_chunk WHERE import_job_id = ? ORDER BY number", (import_id,))
        for (packed,) in chunks:
            self._take(Outcome(*one) for one in _decode(packed)[1])

    def changes(self, outcomes: Iterable[Outcome]) -> Counter[str]:
        """Return by how many each state grows with some outcomes; less than nothing where somebody moved on."""
        moved: dict[int, str] = {}
        for outcome in outcomes:
            if outcome.contact_id is not None and outcome.state is not None:
                moved[outcome.contact_id] = outcome.state
        grown: Counter[str] = Counter()
        for contact_id, state in moved.items():
            before = STATES[self._states[contact_id]] if contact_id < len(self._states) else ""
            grown[state] += 1
            if before:
                grown[before] -= 1
        return grown

    def take(self, outcomes: Iterable[Outcome]) -> None:
        """Remember outcomes that were written."""
        self._take(outcomes)

    def _take(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            if outcome.contact_id is None or outcome.state is None:
                continue
            missing = outcome.contact_id + 1 - len(self._states)
            if missing > 0:
                self._states.extend(bytes(missing + 1024))
            self._states[outcome.contact_id] = _NUMBER[outcome.state]

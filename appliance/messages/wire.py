"""The bodies of a campaign as they stand on the wire: encoded once, with what differs between people spliced in.

A value stands between soft line breaks (RFC 2045, 6.7, rule 5), so that it can be encoded for itself and what surrounds
it never changes. What the pieces of `designs.splice` cannot say is rendered by the language and encoded whole.
"""

from collections.abc import Mapping
from typing import Any

from liquid.exceptions import LiquidError

from appliance.delivery.mime import SOFT_BREAK, fragment, is_single_spaced, quoted_printable
from appliance.designs import rewriting
from appliance.designs.merge import MOST_OUTPUT, Compiled
from appliance.designs.splice import NotPlain, Piece, Question, Slot

# Encoded values kept for each slot: first names and cities come again, addresses do not
_MOST_KEPT = 4_096

Step = bytes | int | tuple[Question, "Plan", "Plan"]
Plan = list[Step]


class Body:
    """One part of a message, filled for one person after the other; used by one thread."""

    def __init__(self, compiled: Compiled) -> None:
        self._compiled = compiled
        self._slots: list[Slot] = []
        self._kept: list[dict[str, bytes]] = []
        self._tokens: set[int] = set()
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._is_single_spaced = True  # what does not differ between people
        self._plan = None if compiled.pieces is None else self._planned(compiled.pieces)
        self.is_single_spaced = False  # what was filled last, as far as is known without reading it

    def fill(self, values: Mapping[str, Any]) -> bytes:
        """Answer the part for one person in quoted-printable; raises MergeError as the template itself does."""
        self.is_single_spaced = self._is_single_spaced
        if self._plan is not None:
            found: list[bytes] = []
            try:
                self._put(self._plan, values, [None] * len(self._slots), found)
            except (NotPlain, LiquidError, TypeError, ValueError):
                pass  # the language says what is wrong, or knows better
            else:
                body = b"".join(found)
                if len(body) <= MOST_OUTPUT:
                    return body if body and not body.endswith(SOFT_BREAK) else body + b"\r\n"
        self.is_single_spaced = False
        return quoted_printable(self._compiled.render(values))

    def _planned(self, pieces: list[Piece]) -> Plan:
        plan: Plan = []
        words = ""
        for one in [*pieces, None]:
            if isinstance(one, str):
                words += one
                continue
            if words:
                plan.append(said := fragment(words))
                self._is_single_spaced &= is_single_spaced(said)
                words = ""
            if isinstance(one, Slot):
                plan.append(self._number(one))
            elif one is not None:
                plan.append((one, self._planned(one.then), self._planned(one.other)))
        return plan

    def _number(self, slot: Slot) -> int:
        """Answer the number of a slot; the same value shown in many places is looked up and encoded once."""
        number = self._numbers.setdefault(slot.name, len(self._slots))
        if number == len(self._slots):
            self._slots.append(slot)
            self._kept.append({})
            if slot.name[0] in (rewriting.CLICK, rewriting.OPEN):
                self._tokens.add(number)
        return number

    def _put(self, plan: Plan, values: Mapping[str, Any], made: list[bytes | None], found: list[bytes]) -> None:
        for step in plan:
            if type(step) is bytes:
                found.append(step)
            elif type(step) is int:
                shown = made[step]
                if shown is None:
                    shown = made[step] = self._shown(step, values)
                found.append(shown)
            elif type(step) is tuple:
                question, then, other = step
                self._put(then if question.holds(values) else other, values, made, found)

    def _shown(self, number: int, values: Mapping[str, Any]) -> bytes:
        slot, kept = self._slots[number], self._kept[number]
        value = slot.look(values)
        if number in self._tokens and type(value) is str:
            # Letters, digits, - and _ stand for themselves wherever they are, and nobody else has the same
            return value.encode() + SOFT_BREAK
        shown = kept.get(value) if type(value) is str else None
        if shown is not None:
            return shown
        shown = fragment(slot.shown(value))
        if not is_single_spaced(shown):
            self.is_single_spaced = False  # and so each time: it is not kept
        elif type(value) is str:
            if len(kept) >= _MOST_KEPT:
                kept.clear()
            kept[value] = shown
        return shown

"""What a row of a file may do to consent: the line "Import" of the table "Who lifts what" (docs/decisions.md#9).

The same rules as `contacts.consent`, over values instead of rows, because a million of them pass here; a test holds the
two against each other.
"""

from typing import NamedTuple

from appliance.contacts.consent import GRAVITY

_KEEPS_OUT = ("complaint", "erased")
SUPPRESSING = ("complaint", "hard_bounce", "manual", "soft_bounce")


class Standing(NamedTuple):
    """How an address stands: the columns of its channel that consent is made of."""

    subscribed: bool = False
    opted_out_by: str | None = None
    opt_out_at: int | None = None
    opt_in_at: int | None = None
    suppression: str | None = None


class Outcome(NamedTuple):
    """How it stands afterwards, the act to record (None: nothing changed), whose, and whether an opt-out was kept."""

    standing: Standing
    act: str | None = None
    by: str = "operator"
    kept: bool = False


def gravest(reasons: "set[str] | frozenset[str]") -> str | None:
    """Return the reason that a channel names, out of all in force."""
    return next((reason for reason in GRAVITY if reason in reasons), None)


def outcome(
    now: int, standing: Standing, state: str | None, wanted: bool, times: tuple[int | None, int | None] = (None, None)
) -> Outcome:
    """Return what a row does to an address; `state` is what the file says of it, `wanted` the import's `opt_in`.

    `times` are when they came and left by the file's own telling, which a change takes over.
    """
    came, left = (one or now for one in times)
    if state in ("out", "complaint"):
        return _out(left, standing, "recipient")
    if state == "off":
        return _out(left, standing, "operator") if standing.subscribed else Outcome(standing)
    if state in SUPPRESSING or not wanted:
        return Outcome(standing)
    if standing.suppression in _KEEPS_OUT or standing.opted_out_by == "recipient":
        return Outcome(standing, kept=True)
    kept = standing.suppression is not None
    if standing.subscribed:
        return Outcome(standing, kept=kept)
    return Outcome(Standing(True, None, None, came, standing.suppression), "opt_in", kept=kept)


def _out(when: int, standing: Standing, by: str) -> Outcome:
    if not standing.subscribed and standing.opted_out_by == "recipient":
        return Outcome(standing)
    after = Standing(False, by, when, standing.opt_in_at, standing.suppression)
    return Outcome(after, "opt_out", by)

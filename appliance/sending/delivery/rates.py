"""Which refusals ask for less and which mean this message: the first kind slows everybody of its group down and blames
nobody.
"""

import re

from appliance.core.errors import DeliveryError, Temporary, Unreachable

# Google's word for "stop for a while" (it counts the whole sender, not this message)
_SILENCE = "4.7.28"
# Refusals that name our DNS or our TLS, not our rate
_AUTHENTICATION = re.compile(r"4\.7\.(?:2[3-79]|3\d|40)")
_RATE_WORDS = re.compile(
    r"throttl|\brates?\b|too (?:many|much|fast)|slow down|limit|quota|exceed|busy|reputation|unusual|volume|deferred"
    r"|\[TS\d|\bRP-",
    re.IGNORECASE,
)
_GREYLISTED = re.compile(r"gr[ea]y-?list", re.IGNORECASE)


def asks_for_less(error: DeliveryError | None) -> bool:
    """Return whether a refusal is about how much comes from here.

    421 and 4.7.x are, but for greylisting and for what names our DNS; so is any temporary refusal that says so.
    """
    if not isinstance(error, Temporary | Unreachable) or error.smtp is None:
        return False
    if error.smtp == 421 or error.enhanced == _SILENCE:
        return True
    enhanced = error.enhanced or ""
    if _GREYLISTED.search(error.text) or _AUTHENTICATION.fullmatch(enhanced):
        return False
    if enhanced.startswith("4.7.") and enhanced != "4.7.1":
        return True
    # 4.7.1 is what greylisting says too, and 4.2.1 means one mailbox
    return enhanced != "4.2.1" and (error.smtp == 454 or enhanced == "4.7.1") and bool(_RATE_WORDS.search(error.text))


def asks_for_silence(error: DeliveryError) -> bool:
    """Return whether a refusal asks for nothing at all for a while."""
    return error.enhanced == _SILENCE


def means_all(error: DeliveryError) -> bool:
    """Return whether whoever takes all our mail asks for less, for every recipient alike."""
    return error.smtp == 454 or isinstance(error, Unreachable)

"""How long an SMS may be, and what is wrong with the text of one before it is filled in."""

from appliance import config
from appliance.designs import merge
from appliance.sms import gsm

MAX_PARTS = 10
MAX_CHARACTERS = 1_600


def fault(body: str | None) -> str | None:
    """Return what is wrong with the text of an SMS in the words of a field's fault, or None.

    Where nothing is filled in and no address may become a shorter one, its parts are known already.
    """
    if not body:
        return None
    if len(body) > MAX_CHARACTERS:
        return f"is too long (maximum is {MAX_CHARACTERS} characters)"
    if "{" not in body and "://" not in body:
        counted = gsm.count(gsm.plain(body) if config.current().sms.plain_quotes else body)
        if counted.parts > MAX_PARTS:
            return f"is too long ({counted.parts} parts in {counted.alphabet}, maximum is {MAX_PARTS})"
    return merge.fault(body, "text")

"""What SMS cost: accounts whose parts of the day are used up, and blocks of numbers that got too many."""

from collections.abc import Iterator
from pathlib import Path

from appliance.core import clock
from appliance.ops.doctor.findings import MAX_SHOWN, Line
from appliance.sending.messages import sms_days, sms_rules
from appliance.settings import config
from appliance.storage.open import rows


def of_sms(directory: Path, account_id: int | None) -> Iterator[Line]:
    """Look whether anything of what SMS may cost is used up, where they cost something."""
    here = config.current().sms
    if here.transport == "capture":
        return
    now, found = clock.now_ms(), []
    for number, zone in rows(
        "SELECT id, time_zone FROM account WHERE ?1 IS NULL OR id = ?1 ORDER BY id", (account_id,)
    ):
        until = sms_days.full_until(number, zone, now)
        if until is not None:
            words = (
                f"account {number} has used its {here.parts_per_day} parts of today; SMS wait until {clock.iso(until)}"
            )
            found.append(Line("warn", "SMS", words, "raise sms.parts_per_day if that is too few"))
        for block in sms_rules.full_blocks(number):
            words = (
                f"account {number}: unknown numbers beginning with {block.prefix} got {block.messages} single SMS "
                "within an hour, more are refused"
            )
            found.append(Line("warn", "SMS", words, "look who asks for these messages: somebody may earn by them"))
    yield from found[:MAX_SHOWN]
    if len(found) > MAX_SHOWN:
        yield Line("warn", "SMS", f"{len(found) - MAX_SHOWN} more like these")

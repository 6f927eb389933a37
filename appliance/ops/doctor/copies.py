"""The check of copies on another machine: their age, failed attempts, and the result of the test restore."""

from collections.abc import Iterator
from pathlib import Path

from appliance.core import clock
from appliance.core.i18n import gettext
from appliance.ops.copy_jobs import history, schedule
from appliance.ops.doctor.checks import Finding
from appliance.settings import config
from appliance.storage.models import CopyRun

_CHECK = "copies"
_HOUR_MS = 3_600_000
_DAMAGE_CODES = ("damaged", "missing", "incomplete", "books", "older")


def check_copies(_: Path) -> Iterator[Finding]:
    """Report whether copies are made, the age of the last good one, and a failed attempt or test restore."""
    copies = config.current().copies
    if not copies.store:
        yield Finding("note", _CHECK, gettext("no copies on another machine (copies.store is empty)"))
        return
    if not schedule.is_set_up(copies):
        words = gettext("no copies are made: nobody could read them without a recovery passphrase or a public key")
        fix = 'copies.recipients = ["age1…"]'
        yield Finding("warn", _CHECK, words, fix, gettext(
            "No copy of your data leaves the server yet. Make a recovery passphrase under Settings, Backups."
        ))  # fmt: skip
        return
    lateness, last = schedule.measure_lateness(copies), history.find_last("copy")
    words = (
        gettext("there is no copy yet")
        if lateness.age is None
        else gettext("the last copy is %(age)s hours old", age=lateness.age // _HOUR_MS)
    )
    if last is not None and last.state == "failed":
        words = gettext("%(words)s; the last attempt failed: %(reason)s", words=words, reason=last.error)
    if lateness.is_late:
        yield Finding("fail", _CHECK, words)
    elif last is not None and last.state == "failed":
        yield Finding("warn", _CHECK, words)
    else:
        soon = gettext("The first copy on another machine will be made soon.")
        is_any = lateness.age is not None
        yield Finding("ok" if is_any else "note", _CHECK, words, meaning="" if is_any else soon)
    yield from _check_proof(history.find_last("proof", "succeeded", "failed"))


def _check_proof(proof: CopyRun | None) -> Iterator[Finding]:
    if proof is None:
        return
    if proof.state == "failed":
        words = gettext("the test restore of the newest copy failed: %(reason)s", reason=proof.error)
        yield Finding("fail" if proof.error_code in _DAMAGE_CODES else "warn", "test restore", words)
    else:
        words = gettext("the copy of %(taken_at)s was restored for a test at %(proven_at)s",
                        taken_at=clock.iso(proof.taken_at), proven_at=clock.iso(proof.ended_at))  # fmt: skip
        yield Finding("ok", "test restore", words)

"""Email the owners of the installation when copies need them: the last good copy is too old, or a test restore failed.

Each problem is reported once, and its end once. What was reported is stored with the emails, in one transaction, so a
kill neither loses nor repeats a notice.
"""

from typing import Any

import msgspec

from appliance.accounts import audit, members, users
from appliance.core import addresses, clock, i18n
from appliance.core.i18n import gettext, ngettext
from appliance.ops.copy_jobs import history, schedule
from appliance.sending.messages import system_emails
from appliance.sending.messages.system_emails import SystemEmail
from appliance.settings import config
from appliance.settings.copies import Copies
from appliance.storage import send_lease, transactions
from appliance.storage.models import Account, Setting
from appliance.storage.transactions import require_write_transaction

_SETTING = "copy_notices"  # the row of `setting` with `_Reported`; no setting of pages has this name
# An unreachable store is reported as a failed test restore only after this number of failures in a row. The notice of
# late copies covers it as well, and a short interruption ends by itself.
_MIN_UNREACHABLE = 3
_PASSING_CODES = ("unreachable", "busy")
_HOUR_MS = 3_600_000


class _Reported(msgspec.Struct):
    """Since when each problem has been reported, in milliseconds; None if it is not reported."""

    late: int | None = None
    proof: int | None = None


class _Problems(msgspec.Struct):
    """The current problems: the age of the copy in hours if it is late, and why the last test restore failed."""

    is_late: bool
    age_hours: int | None
    proof_error: str | None


def check() -> None:
    """Queue the emails that are due: about new problems, and about the end of reported ones.

    A machine without the lease reports nothing, because the other machine makes the copies.
    """
    if not send_lease.is_held():
        return
    copies = config.current().copies
    if not _is_anything_new(_find_problems(copies), _read_reported()):
        return
    transactions.write(_report, copies)


def _find_problems(copies: Copies) -> _Problems:
    lateness = schedule.measure_lateness(copies)
    hours = None if lateness.age is None else lateness.age // _HOUR_MS
    proof = history.find_last("proof", "succeeded", "failed") if schedule.is_set_up(copies) else None
    error = None
    if proof is not None and proof.state == "failed":
        is_passing = proof.error_code in _PASSING_CODES
        if not is_passing or history.count_failures("proof") >= _MIN_UNREACHABLE:
            error = str(proof.error)
    return _Problems(lateness.is_late, hours, error)


def _is_anything_new(problems: _Problems, reported: _Reported) -> bool:
    return problems.is_late != (reported.late is not None) or (problems.proof_error is not None) != (
        reported.proof is not None
    )


def _read_reported() -> _Reported:
    row = Setting.get_or_none(Setting.name == _SETTING)
    return _Reported() if row is None else msgspec.convert(row.value, _Reported)


def _report(copies: Copies) -> None:
    require_write_transaction()
    problems, reported, now = _find_problems(copies), _read_reported(), clock.now_ms()
    is_set_up = schedule.is_set_up(copies)
    if problems.is_late and reported.late is None:
        _email_owners("copies_late", _build_late_email, problems.age_hours)
    elif reported.late is not None and not problems.is_late and is_set_up:
        _email_owners("copies_recovered", _build_recovered_email, None)
    if problems.proof_error is not None and reported.proof is None:
        _email_owners("copy_proof_failed", _build_proof_email, problems.proof_error)
    elif reported.proof is not None and problems.proof_error is None and is_set_up:
        _email_owners("copy_proof_recovered", _build_proven_email, None)
    after = _Reported(
        (reported.late or now) if problems.is_late else None,
        (reported.proof or now) if problems.proof_error is not None else None,
    )
    Setting.insert(name=_SETTING, value=msgspec.to_builtins(after), updated_at=now).on_conflict_replace().execute()


def _email_owners(action: str, build: Any, value: Any) -> None:
    """Queue an email to each active owner of the first account, and write `action` to the audit log.

    The first account belongs to the operator.
    """
    account = Account.select().order_by(Account.id).first()
    if account is None:
        return
    audit.insert_entry(account.id, audit.SYSTEM, action, None, {} if value is None else {"reason": str(value)})
    for owner in members.list_active(account.id, ("owner",)):
        with i18n.use_language(users.choose_language(owner, account)):
            email, data = build(value)
        system_emails.queue_system_email(account, addresses.parse_email(owner.email), None, email, data)


def _build_late_email(age_hours: int | None) -> tuple[SystemEmail, dict[str, Any]]:
    if age_hours is None:
        text = gettext("No copy has reached the other machine yet. If this server broke, your data would be lost.")
    else:
        text = ngettext(
            "The last good copy on another machine is %(num)s hour old. If this server broke, everything since then "
            "would be lost.",
            "The last good copy on another machine is %(num)s hours old. If this server broke, everything since then "
            "would be lost.",
            age_hours,
        )
    return _build_email(gettext("Copies on another machine have stopped"), text, None)


def _build_recovered_email(_: Any) -> tuple[SystemEmail, dict[str, Any]]:
    text = gettext("A new copy was stored on the other machine. Nothing needs to be done.")
    return _build_email(gettext("Copies on another machine work again"), text, None)


def _build_proof_email(reason: str) -> tuple[SystemEmail, dict[str, Any]]:
    text = gettext(
        "Campanero restored the newest copy for a test, and that failed: %(reason)s", reason="{{ data.reason }}"
    )
    return _build_email(gettext("A copy of your data could not be restored"), text, reason)


def _build_proven_email(_: Any) -> tuple[SystemEmail, dict[str, Any]]:
    text = gettext("The newest copy was restored for a test, and everything in it was complete.")
    return _build_email(gettext("The copy of your data can be restored again"), text, None)


def _build_email(heading: str, text: str, reason: str | None) -> tuple[SystemEmail, dict[str, Any]]:
    email = SystemEmail(
        subject=heading, heading=heading, text=text, button=gettext("Open backups"),
        link=f"{config.base_url(config.current())}/settings/backups",
        note=gettext("Campanero keeps trying. The page shows the reason of the last failure."),
        language=i18n.get_language_tag(),
    )  # fmt: skip
    return email, {} if reason is None else {"reason": reason}

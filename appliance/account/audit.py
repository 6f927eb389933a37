"""Who did what to settings, keys and consent: a row each, which nobody changes."""

from typing import Any

from appliance import clock
from appliance.db.work import writing
from appliance.tables import Audit

SYSTEM = "system"


def record(
    account_id: int, actor: str, action: str, subject: str, data: dict[str, Any] | None = None, ip: str | None = None
) -> None:
    """Note an act in the running transaction; `subject` names its thing as `domain:3`."""
    writing()
    Audit.create(
        account=account_id, actor=actor, action=action, subject=subject, data=data or {}, ip=ip,
        created_at=clock.now_ms(),
    )  # fmt: skip

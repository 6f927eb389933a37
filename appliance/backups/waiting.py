"""What a restored account would send once it is let: all of it may have gone out between the backup and now."""

from typing import NamedTuple

from appliance.db.dialect.documents import among
from appliance.db.open import one, rows
from appliance.tables import Account, Restoration

HELD = "restored"  # the `stop_reason` of accounts until a person lets them send
_OPEN = "status IN ('queued', 'held', 'sending')"


class Wave(NamedTuple):
    """A campaign that is not over, and how many of its people are still to get it."""

    campaign_id: int
    name: str
    phase: str
    scheduled_at: int | None
    open: int
    sent: int


class Paused(NamedTuple):
    """A flow that was live, and how many people are inside."""

    flow_id: int
    name: str
    inside: int


class Waiting(NamedTuple):
    """All of it, for one account."""

    restoration: Restoration | None
    campaigns: list[Wave]
    flows: list[Paused]
    of_flows: int  # messages of flows
    single: int  # and of nobody's campaign or flow

    @property
    def is_empty(self) -> bool:
        """Whether nothing would go out."""
        return not (self.campaigns or self.flows or self.of_flows or self.single)


def is_held(account: Account) -> bool:
    """Return whether an account was restored and nobody has let it send since."""
    return bool(account.sending_stopped) and account.stop_reason == HELD


def last() -> Restoration | None:
    """Return the last restoration of this installation, or None."""
    found: Restoration | None = Restoration.select().order_by(Restoration.id.desc()).first()
    return found


def of_account(account_id: int) -> Waiting:
    """Return what an account would send."""
    found = last()
    campaigns = [
        Wave(*row)
        for row in rows(
            "SELECT c.id, c.name, c.phase, c.scheduled_at, "
            f"(SELECT count(*) FROM message m WHERE m.campaign_id = c.id AND m.{_OPEN}), "
            "(SELECT count(*) FROM message m WHERE m.campaign_id = c.id AND m.status = 'sent') FROM campaign c "
            "WHERE c.account_id = ? AND c.phase IN ('scheduled', 'holding', 'sending', 'paused') "
            "AND c.deleted_at IS NULL ORDER BY c.id DESC",
            (account_id,),
        )
    ]
    return Waiting(found, campaigns, _paused(account_id, found), *_loose(account_id))


def _paused(account_id: int, found: Restoration | None) -> list[Paused]:
    if found is None:
        return []
    return [
        Paused(*row)
        for row in rows(
            "SELECT f.id, f.name, (SELECT count(*) FROM run r WHERE r.flow_id = f.id AND r.status = 'live') "
            "FROM flow f WHERE f.account_id = ? AND f.status = 'paused' AND f.hidden = 0 "
            f"AND f.id {among('?')} ORDER BY f.id",
            (account_id, Restoration.paused.db_value(found.paused)),
        )
    ]


def _loose(account_id: int) -> tuple[int, int]:
    row = one(
        "SELECT count(*) FILTER (WHERE run_id IS NOT NULL), count(*) FILTER (WHERE run_id IS NULL) FROM message "
        f"WHERE account_id = ? AND campaign_id IS NULL AND {_OPEN}",
        (account_id,),
    )
    return (row[0], row[1]) if row else (0, 0)

"""The rehearsal of a draft: its message rendered for every recipient, before anybody gets it; advice, with progress.

Whoever asks for a preflight asks for it; it runs in a child process, one at a time, and is kept in memory as long as
draft, audience and brand stay what they were. A process that ends forgets it: the next preflight asks again.
"""

import hashlib
import logging
import threading
from collections import OrderedDict
from typing import Any, Literal

import msgspec
from msgspec import Struct

from appliance.campaigns.findings import transport
from appliance.campaigns.rehearse import Outcome, Task
from appliance.content import brand as brands
from appliance.core import clock, tokens, wake_ups
from appliance.core.subprocesses import child
from appliance.settings import config
from appliance.storage.models import Account, Campaign
from appliance.storage.open import fetch_one

log = logging.getLogger("campanero.rehearsal")
# How long what was found is believed: people come and go
FRESH_MS = 10 * 60 * 1000
_KEPT = 200
# Of SMS, what their words and ways depend on
_SETTINGS = ("countries", "opt_out_hint", "plain_quotes", "require_evidence")


class Rehearsal(Struct):
    """A rehearsal: how far it is, and what was found so far."""

    key: str
    status: Literal["waiting", "running", "complete", "failed"] = "waiting"
    outcome: Outcome = msgspec.field(default_factory=Outcome)
    completed_at: int | None = None


_lock = threading.Lock()
_known: "OrderedDict[int, Rehearsal]" = OrderedDict()


def of(campaign: Campaign) -> Rehearsal:
    """Return the rehearsal of a campaign as it stands now; one that is not there, or out of date, is asked for."""
    key = _key(campaign)
    with _lock:
        found = _known.get(campaign.id)
        old = found is not None and found.completed_at is not None and found.completed_at < clock.now_ms() - FRESH_MS
        if found is None or found.key != key or old:
            found = _known[campaign.id] = Rehearsal(key)
            while len(_known) > _KEPT:
                _known.popitem(last=False)
        _known.move_to_end(campaign.id)
    if found.status == "waiting":
        wake_ups.ring("rehearsals")
    return found


def _key(campaign: Campaign) -> str:
    """Tell one state of everything that a message is made from apart from another."""
    brand, account = brands.get(campaign.account_id), Account.get_by_id(campaign.account_id)
    trigger = campaign.trigger
    parts: list[Any] = [
        campaign.name, campaign.template_id, campaign.template.revision, campaign.template.updated_at, brand.updated_at,
        account.updated_at, trigger.contact_list_id, trigger.segment_id, trigger.data, campaign.channel,
        campaign.tracking, campaign.scheduled_at if campaign.channel == "sms" else None,
    ]  # fmt: skip
    return hashlib.blake2b(msgspec.json.encode(parts), digest_size=16).hexdigest()


def tend(stopping: threading.Event) -> None:
    """Run what waits, newest wish first; one that is no longer asked for as it was gives way at once."""
    while not stopping.is_set() and (found := _next()) is not None:
        campaign_id, rehearsal = found
        try:
            _run(campaign_id, rehearsal, stopping)
        except Exception:
            log.exception("the rehearsal of campaign %s failed", campaign_id)
            rehearsal.status, rehearsal.completed_at = "failed", clock.now_ms()


def _next() -> tuple[int, Rehearsal] | None:
    with _lock:
        return next(((number, found) for number, found in reversed(_known.items()) if found.status == "waiting"), None)


def _run(campaign_id: int, rehearsal: Rehearsal, stopping: threading.Event) -> None:
    rehearsal.status = "running"
    with child("rehearse", _task(campaign_id)) as lines:
        for said in lines:
            rehearsal.outcome = msgspec.convert(said.get("found") or said["done"], Outcome)
            if "done" in said:
                rehearsal.status, rehearsal.completed_at = "complete", clock.now_ms()
            elif stopping.is_set() or _known.get(campaign_id) is not rehearsal or not _is_draft(campaign_id):
                return


def _task(campaign_id: int) -> Task:
    here, campaign = config.current(), Campaign.get_by_id(campaign_id)
    settings = {f"sms.{name}": getattr(here.sms, name) for name in _SETTINGS}
    starts_at = None if transport(campaign) == "capture" else max(campaign.scheduled_at or 0, clock.now_ms())
    return Task(campaign_id, str(here.data_dir), config.base_url(here), settings, starts_at, tokens.loaded_key())


def _is_draft(campaign_id: int) -> bool:
    """Return whether there is still anything to be decided by what is found."""
    sql = "SELECT 1 FROM campaign WHERE id = ? AND phase IN ('draft', 'scheduled') AND deleted_at IS NULL"
    return fetch_one(sql, (campaign_id,)) is not None


def facts(rehearsal: Rehearsal) -> dict[str, Any]:
    """Return a rehearsal as preflight shows it."""
    return {"status": rehearsal.status, **msgspec.to_builtins(rehearsal.outcome)}

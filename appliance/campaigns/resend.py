"""Once more to whoever did not open it: a draft like a campaign that was sent, for a segment made for that."""

from appliance import clock
from appliance.campaigns import copying, store
from appliance.db.work import writing
from appliance.errors import Invalid
from appliance.segments import store as segments
from appliance.segments.requests import SegmentCreate
from appliance.tables import Campaign

_MAX_NAME = 230


def not_opened(account_id: int, campaign_id: int, user_id: int | None = None) -> Campaign:
    """Make a draft for those who got a campaign and did not open it; raises NotFound, or Invalid if there are none.

    Whoever left its lists since is not in it: lists and exclusions stay as they were.
    """
    writing()
    have = store.get(account_id, campaign_id)
    if have.channel != "email" or have.started_at is None:
        raise Invalid({"base": ["nobody could have opened it yet"]})
    name = have.name[:_MAX_NAME]
    segment = segments.create(
        account_id,
        SegmentCreate(
            name=f"Did not open {name}",
            filters=[
                {"name": "campaign_sent", "predicate": "eq", "value": campaign_id},
                {"name": "campaign_opened", "predicate": "not_eq", "value": campaign_id},
            ],
        ),
    )
    made = copying.duplicate(account_id, campaign_id, user_id)
    made.name = f"{name} (once more)"
    made.trigger.segment_id, made.trigger.updated_at = segment.id, clock.now_ms()
    made.trigger.save()
    store.touch(made)
    return store.get(account_id, made.id)

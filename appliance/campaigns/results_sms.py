"""The numbers of a report that only SMS have: the parts that were paid for, and what became of them by country."""

from urllib.parse import urlencode

from appliance.campaigns import recipients
from appliance.campaigns.figures import CountryFigures, SmsFigures
from appliance.db.dialect.hints import NO_INDEX
from appliance.db.open import rows
from appliance.sms import numbers
from appliance.tables import Campaign

_MAX_COUNTRIES = 50
_ACCEPTED = "status IN ('sent', 'delivered', 'bounced', 'complained')"
_SUMS = (
    f"SELECT {recipients.NUMBER_PREFIX}, max(recipient_key), count(*), count(*) FILTER (WHERE {_ACCEPTED}), "
    "count(*) FILTER (WHERE status = 'delivered'), count(*) FILTER (WHERE status = 'bounced'), "
    "count(*) FILTER (WHERE status = 'failed'), count(*) FILTER (WHERE status = 'skipped'), count(clicked_at), "
    f"sum(CASE WHEN {_ACCEPTED} THEN coalesce(segments, 0) ELSE 0 END) FROM message {NO_INDEX} "
    "WHERE id BETWEEN ? AND ? AND campaign_id = ? AND recipient_key IS NOT NULL GROUP BY 1"
)


def of(campaign: Campaign) -> SmsFigures | None:
    """Sum a campaign of SMS by the countries of the numbers, the largest first; None for mail."""
    if campaign.channel != "sms":
        return None
    sums: dict[str | None, list[int]] = {}
    for _, number, *counts in rows(_SUMS, (*recipients.bounds(campaign.id), campaign.id)):
        country = numbers.look(number).country
        have = sums.setdefault(country, [0] * len(counts))
        sums[country] = [before + int(more or 0) for before, more in zip(have, counts, strict=True)]
    order = sorted(sums, key=lambda one: (-sums[one][0], one or ""))
    shown = [CountryFigures(one, _people(campaign.id, one), *sums[one]) for one in order[:_MAX_COUNTRIES]]
    return SmsFigures(sum(counts[-1] for counts in sums.values()), shown)


def _people(campaign_id: int, country: str | None) -> str:
    return f"/v1/my/campaigns/{campaign_id}/recipients?{urlencode({'country': country or recipients.UNKNOWN})}"

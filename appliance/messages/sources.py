"""What many messages share: the compiled content of a campaign, or of a flow's step in one version."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from appliance import addresses, config
from appliance.db.open import one, rows
from appliance.delivery import mime
from appliance.designs.theme import Look
from appliance.messages import compose, letters
from appliance.messages.compose import Content, Parts, Sender
from appliance.messages.showing import Showing
from appliance.tables import Campaign, TemplateRevision

_RUNS = "SELECT id, version, event_data FROM run WHERE id IN (SELECT value FROM json_each(?))"
_STEP = (
    "SELECT s.content_id, s.pinned, f.account_id FROM step s JOIN flow f ON f.id = s.flow_id "
    "WHERE s.flow_id = ? AND s.version = ? AND s.action_id = ?"
)


class OfStep(NamedTuple):
    """A step in one version of its flow."""

    flow_id: int
    version: int
    action_id: int


# A campaign by its id, or a step of a flow
SourceId = int | OfStep


class Kept(NamedTuple):
    """What all messages of a source share."""

    content: Content
    parts: Parts
    tracked: Parts | None  # the same with links that lead through us
    sender: Sender
    shared: dict[str, Any]
    headers: bytes
    needs_phone: bool
    showing: Showing | None = None
    shown_as: int | None = None  # of a test: the contact whose values it shows
    is_marketing: bool = True


class Started(NamedTuple):
    """Of a run what its messages need: its version, and the data of the event that started it."""

    version: int
    event: dict[str, Any]


def started(run_ids: Iterable[int]) -> dict[int, Started]:
    """Answer what runs began with."""
    found = rows(_RUNS, (msgspec.json.encode(list(run_ids)).decode(),))
    return {number: Started(version, msgspec.json.decode(data or "{}")) for number, version, data in found}


def compile_source(source: SourceId) -> Kept:
    """Compile what all messages of a source share; raises MergeError or ValueError if it cannot be."""
    return _of_step(source) if isinstance(source, OfStep) else _of_campaign(source)


def _of_campaign(campaign_id: int) -> Kept:
    campaign = Campaign.get_by_id(campaign_id)
    said = campaign.pinned
    document = TemplateRevision.get_by_id(campaign.content_id).document
    content = compose.compile_source(compose.source_of(document, Look(*said["look"]), said["locale"], marketing=True))
    sender = Sender(campaign.sender["email"], campaign.sender["name"], campaign.sender["reply_to"])
    headers = compose.list_headers(
        campaign_id, said["list_name"], said["list_id"], domain_of(sender.email), campaign.account_id
    )
    links = None
    if said["tracking"]:
        numbered = rows("SELECT url FROM link WHERE campaign_id = ? ORDER BY number", (campaign_id,))
        links = [url for (url,) in numbered]
    return _kept(content, links, sender, said["values"], mime.head(headers), campaign.account_id)


def _of_step(step: OfStep) -> Kept:
    found = one(_STEP, step)
    if found is None or found[0] is None:
        raise ValueError("its step says nothing")
    said = msgspec.json.decode(found[1])
    content = letters.compiled(TemplateRevision.get_by_id(found[0]).document, said)
    sender = Sender(said["sender"]["email"], said["sender"]["name"], said["sender"]["reply_to"])
    account_id = int(found[2])
    headers: tuple[tuple[str, str], ...] = (("Auto-Submitted", "auto-generated"),)
    if not said["transactional"]:
        headers = compose.list_headers(None, said["list_name"], said["list_id"], domain_of(sender.email), account_id)
    links = [url for url, _ in said["links"]] if said["tracking"] else None
    kept = _kept(content, links, sender, said["values"], mime.head(headers), account_id)
    return kept._replace(is_marketing=not said["transactional"])


def _kept(
    content: Content, links: list[str] | None, sender: Sender, shared: dict[str, Any], headers: bytes, account_id: int
) -> Kept:
    needs_phone = not {"contact", "contact.phone"}.isdisjoint(content.variables())
    return Kept(
        content, Parts(content), None if links is None else tracked(content, links), sender, shared, headers,
        needs_phone, Showing(account_id, content.conditions),
    )  # fmt: skip


def tracked(content: Content, links: list[str]) -> Parts:
    """Answer the parts of a content whose links lead through us."""
    return Parts(compose.tracked(content, tuple(links), config.base_url(config.current())))


def domain_of(address: str) -> str:
    """Answer the domain of an address in its ASCII form."""
    ascii_form = addresses.ascii_form(address) or address
    return ascii_form.rpartition("@")[2]

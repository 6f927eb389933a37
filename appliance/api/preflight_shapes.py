"""What the API answers about a draft that is looked at before its send."""

from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from appliance.campaigns import preflight
from appliance.campaigns.findings import Finding
from appliance.campaigns.rehearse import Failure, Lack
from appliance.campaigns.rehearse_sms import Texts


class CheckedLink(Struct):
    """A link of the message that does not answer, or was not asked."""

    href: str
    why: str


class LinkFacts(Struct):
    """What came of asking where the links lead; each is asked once, beside the answer."""

    status: Literal["waiting", "running", "complete"]
    fine: int
    broken: list[CheckedLink]
    unchecked: list[CheckedLink]


class SmsFacts(Struct, rename={"from_": "from"}):
    """What is known of an SMS; of its parts nothing until the rehearsal is complete."""

    from_: str | None
    opt_out_hint: str | None
    parts: int | None
    is_exact: bool | None


class RehearsalFacts(Struct):
    """The message made for everybody, beside the answer: how far that is, and what was found so far."""

    status: Literal["waiting", "running", "complete", "failed"]
    total: int
    done: int
    failed: int
    failures: list[Failure]
    lacking: list[Lack]
    html_bytes: int
    sms: Texts | None


class PreflightFacts(Struct):
    """What a person decides by; `sms` is only there for an SMS, `links` and `rehearsal` once there is something to do.

    `audience` is the sum of `sendable` and of all numbers in `skipped`.
    """

    audience: int
    sendable: int
    skipped: dict[str, int]
    transport: str
    html_bytes: int
    sms: SmsFacts | UnsetType = UNSET
    links: LinkFacts | UnsetType = UNSET
    rehearsal: RehearsalFacts | UnsetType = UNSET


class Preflight(Struct):
    """Everything found, and the facts a person decides by."""

    ok: bool
    blockers: list[Finding]
    warnings: list[Finding]
    facts: PreflightFacts


def shaped(found: preflight.Preflight) -> Preflight:
    """Shape what was found."""
    facts = msgspec.convert(found.facts, PreflightFacts)
    return Preflight(found.ok, found.blockers, found.warnings, facts)

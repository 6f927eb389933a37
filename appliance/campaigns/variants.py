"""The A/B test or holdout of a campaign as it is set up: its variants, their content, and validating changes.

A campaign with a test has a row of `Experiment` and rows of `Variant`. Variant 1 is the campaign's own content; each
other variant has a template, whose empty fields mean that the text is that of the campaign. So a correction of the
campaign's content reaches all variants that do not replace it. `experiment.py` runs the test.
"""

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from msgspec import UNSET, Meta, Struct, UnsetType

from appliance.content.templates import store as templates
from appliance.content.templates import variant_content
from appliance.content.templates.revisions import to_document
from appliance.content.templates.store import is_empty
from appliance.content.templates.validation import Content, Design, TemplateWrite, validate_content
from appliance.content.templates.variant_content import CONTENT_FIELDS, TEXT_FIELDS
from appliance.core import clock
from appliance.core.errors import Faults, NotFound, RefusedKeys, content_keys, unsupported, use_instead
from appliance.core.i18n import gettext
from appliance.core.validation import EmailText, EventName, Id, Line, Subject, Text, default
from appliance.experiments.assignment import MAX_VARIANTS
from appliance.storage.models import Campaign, Experiment, Template, TemplateRevision, Variant
from appliance.storage.transactions import require_write_transaction

MAX_HOLDOUT = 0.5
MIN_TEST_SHARE = 0.01
MAX_DAYS = 30
MIN_DECIDE_MINUTES, MAX_MINUTES = 60, MAX_DAYS * 24 * 60
DEFAULT_DECIDE_MINUTES = 24 * 60
# The last variant has at least this time between its send and the end of the test.
MIN_TIME_AFTER_SEND_MINUTES = 60

Metric = Literal["clicks", "opens", "event"]
DecidedBy = Literal["service", "person"]
TooClose = Literal["leader", "person"]


class VariantWrite(Struct):
    """A variant in a request. The first one is the campaign's own content, so it has only a name and a time.

    A field that is null has the value of the campaign; one that is not sent keeps its value if `id` is given.
    """

    REFUSED: ClassVar[RefusedKeys] = {
        **content_keys(),
        **use_instead("`send_after_minutes`", "send_at", "scheduled_at", "send_after", "delay"),
        **unsupported("shares are equal; `uneven` lets the service choose them", "share", "weight"),
    }

    id: Annotated[Id, Meta(description="id of the variant to keep; without it, a new variant is added")] | UnsetType = (
        UNSET
    )
    name: Annotated[Line, Meta(description="name for reports; null: A, B and so on")] | None | UnsetType = UNSET
    subject: Annotated[Subject, Meta(description="subject; null: that of the campaign")] | None | UnsetType = UNSET
    preheader: Annotated[Line, Meta(description="preview text; null: that of the campaign")] | None | UnsetType = UNSET
    from_name: Annotated[Line, Meta(description="From name; null: that of the campaign")] | None | UnsetType = UNSET
    from_email: (
        Annotated[EmailText, Meta(description="From address; null: that of the campaign")] | None | UnsetType
    ) = UNSET
    reply_to: Annotated[EmailText, Meta(description="Reply-To; null: that of the campaign")] | None | UnsetType = UNSET
    body: (
        Annotated[Text, Meta(description="body; null, with an empty design: the content of the campaign")]
        | None
        | UnsetType
    ) = UNSET
    design: (
        Annotated[Design, Meta(description="design; null, without a body: the content of the campaign")]
        | None
        | UnsetType
    ) = UNSET
    send_after_minutes: (
        Annotated[
            int,
            Meta(ge=0, le=MAX_MINUTES),
            default(0),
            Meta(description="minutes from the start of the campaign to the first message of this variant"),
        ]
        | UnsetType
    ) = UNSET


class ExperimentWrite(Struct):
    """An A/B test or a holdout in a request. On a change, keys that are not sent keep their value."""

    REFUSED: ClassVar[RefusedKeys] = {
        **use_instead("`test_share`", "share", "test_size", "test_percentage", "split"),
        **use_instead("`metric`", "winner_criteria", "criteria", "goal", "winning_metric"),
        **use_instead("`decide_after_minutes`", "duration", "wait_time", "decide_after", "test_duration"),
        **use_instead("`holdout`", "control", "control_share", "control_group", "holdout_share"),
        **use_instead("`uneven`", "bandit", "thompson"),
        **unsupported("use `POST /campaigns/{id}/experiment/winner`", "winner", "winner_id"),
    }

    variants: (
        Annotated[
            list[VariantWrite],
            Meta(max_length=MAX_VARIANTS),
            Meta(
                description="the variants in order; replaces the list. Two to five for an A/B test, none or one for a "
                "holdout alone"
            ),
        ]
        | UnsetType
    ) = UNSET
    test_share: (
        Annotated[
            float,
            Meta(ge=MIN_TEST_SHARE, le=1),
            default(1),
            Meta(
                description="share of the audience that gets the variants; the rest, without the holdout, waits for "
                "the winner"
            ),
        ]
        | UnsetType
    ) = UNSET
    metric: (
        Annotated[
            Metric,
            default("clicks"),
            Meta(
                description="what decides: recipients who clicked, opened (estimated, so with a warning), or have an "
                "event"
            ),
        ]
        | UnsetType
    ) = UNSET
    event: (
        Annotated[EventName, Meta(description="name of the counted event; required for `event` and for a holdout")]
        | None
        | UnsetType
    ) = UNSET
    by_amount: (
        Annotated[bool, default(False), Meta(description="compare amounts of events, not how many recipients have one")]
        | UnsetType
    ) = UNSET
    decide_after_minutes: (
        Annotated[
            int,
            Meta(ge=MIN_DECIDE_MINUTES, le=MAX_MINUTES),
            default(DEFAULT_DECIDE_MINUTES),
            Meta(description="minutes from the first message to the end of the test"),
        ]
        | UnsetType
    ) = UNSET
    decided_by: (
        Annotated[
            DecidedBy,
            default("service"),
            Meta(description="`service`: sends the winner as soon as it is clear; `person`: waits for a decision"),
        ]
        | UnsetType
    ) = UNSET
    too_close: (
        Annotated[
            TooClose,
            default("leader"),
            Meta(description="at the end without a winner, `leader` sends the best variant, `person` waits"),
        ]
        | UnsetType
    ) = UNSET
    uneven: (
        Annotated[
            bool,
            default(False),
            Meta(description="send the test in batches, and give better variants more of the later ones"),
        ]
        | UnsetType
    ) = UNSET
    holdout: (
        Annotated[
            float,
            Meta(ge=0, le=MAX_HOLDOUT),
            default(0),
            Meta(description="share of the audience that gets nothing and is measured"),
        ]
        | UnsetType
    ) = UNSET


# The columns of `Experiment` that a request sets, with the value of a new one.
_SETTINGS: dict[str, Any] = {
    "metric": "clicks", "event": None, "by_amount": False, "test_share": 1.0, "holdout": 0.0, "uneven": False,
    "decide_after_minutes": DEFAULT_DECIDE_MINUTES, "decided_by": "service", "too_close": "leader",
}  # fmt: skip
ExperimentField = ExperimentWrite | None | UnsetType


class Setup(NamedTuple):
    """The test of a campaign with its variants in order of their numbers, each with its template."""

    experiment: Experiment
    variants: list[Variant]


def find(campaign_id: int) -> Setup | None:
    """Return the test of a campaign, or None if it has none."""
    experiment = Experiment.get_or_none(Experiment.campaign == campaign_id)
    return None if experiment is None else Setup(experiment, list_variants(experiment.id))


def list_variants(experiment_id: int) -> list[Variant]:
    """Return the variants of a test with their templates, in order of their numbers."""
    return list(
        Variant.select(Variant, Template)
        .join(Template)
        .where(Variant.experiment == experiment_id)
        .order_by(Variant.number)
    )


def list_senders(campaign_id: int) -> list[dict[str, Any]]:
    """Return the senders of the variants after the first, which are fixed when the campaign is sent."""
    sent = Variant.select(Variant.sender).join(Experiment).where(
        Experiment.campaign == campaign_id, Variant.sender.is_null(False)
    )  # fmt: skip
    return [variant.sender for variant in sent]


def get_variant(setup: Setup, number: int) -> Variant:
    """Return the variant with a number; raises NotFound."""
    variant = next((variant for variant in setup.variants if variant.number == number), None)
    if variant is None:
        raise NotFound
    return variant


def get_name(variant: Variant) -> str:
    """Return the name of a variant, by default its letter from A."""
    return variant.name or chr(ord("A") + variant.number - 1)


def is_test(setup: Setup) -> bool:
    """Return whether variants are compared, not only a holdout with those who get the campaign."""
    return len(setup.variants) > 1


# Content of variants.


def has_own_content(variant: Variant) -> bool:
    """Return whether a variant has a body or design of its own; variant 1 has that of the campaign."""
    return variant.number > 1 and not is_empty(variant.template)


def list_differences(variant: Variant) -> list[str]:
    """Return the fields that a variant has itself: names of `TEXT_FIELDS`, and `content`."""
    return [] if variant.number == 1 else variant_content.list_own_fields(variant.template)


def build_view(campaign: Campaign, variant: Variant) -> Campaign:
    """Return a campaign as it is for the recipients of a variant, to be checked and rendered; never save it.

    Its template has the id of the variant's template, and the complete content.
    """
    if variant.number == 1:
        return campaign
    view = Campaign(**{field.name: campaign.__data__.get(name) for name, field in Campaign._meta.fields.items()})
    view.account, view.trigger = campaign.account, campaign.trigger
    view.template = variant_content.complete(variant.template, campaign.template)
    return view


def list_views(campaign: Campaign) -> list[tuple[Variant, Campaign]]:
    """Return each variant after the first with the campaign as it is for its recipients; empty without a test."""
    setup = find(campaign.id)
    if setup is None:
        return []
    return [(variant, build_view(campaign, variant)) for variant in setup.variants if variant.number > 1]


def start_content(account_id: int, campaign_id: int, number: int, user_id: int | None = None) -> Template:
    """Give a variant its own copy of the campaign's body and design, to be edited, and return its template.

    If it has own content, nothing changes. Raises NotFound, Invalid if the campaign is locked, and NotAllowed if it is
    scheduled and the user may not send.
    """
    require_write_transaction()
    campaign = Campaign.get_or_none(
        Campaign.account == account_id, Campaign.id == campaign_id, Campaign.deleted_at.is_null()
    )
    setup = find(campaign_id)
    if campaign is None or setup is None:
        raise NotFound
    variant = get_variant(setup, number)
    template: Template = variant.template
    if number > 1 and is_empty(template):
        source = to_document(campaign.template)
        own = template.translations
        texts = {
            language: {
                **{key: text for key, text in entries.items() if key not in TEXT_FIELDS},
                **{key: text for key, text in (own.get(language) or {}).items() if key in TEXT_FIELDS},
            }
            for language, entries in source["translations"].items()
        }
        values = {"body": source["body"], "design": source["design"], "translations": {**own, **texts}}
        templates.write(template, values, user_id, starts_over=True)
    return template


# Changes.


def validate(account_id: int, request: ExperimentWrite, channel: str, setup: Setup | None, faults: Faults) -> None:
    """Add all errors of a requested test to `faults`; `setup` is the present test, which the request changes."""
    path = "experiment."
    settings = _join_settings(request, setup)
    variants = request.variants if isinstance(request.variants, list) else None
    present = {variant.id: variant for variant in setup.variants} if setup is not None else {}
    count = len(variants) if variants is not None else len(present)
    if count < 2 and not settings["holdout"]:
        faults.add(f"{path}variants", gettext("needs two variants or more, or a holdout"))
    if settings["test_share"] + settings["holdout"] > 1 and settings["test_share"] < 1:
        faults.add(f"{path}test_share", gettext("is more than the holdout leaves"))
    if settings["event"] is None and (settings["metric"] == "event" or settings["holdout"]):
        faults.add(f"{path}event", gettext("can't be blank"))
    if settings["metric"] != "event" and settings["by_amount"]:
        faults.add(f"{path}by_amount", gettext("is only for events"))
    if settings["metric"] == "opens" and channel == "sms":
        faults.add(f"{path}metric", gettext("SMS have no opens"))
    times = _list_times(variants, present)
    if settings["decide_after_minutes"] < max(times, default=0) + MIN_TIME_AFTER_SEND_MINUTES:
        faults.add(
            f"{path}decide_after_minutes",
            gettext("must be at least %(num)s minutes after the last variant", num=MIN_TIME_AFTER_SEND_MINUTES),
        )
    if settings["uneven"] and count < 2:
        faults.add(f"{path}uneven", gettext("is only for an A/B test"))
    if settings["uneven"] and any(times):
        faults.add(f"{path}uneven", gettext("cannot be combined with different send times"))
    for index, variant in enumerate(variants or ()):
        _validate_variant(account_id, variant, index, channel, present, faults)
    _refuse_repeated(variants or (), faults)


def _join_settings(request: ExperimentWrite, setup: Setup | None) -> dict[str, Any]:
    present = _SETTINGS if setup is None else {name: getattr(setup.experiment, name) for name in _SETTINGS}
    sent = {name: getattr(request, name) for name in _SETTINGS}
    return present | {name: value for name, value in sent.items() if value is not UNSET}


def _list_times(variants: list[VariantWrite] | None, present: dict[int, Variant]) -> list[int]:
    if variants is None:
        return [variant.send_after_minutes for variant in present.values()]
    times = []
    for variant in variants:
        stored = present.get(variant.id) if isinstance(variant.id, int) else None
        minutes = stored.send_after_minutes if stored is not None else 0
        times.append(variant.send_after_minutes if isinstance(variant.send_after_minutes, int) else minutes)
    return times


def _validate_variant(
    account_id: int, variant: VariantWrite, index: int, channel: str, present: dict[int, Variant], faults: Faults
) -> None:
    path = f"experiment.variants[{index}]."
    if isinstance(variant.id, int):
        stored = present.get(variant.id)
        if stored is None:
            faults.add(f"{path}id", gettext("must exist"))
        elif (stored.number == 1) != (index == 0):
            faults.add(f"{path}id", gettext("the campaign's own content must be the first variant"))
    for name in CONTENT_FIELDS:
        value = getattr(variant, name)
        if value is UNSET or value is None:
            continue
        if index == 0:
            faults.add(path + name, gettext("is that of the campaign: change `template_attributes`"))
        elif channel == "sms" and name != "body":
            faults.add(path + name, gettext("is only for email"))
    if index:
        validate_content(account_id, _get_content(variant), path, faults, channel)


def _get_content(variant: VariantWrite) -> Content:
    return Content(**{name: getattr(variant, name) for name in CONTENT_FIELDS})


def _refuse_repeated(variants: Iterable[VariantWrite], faults: Faults) -> None:
    """Add an error for each name and id that an earlier variant has too."""
    for field in ("id", "name"):
        seen: set[Any] = set()
        for index, variant in enumerate(variants):
            value = getattr(variant, field)
            if value is UNSET or value is None:
                continue
            key = value.strip().casefold() if isinstance(value, str) else value
            if key in seen:
                faults.add(f"experiment.variants[{index}].{field}", gettext("is used twice"))
            seen.add(key)


def would_change(campaign: Campaign, request: ExperimentField) -> bool:
    """Return whether a request would change the test of a campaign."""
    if request is UNSET:
        return False
    setup = find(campaign.id)
    if request is None or setup is None:
        return (request is None) != (setup is None)
    if any(getattr(request, name) not in (UNSET, getattr(setup.experiment, name)) for name in _SETTINGS):
        return True
    if not isinstance(request.variants, list):
        return False
    if [variant.id for variant in request.variants] != [variant.id for variant in setup.variants]:
        return True
    return any(_changes_variant(new, old) for new, old in zip(request.variants, setup.variants, strict=True))


def _changes_variant(request: VariantWrite, variant: Variant) -> bool:
    if any(getattr(request, name) not in (UNSET, getattr(variant, name)) for name in ("name", "send_after_minutes")):
        return True
    content = _get_content(request)
    sent = {name for name in CONTENT_FIELDS if getattr(content, name) is not UNSET}
    if variant.number == 1:
        return False
    values = templates.normalize_content(variant.template, content)
    return any(values[name] != getattr(variant.template, name) for name in sent)


def apply(campaign: Campaign, request: ExperimentField, user_id: int | None = None) -> bool:
    """Store a validated change of a draft's test, None removes it; return whether anything changed."""
    require_write_transaction()
    if not would_change(campaign, request):
        return False
    if request is None:
        remove(campaign.id)
        return True
    assert isinstance(request, ExperimentWrite)  # `would_change` is false for UNSET.
    now, setup = clock.now_ms(), find(campaign.id)
    if setup is None:
        setup = Setup(Experiment.create(campaign=campaign, created_at=now, updated_at=now), [])
    for name, value in _join_settings(request, setup).items():
        setattr(setup.experiment, name, value)
    setup.experiment.updated_at = now
    setup.experiment.save()
    if isinstance(request.variants, list):
        _replace_variants(campaign, setup, request.variants, user_id)
    elif not setup.variants:
        _replace_variants(campaign, setup, [], user_id)
    return True


def _replace_variants(campaign: Campaign, setup: Setup, requests: list[VariantWrite], user_id: int | None) -> None:
    stored = {variant.id: variant for variant in setup.variants}
    kept_ids = {request.id for request in requests}
    dropped = [variant for variant in setup.variants if variant.id not in kept_ids and variant.number > 1]
    _delete_variants(dropped)
    own = next((variant for variant in setup.variants if variant.number == 1), None)
    # Numbers are unique, so those of the variants that stay make room first.
    for variant in setup.variants:
        if variant not in dropped:
            Variant.update(number=variant.number + MAX_VARIANTS).where(Variant.id == variant.id).execute()
    for number, request in enumerate(requests or [VariantWrite()], 1):
        present = own if number == 1 else stored.get(request.id) if isinstance(request.id, int) else None
        if present is None:
            template = campaign.template if number == 1 else _create_template(campaign, request, user_id)
            variant = Variant(experiment=setup.experiment, template=template)
        else:
            variant = present
            if number > 1:
                templates.fill(variant.template, _get_content(request), user_id)
        variant.number = number
        for name in ("name", "send_after_minutes"):
            value = getattr(request, name)
            if value is not UNSET:
                setattr(variant, name, value.strip() or None if isinstance(value, str) else value)
        variant.save()


def _create_template(campaign: Campaign, request: VariantWrite, user_id: int | None) -> Template:
    content = {name: getattr(request, name) for name in CONTENT_FIELDS}
    channel = str(campaign.channel)
    return templates.create(campaign.account_id, TemplateWrite(**content), campaign.flow_id, user_id, channel=channel)


def remove(campaign_id: int) -> None:
    """Delete the test of a campaign that was not sent, with the templates of its variants."""
    require_write_transaction()
    setup = find(campaign_id)
    if setup is None:
        return
    _delete_variants(setup.variants)
    setup.experiment.delete_instance()


def _delete_variants(variants: Iterable[Variant]) -> None:
    for variant in variants:
        Variant.delete().where(Variant.id == variant.id).execute()
        if variant.number > 1:
            TemplateRevision.delete().where(TemplateRevision.template == variant.template_id).execute()
            Template.delete().where(Template.id == variant.template_id).execute()


def copy(original: Campaign, duplicate: Campaign, user_id: int | None) -> None:
    """Give a new draft the same test as another campaign, not yet started."""
    require_write_transaction()
    setup = find(original.id)
    if setup is None:
        return
    now = clock.now_ms()
    settings = {name: getattr(setup.experiment, name) for name in _SETTINGS}
    experiment = Experiment.create(campaign=duplicate, created_at=now, updated_at=now, **settings)
    for variant in setup.variants:
        template = duplicate.template
        if variant.number > 1:
            template = _create_template(duplicate, VariantWrite(), user_id)
            templates.write(template, to_document(variant.template), user_id, begins=True)
        Variant.create(
            experiment=experiment, number=variant.number, name=variant.name, template=template,
            send_after_minutes=variant.send_after_minutes,
        )  # fmt: skip


def set_channel(campaign: Campaign) -> None:
    """Give the templates of all variants the channel of a campaign that has just changed it."""
    require_write_transaction()
    ids = Variant.select(Variant.template).join(Experiment).where(Experiment.campaign == campaign.id)
    Template.update(channel=campaign.channel).where(Template.id.in_(ids)).execute()

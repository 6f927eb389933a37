"""Tables of campaigns, with their times, series and experiments, of the time zones of contacts, and of proposals."""

from peewee import (
    SQL,
    BooleanField,
    CompositeKey,
    FloatField,
    ForeignKeyField,
    IntegerField,
    TextField,
)

from appliance.storage.database import Json, Table, Time
from appliance.storage.models.account import Account, ApiKey, Contact, User
from appliance.storage.models.content import Template, TemplateRevision
from appliance.storage.models.flows import Flow, Trigger


class Campaign(Table):
    """One message to an audience, sent once."""

    account = ForeignKeyField(Account, index=False)
    flow = ForeignKeyField(Flow, unique=True)
    trigger = ForeignKeyField(Trigger, index=False)
    template = ForeignKeyField(Template, index=False)
    name = TextField()
    channel = TextField(default="email")
    status = TextField(default="draft")
    phase = TextField(default="draft")
    approval_state = TextField(default="pending_review")
    approval_note = TextField(null=True)
    asked_at = Time(null=True)  # when approval was requested; null: not pending
    asked_by = IntegerField(null=True)  # the user who requested approval
    edited_by = IntegerField(null=True)  # the user who last changed content or audience
    data = Json(default=dict)
    tracking = BooleanField(default=True)  # whether its opens and clicks are counted
    scheduled_at = Time(null=True)  # with `local_time`, the first moment at which it is that time anywhere
    local_time = TextField(null=True)  # `2026-12-01T09:00`: the time on each recipient's clock at which it is sent
    # The hour of the day until which it is sent, to each recipient at their best hour; null: all at `local_time`.
    best_hour_until = IntegerField(null=True)
    utm = Json(null=True)  # the UTM parameters of its links; null: those of the account
    # Audience, content and sender are fixed when the campaign is sent.
    content = ForeignKeyField(TemplateRevision, null=True, index=False)
    sender = Json(null=True)
    pinned = Json(null=True)  # the shared content besides the template revision, fixed when the campaign is sent
    hold_until = Time(null=True)
    test = BooleanField(default=False)  # it was sent with a test key: its messages are captured and never counted
    audience_count = IntegerField(default=0)
    pending_snapshot = Json(
        null=True
    )  # the audience and progress of a large campaign while its message rows are being written
    pending_end = TextField(null=True)  # `cancel` or `undo` while a job ends the messages of a large campaign
    sent_count = IntegerField(default=0)
    # Counts for the auto-pause: unknown addresses rejected, bounces after acceptance, spam complaints.
    refused_count = IntegerField(default=0)
    bounced_count = IntegerField(default=0)
    complained_count = IntegerField(default=0)
    baseline = Json(default=dict)  # the counts at the time when a person last resumed the campaign
    pause_reason = TextField(null=True)
    started_at = Time(null=True)
    completed_at = Time(null=True)
    cancelled_at = Time(null=True)
    deleted_at = Time(null=True)  # a deleted campaign is hidden, but its row stays, because the ledger refers to it
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("account", "created_at", "id"), False), (("phase", "scheduled_at"), False))


Campaign.add_index(
    SQL("CREATE INDEX campaign_unfinished ON campaign (id) WHERE pending_snapshot NOT NULL OR pending_end NOT NULL")
)


class SendTime(Table):
    """When the recipients of a campaign in one time zone get it, fixed when the campaign is sent.

    A campaign with a local time has a row for each time zone, or for each time zone and hour if it is sent at the best
    hour of each recipient. The ids of the rows of a time zone are consecutive.
    """

    campaign = ForeignKeyField(Campaign, on_delete="CASCADE", index=False)
    time_zone = TextField()
    hour = IntegerField(default=0, constraints=[SQL("DEFAULT 0")])  # of the day on the recipient's clock
    due_at = Time()
    next_due_at = Time(null=True)  # for recipients who waited for the winner of an A/B test
    recipients = IntegerField(default=0)

    class Meta:
        indexes = ((("campaign", "time_zone", "hour"), True),)


class ClickHour(Table):
    """The number of messages whose first click by a contact was in an hour of the day, in the contact's time zone.

    Clicks by machines are left out.
    """

    id = None
    contact = ForeignKeyField(Contact, on_delete="CASCADE", index=False)
    hour = IntegerField()
    clicks = IntegerField()

    class Meta:
        primary_key = CompositeKey("contact", "hour")
        without_rowid = True


class Series(Table):
    """The repetition of a campaign, which stays scheduled; what is sent at each date is a copy of it."""

    campaign = ForeignKeyField(Campaign, unique=True, on_delete="CASCADE")
    rule = Json(null=True)  # `campaigns.repeat_dates.RepeatRule`; null: it repeats no longer, and its dates stay
    ends_at = Time(null=True)
    only_if_changed = BooleanField(default=False)
    sent_hash = TextField(null=True)  # of the content that was sent last
    created_at = Time()
    updated_at = Time()


class Occurrence(Table):
    """A past date of a series: the campaign that was sent then, or why nothing was sent."""

    series = ForeignKeyField(Series, on_delete="CASCADE", index=False)
    due_at = Time()
    outcome = TextField()  # sent, missed (too late), unchanged (the content), blocked (by the preflight)
    reason = TextField(null=True)  # the code of the finding
    campaign = ForeignKeyField(Campaign, null=True, unique=True, on_delete="CASCADE")  # what was sent
    created_at = Time()

    class Meta:
        indexes = ((("series", "due_at"), True),)


class Experiment(Table):
    """The A/B test or the holdout of a campaign: what is compared, who got what, and the decision."""

    campaign = ForeignKeyField(Campaign, unique=True, on_delete="CASCADE")
    metric = TextField(default="clicks")  # clicks, opens, event
    event = TextField(null=True)  # the name of the event that is counted, by which a holdout is always measured
    by_amount = BooleanField(default=False)  # whether amounts of events are compared, not the shares of recipients
    test_share = FloatField(default=1.0)  # the share of the audience that the test gets; the rest waits for the winner
    holdout = FloatField(default=0.0)  # the share of the audience that gets nothing and is measured
    uneven = BooleanField(default=False)  # whether later batches of the test give better variants more recipients
    decide_after_minutes = IntegerField(default=1440)  # from the first message to the end of the test
    decided_by = TextField(default="service")  # service, person
    too_close = TextField(default="leader")  # what the service does at the end without a winner: leader, person
    state = TextField(default="draft")  # draft, testing, releasing (the winner to the recipients who wait), decided
    # Fixed or counted when the campaign is sent:
    assignment = Json(null=True)  # `experiments.assignment.Assignment`; only ever extended
    typical_amount = Json(null=True)  # `experiments.evidence.TypicalAmount`
    # The batches of the test: {"at": when its first message was due, "sizes": the recipients of each variant}
    batches = Json(default=list)
    held_out_count = IntegerField(default=0)
    decide_at = Time(null=True)  # when the test ends
    next_batch_at = Time(null=True)  # when the next batch of an uneven test is assigned
    released_id = IntegerField(default=0)  # waiting messages up to this id were looked at for the current batch
    winner = IntegerField(null=True)  # number of the variant that the recipients who wait get
    chosen_by = TextField(null=True)  # who chose it: service, or the actor as in the audit log
    decision = Json(null=True)  # `experiments.decision.Decision` at that time
    decided_at = Time(null=True)
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("state", "decide_at"), False),)


class Variant(Table):
    """A variant of a campaign. Texts that its template does not have are those of the campaign's template."""

    experiment = ForeignKeyField(Experiment, on_delete="CASCADE", index=False)
    number = IntegerField()  # from 1, as in the ledger; variant 1 is the campaign's own template
    name = TextField(null=True)
    template = ForeignKeyField(Template, on_delete="CASCADE", index=True)
    send_after_minutes = IntegerField(default=0)  # from the start of the campaign
    # Fixed when the campaign is sent; variant 1 has the content and the sender of the campaign.
    document = Json(null=True)  # its complete content, as in a revision
    sender = Json(null=True)

    class Meta:
        indexes = ((("experiment", "number"), True),)


class Proposal(Table):
    """An act that an agent proposes and a user approves or returns (`appliance/agents/proposals.py`)."""

    account = ForeignKeyField(Account, index=False)
    key = ForeignKeyField(ApiKey, index=True)  # the agent
    person = IntegerField(null=True)  # id of the user who created the key; counts as an author (docs/decisions.md#25)
    kind = TextField()  # send_campaign, start_flow, change_flow, change_segment, change_template
    subject_id = IntegerField()  # of the campaign, flow, segment or template
    subject_name = TextField()  # as it was when the proposal was made
    state = TextField(default="open")  # open, approved, returned, withdrawn
    note = TextField(default="")  # the agent's reason
    changes = Json(default=dict)  # the body of the request that is carried out on approval
    version = TextField()  # of all that the proposal describes, when it was made
    answer = TextField(null=True)  # the note of the user who returned it
    decided_by = ForeignKeyField(User, null=True, on_delete="SET NULL", index=True)
    decided_at = Time(null=True)
    mailed_at = Time(null=True)  # when users were told by email
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("account", "state", "created_at"), False),)


class TimeZone(Table):
    """The name of a time zone, so that `ContactZone` stores numbers. The rows stay when a zone no longer exists."""

    name = TextField(unique=True)


class ContactZone(Table):
    """The time zone of a contact, stored so that the audience of a campaign is fixed without computing it.

    `fill` of `audience/time_zones.py` computes missing rows, and the rows that the triggers below marked as stale.
    """

    contact = ForeignKeyField(Contact, primary_key=True, on_delete="CASCADE")
    time_zone_id = IntegerField(null=True)  # of `TimeZone`; null: the zone of the account
    source = IntegerField(null=True)  # where it comes from, as an index of `time_zones.SOURCES`; null: the account
    is_stale = BooleanField(default=False)


ContactZone.add_index(SQL("CREATE INDEX contact_zone_stale ON contact_zone (contact_id) WHERE is_stale"))
# Triggers for the changes that may change the zone of a contact. Each connection that writes has them
# (`storage/writer.py`).
_MARK_ZONE = "UPDATE contact_zone SET is_stale = 1 WHERE contact_id"
ZONE_TRIGGERS = (
    "CREATE TEMP TRIGGER contact_zone_changed AFTER UPDATE OF data, country_code ON main.contact "
    "WHEN old.country_code IS NOT new.country_code "
    # A damaged value is not an error: the contact could not be repaired
    "OR iif(json_valid(old.data), old.data ->> '$.time_zone', '') "
    "IS NOT iif(json_valid(new.data), new.data ->> '$.time_zone', '') "
    f"BEGIN {_MARK_ZONE} = new.id; END",
    "CREATE TEMP TRIGGER contact_zone_phone_added AFTER INSERT ON main.channel WHEN new.kind = 'phone' "
    f"BEGIN {_MARK_ZONE} = new.contact_id; END",
    "CREATE TEMP TRIGGER contact_zone_phone_changed AFTER UPDATE OF kind, key, contact_id, subscribed ON main.channel "
    "WHEN 'phone' IN (old.kind, new.kind) AND (old.kind IS NOT new.kind OR old.key IS NOT new.key "
    "OR old.contact_id IS NOT new.contact_id OR old.subscribed IS NOT new.subscribed) "
    f"BEGIN {_MARK_ZONE} IN (old.contact_id, new.contact_id); END",
    "CREATE TEMP TRIGGER contact_zone_phone_removed AFTER DELETE ON main.channel WHEN old.kind = 'phone' "
    f"BEGIN {_MARK_ZONE} = old.contact_id; END",
)

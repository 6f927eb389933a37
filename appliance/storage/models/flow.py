"""Automations, and the campaigns that are the simplest of them."""

from peewee import SQL, BooleanField, CompositeKey, ForeignKeyField, IntegerField, TextField

from appliance.storage.models.account import Account
from appliance.storage.models.contact import Contact, ContactList, Segment
from appliance.storage.models.content import Template, TemplateRevision
from appliance.storage.models.kinds import Json, Table, Time


class Flow(Table):
    """An automation; `hidden` ones belong to a campaign and are never listed."""

    account = ForeignKeyField(Account, index=False)
    hidden = BooleanField(default=False)
    test = BooleanField(default=False)  # activated with a test key: only test events start it
    status = TextField(default="draft")
    approval_state = TextField(default="pending_review")
    approval_note = TextField(null=True)
    asked_at = Time(null=True)  # it waits for somebody to approve of it
    asked_by = IntegerField(null=True)  # the person who asked
    edited_by = IntegerField(null=True)  # the person who last changed content or audience
    name = TextField()
    goal = TextField(null=True)
    steps = Json(default=list)  # the nested document as it is edited, each step with its `id` and `type`
    last_action = IntegerField(default=0)  # ids of steps are never given twice
    version = IntegerField(default=0)  # the compiled plan that new runs take; 0: it was never live
    live_from = IntegerField(default=0)  # events up to this one are older than its going live, and start nothing
    data = Json(default=dict)
    draft = Json(null=True)  # of one that was live: how people are changing it, until they publish that
    sent_count = IntegerField(default=0)
    # Runs without tests, ever; who is inside is what is left of the first
    entered_count = IntegerField(default=0)
    completed_count = IntegerField(default=0)
    exited_count = IntegerField(default=0)
    paused_at = Time(null=True)
    drop_before = Time(null=True)  # it was resumed without what was due before then
    closing = TextField(null=True)  # why runs and open messages that are still in it are being ended
    deleted_at = Time(null=True)  # the ledger keeps its flow; nobody else sees it
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("account", "hidden", "created_at", "id"), False),)


# Every event is held against these, and campaigns bring flows of their own
Flow.add_index(SQL("CREATE INDEX flow_live ON flow (id) WHERE status = 'active' AND hidden = 0"))
Flow.add_index(SQL("CREATE INDEX flow_with_goal ON flow (id) WHERE goal NOT NULL AND hidden = 0"))


class Trigger(Table):
    """What starts a flow or a campaign, and for whom."""

    account = ForeignKeyField(Account, index=False)
    flow = ForeignKeyField(Flow, on_delete="CASCADE", index=True)
    event = TextField(default="manual")
    segment = ForeignKeyField(Segment, null=True, index=True)
    contact_list = ForeignKeyField(ContactList, null=True, index=True)
    data = Json(default=dict)
    triggered_count = IntegerField(default=0)
    last_triggered_at = Time(null=True)
    scanned = Json(null=True)  # of `date_reached`: the day, and the contact, up to which people were looked at
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("account", "event"), False),)


class Step(Table):
    """One row of a flow's compiled plan; runs keep the version they entered with."""

    flow = ForeignKeyField(Flow, on_delete="CASCADE", index=False)
    version = IntegerField()
    action_id = IntegerField()  # stable over versions: the `id` of the step in the document
    kind = TextField()
    template = ForeignKeyField(Template, null=True, on_delete="SET NULL", index=True)
    content = ForeignKeyField(TemplateRevision, null=True, index=False)  # what its message says in this version
    pinned = Json(null=True)  # what it says beside its template, as a campaign's
    data = Json(default=dict)
    next_action = IntegerField(null=True)
    yes_action = IntegerField(null=True)
    no_action = IntegerField(null=True)
    position = IntegerField()

    class Meta:
        indexes = ((("flow", "version", "action_id"), True),)


class Run(Table):
    """One person's way through a flow; `ignored` ones are triggers that started nothing, with the reason."""

    account = ForeignKeyField(Account, index=False)
    flow = ForeignKeyField(Flow, on_delete="CASCADE", index=False)
    version = IntegerField()
    contact = ForeignKeyField(Contact, null=True, on_delete="SET NULL", index=False)
    event_id = IntegerField(null=True)  # what started it; null for those who were enrolled
    event_data = Json(default=dict)  # of that event, for filters and merge tags: the event itself may be gone by then
    status = TextField(default="live")  # live, completed, exited, ignored
    exit_reason = TextField(null=True)
    action_id = IntegerField(null=True)  # where it stands
    passage_id = IntegerField(null=True)  # its open row there, if it waits
    due_at = Time(null=True)
    chain_depth = IntegerField(default=0)
    test = BooleanField(default=False)
    ended_at = Time(null=True)
    created_at = Time()
    updated_at = Time()

    class Meta:
        # The first: whether and when a person was in a flow, also of people who set off the same one all the time
        indexes = ((("contact", "flow", "status", "created_at", "test"), False), (("flow", "created_at", "id"), False))


# One live run for each person and flow; a test is no reason to miss what is real
Run.add_index(
    SQL("CREATE UNIQUE INDEX run_live ON run (flow_id, contact_id, test) WHERE status = 'live' AND contact_id NOT NULL")
)
Run.add_index(SQL("CREATE INDEX run_due ON run (flow_id, due_at, id) WHERE status = 'live'"))
# How runs ended and why, counted without reading one
Run.add_index(SQL("CREATE INDEX run_ended ON run (flow_id, status, exit_reason, test, created_at)"))


class Passage(Table):
    """One step that a run came to, and how it left: what counts per step are summed from."""

    run = ForeignKeyField(Run, on_delete="CASCADE", index=True)
    flow = ForeignKeyField(Flow, on_delete="CASCADE", index=False)
    action_id = IntegerField()
    test = BooleanField(default=False)
    entered_at = Time()
    left_at = Time(null=True)
    outcome = TextField(null=True)  # null: it waits there; on, yes, no, skipped, exited
    reason = TextField(null=True)  # why it was skipped or taken out

    class Meta:
        # All that is counted of a step, and in the order in which people came to it
        indexes = ((("flow", "action_id", "outcome", "reason", "test", "entered_at"), False),)


class Cursor(Table):
    """How far somebody has read the event log: `flows`, `webhooks`."""

    name = TextField(unique=True)
    event_id = IntegerField(default=0)


class SegmentWatch(Table):
    """A segment whose comings and goings are told of, because a flow or a webhook wants to know."""

    account = ForeignKeyField(Account, index=False)
    segment = ForeignKeyField(Segment, unique=True, on_delete="CASCADE")
    asks = TextField(null=True)  # what the segment asked when its people were kept; null: they are not all kept yet
    created_at = Time()


class SegmentMember(Table):
    """A person in a watched segment, as far as that was told of."""

    id = None
    segment = ForeignKeyField(Segment, on_delete="CASCADE", index=False)
    contact = ForeignKeyField(Contact, on_delete="CASCADE", index=True)

    class Meta:
        primary_key = CompositeKey("segment", "contact")
        without_rowid = True


class Campaign(Table):
    """One message to many people, once."""

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
    asked_at = Time(null=True)  # it waits for somebody to approve of it
    asked_by = IntegerField(null=True)  # the person who asked
    edited_by = IntegerField(null=True)  # the person who last changed content or audience
    data = Json(default=dict)
    tracking = BooleanField(default=True)  # whether its opens and clicks are counted
    scheduled_at = Time(null=True)
    # Fixed when it goes live: who, what and from whom
    content = ForeignKeyField(TemplateRevision, null=True, index=False)
    sender = Json(null=True)
    pinned = Json(null=True)  # what it says beside its template (`messages.prepare.pinned`)
    hold_until = Time(null=True)
    test = BooleanField(default=False)  # sent with a test key: captured, never counted
    audience_count = IntegerField(default=0)
    freezing = Json(null=True)  # of a large one whose rows are still being written: who, and how far that is
    closing = TextField(null=True)  # rows of a large one that are still to be ended: cancel, undo
    sent_count = IntegerField(default=0)
    # For the automatic stop: addresses refused as nobody's, bounced after acceptance, called spam
    refused_count = IntegerField(default=0)
    bounced_count = IntegerField(default=0)
    complained_count = IntegerField(default=0)
    baseline = Json(default=dict)  # these counts when a person last let it go on
    pause_reason = TextField(null=True)
    started_at = Time(null=True)
    completed_at = Time(null=True)
    cancelled_at = Time(null=True)
    deleted_at = Time(null=True)  # the ledger keeps its campaign; nobody else sees it
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("account", "created_at", "id"), False), (("phase", "scheduled_at"), False))


Campaign.add_index(SQL("CREATE INDEX campaign_unfinished ON campaign (id) WHERE freezing NOT NULL OR closing NOT NULL"))

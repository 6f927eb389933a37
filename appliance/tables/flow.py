"""Automations, and the campaigns that are the simplest of them."""

from peewee import SQL, BooleanField, ForeignKeyField, IntegerField, TextField

from appliance.tables.account import Account
from appliance.tables.contact import Contact, ContactList, Segment
from appliance.tables.content import Template, TemplateRevision
from appliance.tables.kinds import Json, Table, Time


class Flow(Table):
    """An automation; `hidden` ones belong to a campaign and are never listed."""

    account = ForeignKeyField(Account, index=False)
    hidden = BooleanField(default=False)
    status = TextField(default="draft")
    approval_state = TextField(default="pending_review")
    approval_note = TextField(null=True)
    name = TextField()
    goal = TextField(null=True)
    steps = Json(default=list)
    version = IntegerField(default=0)
    data = Json(default=dict)
    sent_count = IntegerField(default=0)
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("account", "hidden", "created_at", "id"), False),)


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
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("account", "event"), False),)


class Step(Table):
    """One row of a flow's compiled plan; runs keep the version they entered with."""

    flow = ForeignKeyField(Flow, on_delete="CASCADE", index=False)
    version = IntegerField()
    action_id = IntegerField()  # stable over versions
    kind = TextField()
    template = ForeignKeyField(Template, null=True, on_delete="SET NULL", index=True)
    data = Json(default=dict)
    next_action = IntegerField(null=True)
    yes_action = IntegerField(null=True)
    no_action = IntegerField(null=True)
    position = IntegerField()

    class Meta:
        indexes = ((("flow", "version", "action_id"), True),)


class Run(Table):
    """One person's way through a flow."""

    account = ForeignKeyField(Account)
    flow = ForeignKeyField(Flow, on_delete="CASCADE", index=False)
    version = IntegerField()
    contact = ForeignKeyField(Contact, on_delete="CASCADE", index=True)
    event_id = IntegerField(null=True)
    status = TextField(default="live")  # live, completed, exited
    exit_reason = TextField(null=True)
    action_id = IntegerField(null=True)
    due_at = Time(null=True)
    chain_depth = IntegerField(default=0)
    test = BooleanField(default=False)
    data = Json(default=dict)
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("flow", "status", "contact"), False), (("status", "due_at"), False))


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

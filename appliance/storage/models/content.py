"""What is written: templates with their revisions, brand, media, sending domains."""

from typing import Any

from peewee import SQL, BlobField, BooleanField, DeferredForeignKey, ForeignKeyField, IntegerField, TextField

from appliance.storage.models.account import Account, User
from appliance.storage.models.kinds import Json, Table, Time

EMPTY_DESIGN: dict[str, Any] = {"sections": [], "theme": {}}


class Template(Table):
    """Subject, body and design of one message."""

    account = ForeignKeyField(Account, index=False)
    name = TextField(null=True)
    flow = DeferredForeignKey("Flow", null=True, on_delete="CASCADE", index=True)
    action_id = IntegerField(null=True)  # id of the step that sends it
    channel = TextField(default="email")  # that of its campaign or step; by itself as it was made for
    removed_at = Time(null=True)  # its step was taken out; people who are on the way still get what it said
    subject = TextField(null=True)
    body = TextField(null=True)
    preheader = TextField(null=True)
    from_name = TextField(null=True)
    from_email = TextField(null=True)
    reply_to = TextField(null=True)
    design = Json(default=lambda: dict(EMPTY_DESIGN))
    variables = Json(default=dict)
    revision = IntegerField(default=1)
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("account", "created_at", "id"), False),)


class TemplateRevision(Table):
    """A template as it stood; what a campaign sends is one of these, never the living template."""

    template = ForeignKeyField(Template, on_delete="CASCADE", index=False)
    number = IntegerField()
    follows = IntegerField(null=True)  # the revision it was made from; null in the first, and in undo and redo
    restores = IntegerField(null=True)  # the revision that it brought back
    named = BooleanField(default=False)  # by a person or a send: kept for good
    label = TextField(null=True)
    touched = TextField(null=True)  # the one value that was changed, in a section of the design or beside it
    user = ForeignKeyField(User, null=True, on_delete="SET NULL", index=False)
    created_at = Time()
    # Behind what lists read, which then need not read past it
    document = Json()

    class Meta:
        indexes = ((("template", "number"), True),)


class Brand(Table):
    """How an account looks and sounds."""

    account = ForeignKeyField(Account, unique=True)
    brand_color = TextField(null=True)
    text_color = TextField(null=True)
    bg_color = TextField(null=True)
    font_heading = TextField(null=True)
    font_body = TextField(null=True)
    style_notes = TextField(null=True)
    tone = TextField(null=True)
    company_description = TextField(null=True)
    industry = TextField(null=True)
    example_copy = Json(null=True)
    default_header = Json(default=dict)
    default_footer = Json(default=dict)
    default_theme = Json(default=dict)
    physical_address = TextField(null=True)
    company_name = TextField(null=True)
    links = Json(default=list)
    logo = TextField(null=True)
    created_at = Time()
    updated_at = Time()


class Media(Table):
    """An image we serve, under a name nobody can guess."""

    account = ForeignKeyField(Account, index=True)
    signed_id = TextField(unique=True)
    filename = TextField()
    content_type = TextField()
    bytes = IntegerField()
    width = IntegerField(null=True)
    height = IntegerField(null=True)
    created_at = Time()
    content = BlobField()  # the last one, so that the others are read without it


class SendingDomain(Table):
    """A domain mail may come from, with its keys and what DNS said."""

    account = ForeignKeyField(Account, index=False)
    name = TextField()
    provider = TextField(default="smtp")
    status = TextField(default="pending")
    ownership_token = TextField()
    dns_records = Json(null=True)  # as they were last seen
    attention = TextField(null=True)  # what a person should look at though nothing has failed yet
    attention_since = Time(null=True)
    failed_checks = IntegerField(default=0)  # in a row
    enabled = BooleanField(default=True)
    verified_at = Time(null=True)
    failed_at = Time(null=True)
    checked_at = Time(null=True)
    next_check_at = Time(null=True)
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("account", "name"), True), (("next_check_at",), False))


class DomainKey(Table):
    """A DKIM key of a sending domain; one that is retired still verifies mail that is on its way."""

    domain = ForeignKeyField(SendingDomain, on_delete="CASCADE", index=False)
    selector = TextField()
    algorithm = TextField()  # rsa, ed25519
    private_key = BlobField()  # PKCS 8, encrypted with the installation's key
    public_key = TextField()  # the value of `p=`
    state = TextField()  # next, active, retired
    created_at = Time()
    activated_at = Time(null=True)
    retired_at = Time(null=True)

    class Meta:
        indexes = ((("domain", "selector"), True),)


# Sign-up forms, and what people asked for that the owner of the address has yet to confirm.


class Form(Table):
    """A form through which people sign themselves up."""

    account = ForeignKeyField(Account, index=False)
    name = TextField()
    list_ids = Json(default=list)
    origins = Json(default=list)  # whose pages may read the answer
    fields = Json(default=list)
    double_opt_in = BooleanField(default=True)
    redirect_url = TextField(null=True)
    consent_text = TextField(null=True)
    public_key = TextField(unique=True)
    submissions_count = IntegerField(default=0)
    confirmed_count = IntegerField(default=0)
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("account", "created_at", "id"), False),)


class Confirmation(Table):
    """What was asked for in somebody's name, waiting for their own word; kept for 30 days."""

    account = ForeignKeyField(Account, index=False)
    form = ForeignKeyField(Form, null=True, on_delete="SET NULL", index=True)
    purpose = TextField()  # opt_in, erase
    kind = TextField()
    value = TextField(null=True)  # the address as typed; null once it is erased
    key = TextField(null=True)  # its normal form
    person = Json(default=dict)  # what was typed beside it; empty once it is confirmed
    list_ids = Json(default=list)
    ip = TextField(null=True)
    user_agent = TextField(null=True)
    text = TextField(null=True)  # the words that were agreed to
    message_id = IntegerField(null=True)  # the mail that asks
    mailed_at = Time(null=True)
    confirmed_at = Time(null=True)
    created_at = Time(index=True)

    class Meta:
        indexes = ((("kind", "key"), False),)


Confirmation.add_index(SQL("CREATE INDEX confirmation_message ON confirmation (message_id) WHERE message_id NOT NULL"))


# Files of people that were read in.


class Import(Table):
    """One file: what was asked, how far it is, what came of it."""

    account = ForeignKeyField(Account, index=False)
    resource = TextField()  # contacts, suppressions
    status = TextField()  # pending, processing, complete, failed, cancelled
    phase = TextField(null=True)  # mapping; staging, applying, undoing; undone
    dry_run = BooleanField(default=False)
    filename = TextField()
    bytes = IntegerField()
    format = TextField()  # csv, jsonl
    product = TextField(null=True)  # whose export it is, where its columns tell
    columns = Json(default=list)  # of the file, with samples and where each goes
    options = Json(default=dict)
    actor = TextField()
    total = IntegerField(default=0)
    processed = IntegerField(default=0)
    created = IntegerField(default=0)
    updated = IntegerField(default=0)
    skipped = IntegerField(default=0)
    failed = IntegerField(default=0)
    warnings = IntegerField(default=0)  # lines of which something was left out
    arriving = Json(default=dict)  # how many contacts stand how, by `Outcome.state`
    left_in_place = Json(default=dict)  # how many its undo left in place, by the reason
    restored = IntegerField(default=0)  # by its undo
    error = TextField(null=True)
    cursor = Json(default=list)  # kind and key of the last address applied
    cancel_asked_at = Time(null=True)
    undo_until = Time(null=True)
    undone_at = Time(null=True)
    completed_at = Time(null=True)
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("account", "created_at", "id"), False), (("status",), False))


class Erasure(Table):
    """Somebody who was erased and may still be in what imports keep; the row goes when nothing of it is left."""

    account = ForeignKeyField(Account, index=False)
    contact_id = IntegerField()
    addresses = Json()  # each as kind, key, value
    created_at = Time()


class ImportChunk(Table):
    """One transaction of an import: the outcome of each line, and what was there before."""

    import_job = ForeignKeyField(Import, on_delete="CASCADE", index=False)
    number = IntegerField()
    outcomes = BlobField()
    before = BlobField(null=True)  # null once it cannot be taken back any more
    created_at = Time()

    class Meta:
        indexes = ((("import_job", "number"), True),)

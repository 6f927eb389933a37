"""Tables of templates and their revisions, brands, media, domains, forms and imports."""

from typing import Any

from peewee import (
    SQL,
    BlobField,
    BooleanField,
    DeferredForeignKey,
    ForeignKeyField,
    IntegerField,
    TextField,
)

from appliance.storage.database import Json, Records, Table, Time
from appliance.storage.models.account import Account, User

EMPTY_DESIGN: dict[str, Any] = {"sections": [], "theme": {}}


class Template(Table):
    """The editable subject, body and design of a message; a campaign or a step of a flow has its own template."""

    account = ForeignKeyField(Account, index=False)
    name = TextField(null=True)
    flow = DeferredForeignKey("Flow", null=True, on_delete="CASCADE", index=True)
    action_id = IntegerField(null=True)  # id of the step that sends it
    channel = TextField(default="email")  # the channel of its campaign or step
    agent = BooleanField(default=False)  # whether an agent wrote it since a user last took it over
    removed_at = Time(null=True)  # when its step was removed; runs of earlier versions still send the template
    subject = TextField(null=True)
    body = TextField(null=True)
    preheader = TextField(null=True)
    from_name = TextField(null=True)
    from_email = TextField(null=True)
    reply_to = TextField(null=True)
    design = Json(default=lambda: dict(EMPTY_DESIGN))
    # Texts in other languages: {language tag: {text id: {"source": translated text, "text": translation}}}
    translations = Json(default=dict)
    variables = Json(default=dict)
    revision = IntegerField(default=1)
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("account", "created_at", "id"), False),)


class TemplateRevision(Table):
    """A saved state of a template; a campaign sends the revision that was current when it was sent."""

    template = ForeignKeyField(Template, on_delete="CASCADE", index=False)
    number = IntegerField()
    parent_number = IntegerField(null=True)  # the revision that was edited; null for the first, and for undo and redo
    restored_number = IntegerField(null=True)  # the revision that undo or redo restored
    named = BooleanField(default=False)  # a person or a send named the revision, so it is never pruned
    label = TextField(null=True)
    edited_field = TextField(null=True)  # the field of the template or of a section, if only one was changed
    user = ForeignKeyField(User, null=True, on_delete="SET NULL", index=False)
    created_at = Time()
    # The document is the last column, so that SQLite reads the other columns without it.
    document = Json()

    class Meta:
        indexes = ((("template", "number"), True),)


class Brand(Table):
    """The brand of an account: colours, fonts, logo, tone of voice, company and postal address."""

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
    """An uploaded image, served under an unguessable name."""

    account = ForeignKeyField(Account, index=True)
    signed_id = TextField(unique=True)
    filename = TextField()
    content_type = TextField()
    bytes = IntegerField()
    width = IntegerField(null=True)
    height = IntegerField(null=True)
    created_at = Time()
    content = BlobField()  # the last column, so that SQLite reads the other columns without it


class SendingDomain(Table):
    """A domain that mail may be sent from, with the result of its last DNS check."""

    account = ForeignKeyField(Account, index=False)
    name = TextField()
    provider = TextField(default="smtp")
    status = TextField(default="pending")
    ownership_token = TextField()
    dns_records = Json(null=True)  # the records that the last DNS check found
    attention = TextField(null=True)  # a warning for a person, although the domain still works
    attention_since = Time(null=True)
    failed_checks = IntegerField(default=0)  # the number of consecutive failed checks
    enabled = BooleanField(default=True)
    verified_at = Time(null=True)
    failed_at = Time(null=True)
    checked_at = Time(null=True)
    next_check_at = Time(null=True)
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("account", "name"), True), (("next_check_at",), False))


class AccountHost(Table):
    """A host name of the present or a former public address of an account; only that account's pages are shown there.

    It is in lower case and in ASCII, without the port.
    """

    account = ForeignKeyField(Account, index=True)
    host = TextField(unique=True)
    created_at = Time()


class DomainKey(Table):
    """A DKIM key of a sending domain; receivers still verify mail in transit with the public key of a retired key."""

    domain = ForeignKeyField(SendingDomain, on_delete="CASCADE", index=False)
    selector = TextField()
    algorithm = TextField()  # rsa, ed25519
    private_key = BlobField()  # PKCS 8, encrypted with the installation's key
    public_key = TextField()  # the value of `p=` in the DNS record
    state = TextField()  # next, active, retired
    created_at = Time()
    activated_at = Time(null=True)
    retired_at = Time(null=True)

    class Meta:
        indexes = ((("domain", "selector"), True),)


# Sign-up forms, and requests that the owner of an address must confirm:


class Form(Table):
    """A sign-up form, hosted or embedded."""

    account = ForeignKeyField(Account, index=False)
    name = TextField()
    language = TextField(null=True)  # a language tag; null for the language of each visitor's browser
    list_ids = Json(default=list)
    origins = Json(default=list)  # web origins whose pages may read the response (CORS)
    fields = Json(default=list)
    double_opt_in = BooleanField(default=True)
    redirect_url = TextField(null=True)
    consent_text = TextField(null=True)
    title = TextField(null=True)  # null: the name
    intro = TextField(null=True)
    button_text = TextField(null=True)
    thanks_title = TextField(null=True)
    thanks_text = TextField(null=True)
    topic_ids = Json(default=list)  # lists that visitors may choose from
    topics_required = BooleanField(default=False)
    public_key = TextField(unique=True)
    submissions_count = IntegerField(default=0)
    confirmed_count = IntegerField(default=0)
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("account", "created_at", "id"), False),)


class Confirmation(Table):
    """A sign-up or erasure request that the owner of the address must confirm by email; kept for 30 days."""

    account = ForeignKeyField(Account, index=False)
    form = ForeignKeyField(Form, null=True, on_delete="SET NULL", index=True)
    purpose = TextField()  # opt_in, erase
    kind = TextField()
    value = TextField(null=True)  # the address as entered; null once it is erased
    key = TextField(null=True)  # the normal form of the address
    person = Json(default=dict)  # the other fields of the form; empty once the request is confirmed
    list_ids = Json(default=list)
    ip = TextField(null=True)
    user_agent = TextField(null=True)
    text = TextField(null=True)  # the consent text that the person agreed to
    message_id = IntegerField(null=True)  # the confirmation email
    mailed_at = Time(null=True)
    confirmed_at = Time(null=True)
    created_at = Time(index=True)

    class Meta:
        indexes = ((("kind", "key"), False),)


Confirmation.add_index(SQL("CREATE INDEX confirmation_message ON confirmation (message_id) WHERE message_id NOT NULL"))


# Imports of files:


class Import(Table):
    """An import of one file: its options, progress and counts of lines."""

    account = ForeignKeyField(Account, index=False)
    resource = TextField()  # contacts, suppressions
    status = TextField()  # pending, processing, complete, failed, cancelled
    phase = TextField(null=True)  # mapping, staging, applying, undoing, undone
    dry_run = BooleanField(default=False)
    filename = TextField()
    bytes = IntegerField()
    format = TextField()  # csv, jsonl
    product = TextField(null=True)  # the product that exported the file, if its columns show it
    columns = Json(default=list)  # the columns of the file, with samples and the field each is mapped to
    options = Json(default=dict)
    actor = TextField()
    total = IntegerField(default=0)
    processed = IntegerField(default=0)
    created = IntegerField(default=0)
    updated = IntegerField(default=0)
    skipped = IntegerField(default=0)
    failed = IntegerField(default=0)
    warnings = IntegerField(default=0)  # lines with a value that was left out
    arriving = Json(default=dict)  # the number of contacts by `Outcome.state`
    left_in_place = Json(default=dict)  # the number of contacts that the undo left in place, by reason
    restored = IntegerField(default=0)  # the number of contacts that the undo removed or restored
    # Those of them that it removed; for suppressions, the addresses that are no longer suppressed
    removed = IntegerField(default=0)
    error = TextField(null=True)
    cursor = Json(default=list)  # kind and key of the last applied address
    cancel_asked_at = Time(null=True)
    undo_until = Time(null=True)
    undone_at = Time(null=True)
    completed_at = Time(null=True)
    created_at = Time()
    updated_at = Time()

    class Meta:
        indexes = ((("account", "created_at", "id"), False), (("status",), False))


class Erasure(Table):
    """An erased person whose data may still be in the undo data of imports; deleted once no import has such data."""

    account = ForeignKeyField(Account, index=False)
    contact_id = IntegerField()
    addresses = Json()  # a list of [kind, key, value]
    created_at = Time()


class ImportChunk(Table):
    """The part of an import that one transaction applied: the outcome of each line, and the old values for undo."""

    import_job = ForeignKeyField(Import, on_delete="CASCADE", index=False)
    number = IntegerField()
    outcomes = BlobField()
    before = BlobField(null=True)  # null once the import can no longer be undone
    created_at = Time()

    class Meta:
        indexes = ((("import_job", "number"), True),)


BRANDS: Records[Brand] = Records(Brand)

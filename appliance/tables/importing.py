"""Files of people that were read in."""

from peewee import BlobField, BooleanField, ForeignKeyField, IntegerField, TextField

from appliance.tables.account import Account
from appliance.tables.kinds import Json, Table, Time


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

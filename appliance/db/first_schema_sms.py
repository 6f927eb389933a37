"""SMS in the schema of the first version: what they cost, and what came back."""

SMS = """
CREATE TABLE sms_day (account_id INTEGER NOT NULL, day INTEGER NOT NULL, parts INTEGER NOT NULL, PRIMARY KEY
    (account_id, day), FOREIGN KEY (account_id) REFERENCES account (id));
CREATE TABLE incoming (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, account_id INTEGER NOT NULL, contact_id
    INTEGER, provider TEXT NOT NULL, provider_id TEXT, sender TEXT, recipient TEXT NOT NULL, body TEXT, kind TEXT
    NOT NULL, keyword TEXT, answered_id INTEGER, reply_id INTEGER, opted_out INTEGER NOT NULL, seen_at INTEGER, test
    INTEGER NOT NULL, created_at INTEGER NOT NULL, FOREIGN KEY (account_id) REFERENCES account (id), FOREIGN KEY
    (contact_id) REFERENCES contact (id) ON DELETE SET NULL);
CREATE INDEX incoming_account_id ON incoming (account_id);
CREATE INDEX incoming_contact_id ON incoming (contact_id);
CREATE INDEX incoming_account_id_sender_id ON incoming (account_id, sender, id);
CREATE UNIQUE INDEX incoming_once ON incoming (provider_id, provider, account_id) WHERE provider_id NOT NULL;
CREATE INDEX incoming_reply ON incoming (reply_id) WHERE reply_id NOT NULL;
CREATE INDEX incoming_refusals ON incoming (account_id, id) WHERE kind = 'refusal' AND seen_at IS NULL;
CREATE TABLE receipt (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, provider TEXT NOT NULL, provider_id TEXT NOT
    NULL, message_id INTEGER, status TEXT NOT NULL, code TEXT, text TEXT, created_at INTEGER NOT NULL);
CREATE INDEX receipt_message_id ON receipt (message_id);
CREATE INDEX receipt_created_at ON receipt (created_at);
CREATE UNIQUE INDEX receipt_provider_id_provider_status ON receipt (provider_id, provider, status);
"""

"""The ledger in the schema of the first version: messages, and what became of them."""

LEDGER = """
CREATE TABLE message (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, account_id INTEGER NOT NULL, contact_id
    INTEGER, campaign_id INTEGER, flow_id INTEGER, run_id INTEGER, step_id INTEGER, template_id INTEGER, channel
    TEXT NOT NULL, recipient TEXT, recipient_key TEXT, sender TEXT, reply_to TEXT, subject TEXT, status TEXT NOT
    NULL, skip_reason TEXT, source_type TEXT NOT NULL, transactional INTEGER NOT NULL, test INTEGER NOT NULL,
    provider TEXT NOT NULL, provider_id TEXT, idempotency_key TEXT, internet_message_id TEXT, tags TEXT, segments
    INTEGER, attempts INTEGER NOT NULL, doubts INTEGER NOT NULL, due_at INTEGER, dated_at INTEGER, claimed_by TEXT,
    digest INTEGER, error_code TEXT, error_smtp INTEGER, error_enhanced TEXT, error_text TEXT, sent_at INTEGER,
    delivered_at INTEGER, opened_at INTEGER, clicked_at INTEGER, bounced_at INTEGER, created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL, FOREIGN KEY (account_id) REFERENCES account (id), FOREIGN KEY (contact_id)
    REFERENCES contact (id) ON DELETE SET NULL, FOREIGN KEY (campaign_id) REFERENCES campaign (id) ON DELETE SET
    NULL, FOREIGN KEY (flow_id) REFERENCES flow (id) ON DELETE SET NULL, FOREIGN KEY (run_id) REFERENCES run (id) ON
    DELETE SET NULL, FOREIGN KEY (template_id) REFERENCES template (id) ON DELETE SET NULL);
CREATE INDEX message_contact_id ON message (contact_id);
CREATE INDEX message_template_id ON message (template_id);
CREATE INDEX message_campaign_id_status ON message (campaign_id, status);
CREATE INDEX message_account_id_created_at_id ON message (account_id, created_at, id);
CREATE UNIQUE INDEX message_campaign_contact ON message (campaign_id, contact_id) WHERE campaign_id NOT NULL;
CREATE UNIQUE INDEX message_run_step ON message (run_id, step_id) WHERE run_id NOT NULL;
CREATE INDEX message_of_flow ON message (flow_id, step_id, status, test, skip_reason, created_at, opened_at,
    clicked_at) WHERE run_id NOT NULL;
CREATE INDEX message_waiting ON message (flow_id, due_at) WHERE run_id NOT NULL AND status IN ('queued', 'held');
CREATE INDEX message_due ON message (campaign_id, channel, due_at, id) WHERE status IN ('queued', 'held') AND run_id
    IS NULL;
CREATE INDEX message_due_alone ON message (account_id, channel, due_at, id) WHERE campaign_id IS NULL AND run_id IS
    NULL AND status IN ('queued', 'held');
CREATE INDEX message_due_of_flows ON message (account_id, channel, due_at, id) WHERE run_id NOT NULL AND status IN
    ('queued', 'held');
CREATE INDEX message_provider_id ON message (provider_id, provider) WHERE provider_id NOT NULL;
CREATE INDEX message_texted ON message (recipient_key, account_id, id) WHERE channel = 'sms';
CREATE INDEX message_opened ON message (campaign_id, opened_at) WHERE opened_at NOT NULL;
CREATE INDEX message_clicked ON message (campaign_id, clicked_at) WHERE clicked_at NOT NULL;
CREATE INDEX message_nobodys ON message (account_id, recipient_key) WHERE contact_id IS NULL;
CREATE TABLE message_content (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, message_id INTEGER NOT NULL, subject
    TEXT, body TEXT, text TEXT, headers TEXT NOT NULL, data TEXT NOT NULL, preheader TEXT, from_name TEXT, design
    TEXT, shown_as INTEGER, links TEXT, FOREIGN KEY (message_id) REFERENCES message (id) ON DELETE CASCADE);
CREATE UNIQUE INDEX message_content_message_id ON message_content (message_id);
CREATE INDEX message_content_shown_as ON message_content (shown_as) WHERE shown_as NOT NULL;
CREATE TABLE repeat (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, message_id INTEGER NOT NULL, mail_from TEXT NOT
    NULL, rcpt_to TEXT NOT NULL, content BLOB NOT NULL, subject TEXT NOT NULL, sender TEXT NOT NULL,
    internet_message_id TEXT NOT NULL, parts INTEGER, hinted INTEGER NOT NULL, looked INTEGER, FOREIGN KEY
    (message_id) REFERENCES message (id) ON DELETE CASCADE);
CREATE UNIQUE INDEX repeat_message_id ON repeat (message_id);
CREATE TABLE link (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, account_id INTEGER NOT NULL, campaign_id INTEGER,
    template_id INTEGER, number INTEGER NOT NULL, url TEXT NOT NULL, words TEXT NOT NULL, FOREIGN KEY (account_id)
    REFERENCES account (id), FOREIGN KEY (campaign_id) REFERENCES campaign (id) ON DELETE CASCADE, FOREIGN KEY
    (template_id) REFERENCES template (id) ON DELETE CASCADE);
CREATE INDEX link_account_id ON link (account_id);
CREATE INDEX link_template_id ON link (template_id);
CREATE UNIQUE INDEX link_campaign_id_number ON link (campaign_id, number);
CREATE TABLE hit (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, account_id INTEGER NOT NULL, campaign_id INTEGER,
    message_id INTEGER, kind TEXT NOT NULL, number INTEGER, method TEXT NOT NULL, ip TEXT, user_agent TEXT, referrer
    TEXT, verdict TEXT, reason TEXT, event_id INTEGER, test INTEGER NOT NULL, at INTEGER NOT NULL, FOREIGN KEY
    (account_id) REFERENCES account (id), FOREIGN KEY (campaign_id) REFERENCES campaign (id) ON DELETE SET NULL,
    FOREIGN KEY (message_id) REFERENCES message (id) ON DELETE SET NULL);
CREATE INDEX hit_message_id_at ON hit (message_id, at);
CREATE INDEX hit_campaign_id_kind_number_verdict_message_id ON hit (campaign_id, kind, number, verdict, message_id);
CREATE INDEX hit_waiting ON hit (at) WHERE verdict IS NULL;
CREATE TABLE captured (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, account_id INTEGER NOT NULL, channel TEXT NOT
    NULL, message_id INTEGER, mail_from TEXT NOT NULL, rcpt_to TEXT NOT NULL, from_header TEXT, subject TEXT,
    preview TEXT, size INTEGER NOT NULL, source BLOB NOT NULL, received_at INTEGER NOT NULL, FOREIGN KEY
    (account_id) REFERENCES account (id));
CREATE INDEX captured_account_id_id ON captured (account_id, id);
CREATE INDEX captured_message_id ON captured (message_id);
CREATE TABLE event (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, account_id INTEGER NOT NULL, contact_id INTEGER,
    user_id INTEGER, event TEXT NOT NULL, amount REAL, data TEXT NOT NULL, idempotency_key TEXT, resource_uid TEXT,
    resource_name TEXT, resource_url TEXT, test INTEGER NOT NULL, generated INTEGER NOT NULL, quiet INTEGER NOT
    NULL, chain_depth INTEGER NOT NULL, ip TEXT, user_agent TEXT, browser TEXT, os TEXT, device_type TEXT, referrer
    TEXT, utm_source TEXT, utm_medium TEXT, utm_term TEXT, utm_content TEXT, utm_campaign TEXT, created_at INTEGER
    NOT NULL, updated_at INTEGER NOT NULL, FOREIGN KEY (account_id) REFERENCES account (id), FOREIGN KEY
    (contact_id) REFERENCES contact (id) ON DELETE SET NULL);
CREATE INDEX event_listed ON event (account_id, created_at, id, test);
CREATE INDEX event_tests ON event (account_id, created_at, id, event, test) WHERE test;
CREATE INDEX event_resource ON event (account_id, resource_uid, created_at, id, event, test) WHERE resource_uid NOT
    NULL;
CREATE INDEX event_named ON event (account_id, resource_name, created_at, id, event, test) WHERE resource_name NOT
    NULL;
CREATE INDEX event_of_name ON event (account_id, event, created_at, id, contact_id, test, generated,
    json_extract(data, '$.verdict'));
CREATE UNIQUE INDEX event_idempotency ON event (account_id, event, idempotency_key) WHERE idempotency_key NOT NULL;
CREATE INDEX event_of_contact ON event (contact_id, event, created_at, test, generated, json_extract(data,
    '$.verdict'));
CREATE TABLE returned (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, account_id INTEGER NOT NULL, message_id
    INTEGER NOT NULL, campaign_id INTEGER, address_hash BLOB NOT NULL, kind TEXT NOT NULL, created_at INTEGER NOT
    NULL, FOREIGN KEY (account_id) REFERENCES account (id), FOREIGN KEY (message_id) REFERENCES message (id) ON
    DELETE CASCADE);
CREATE UNIQUE INDEX returned_message_id ON returned (message_id);
CREATE INDEX returned_account_id_address_hash_created_at ON returned (account_id, address_hash, created_at);
CREATE INDEX returned_unwelcome ON returned (campaign_id, kind) WHERE kind IN ('authentication', 'unregistered',
    'filtered');
CREATE TABLE told (source TEXT NOT NULL, key TEXT NOT NULL, created_at INTEGER NOT NULL, PRIMARY KEY (source, key))
    WITHOUT ROWID;
CREATE INDEX told_created_at ON told (created_at);
CREATE TABLE mail_policy (domain TEXT NOT NULL PRIMARY KEY, policy_id TEXT NOT NULL, mode TEXT NOT NULL, hosts TEXT
    NOT NULL, fetched_at INTEGER NOT NULL, expires_at INTEGER NOT NULL);
CREATE TABLE warm_up_day (domain TEXT NOT NULL, day INTEGER NOT NULL, step INTEGER NOT NULL, cap INTEGER NOT NULL,
    accepted INTEGER NOT NULL, hard INTEGER NOT NULL, refused INTEGER NOT NULL, complaints INTEGER NOT NULL, PRIMARY
    KEY (domain, day));
"""

"""The schema of the first version, as it stands in every database made by it; never edited, only migrated from."""

from appliance.db.first_schema_acts import ACTS
from appliance.db.first_schema_flows import FLOWS
from appliance.db.first_schema_ledger import LEDGER
from appliance.db.first_schema_sms import SMS

_REST = """
CREATE TABLE account (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, time_zone TEXT NOT NULL,
    locale TEXT NOT NULL, country_code TEXT, email_from_name TEXT, email_from_email TEXT, email_reply_to TEXT,
    sms_from TEXT, test_email_recipients TEXT NOT NULL, approval_required INTEGER NOT NULL, approval_by_another
    INTEGER NOT NULL,
    block_on_missing_variable INTEGER NOT NULL, transactional_allowed INTEGER NOT NULL, sending_stopped INTEGER NOT
    NULL, stop_reason TEXT, frequency_cap TEXT, sms_quiet_hours TEXT, sms_opt_out_hint TEXT, privacy_ip TEXT NOT
    NULL, events_since INTEGER, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL);
CREATE TABLE user (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, account_id INTEGER NOT NULL, email TEXT NOT NULL, name
    TEXT NOT NULL, role TEXT NOT NULL, password_hash TEXT NOT NULL, otp_secret TEXT, otp_step INTEGER, otp_codes TEXT
    NOT NULL, theme TEXT NOT NULL, preferences TEXT NOT NULL, disabled_at INTEGER, last_login_at INTEGER, created_at
    INTEGER NOT NULL, updated_at INTEGER NOT NULL, FOREIGN KEY (account_id) REFERENCES account (id));
CREATE INDEX user_account_id ON user (account_id);
CREATE UNIQUE INDEX user_email ON user (email);
CREATE TABLE session (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, token_digest TEXT NOT NULL, kind TEXT NOT NULL,
    user_id INTEGER NOT NULL, ip TEXT, user_agent TEXT, created_at INTEGER NOT NULL, last_seen_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL, FOREIGN KEY (user_id) REFERENCES user (id) ON DELETE CASCADE);
CREATE UNIQUE INDEX session_token_digest ON session (token_digest);
CREATE INDEX session_user_id ON session (user_id);
CREATE INDEX session_expires_at ON session (expires_at);
CREATE TABLE api_key (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, account_id INTEGER NOT NULL, name TEXT NOT
    NULL, digest TEXT NOT NULL, hint TEXT NOT NULL, scope TEXT NOT NULL, test INTEGER NOT NULL, created_by_id
    INTEGER, last_used_at INTEGER, revoked_at INTEGER, created_at INTEGER NOT NULL, FOREIGN KEY (account_id)
    REFERENCES account (id), FOREIGN KEY (created_by_id) REFERENCES user (id) ON DELETE SET NULL);
CREATE INDEX api_key_account_id ON api_key (account_id);
CREATE UNIQUE INDEX api_key_digest ON api_key (digest);
CREATE INDEX api_key_created_by_id ON api_key (created_by_id);
CREATE TABLE setting (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, value TEXT NOT NULL,
    updated_at INTEGER NOT NULL);
CREATE UNIQUE INDEX setting_name ON setting (name);
CREATE TABLE idempotency (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, account_id INTEGER NOT NULL, path TEXT NOT
    NULL, key TEXT NOT NULL, payload TEXT NOT NULL, resource_id INTEGER NOT NULL, created_at INTEGER NOT NULL,
    FOREIGN KEY (account_id) REFERENCES account (id));
CREATE INDEX idempotency_created_at ON idempotency (created_at);
CREATE UNIQUE INDEX idempotency_account_id_path_key ON idempotency (account_id, path, key);
CREATE TABLE audit (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, account_id INTEGER, actor TEXT NOT NULL, action
    TEXT NOT NULL, subject TEXT, data TEXT NOT NULL, ip TEXT, created_at INTEGER NOT NULL, FOREIGN KEY (account_id)
    REFERENCES account (id));
CREATE INDEX audit_account_id_created_at_id ON audit (account_id, created_at, id);
CREATE TABLE form (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, account_id INTEGER NOT NULL, name TEXT NOT NULL,
    list_ids TEXT NOT NULL, origins TEXT NOT NULL, fields TEXT NOT NULL, double_opt_in INTEGER NOT NULL,
    redirect_url TEXT, consent_text TEXT, public_key TEXT NOT NULL, submissions_count INTEGER NOT NULL,
    confirmed_count INTEGER NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, FOREIGN KEY
    (account_id) REFERENCES account (id));
CREATE UNIQUE INDEX form_public_key ON form (public_key);
CREATE INDEX form_account_id_created_at_id ON form (account_id, created_at, id);
CREATE TABLE confirmation (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, account_id INTEGER NOT NULL, form_id
    INTEGER, purpose TEXT NOT NULL, kind TEXT NOT NULL, value TEXT, key TEXT, person TEXT NOT NULL, list_ids TEXT
    NOT NULL, ip TEXT, user_agent TEXT, text TEXT, message_id INTEGER, mailed_at INTEGER, confirmed_at INTEGER,
    created_at INTEGER NOT NULL, FOREIGN KEY (account_id) REFERENCES account (id), FOREIGN KEY (form_id) REFERENCES
    form (id) ON DELETE SET NULL);
CREATE INDEX confirmation_form_id ON confirmation (form_id);
CREATE INDEX confirmation_created_at ON confirmation (created_at);
CREATE INDEX confirmation_kind_key ON confirmation (kind, key);
CREATE INDEX confirmation_message ON confirmation (message_id) WHERE message_id NOT NULL;
CREATE TABLE contact (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, account_id INTEGER NOT NULL, uuid TEXT NOT
    NULL, first_name TEXT, last_name TEXT, source TEXT, country_code TEXT, data TEXT NOT NULL, tracking TEXT NOT
    NULL, email_sent_count INTEGER NOT NULL, email_open_count INTEGER NOT NULL, email_click_count INTEGER NOT NULL,
    email_soft_bounce_count INTEGER NOT NULL, sms_sent_count INTEGER NOT NULL, email_last_sent_at INTEGER,
    email_last_opened_at INTEGER, email_last_clicked_at INTEGER, last_interacted_at INTEGER, created_at INTEGER NOT
    NULL, updated_at INTEGER NOT NULL, FOREIGN KEY (account_id) REFERENCES account (id));
CREATE UNIQUE INDEX contact_uuid ON contact (uuid);
CREATE INDEX contact_account_id_created_at_id ON contact (account_id, created_at, id);
CREATE INDEX contact_account_id_updated_at ON contact (account_id, updated_at);
CREATE INDEX contact_named ON contact (account_id, coalesce(nullif(trim(coalesce(first_name, '') || ' ' ||
    coalesce(last_name, '')), ''), char(1114111)) COLLATE NOCASE, id);
CREATE TABLE channel (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, account_id INTEGER NOT NULL, contact_id INTEGER
    NOT NULL, kind TEXT NOT NULL, value TEXT NOT NULL, key TEXT NOT NULL, subscribed INTEGER NOT NULL, verified_at
    INTEGER, opt_in_at INTEGER, opt_out_at INTEGER, opted_out_by TEXT, suppression TEXT, sent_count INTEGER NOT
    NULL, fail_count INTEGER NOT NULL, hinted_at INTEGER, data TEXT NOT NULL, created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL, FOREIGN KEY (account_id) REFERENCES account (id), FOREIGN KEY (contact_id)
    REFERENCES contact (id) ON DELETE CASCADE);
CREATE INDEX channel_contact_id ON channel (contact_id);
CREATE UNIQUE INDEX channel_account_id_kind_key ON channel (account_id, kind, key);
CREATE INDEX channel_suppressed ON channel (account_id, kind, suppression) WHERE suppression NOT NULL;
CREATE TABLE consent (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, account_id INTEGER NOT NULL, contact_id
    INTEGER, kind TEXT NOT NULL, address_hash BLOB NOT NULL, act TEXT NOT NULL, by TEXT NOT NULL, source TEXT NOT
    NULL, actor TEXT, list_id INTEGER, ip TEXT, user_agent TEXT, text TEXT, data TEXT NOT NULL, created_at INTEGER
    NOT NULL, FOREIGN KEY (account_id) REFERENCES account (id), FOREIGN KEY (contact_id) REFERENCES contact (id) ON
    DELETE SET NULL);
CREATE INDEX consent_contact_id ON consent (contact_id);
CREATE INDEX consent_of_nobody ON consent (account_id, address_hash) WHERE contact_id IS NULL;
CREATE INDEX consent_of_message ON consent (json_extract(data, '$.message_id')) WHERE json_extract(data,
    '$.message_id') NOT NULL;
CREATE TABLE suppression (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, account_id INTEGER NOT NULL, kind TEXT NOT
    NULL, address_hash BLOB NOT NULL, address TEXT, reason TEXT NOT NULL, source TEXT, diagnostic TEXT, note TEXT,
    created_at INTEGER NOT NULL, expires_at INTEGER, FOREIGN KEY (account_id) REFERENCES account (id));
CREATE UNIQUE INDEX suppression_account_id_kind_address_hash_reason ON suppression (account_id, kind, address_hash,
    reason);
CREATE INDEX suppression_account_id_created_at ON suppression (account_id, created_at);
CREATE INDEX suppression_expires ON suppression (expires_at) WHERE expires_at NOT NULL;
CREATE TABLE opt_out (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, account_id INTEGER NOT NULL, kind TEXT NOT
    NULL, address_hash BLOB NOT NULL, by TEXT NOT NULL, created_at INTEGER NOT NULL, FOREIGN KEY (account_id)
    REFERENCES account (id));
CREATE UNIQUE INDEX opt_out_account_id_kind_address_hash ON opt_out (account_id, kind, address_hash);
CREATE TABLE segment (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, account_id INTEGER NOT NULL, name TEXT NOT
    NULL, filters TEXT NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, FOREIGN KEY (account_id)
    REFERENCES account (id));
CREATE INDEX segment_account_id ON segment (account_id);
CREATE TABLE contact_list (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, account_id INTEGER NOT NULL, name TEXT NOT
    NULL, name_key TEXT NOT NULL, segment_id INTEGER, contacts_count INTEGER NOT NULL, stale INTEGER NOT NULL,
    last_populated_at INTEGER, seen_event_id INTEGER NOT NULL, double_opt_in INTEGER NOT NULL, public INTEGER NOT
    NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, FOREIGN KEY (account_id) REFERENCES account
    (id), FOREIGN KEY (segment_id) REFERENCES segment (id));
CREATE INDEX contact_list_segment_id ON contact_list (segment_id);
CREATE UNIQUE INDEX contact_list_account_id_name_key ON contact_list (account_id, name_key);
CREATE TABLE membership (contact_list_id INTEGER NOT NULL, contact_id INTEGER NOT NULL, created_at INTEGER NOT NULL,
    PRIMARY KEY (contact_list_id, contact_id), FOREIGN KEY (contact_list_id) REFERENCES contact_list (id) ON DELETE
    CASCADE, FOREIGN KEY (contact_id) REFERENCES contact (id) ON DELETE CASCADE) WITHOUT ROWID;
CREATE INDEX membership_contact_id ON membership (contact_id);
CREATE TABLE list_refusal (contact_list_id INTEGER NOT NULL, contact_id INTEGER NOT NULL, created_at INTEGER NOT
    NULL, PRIMARY KEY (contact_list_id, contact_id), FOREIGN KEY (contact_list_id) REFERENCES contact_list (id) ON
    DELETE CASCADE, FOREIGN KEY (contact_id) REFERENCES contact (id) ON DELETE CASCADE) WITHOUT ROWID;
CREATE INDEX list_refusal_contact_id ON list_refusal (contact_id);
CREATE TABLE template (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, account_id INTEGER NOT NULL, name TEXT,
    action_id INTEGER, channel TEXT NOT NULL, removed_at INTEGER, subject TEXT, body TEXT, preheader TEXT, from_name
    TEXT, from_email TEXT, reply_to TEXT, design TEXT NOT NULL, variables TEXT NOT NULL, revision INTEGER NOT NULL,
    created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, flow_id INTEGER, FOREIGN KEY (account_id) REFERENCES
    account (id));
CREATE INDEX template_flow_id ON template (flow_id);
CREATE INDEX template_account_id_created_at_id ON template (account_id, created_at, id);
CREATE TABLE template_revision (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, template_id INTEGER NOT NULL, number
    INTEGER NOT NULL, follows INTEGER, restores INTEGER, named INTEGER NOT NULL, label TEXT, touched TEXT, user_id
    INTEGER, created_at INTEGER NOT NULL, document TEXT NOT NULL, FOREIGN KEY (template_id) REFERENCES template (id) ON
    DELETE CASCADE, FOREIGN KEY (user_id) REFERENCES user (id) ON DELETE SET NULL);
CREATE UNIQUE INDEX template_revision_template_id_number ON template_revision (template_id, number);
CREATE TABLE brand (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, account_id INTEGER NOT NULL, brand_color TEXT,
    text_color TEXT, bg_color TEXT, font_heading TEXT, font_body TEXT, style_notes TEXT, tone TEXT,
    company_description TEXT, industry TEXT, example_copy TEXT, default_header TEXT NOT NULL, default_footer TEXT
    NOT NULL, default_theme TEXT NOT NULL, physical_address TEXT, company_name TEXT, links TEXT NOT NULL, logo TEXT,
    created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, FOREIGN KEY (account_id) REFERENCES account (id));
CREATE UNIQUE INDEX brand_account_id ON brand (account_id);
CREATE TABLE media (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, account_id INTEGER NOT NULL, signed_id TEXT NOT
    NULL, filename TEXT NOT NULL, content_type TEXT NOT NULL, bytes INTEGER NOT NULL, width INTEGER, height INTEGER,
    created_at INTEGER NOT NULL, content BLOB NOT NULL, FOREIGN KEY (account_id) REFERENCES account (id));
CREATE INDEX media_account_id ON media (account_id);
CREATE UNIQUE INDEX media_signed_id ON media (signed_id);
CREATE TABLE sending_domain (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, account_id INTEGER NOT NULL, name TEXT
    NOT NULL, provider TEXT NOT NULL, status TEXT NOT NULL, ownership_token TEXT NOT NULL, dns_records TEXT,
    attention TEXT, attention_since INTEGER, failed_checks INTEGER NOT NULL, enabled INTEGER NOT NULL, verified_at
    INTEGER, failed_at INTEGER, checked_at INTEGER, next_check_at INTEGER, created_at INTEGER NOT NULL, updated_at
    INTEGER NOT NULL, FOREIGN KEY (account_id) REFERENCES account (id));
CREATE UNIQUE INDEX sending_domain_account_id_name ON sending_domain (account_id, name);
CREATE INDEX sending_domain_next_check_at ON sending_domain (next_check_at);
CREATE TABLE domain_key (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, domain_id INTEGER NOT NULL, selector TEXT
    NOT NULL, algorithm TEXT NOT NULL, private_key BLOB NOT NULL, public_key TEXT NOT NULL, state TEXT NOT NULL,
    created_at INTEGER NOT NULL, activated_at INTEGER, retired_at INTEGER, FOREIGN KEY (domain_id) REFERENCES
    sending_domain (id) ON DELETE CASCADE);
CREATE UNIQUE INDEX domain_key_domain_id_selector ON domain_key (domain_id, selector);
CREATE TABLE webhook (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, account_id INTEGER NOT NULL, url TEXT NOT NULL,
    events TEXT NOT NULL, enabled INTEGER NOT NULL, secret BLOB NOT NULL, old_secret BLOB, old_secret_until INTEGER,
    after_event_id INTEGER NOT NULL, failing_since INTEGER, failed_at INTEGER, disabled_at INTEGER, disabled_reason
    TEXT, deleted_at INTEGER, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, FOREIGN KEY (account_id)
    REFERENCES account (id));
CREATE INDEX webhook_account_id ON webhook (account_id);
CREATE TABLE webhook_delivery (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, webhook_id INTEGER NOT NULL, event_id
    INTEGER NOT NULL, status TEXT NOT NULL, attempts INTEGER NOT NULL, response_status INTEGER, response_text TEXT,
    error TEXT, duration_ms INTEGER, next_attempt_at INTEGER, last_attempt_at INTEGER, created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL, FOREIGN KEY (webhook_id) REFERENCES webhook (id) ON DELETE CASCADE);
CREATE INDEX webhook_delivery_event_id ON webhook_delivery (event_id);
CREATE UNIQUE INDEX webhook_delivery_webhook_id_event_id ON webhook_delivery (webhook_id, event_id);
CREATE INDEX webhook_delivery_webhook_id_status_event_id ON webhook_delivery (webhook_id, status, event_id);
CREATE INDEX webhook_delivery_due ON webhook_delivery (webhook_id, next_attempt_at, id) WHERE status = 'pending';
CREATE TABLE erasure (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, account_id INTEGER NOT NULL, contact_id INTEGER
    NOT NULL, addresses TEXT NOT NULL, created_at INTEGER NOT NULL, FOREIGN KEY (account_id) REFERENCES account
    (id));
CREATE TABLE import (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, account_id INTEGER NOT NULL, resource TEXT NOT
    NULL, status TEXT NOT NULL, phase TEXT, dry_run INTEGER NOT NULL, filename TEXT NOT NULL, bytes INTEGER NOT
    NULL, format TEXT NOT NULL, product TEXT, columns TEXT NOT NULL, options TEXT NOT NULL, actor TEXT NOT NULL,
    total INTEGER NOT NULL, processed INTEGER NOT NULL, created INTEGER NOT NULL, updated INTEGER NOT NULL, skipped
    INTEGER NOT NULL, failed INTEGER NOT NULL, warnings INTEGER NOT NULL, arriving TEXT NOT NULL, left_in_place TEXT
    NOT NULL,
    restored INTEGER NOT NULL, error TEXT, cursor TEXT NOT NULL,
    cancel_asked_at INTEGER, undo_until INTEGER, undone_at INTEGER, completed_at INTEGER, created_at INTEGER NOT
    NULL, updated_at INTEGER NOT NULL, FOREIGN KEY (account_id) REFERENCES account (id));
CREATE INDEX import_account_id_created_at_id ON import (account_id, created_at, id);
CREATE INDEX import_status ON import (status);
CREATE TABLE import_chunk (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, import_job_id INTEGER NOT NULL, number
    INTEGER NOT NULL, outcomes BLOB NOT NULL, before BLOB, created_at INTEGER NOT NULL, FOREIGN KEY (import_job_id)
    REFERENCES import (id) ON DELETE CASCADE);
CREATE UNIQUE INDEX import_chunk_import_job_id_number ON import_chunk (import_job_id, number);
CREATE VIRTUAL TABLE contact_search USING fts5(names, email, phone, content='', contentless_delete=1, prefix='2 3',
    tokenize='unicode61 remove_diacritics 2');
INSERT INTO contact_search (contact_search, rank) VALUES ('deletemerge', 0);
"""

SQL = LEDGER + FLOWS + SMS + _REST + ACTS

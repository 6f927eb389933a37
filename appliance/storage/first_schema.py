"""The schema of the first version, as it stands in every database made by it; never edited, only migrated from."""


# Acts for many people, in the schema of the first version; never edited, only migrated from.

ACTS = """
CREATE TABLE crowd_act (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, account_id INTEGER NOT NULL, user_id INTEGER NOT
    NULL, act TEXT NOT NULL, argument TEXT NOT NULL, evidence TEXT NOT NULL, state TEXT NOT NULL, number INTEGER NOT
    NULL, changed INTEGER NOT NULL, skipped TEXT NOT NULL, undoes_id INTEGER, undone_id INTEGER, ended_at INTEGER,
    created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, FOREIGN KEY (account_id) REFERENCES account (id));
CREATE INDEX crowd_act_account_id ON crowd_act (account_id);
CREATE INDEX crowd_act_working ON crowd_act (id) WHERE state = 'working';
CREATE TABLE crowd_part (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, act_id INTEGER NOT NULL, contact_ids TEXT NOT
    NULL, done INTEGER NOT NULL, FOREIGN KEY (act_id) REFERENCES crowd_act (id) ON DELETE CASCADE);
CREATE INDEX crowd_part_act_id_done ON crowd_part (act_id, done);
"""


# SMS in the schema of the first version: what they cost, and what came back.

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


# Flows and campaigns in the schema of the first version.

FLOWS = """
CREATE TABLE flow (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, account_id INTEGER NOT NULL, hidden INTEGER NOT
    NULL, test INTEGER NOT NULL, status TEXT NOT NULL, approval_state TEXT NOT NULL, approval_note TEXT,
    asked_at INTEGER, asked_by INTEGER, edited_by INTEGER, name TEXT NOT NULL, goal TEXT, steps TEXT NOT NULL,
    last_action INTEGER NOT NULL, version INTEGER NOT NULL, live_from INTEGER NOT NULL, data TEXT NOT NULL, draft
    TEXT, sent_count INTEGER NOT NULL, entered_count INTEGER NOT NULL,
    completed_count INTEGER NOT NULL, exited_count INTEGER NOT NULL, paused_at INTEGER, drop_before INTEGER, closing
    TEXT, deleted_at INTEGER, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, FOREIGN KEY (account_id)
    REFERENCES account (id));
CREATE INDEX flow_account_id_hidden_created_at_id ON flow (account_id, hidden, created_at, id);
CREATE INDEX flow_live ON flow (id) WHERE status = 'active' AND hidden = 0;
CREATE INDEX flow_with_goal ON flow (id) WHERE goal NOT NULL AND hidden = 0;
CREATE TABLE trigger (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, account_id INTEGER NOT NULL, flow_id INTEGER
    NOT NULL, event TEXT NOT NULL, segment_id INTEGER, contact_list_id INTEGER, data TEXT NOT NULL, triggered_count
    INTEGER NOT NULL, last_triggered_at INTEGER, scanned TEXT, created_at INTEGER NOT NULL, updated_at INTEGER NOT
    NULL, FOREIGN KEY (account_id) REFERENCES account (id), FOREIGN KEY (flow_id) REFERENCES flow (id) ON DELETE
    CASCADE, FOREIGN KEY (segment_id) REFERENCES segment (id), FOREIGN KEY (contact_list_id) REFERENCES contact_list
    (id));
CREATE INDEX trigger_flow_id ON trigger (flow_id);
CREATE INDEX trigger_segment_id ON trigger (segment_id);
CREATE INDEX trigger_contact_list_id ON trigger (contact_list_id);
CREATE INDEX trigger_account_id_event ON trigger (account_id, event);
CREATE TABLE step (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, flow_id INTEGER NOT NULL, version INTEGER NOT
    NULL, action_id INTEGER NOT NULL, kind TEXT NOT NULL, template_id INTEGER, content_id INTEGER, pinned TEXT, data
    TEXT NOT NULL, next_action INTEGER, yes_action INTEGER, no_action INTEGER, position INTEGER NOT NULL, FOREIGN
    KEY (flow_id) REFERENCES flow (id) ON DELETE CASCADE, FOREIGN KEY (template_id) REFERENCES template (id) ON
    DELETE SET NULL, FOREIGN KEY (content_id) REFERENCES template_revision (id));
CREATE INDEX step_template_id ON step (template_id);
CREATE UNIQUE INDEX step_flow_id_version_action_id ON step (flow_id, version, action_id);
CREATE TABLE run (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, account_id INTEGER NOT NULL, flow_id INTEGER NOT
    NULL, version INTEGER NOT NULL, contact_id INTEGER, event_id INTEGER, event_data TEXT NOT NULL, status TEXT NOT
    NULL, exit_reason TEXT, action_id INTEGER, passage_id INTEGER, due_at INTEGER, chain_depth INTEGER NOT NULL,
    test INTEGER NOT NULL, ended_at INTEGER, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, FOREIGN KEY
    (account_id) REFERENCES account (id), FOREIGN KEY (flow_id) REFERENCES flow (id) ON DELETE CASCADE, FOREIGN KEY
    (contact_id) REFERENCES contact (id) ON DELETE SET NULL);
CREATE INDEX run_contact_id_flow_id_status_created_at_test ON run (contact_id, flow_id, status, created_at, test);
CREATE INDEX run_flow_id_created_at_id ON run (flow_id, created_at, id);
CREATE UNIQUE INDEX run_live ON run (flow_id, contact_id, test) WHERE status = 'live' AND contact_id NOT NULL;
CREATE INDEX run_due ON run (flow_id, due_at, id) WHERE status = 'live';
CREATE INDEX run_ended ON run (flow_id, status, exit_reason, test, created_at);
CREATE TABLE passage (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, run_id INTEGER NOT NULL, flow_id INTEGER NOT
    NULL, action_id INTEGER NOT NULL, test INTEGER NOT NULL, entered_at INTEGER NOT NULL, left_at INTEGER, outcome
    TEXT, reason TEXT, FOREIGN KEY (run_id) REFERENCES run (id) ON DELETE CASCADE, FOREIGN KEY (flow_id) REFERENCES
    flow (id) ON DELETE CASCADE);
CREATE INDEX passage_run_id ON passage (run_id);
CREATE INDEX passage_flow_id_action_id_outcome_reason_test_entered_at ON passage (flow_id, action_id, outcome,
    reason, test, entered_at);
CREATE TABLE cursor (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, event_id INTEGER NOT NULL);
CREATE UNIQUE INDEX cursor_name ON cursor (name);
CREATE TABLE campaign (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, account_id INTEGER NOT NULL, flow_id INTEGER
    NOT NULL, trigger_id INTEGER NOT NULL, template_id INTEGER NOT NULL, name TEXT NOT NULL, channel TEXT NOT NULL,
    status TEXT NOT NULL, phase TEXT NOT NULL, approval_state TEXT NOT NULL, approval_note TEXT, asked_at INTEGER,
    asked_by INTEGER, edited_by INTEGER, data TEXT NOT NULL, tracking INTEGER NOT NULL, scheduled_at
    INTEGER, content_id INTEGER, sender TEXT, pinned TEXT, hold_until
    INTEGER, test INTEGER NOT NULL, audience_count INTEGER NOT NULL, freezing TEXT, closing TEXT, sent_count INTEGER
    NOT NULL, refused_count INTEGER NOT NULL, bounced_count INTEGER NOT NULL, complained_count INTEGER NOT NULL,
    baseline TEXT NOT NULL, pause_reason TEXT, started_at INTEGER, completed_at INTEGER, cancelled_at INTEGER,
    deleted_at INTEGER, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, FOREIGN KEY (account_id)
    REFERENCES account (id), FOREIGN KEY (flow_id) REFERENCES flow (id), FOREIGN KEY (trigger_id) REFERENCES trigger
    (id), FOREIGN KEY (template_id) REFERENCES template (id), FOREIGN KEY (content_id) REFERENCES template_revision
    (id));
CREATE UNIQUE INDEX campaign_flow_id ON campaign (flow_id);
CREATE INDEX campaign_account_id_created_at_id ON campaign (account_id, created_at, id);
CREATE INDEX campaign_phase_scheduled_at ON campaign (phase, scheduled_at);
CREATE INDEX campaign_unfinished ON campaign (id) WHERE freezing NOT NULL OR closing NOT NULL;
CREATE TABLE segment_watch (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, account_id INTEGER NOT NULL, segment_id
    INTEGER NOT NULL, asks TEXT, created_at INTEGER NOT NULL, FOREIGN KEY (account_id) REFERENCES account (id),
    FOREIGN KEY (segment_id) REFERENCES segment (id) ON DELETE CASCADE);
CREATE UNIQUE INDEX segment_watch_segment_id ON segment_watch (segment_id);
CREATE TABLE segment_member (segment_id INTEGER NOT NULL, contact_id INTEGER NOT NULL, PRIMARY KEY (segment_id,
    contact_id), FOREIGN KEY (segment_id) REFERENCES segment (id) ON DELETE CASCADE, FOREIGN KEY (contact_id)
    REFERENCES contact (id) ON DELETE CASCADE) WITHOUT ROWID;
CREATE INDEX segment_member_contact_id ON segment_member (contact_id);
"""


# The ledger in the schema of the first version: messages, and what became of them.

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

"""Flows and campaigns in the schema of the first version."""

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

"""Acts for many people, in the schema of the first version; never edited, only migrated from."""

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

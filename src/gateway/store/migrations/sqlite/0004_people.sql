-- People who sign in, what lets them in, what they may do, and who has changed what.

ALTER TABLE users ADD COLUMN password TEXT;
ALTER TABLE users ADD COLUMN disabled_at TEXT;
ALTER TABLE users ADD COLUMN last_sign_in_at TEXT;

-- Groups are never removed, because keys and records name them.
ALTER TABLE groups ADD COLUMN deleted_at TEXT;

-- In which groups a member may make keys.
CREATE TABLE user_groups (
    user_id  TEXT NOT NULL REFERENCES users (id),
    group_id TEXT NOT NULL REFERENCES groups (id),
    PRIMARY KEY (user_id, group_id)
) STRICT, WITHOUT ROWID;

INSERT INTO groups (id, name, created_at)
    SELECT 'grp_default', 'default', strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
    WHERE NOT EXISTS (SELECT 1 FROM groups WHERE name = 'default');
INSERT INTO user_groups (user_id, group_id)
    SELECT users.id, groups.id FROM users, groups WHERE groups.name = 'default'
    UNION SELECT user_id, group_id FROM keys WHERE deleted_at IS NULL;

ALTER TABLE keys ADD COLUMN previous_hash BLOB CHECK (length(previous_hash) = 32);
ALTER TABLE keys ADD COLUMN previous_until TEXT;
-- Grows with every change that matters to whoever checks keys, so that a reader asks only for what is new.
ALTER TABLE keys ADD COLUMN revision INTEGER NOT NULL DEFAULT 1;

CREATE INDEX keys_by_revision ON keys (revision);
-- With what the condition names, so that counting reads nothing but the index.
CREATE INDEX keys_of_user ON keys (user_id, deleted_at) WHERE deleted_at IS NULL;
CREATE INDEX keys_of_group ON keys (group_id, deleted_at) WHERE deleted_at IS NULL;

CREATE TABLE key_revision (
    only  INTEGER PRIMARY KEY NOT NULL CHECK (only = 1),
    value INTEGER NOT NULL
) STRICT;
INSERT INTO key_revision (only, value) VALUES (1, 1);

-- Triggers, so that no statement can forget it. Writers take turns: revisions become visible in their order.
CREATE TRIGGER keys_inserted AFTER INSERT ON keys BEGIN
    UPDATE key_revision SET value = value + 1;
    UPDATE keys SET revision = (SELECT value FROM key_revision) WHERE rowid = NEW.rowid;
END;
CREATE TRIGGER keys_changed
AFTER UPDATE OF user_id, group_id, hash, previous_hash, previous_until, expires_at, disabled_at, deleted_at ON keys
BEGIN
    UPDATE key_revision SET value = value + 1;
    UPDATE keys SET revision = (SELECT value FROM key_revision) WHERE rowid = NEW.rowid;
END;
CREATE TRIGGER users_changed AFTER UPDATE OF disabled_at ON users BEGIN
    UPDATE key_revision SET value = value + 1;
    UPDATE keys SET revision = (SELECT value FROM key_revision)
    WHERE user_id = NEW.id AND deleted_at IS NULL;
END;

-- One-time links. Of their tokens only hashes are here.
CREATE TABLE links (
    hash       BLOB PRIMARY KEY NOT NULL CHECK (length(hash) = 32),
    purpose    TEXT NOT NULL CHECK (purpose IN ('setup', 'invitation', 'reset')),
    user_id    TEXT REFERENCES users (id),
    created_at TEXT NOT NULL,
    expires_at TEXT NOT NULL,
    CHECK ((user_id IS NULL) = (purpose = 'setup'))
) STRICT;

-- What happens once in the life of an installation.
CREATE TABLE milestones (
    name       TEXT PRIMARY KEY NOT NULL,
    reached_at TEXT NOT NULL
) STRICT;

CREATE TABLE sessions (
    id           TEXT PRIMARY KEY NOT NULL,
    hash         BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
    user_id      TEXT NOT NULL REFERENCES users (id),
    created_at   TEXT NOT NULL,
    last_seen_at TEXT NOT NULL,
    address      TEXT NOT NULL,
    agent        TEXT NOT NULL
) STRICT;

CREATE INDEX sessions_of_user ON sessions (user_id);

-- From where somebody has signed in before: what others do elsewhere does not slow them down there.
CREATE TABLE known_addresses (
    user_id TEXT NOT NULL REFERENCES users (id),
    address TEXT NOT NULL,
    last_at TEXT NOT NULL,
    PRIMARY KEY (user_id, address)
) STRICT, WITHOUT ROWID;

CREATE TABLE admin_tokens (
    id           TEXT PRIMARY KEY NOT NULL,
    public_id    TEXT NOT NULL UNIQUE,
    name         TEXT NOT NULL,
    user_id      TEXT NOT NULL REFERENCES users (id),
    hash         BLOB NOT NULL CHECK (length(hash) = 32),
    created_at   TEXT NOT NULL,
    expires_at   TEXT,
    last_used_at TEXT
) STRICT;

CREATE INDEX admin_tokens_of_user ON admin_tokens (user_id);

-- Who has done what. No foreign keys: the trail outlives whatever it names. Rows are added, and never changed.
CREATE TABLE audit (
    seq         INTEGER PRIMARY KEY NOT NULL,
    at          TEXT NOT NULL,
    actor_kind  TEXT NOT NULL CHECK (actor_kind IN ('user', 'token', 'settings', 'command', 'system')),
    actor_id    TEXT,
    actor_name  TEXT NOT NULL,
    address     TEXT,
    action      TEXT NOT NULL,
    target_kind TEXT NOT NULL,
    target_id   TEXT,
    target_name TEXT,
    details     TEXT NOT NULL DEFAULT '{}'
) STRICT;

CREATE INDEX audit_by_actor ON audit (actor_id);
CREATE INDEX audit_by_target ON audit (target_id);
CREATE INDEX audit_by_action ON audit (action);

CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit BEGIN
    SELECT raise(ABORT, 'the audit trail is never changed');
END;
CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON audit BEGIN
    SELECT raise(ABORT, 'the audit trail is never changed');
END;

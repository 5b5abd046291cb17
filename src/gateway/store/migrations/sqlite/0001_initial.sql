-- The schema of the database.
--
-- Times are RFC 3339 texts in UTC with milliseconds, so that text order is time order. Once released, this file is never
-- edited: a change of the schema is the next file.

-- "imgt": tells our file from that of another program before anything in it is touched.
PRAGMA application_id = 1768777588;

-- ---------------------------------------------------------------------------------------------------------------------
-- People and groups
-- ---------------------------------------------------------------------------------------------------------------------

CREATE TABLE users (
    id              TEXT PRIMARY KEY NOT NULL,
    name            TEXT NOT NULL UNIQUE,
    role            TEXT NOT NULL CHECK (role IN ('admin', 'member')),
    created_at      TEXT NOT NULL,
    password        TEXT,
    disabled_at     TEXT,
    last_sign_in_at TEXT,
    -- The limits of all keys of the user together, as a JSON object with the fields of `[groups.limits]`.
    limits          TEXT,
    -- The name without the differences that are no difference to a reader, such as case. The program computes it.
    folded_name     TEXT
) STRICT;

CREATE UNIQUE INDEX users_by_folded_name ON users (folded_name);

-- The owner of keys that belong to no person yet. It is no person: it is never listed or found, has no password, and its
-- empty name can be given to nobody. The first admin receives its keys.
INSERT INTO users (id, name, role, created_at)
    VALUES ('usr_nobody', '', 'member', strftime('%Y-%m-%dT%H:%M:%fZ', 'now'));

-- Groups are never removed, because keys and records name them.
CREATE TABLE groups (
    id         TEXT PRIMARY KEY NOT NULL,
    name       TEXT NOT NULL UNIQUE,
    created_at TEXT NOT NULL,
    deleted_at TEXT,
    -- The policy of a group that the settings file does not have: a JSON object with the names of `[[groups]]`. It names
    -- secrets and does not contain them.
    policy     TEXT
) STRICT;

INSERT INTO groups (id, name, created_at)
    VALUES ('grp_default', 'default', strftime('%Y-%m-%dT%H:%M:%fZ', 'now'));

-- The groups in which a member may make keys.
CREATE TABLE user_groups (
    user_id  TEXT NOT NULL REFERENCES users (id),
    group_id TEXT NOT NULL REFERENCES groups (id),
    PRIMARY KEY (user_id, group_id)
) STRICT, WITHOUT ROWID;

-- One-time links. Of their tokens only hashes are here.
CREATE TABLE links (
    hash       BLOB PRIMARY KEY NOT NULL CHECK (length(hash) = 32),
    purpose    TEXT NOT NULL CHECK (purpose IN ('setup', 'invitation', 'reset')),
    user_id    TEXT REFERENCES users (id),
    created_at TEXT NOT NULL,
    expires_at TEXT NOT NULL,
    CHECK ((user_id IS NULL) = (purpose = 'setup'))
) STRICT;

-- Events that happen once in the life of an installation.
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
    agent        TEXT NOT NULL,
    -- The last time at which the user has proved who they are, with a password or a code.
    proved_at    TEXT NOT NULL
) STRICT;

CREATE INDEX sessions_of_user ON sessions (user_id);

-- The addresses from which a user has signed in: the failures of others elsewhere do not slow the user down there.
CREATE TABLE known_addresses (
    user_id TEXT NOT NULL REFERENCES users (id),
    address TEXT NOT NULL,
    last_at TEXT NOT NULL,
    PRIMARY KEY (user_id, address)
) STRICT, WITHOUT ROWID;

-- The second factors of people: the sealed secret of an authenticator app, and the hashes of recovery codes. A code is
-- used once: `last_step` is the time step of the last one, and a recovery code is deleted.
CREATE TABLE second_factors (
    user_id    TEXT PRIMARY KEY NOT NULL REFERENCES users (id),
    sealed     BLOB NOT NULL,
    last_step  INTEGER NOT NULL,
    created_at TEXT NOT NULL
) STRICT;

CREATE TABLE recovery_codes (
    user_id TEXT NOT NULL REFERENCES users (id),
    hash    BLOB NOT NULL CHECK (length(hash) = 32),
    PRIMARY KEY (user_id, hash)
) STRICT, WITHOUT ROWID;

-- The accounts of users at a provider of OpenID Connect: at most one for each user. `subject` is the id of the person at
-- the issuer, and `name` the name there when the account was connected.
CREATE TABLE identities (
    user_id    TEXT PRIMARY KEY NOT NULL REFERENCES users (id),
    issuer     TEXT NOT NULL,
    subject    TEXT NOT NULL,
    name       TEXT NOT NULL,
    created_at TEXT NOT NULL,
    UNIQUE (issuer, subject)
) STRICT;

CREATE TABLE admin_tokens (
    id           TEXT PRIMARY KEY NOT NULL,
    public_id    TEXT NOT NULL UNIQUE,
    name         TEXT NOT NULL,
    user_id      TEXT NOT NULL REFERENCES users (id),
    hash         BLOB NOT NULL CHECK (length(hash) = 32),
    created_at   TEXT NOT NULL,
    expires_at   TEXT,
    last_used_at TEXT,
    -- A token that was made with another one ends with it.
    parent_id    TEXT REFERENCES admin_tokens (id) ON DELETE CASCADE
) STRICT;

CREATE INDEX admin_tokens_of_user ON admin_tokens (user_id);
CREATE INDEX admin_tokens_of_maker ON admin_tokens (parent_id);

-- ---------------------------------------------------------------------------------------------------------------------
-- The audit trail
-- ---------------------------------------------------------------------------------------------------------------------

-- All changes and their actors. No foreign keys: the trail outlives whatever it names. Rows are added and never changed.
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
-- Strangers cause these rows, so there is a bound on how many are added, and their number must be found at once.
CREATE INDEX audit_refusals ON audit (target_id) WHERE action = 'session.refuse';

-- Rows of the trail are removed only if they are older than this, and only within the transaction that adds this row.
CREATE TABLE audit_removal (
    only   INTEGER PRIMARY KEY NOT NULL CHECK (only = 1),
    before TEXT NOT NULL
) STRICT;

CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit BEGIN
    SELECT raise(ABORT, 'the audit trail is never changed');
END;
CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON audit
WHEN NOT EXISTS (SELECT 1 FROM audit_removal WHERE OLD.at < before)
BEGIN
    SELECT raise(ABORT, 'the audit trail is never changed');
END;

-- ---------------------------------------------------------------------------------------------------------------------
-- Keys
-- ---------------------------------------------------------------------------------------------------------------------

CREATE TABLE keys (
    id             TEXT PRIMARY KEY NOT NULL,
    public_id      TEXT NOT NULL UNIQUE,
    name           TEXT NOT NULL,
    user_id        TEXT NOT NULL REFERENCES users (id),
    group_id       TEXT NOT NULL REFERENCES groups (id),
    hash           BLOB NOT NULL CHECK (length(hash) = 32),
    created_at     TEXT NOT NULL,
    expires_at     TEXT,
    last_used_at   TEXT,
    disabled_at    TEXT,
    deleted_at     TEXT,
    previous_hash  BLOB CHECK (length(previous_hash) = 32),
    previous_until TEXT,
    -- Grows with every change that matters to a process that checks keys, so that it reads only the changed keys.
    revision       INTEGER NOT NULL DEFAULT 1,
    -- With `disabled_at`: the reason why only an admin can enable the key again.
    locked         TEXT CHECK (locked IN ('admin', 'left_group')),
    -- The latest end that the owner may choose, if somebody else has set an end.
    latest_end     TEXT,
    -- A JSON object with the fields of `[groups.limits]`.
    limits         TEXT,
    -- Words separated by spaces.
    dialects       TEXT
) STRICT;

CREATE INDEX keys_by_revision ON keys (revision);
-- With the column of the condition, so that counting reads nothing but the index.
CREATE INDEX keys_of_user ON keys (user_id, deleted_at) WHERE deleted_at IS NULL;
CREATE INDEX keys_of_group ON keys (group_id, deleted_at) WHERE deleted_at IS NULL;

CREATE TABLE key_revision (
    only  INTEGER PRIMARY KEY NOT NULL CHECK (only = 1),
    value INTEGER NOT NULL
) STRICT;
INSERT INTO key_revision (only, value) VALUES (1, 1);

-- Triggers, so that no statement can forget the revision. Writers take turns: revisions become visible in their order.
CREATE TRIGGER keys_inserted AFTER INSERT ON keys BEGIN
    UPDATE key_revision SET value = value + 1;
    UPDATE keys SET revision = (SELECT value FROM key_revision) WHERE rowid = NEW.rowid;
END;
CREATE TRIGGER keys_changed
AFTER UPDATE OF user_id, group_id, hash, previous_hash, previous_until, expires_at, disabled_at, deleted_at, limits, dialects
ON keys BEGIN
    UPDATE key_revision SET value = value + 1;
    UPDATE keys SET revision = (SELECT value FROM key_revision) WHERE rowid = NEW.rowid;
END;
CREATE TRIGGER users_changed AFTER UPDATE OF disabled_at, limits ON users BEGIN
    UPDATE key_revision SET value = value + 1;
    UPDATE keys SET revision = (SELECT value FROM key_revision)
    WHERE user_id = NEW.id AND deleted_at IS NULL;
END;

-- ---------------------------------------------------------------------------------------------------------------------
-- Accounts
-- ---------------------------------------------------------------------------------------------------------------------

CREATE TABLE accounts (
    id              TEXT PRIMARY KEY NOT NULL,
    name            TEXT NOT NULL UNIQUE,
    kind            TEXT NOT NULL,
    protocol        TEXT NOT NULL,
    tier            TEXT NOT NULL CHECK (tier IN ('paid', 'free')),
    source          TEXT NOT NULL CHECK (source IN ('file', 'store')),
    disabled_at     TEXT,
    disabled_reason TEXT,
    created_at      TEXT NOT NULL,
    -- `settings` and `sealed` belong to accounts of the store: the file keeps its own.
    settings        TEXT,
    sealed          BLOB,
    cooling_until   TEXT,
    cooling_cause   TEXT,
    -- The time since which the file no longer has an account whose source it was.
    absent_since    TEXT,
    -- The end bounds how long this is believed: a process that is killed cannot take it back.
    failing_until   TEXT,
    failing_since   TEXT,
    failing_reason  TEXT
) STRICT;

-- Random keys, each wrapped by the master key, which is not in this database.
CREATE TABLE data_keys (
    purpose    TEXT PRIMARY KEY NOT NULL,
    wrapped    BLOB NOT NULL,
    created_at TEXT NOT NULL
) STRICT;

-- One row for each account that has a token, or a process that fetches one.
CREATE TABLE tokens (
    account    TEXT PRIMARY KEY NOT NULL,
    sealed     BLOB,
    updated_at TEXT,
    holder     TEXT,
    held_until TEXT,
    CHECK ((sealed IS NULL) = (updated_at IS NULL)),
    CHECK ((holder IS NULL) = (held_until IS NULL))
) STRICT;

-- Ids, ciphertexts and conversations, each with the user that it belongs to and the account that serves it. A digest
-- stands for the value. The owner is a user, or the key if it has no user.
CREATE TABLE account_bindings (
    digest  TEXT NOT NULL,
    owner   TEXT NOT NULL,
    account TEXT NOT NULL,
    used_on TEXT NOT NULL,
    PRIMARY KEY (digest, owner)
) STRICT, WITHOUT ROWID;

CREATE INDEX account_bindings_by_day ON account_bindings (used_on);

CREATE TABLE prices (
    model      TEXT NOT NULL,
    valid_from TEXT NOT NULL,
    -- In billionths of a dollar: for a million tokens of a kind, or for an image. NULL is an unknown price.
    text_input         INTEGER,
    cached_text_input  INTEGER,
    image_input        INTEGER,
    cached_image_input INTEGER,
    image_output       INTEGER,
    text_output        INTEGER,
    per_image          INTEGER,
    source     TEXT,
    changed_at TEXT NOT NULL,
    -- The prices of tokens that the upstream wrote to its cache, in billionths of a dollar for a million tokens.
    cache_write    INTEGER,
    cache_write_1h INTEGER,
    -- Factors of service tiers, prices of calls of tools, and the most tokens of the model, as JSON.
    terms      TEXT NOT NULL DEFAULT '{}',
    PRIMARY KEY (model, valid_from)
) STRICT, WITHOUT ROWID;

-- ---------------------------------------------------------------------------------------------------------------------
-- Records
-- ---------------------------------------------------------------------------------------------------------------------

-- No foreign keys: a record outlives whatever it names, and must never be refused for its sake.
-- One row for each job. `document` is the record as JSON, with the fields of `Record` in the admin API; the other columns
-- are those of its values that are searched, sorted or summed, and what readers do not get.
CREATE TABLE records (
    seq                   INTEGER PRIMARY KEY NOT NULL,
    request_id            TEXT NOT NULL UNIQUE,
    node                  TEXT NOT NULL,
    created_at            TEXT NOT NULL,
    operation             TEXT NOT NULL,
    state                 TEXT NOT NULL
        CHECK (state IN ('running', 'succeeded', 'failed', 'refused', 'cancelled', 'interrupted')),
    model                 TEXT,
    account               TEXT,
    group_name            TEXT NOT NULL,
    user_id               TEXT NOT NULL,
    key_id                TEXT NOT NULL,
    end_user              TEXT,
    error_code            TEXT,
    error_reason          TEXT,
    -- A keyed hash of the API key and the request: it says nothing to a reader who has only the database.
    fingerprint           BLOB CHECK (length(fingerprint) = 32),
    latency_ms            INTEGER,
    -- The number of delivered images, and the tokens of all models.
    images                INTEGER NOT NULL DEFAULT 0,
    input_tokens          INTEGER,
    output_tokens         INTEGER,
    total_tokens          INTEGER,
    -- The cost in billionths of a dollar.
    cost_nano_usd         INTEGER,
    -- The most that one call of a job can cost: known with the intent, and the cost of a job whose process was killed.
    max_cost_nano_usd     INTEGER,
    -- The most that a job can cost, with the smaller images that a fallback may pay for in addition: the amount that a
    -- budget reserves.
    max_job_cost_nano_usd INTEGER,
    document              TEXT NOT NULL
) STRICT;

-- Filters of records can be combined. The sequence number is part of each index, because pages are ordered by time and
-- number. The columns after it are other columns that a filter can name and that never change, so that records that do
-- not pass are skipped without being read, and an index entry stays as it is when a record is closed.
CREATE INDEX records_by_time ON records (created_at);
CREATE INDEX records_by_key ON records (key_id, created_at, seq, user_id, group_name, model);
CREATE INDEX records_by_user ON records (user_id, created_at, seq, group_name, model);
CREATE INDEX records_by_group ON records (group_name, created_at);
CREATE INDEX records_by_model ON records (model, created_at, seq, group_name) WHERE model IS NOT NULL;
-- The account of a record is written again when the record is closed, the end user and the model are not: so the account
-- is not in the index of end users.
CREATE INDEX records_by_end_user ON records (end_user, created_at, seq, key_id, user_id, group_name, model)
    WHERE end_user IS NOT NULL;
CREATE INDEX records_by_account ON records (account, created_at, seq, key_id, user_id, group_name, model, end_user)
    WHERE account IS NOT NULL;
-- Few records have an error, so these indexes hold all columns that a filter can name.
CREATE INDEX records_by_error_reason ON records (error_reason, created_at, seq, state, error_code, key_id, user_id,
    group_name, end_user, model, account) WHERE error_reason IS NOT NULL;
CREATE INDEX records_by_error_code ON records (error_code, created_at, seq, state, key_id, user_id, group_name,
    end_user, model, account) WHERE error_code IS NOT NULL;
-- Nearly every record succeeds: a search for the others must not read those.
CREATE INDEX records_unsuccessful ON records (state, created_at, seq, key_id, user_id, group_name, end_user, model,
    account) WHERE state <> 'running' AND state <> 'succeeded';
CREATE INDEX records_unsuccessful_by_time ON records (created_at, seq, key_id, user_id, group_name, end_user, model,
    account) WHERE state <> 'running' AND state <> 'succeeded';
-- Holds only the running jobs, so that a start after a kill reads a handful of rows however large the table is.
CREATE INDEX records_running ON records (node) WHERE state = 'running';
-- Only a job that has not succeeded can decide about a retry after a restart. Fingerprints are random, so an entry for
-- each record would be a change of another page, and the index would not fit into memory.
CREATE INDEX records_by_fingerprint ON records (fingerprint, created_at)
    WHERE fingerprint IS NOT NULL AND state <> 'succeeded';
-- The responses that have cost more than they had reserved: rare.
CREATE INDEX records_above_ceiling ON records (created_at, key_id, user_id, group_name, cost_nano_usd)
    WHERE operation = 'create_response' AND state <> 'running' AND cost_nano_usd > max_job_cost_nano_usd;

-- The records that the other tables do not have yet, one entry for each intent, attempt and outcome, in their order. A
-- request waits for these rows, so the table has no index, no trigger and no check. The program moves them into `records`
-- and counts them, and whoever reads records moves them first. `body` is a JSON object: the document of the record and what
-- its row has beside it, with the version of this form.
CREATE TABLE record_journal (
    seq        INTEGER PRIMARY KEY NOT NULL,
    request_id TEXT NOT NULL,
    body       TEXT NOT NULL
) STRICT;

-- A row that is written to find out whether the database accepts writes.
CREATE TABLE write_check (
    only  INTEGER PRIMARY KEY NOT NULL CHECK (only = 1),
    times INTEGER NOT NULL
) STRICT;
INSERT INTO write_check (only, times) VALUES (1, 0);

-- ---------------------------------------------------------------------------------------------------------------------
-- Stored answers
-- ---------------------------------------------------------------------------------------------------------------------

-- One row for each answer that may be repeated. Without a status it is still running. An answer is kept until its last
-- reason ends (`expires_at`).
CREATE TABLE replays (
    scope        BLOB PRIMARY KEY NOT NULL CHECK (length(scope) = 32),
    digest       BLOB NOT NULL CHECK (length(digest) = 32),
    request_id   TEXT NOT NULL,
    node         TEXT NOT NULL,
    created_at   TEXT NOT NULL,
    expires_at   TEXT NOT NULL,
    status       INTEGER,
    content_type TEXT,
    headers      TEXT,
    file         TEXT,
    size         INTEGER,
    sealed_key   BLOB,
    -- A retry finds the answers of equal requests by their fingerprint.
    fingerprint  BLOB CHECK (length(fingerprint) = 32),
    -- The end of the reason `retry`: a retry that reads the answer ends it.
    retry_until  TEXT,
    -- 1 if the caller was told that its image is still being made.
    repeat_expected INTEGER NOT NULL DEFAULT 0,
    CHECK ((status IS NULL) = (content_type IS NULL)),
    CHECK ((status IS NULL) = (headers IS NULL)),
    CHECK ((status IS NULL) = (file IS NULL)),
    CHECK ((status IS NULL) = (size IS NULL)),
    CHECK ((status IS NULL) = (sealed_key IS NULL))
) STRICT;

CREATE INDEX replays_by_end ON replays (expires_at);
-- The page of a record shows the pictures of its request while the answer is kept.
CREATE INDEX replays_by_request ON replays (request_id);
CREATE INDEX replays_by_fingerprint ON replays (fingerprint) WHERE fingerprint IS NOT NULL;

-- ---------------------------------------------------------------------------------------------------------------------
-- Counts by day
-- ---------------------------------------------------------------------------------------------------------------------

-- The day is the one on which a job began, in UTC. Counts stay when records are removed.
CREATE TABLE usage_days (
    key_id        TEXT NOT NULL,
    day           TEXT NOT NULL,
    user_id       TEXT NOT NULL,
    group_name    TEXT NOT NULL,
    requests      INTEGER NOT NULL,
    succeeded     INTEGER NOT NULL,
    failed        INTEGER NOT NULL,
    images        INTEGER NOT NULL,
    input_tokens  INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    total_tokens  INTEGER NOT NULL,
    -- Requests with a known key that were refused before there was a job, on the day on which they came. Those without a
    -- known key are counted together, under an empty key.
    refused       INTEGER NOT NULL DEFAULT 0,
    -- The sum of the known costs, and the number of jobs whose cost is unknown: without it, a sum would read as complete.
    cost_nano_usd INTEGER NOT NULL DEFAULT 0,
    cost_unknown  INTEGER NOT NULL DEFAULT 0,
    -- The most that jobs can have cost whose cost is unknown: it counts against budgets, in addition to the known costs.
    assumed_nano_usd INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (key_id, day, user_id, group_name)
) STRICT, WITHOUT ROWID;

CREATE INDEX usage_days_by_day ON usage_days (day);
CREATE INDEX usage_days_by_user ON usage_days (user_id, day);

-- Counts by day, key and end user, of the jobs whose requests name an end user: to read one row for each day and key takes
-- less time than to count the records of an end user, who can have a large share of all of them.
CREATE TABLE end_user_days (
    end_user      TEXT NOT NULL,
    day           TEXT NOT NULL,
    key_id        TEXT NOT NULL,
    user_id       TEXT NOT NULL,
    group_name    TEXT NOT NULL,
    requests      INTEGER NOT NULL,
    succeeded     INTEGER NOT NULL,
    failed        INTEGER NOT NULL,
    images        INTEGER NOT NULL,
    input_tokens  INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    total_tokens  INTEGER NOT NULL,
    cost_nano_usd INTEGER NOT NULL,
    cost_unknown  INTEGER NOT NULL,
    PRIMARY KEY (end_user, day, key_id, user_id, group_name)
) STRICT, WITHOUT ROWID;

CREATE INDEX end_user_days_by_day ON end_user_days (day);

-- ---------------------------------------------------------------------------------------------------------------------
-- Detailed counts
-- ---------------------------------------------------------------------------------------------------------------------

-- Counts of records by account, model, size, quality, reason and hour, with durations and kinds of tokens. They are made
-- after a record is closed, by a task and not by a trigger, so that no request waits for them.

-- Each combination of group, user and key that has records. Three empty texts stand for all of them together, so that
-- the counts of everybody are read from few rows.
CREATE TABLE usage_scopes (
    id         INTEGER PRIMARY KEY NOT NULL,
    group_name TEXT NOT NULL,
    user_id    TEXT NOT NULL,
    key_id     TEXT NOT NULL,
    UNIQUE (group_name, user_id, key_id)
) STRICT;

CREATE INDEX usage_scopes_by_user ON usage_scopes (user_id);
CREATE INDEX usage_scopes_by_key ON usage_scopes (key_id);

INSERT INTO usage_scopes (group_name, user_id, key_id) VALUES ('', '', '');

-- For each scope and day: the counts of each value of each dimension, and with the dimension `all`, of all records. The
-- replays are counted on their own day, everything else on the day on which the job began. The columns d00 to d35 count
-- the successful requests by duration; most of them are 0, and such a count is NULL, which needs no space.
CREATE TABLE usage_details (
    scope                INTEGER NOT NULL,
    dimension            TEXT NOT NULL,
    day                  TEXT NOT NULL,
    value                TEXT NOT NULL,
    requests             INTEGER NOT NULL,
    succeeded            INTEGER NOT NULL,
    images               INTEGER NOT NULL,
    input_tokens         INTEGER NOT NULL,
    output_tokens        INTEGER NOT NULL,
    total_tokens         INTEGER NOT NULL,
    input_text_tokens    INTEGER NOT NULL,
    input_image_tokens   INTEGER NOT NULL,
    input_cached_tokens  INTEGER NOT NULL,
    output_text_tokens   INTEGER NOT NULL,
    output_image_tokens  INTEGER NOT NULL,
    host_input_tokens    INTEGER NOT NULL,
    host_output_tokens   INTEGER NOT NULL,
    cost_nano_usd        INTEGER NOT NULL,
    cost_unknown         INTEGER NOT NULL,
    replays              INTEGER NOT NULL,
    replayed_images      INTEGER NOT NULL,
    saved_nano_usd       INTEGER NOT NULL,
    saved_unknown        INTEGER NOT NULL,
    d00 INTEGER, d01 INTEGER, d02 INTEGER, d03 INTEGER, d04 INTEGER, d05 INTEGER,
    d06 INTEGER, d07 INTEGER, d08 INTEGER, d09 INTEGER, d10 INTEGER, d11 INTEGER,
    d12 INTEGER, d13 INTEGER, d14 INTEGER, d15 INTEGER, d16 INTEGER, d17 INTEGER,
    d18 INTEGER, d19 INTEGER, d20 INTEGER, d21 INTEGER, d22 INTEGER, d23 INTEGER,
    d24 INTEGER, d25 INTEGER, d26 INTEGER, d27 INTEGER, d28 INTEGER, d29 INTEGER,
    d30 INTEGER, d31 INTEGER, d32 INTEGER, d33 INTEGER, d34 INTEGER, d35 INTEGER,
    PRIMARY KEY (scope, dimension, day, value)
) STRICT, WITHOUT ROWID;

CREATE INDEX usage_details_by_day ON usage_details (day);

-- All records up to the sequence number `folded_seq` are counted in `usage_details`, each of them once. Those up to
-- `step_end` are counted in the rows up to `last_row`, a JSON list with the group, user, key, dimension, day and value.
CREATE TABLE usage_fold (
    "only"     INTEGER PRIMARY KEY CHECK ("only" = 1),
    folded_seq INTEGER NOT NULL,
    step_end   INTEGER NOT NULL DEFAULT 0,
    last_row   TEXT NOT NULL DEFAULT '["","","","","",""]'
) STRICT;

INSERT INTO usage_fold ("only", folded_seq) VALUES (1, 0);

-- SQLite gives the sequence numbers of removed records again, if they were the highest: those records are not counted yet.
CREATE TRIGGER removed_numbers_are_not_folded AFTER DELETE ON records
WHEN NOT EXISTS (SELECT 1 FROM records WHERE seq > OLD.seq)
BEGIN
    UPDATE usage_fold SET folded_seq = min(folded_seq, coalesce((SELECT max(seq) FROM records), 0));
END;

-- ---------------------------------------------------------------------------------------------------------------------
-- Alerts
-- ---------------------------------------------------------------------------------------------------------------------

-- Events that operators want to hear of, such as a budget that is spent. The same event is raised once, by whichever node
-- sees it first.
CREATE TABLE alerts (
    id         TEXT PRIMARY KEY NOT NULL,
    identity   TEXT NOT NULL UNIQUE,
    event      TEXT NOT NULL,
    details    TEXT NOT NULL,
    created_at TEXT NOT NULL
) STRICT;

CREATE INDEX alerts_by_time ON alerts (created_at);

-- The delivery of an alert by a channel: pending until it was delivered or has failed too often.
CREATE TABLE alert_deliveries (
    alert_id   TEXT NOT NULL REFERENCES alerts (id) ON DELETE CASCADE,
    channel    TEXT NOT NULL,
    state      TEXT NOT NULL,
    attempts   INTEGER NOT NULL,
    due_at     TEXT NOT NULL,
    last_error TEXT,
    PRIMARY KEY (alert_id, channel)
) STRICT;

CREATE INDEX alert_deliveries_due ON alert_deliveries (due_at) WHERE state = 'pending';

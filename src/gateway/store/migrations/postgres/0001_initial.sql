-- The schema of the database: the same tables and columns as in SQLite, so that the same statements run on both.
--
-- Times are RFC 3339 texts in UTC with milliseconds; every text is compared byte by byte, so that the order of times and
-- names does not depend on the locale of the database. `rowid` is the order of insertion. Once released, this file is
-- never edited: a change of the schema is the next file.

-- ---------------------------------------------------------------------------------------------------------------------
-- People and groups
-- ---------------------------------------------------------------------------------------------------------------------

CREATE TABLE users (
    id              TEXT COLLATE "C" PRIMARY KEY,
    rowid           BIGINT GENERATED ALWAYS AS IDENTITY UNIQUE,
    name            TEXT COLLATE "C" NOT NULL UNIQUE,
    role            TEXT NOT NULL CHECK (role IN ('admin', 'member')),
    created_at      TEXT COLLATE "C" NOT NULL,
    password        TEXT,
    disabled_at     TEXT COLLATE "C",
    last_sign_in_at TEXT COLLATE "C",
    -- The limits of all keys of the user together, as a JSON object with the fields of `[groups.limits]`.
    limits          TEXT,
    -- The name without the differences that are no difference to a reader, such as case. The program computes it.
    folded_name     TEXT COLLATE "C"
);

CREATE UNIQUE INDEX users_by_folded_name ON users (folded_name);

-- The owner of keys that belong to no person yet. It is no person: it is never listed or found, has no password, and its
-- empty name can be given to nobody. The first admin receives its keys.
INSERT INTO users (id, name, role, created_at)
    VALUES ('usr_nobody', '', 'member', to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'));

-- Groups are never removed, because keys and records name them.
CREATE TABLE groups (
    id         TEXT COLLATE "C" PRIMARY KEY,
    name       TEXT COLLATE "C" NOT NULL UNIQUE,
    created_at TEXT COLLATE "C" NOT NULL,
    deleted_at TEXT COLLATE "C",
    -- The policy of a group that the settings file does not have: a JSON object with the names of `[[groups]]`. It names
    -- secrets and does not contain them.
    policy     TEXT
);

INSERT INTO groups (id, name, created_at)
    VALUES ('grp_default', 'default', to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'));

-- The groups in which a member may make keys.
CREATE TABLE user_groups (
    user_id  TEXT COLLATE "C" NOT NULL REFERENCES users (id),
    group_id TEXT COLLATE "C" NOT NULL REFERENCES groups (id),
    PRIMARY KEY (user_id, group_id)
);

-- One-time links. Of their tokens only hashes are here.
CREATE TABLE links (
    hash       BYTEA PRIMARY KEY CHECK (length(hash) = 32),
    purpose    TEXT NOT NULL CHECK (purpose IN ('setup', 'invitation', 'reset')),
    user_id    TEXT COLLATE "C" REFERENCES users (id),
    created_at TEXT COLLATE "C" NOT NULL,
    expires_at TEXT COLLATE "C" NOT NULL,
    CHECK ((user_id IS NULL) = (purpose = 'setup'))
);

-- Events that happen once in the life of an installation.
CREATE TABLE milestones (
    name       TEXT COLLATE "C" PRIMARY KEY,
    reached_at TEXT COLLATE "C" NOT NULL
);

CREATE TABLE sessions (
    id           TEXT COLLATE "C" PRIMARY KEY,
    rowid        BIGINT GENERATED ALWAYS AS IDENTITY UNIQUE,
    hash         BYTEA NOT NULL UNIQUE CHECK (length(hash) = 32),
    user_id      TEXT COLLATE "C" NOT NULL REFERENCES users (id),
    created_at   TEXT COLLATE "C" NOT NULL,
    last_seen_at TEXT COLLATE "C" NOT NULL,
    address      TEXT NOT NULL,
    agent        TEXT NOT NULL,
    -- The last time at which the user has proved who they are, with a password or a code.
    proved_at    TEXT COLLATE "C" NOT NULL
);

CREATE INDEX sessions_of_user ON sessions (user_id);

-- The addresses from which a user has signed in: the failures of others elsewhere do not slow the user down there.
CREATE TABLE known_addresses (
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users (id),
    address TEXT COLLATE "C" NOT NULL,
    last_at TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (user_id, address)
);

-- The password attempts of all nodes: a bucket holds them until the time at which it is empty. The hash is that of a
-- sign-in name, an address, or both; without the data keys, a guess cannot be checked against it.
CREATE TABLE attempt_buckets (
    hash     BYTEA PRIMARY KEY CHECK (length(hash) = 32),
    empty_at TIMESTAMPTZ NOT NULL
);

CREATE INDEX attempt_buckets_by_end ON attempt_buckets (empty_at);

-- The second factors of people: the sealed secret of an authenticator app, and the hashes of recovery codes. A code is
-- used once: `last_step` is the time step of the last one, and a recovery code is deleted.
CREATE TABLE second_factors (
    user_id    TEXT COLLATE "C" PRIMARY KEY REFERENCES users (id),
    sealed     BYTEA NOT NULL,
    last_step  BIGINT NOT NULL,
    created_at TEXT COLLATE "C" NOT NULL
);

CREATE TABLE recovery_codes (
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users (id),
    hash    BYTEA NOT NULL CHECK (length(hash) = 32),
    PRIMARY KEY (user_id, hash)
);

-- The accounts of users at a provider of OpenID Connect: at most one for each user. `subject` is the id of the person at
-- the issuer, and `name` the name there when the account was connected.
CREATE TABLE identities (
    user_id    TEXT COLLATE "C" PRIMARY KEY REFERENCES users (id),
    issuer     TEXT COLLATE "C" NOT NULL,
    subject    TEXT COLLATE "C" NOT NULL,
    name       TEXT NOT NULL,
    created_at TEXT COLLATE "C" NOT NULL,
    UNIQUE (issuer, subject)
);

CREATE TABLE admin_tokens (
    id           TEXT COLLATE "C" PRIMARY KEY,
    rowid        BIGINT GENERATED ALWAYS AS IDENTITY UNIQUE,
    public_id    TEXT COLLATE "C" NOT NULL UNIQUE,
    name         TEXT NOT NULL,
    user_id      TEXT COLLATE "C" NOT NULL REFERENCES users (id),
    hash         BYTEA NOT NULL CHECK (length(hash) = 32),
    created_at   TEXT COLLATE "C" NOT NULL,
    expires_at   TEXT COLLATE "C",
    last_used_at TEXT COLLATE "C",
    -- A token that was made with another one ends with it.
    parent_id    TEXT COLLATE "C" REFERENCES admin_tokens (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED
);

CREATE INDEX admin_tokens_of_user ON admin_tokens (user_id);
CREATE INDEX admin_tokens_of_maker ON admin_tokens (parent_id);

-- ---------------------------------------------------------------------------------------------------------------------
-- The audit trail
-- ---------------------------------------------------------------------------------------------------------------------

-- All changes and their actors. No foreign keys: the trail outlives whatever it names. Rows are added and never changed.
CREATE TABLE audit (
    seq         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          TEXT COLLATE "C" NOT NULL,
    actor_kind  TEXT NOT NULL CHECK (actor_kind IN ('user', 'token', 'settings', 'command', 'system')),
    actor_id    TEXT COLLATE "C",
    actor_name  TEXT COLLATE "C" NOT NULL,
    address     TEXT,
    action      TEXT COLLATE "C" NOT NULL,
    target_kind TEXT NOT NULL,
    target_id   TEXT COLLATE "C",
    target_name TEXT COLLATE "C",
    details     TEXT NOT NULL DEFAULT '{}'
);

CREATE INDEX audit_by_actor ON audit (actor_id);
CREATE INDEX audit_by_target ON audit (target_id);
CREATE INDEX audit_by_action ON audit (action);
-- Strangers cause these rows, so there is a bound on how many are added, and their number must be found at once.
CREATE INDEX audit_refusals ON audit (target_id, seq) WHERE action = 'session.refuse';

-- Rows of the trail are removed only if they are older than this, and only within the transaction that adds this row.
CREATE TABLE audit_removal (
    "only" BIGINT PRIMARY KEY CHECK ("only" = 1),
    before TEXT COLLATE "C" NOT NULL
);

CREATE FUNCTION refuse_audit_change() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND EXISTS (SELECT 1 FROM audit_removal WHERE OLD.at < before) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'the audit trail is never changed';
END $$;
CREATE TRIGGER audit_is_not_changed BEFORE UPDATE OR DELETE ON audit
    FOR EACH ROW EXECUTE FUNCTION refuse_audit_change();

-- ---------------------------------------------------------------------------------------------------------------------
-- Keys
-- ---------------------------------------------------------------------------------------------------------------------

CREATE TABLE keys (
    id             TEXT COLLATE "C" PRIMARY KEY,
    rowid          BIGINT GENERATED ALWAYS AS IDENTITY UNIQUE,
    public_id      TEXT COLLATE "C" NOT NULL UNIQUE,
    name           TEXT COLLATE "C" NOT NULL,
    user_id        TEXT COLLATE "C" NOT NULL REFERENCES users (id),
    group_id       TEXT COLLATE "C" NOT NULL REFERENCES groups (id),
    hash           BYTEA NOT NULL CHECK (length(hash) = 32),
    created_at     TEXT COLLATE "C" NOT NULL,
    expires_at     TEXT COLLATE "C",
    last_used_at   TEXT COLLATE "C",
    disabled_at    TEXT COLLATE "C",
    deleted_at     TEXT COLLATE "C",
    previous_hash  BYTEA CHECK (length(previous_hash) = 32),
    previous_until TEXT COLLATE "C",
    -- Grows with every change that matters to a process that checks keys, so that it reads only the changed keys.
    revision       BIGINT NOT NULL DEFAULT 1,
    -- With `disabled_at`: the reason why only an admin can enable the key again.
    locked         TEXT CHECK (locked IN ('admin', 'left_group')),
    -- The latest end that the owner may choose, if somebody else has set an end.
    latest_end     TEXT COLLATE "C",
    -- A JSON object with the fields of `[groups.limits]`.
    limits         TEXT,
    -- Words separated by spaces.
    dialects       TEXT
);

CREATE INDEX keys_by_revision ON keys (revision);
CREATE INDEX keys_of_user ON keys (user_id, rowid) WHERE deleted_at IS NULL;
CREATE INDEX keys_of_group ON keys (group_id, rowid) WHERE deleted_at IS NULL;

CREATE TABLE key_revision (
    "only" BIGINT PRIMARY KEY CHECK ("only" = 1),
    value  BIGINT NOT NULL
);
INSERT INTO key_revision ("only", value) VALUES (1, 1);

-- The row stays locked until the transaction ends, so revisions become visible in their order.
CREATE FUNCTION next_key_revision() RETURNS BIGINT LANGUAGE sql AS
    $$ UPDATE key_revision SET value = value + 1 RETURNING value $$;

-- Triggers, so that no statement can forget the revision.
CREATE FUNCTION set_key_revision() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    NEW.revision := next_key_revision();
    RETURN NEW;
END $$;
CREATE TRIGGER keys_inserted BEFORE INSERT ON keys FOR EACH ROW EXECUTE FUNCTION set_key_revision();
CREATE TRIGGER keys_changed
    BEFORE UPDATE OF user_id, group_id, hash, previous_hash, previous_until, expires_at, disabled_at, deleted_at, limits,
        dialects
    ON keys FOR EACH ROW EXECUTE FUNCTION set_key_revision();

CREATE FUNCTION revise_keys_of_user() RETURNS TRIGGER LANGUAGE plpgsql AS $$
DECLARE
    next BIGINT := next_key_revision();
BEGIN
    UPDATE keys SET revision = next WHERE user_id = NEW.id AND deleted_at IS NULL;
    RETURN NULL;
END $$;
CREATE TRIGGER users_changed AFTER UPDATE OF disabled_at, limits ON users
    FOR EACH ROW EXECUTE FUNCTION revise_keys_of_user();

-- ---------------------------------------------------------------------------------------------------------------------
-- Accounts
-- ---------------------------------------------------------------------------------------------------------------------

CREATE TABLE accounts (
    id              TEXT COLLATE "C" PRIMARY KEY,
    name            TEXT COLLATE "C" NOT NULL UNIQUE,
    kind            TEXT NOT NULL,
    protocol        TEXT NOT NULL,
    tier            TEXT NOT NULL CHECK (tier IN ('paid', 'free')),
    source          TEXT NOT NULL CHECK (source IN ('file', 'store')),
    disabled_at     TEXT COLLATE "C",
    disabled_reason TEXT,
    created_at      TEXT COLLATE "C" NOT NULL,
    -- `settings` and `sealed` belong to accounts of the store: the file keeps its own.
    settings        TEXT,
    sealed          BYTEA,
    cooling_until   TEXT COLLATE "C",
    cooling_cause   TEXT,
    -- The time since which the file no longer has an account whose source it was.
    absent_since    TEXT COLLATE "C",
    -- The end bounds how long this is believed: a process that is killed cannot take it back.
    failing_until   TEXT COLLATE "C",
    failing_since   TEXT COLLATE "C",
    failing_reason  TEXT
);

-- The slots of accounts that each node holds: no other node uses them until they expire, and the node confirms them
-- before that.
CREATE TABLE account_slots (
    account      TEXT COLLATE "C" NOT NULL,
    node         TEXT COLLATE "C" NOT NULL,
    held         BIGINT NOT NULL,
    wanted       BIGINT NOT NULL,
    large_held   BIGINT NOT NULL,
    large_wanted BIGINT NOT NULL,
    expires_at   TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (account, node)
);

-- Random keys, each wrapped by the master key, which is not in this database.
CREATE TABLE data_keys (
    purpose    TEXT COLLATE "C" PRIMARY KEY,
    wrapped    BYTEA NOT NULL,
    created_at TEXT COLLATE "C" NOT NULL
);

-- One row for each account that has a token, or a process that fetches one.
CREATE TABLE tokens (
    account    TEXT COLLATE "C" PRIMARY KEY,
    sealed     BYTEA,
    updated_at TEXT COLLATE "C",
    holder     TEXT COLLATE "C",
    held_until TEXT COLLATE "C",
    CHECK ((sealed IS NULL) = (updated_at IS NULL)),
    CHECK ((holder IS NULL) = (held_until IS NULL))
);

-- Ids, ciphertexts and conversations, each with the user that it belongs to and the account that serves it. A digest
-- stands for the value. The owner is a user, or the key if it has no user.
CREATE TABLE account_bindings (
    digest  TEXT COLLATE "C" NOT NULL,
    owner   TEXT COLLATE "C" NOT NULL,
    account TEXT NOT NULL,
    used_on TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (digest, owner)
);

CREATE INDEX account_bindings_by_day ON account_bindings (used_on);

CREATE TABLE prices (
    model              TEXT COLLATE "C" NOT NULL,
    valid_from         TEXT COLLATE "C" NOT NULL,
    -- In billionths of a dollar: for a million tokens of a kind, or for an image. NULL is an unknown price.
    text_input         BIGINT,
    cached_text_input  BIGINT,
    image_input        BIGINT,
    cached_image_input BIGINT,
    image_output       BIGINT,
    text_output        BIGINT,
    per_image          BIGINT,
    source             TEXT,
    changed_at         TEXT COLLATE "C" NOT NULL,
    -- The prices of tokens that the upstream wrote to its cache, in billionths of a dollar for a million tokens.
    cache_write        BIGINT,
    cache_write_1h     BIGINT,
    -- Factors of service tiers, prices of calls of tools, and the most tokens of the model, as JSON.
    terms              TEXT NOT NULL DEFAULT '{}',
    PRIMARY KEY (model, valid_from)
);

-- ---------------------------------------------------------------------------------------------------------------------
-- Nodes
-- ---------------------------------------------------------------------------------------------------------------------

-- The nodes that share this database, and the time of their last heartbeat.
CREATE TABLE nodes (
    id         TEXT COLLATE "C" PRIMARY KEY,
    version    TEXT NOT NULL,
    started_at TIMESTAMPTZ NOT NULL,
    seen_at    TIMESTAMPTZ NOT NULL
);

-- ---------------------------------------------------------------------------------------------------------------------
-- Records
-- ---------------------------------------------------------------------------------------------------------------------

-- No foreign keys: a record outlives whatever it names, and must never be refused for its sake.
-- One row for each job. `document` is the record as JSON, with the fields of `Record` in the admin API; the other columns
-- are those of its values that are searched, sorted or summed, and what readers do not get.
CREATE TABLE records (
    seq                   BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    request_id            TEXT COLLATE "C" NOT NULL UNIQUE,
    node                  TEXT COLLATE "C" NOT NULL,
    created_at            TEXT COLLATE "C" NOT NULL,
    operation             TEXT NOT NULL,
    state                 TEXT COLLATE "C" NOT NULL
        CHECK (state IN ('running', 'succeeded', 'failed', 'refused', 'cancelled', 'interrupted')),
    model                 TEXT,
    account               TEXT COLLATE "C",
    group_name            TEXT COLLATE "C" NOT NULL,
    user_id               TEXT COLLATE "C" NOT NULL,
    key_id                TEXT COLLATE "C" NOT NULL,
    end_user              TEXT COLLATE "C",
    error_code            TEXT,
    error_reason          TEXT,
    -- A keyed hash of the API key and the request: it says nothing to a reader who has only the database.
    fingerprint           BYTEA CHECK (length(fingerprint) = 32),
    latency_ms            BIGINT,
    -- The number of delivered images, and the tokens of all models.
    images                BIGINT NOT NULL DEFAULT 0,
    input_tokens          BIGINT,
    output_tokens         BIGINT,
    total_tokens          BIGINT,
    -- The cost in billionths of a dollar.
    cost_nano_usd         BIGINT,
    -- The most that one call of a job can cost: known with the intent, and the cost of a job whose process was killed.
    max_cost_nano_usd     BIGINT,
    -- The most that a job can cost, with the smaller images that a fallback may pay for in addition: the amount that a
    -- budget reserves.
    max_job_cost_nano_usd BIGINT,
    document              TEXT NOT NULL
);

-- Filters of records can be combined. The sequence number is part of each index, because pages are ordered by time and
-- number. The columns after it are other columns that a filter can name and that never change, so that records that do
-- not pass are skipped without being read. The planner knows how rare a value is, and combines the indexes.
CREATE INDEX records_by_time ON records (created_at, seq);
CREATE INDEX records_by_key ON records (key_id, created_at, seq, user_id, group_name, model);
CREATE INDEX records_by_user ON records (user_id, created_at, seq, group_name, model);
CREATE INDEX records_by_group ON records (group_name, created_at, seq);
CREATE INDEX records_by_model ON records (model, created_at, seq, group_name) WHERE model IS NOT NULL;
CREATE INDEX records_by_end_user ON records (end_user, created_at, seq, key_id, user_id, group_name, model)
    WHERE end_user IS NOT NULL;
CREATE INDEX records_by_account ON records (account, created_at, seq, key_id, user_id, group_name, model)
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

-- A record that was closed because its node seemed to be dead has a provisional outcome: it is interrupted, with no
-- duration and nothing delivered. If the node comes back, the outcome of the job replaces it, once. Only the process of a
-- job writes its duration.

-- The provisional outcomes that were counted in `usage_details` before they were replaced. The task that counts there
-- takes them back and counts the records again.
CREATE TABLE provisional_records (
    seq           BIGINT PRIMARY KEY,
    account       TEXT COLLATE "C",
    cost_nano_usd BIGINT
);

-- A row that is written to find out whether the database accepts writes.
CREATE TABLE write_check (
    "only" BIGINT PRIMARY KEY CHECK ("only" = 1),
    times  BIGINT NOT NULL
);
INSERT INTO write_check ("only", times) VALUES (1, 0);

-- ---------------------------------------------------------------------------------------------------------------------
-- Stored answers
-- ---------------------------------------------------------------------------------------------------------------------

-- One row for each answer that may be repeated. Without a status it is still running. An answer is kept until its last
-- reason ends (`expires_at`).
CREATE TABLE replays (
    scope        BYTEA PRIMARY KEY CHECK (length(scope) = 32),
    digest       BYTEA NOT NULL CHECK (length(digest) = 32),
    request_id   TEXT COLLATE "C" NOT NULL,
    node         TEXT COLLATE "C" NOT NULL,
    created_at   TEXT COLLATE "C" NOT NULL,
    expires_at   TEXT COLLATE "C" NOT NULL,
    status       BIGINT,
    content_type TEXT,
    headers      TEXT,
    file         TEXT,
    size         BIGINT,
    sealed_key   BYTEA,
    -- A retry finds the answers of equal requests by their fingerprint.
    fingerprint  BYTEA CHECK (length(fingerprint) = 32),
    -- The end of the reason `retry`: a retry that reads the answer ends it.
    retry_until  TEXT COLLATE "C",
    -- 1 if the caller was told that its image is still being made.
    repeat_expected BIGINT NOT NULL DEFAULT 0,
    CHECK ((status IS NULL) = (content_type IS NULL)),
    CHECK ((status IS NULL) = (headers IS NULL)),
    CHECK ((status IS NULL) = (file IS NULL)),
    CHECK ((status IS NULL) = (size IS NULL)),
    CHECK ((status IS NULL) = (sealed_key IS NULL))
);

CREATE INDEX replays_by_end ON replays (expires_at);
-- The page of a record shows the pictures of its request while the answer is kept.
CREATE INDEX replays_by_request ON replays (request_id);
CREATE INDEX replays_by_fingerprint ON replays (fingerprint) WHERE fingerprint IS NOT NULL;

-- The answers whose bytes are here, so that each node can send them. The bytes count in whole blocks, from the time at
-- which the answer is announced; when all pieces are here, it is complete.
CREATE TABLE shared_answers (
    file        TEXT COLLATE "C" PRIMARY KEY,
    scope       BYTEA NOT NULL REFERENCES replays (scope) ON DELETE CASCADE,
    key_id      TEXT COLLATE "C" GENERATED ALWAYS AS (split_part(file, '-', 1)) STORED,
    bytes       BIGINT NOT NULL,
    is_complete BOOLEAN NOT NULL DEFAULT FALSE,
    stored_at   TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
);

CREATE INDEX shared_answers_by_scope ON shared_answers (scope);
CREATE INDEX shared_answers_by_key ON shared_answers (key_id, stored_at, file);

-- The pieces of the encrypted file of an answer. Encrypted bytes cannot be compressed.
CREATE TABLE answer_pieces (
    file   TEXT COLLATE "C" NOT NULL REFERENCES shared_answers (file) ON DELETE CASCADE,
    number BIGINT NOT NULL,
    bytes  BYTEA NOT NULL,
    PRIMARY KEY (file, number)
);
ALTER TABLE answer_pieces ALTER COLUMN bytes SET STORAGE EXTERNAL;

-- ---------------------------------------------------------------------------------------------------------------------
-- Counts by day
-- ---------------------------------------------------------------------------------------------------------------------

-- The day is the one on which a job began, in UTC. Counts stay when records are removed.
CREATE TABLE usage_days (
    key_id        TEXT COLLATE "C" NOT NULL,
    day           TEXT COLLATE "C" NOT NULL,
    user_id       TEXT COLLATE "C" NOT NULL,
    group_name    TEXT COLLATE "C" NOT NULL,
    requests      BIGINT NOT NULL,
    succeeded     BIGINT NOT NULL,
    failed        BIGINT NOT NULL,
    images        BIGINT NOT NULL,
    input_tokens  BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL,
    total_tokens  BIGINT NOT NULL,
    -- Requests with a known key that were refused before there was a job, on the day on which they came. Those without a
    -- known key are counted together, under an empty key.
    refused       BIGINT NOT NULL DEFAULT 0,
    -- The sum of the known costs, and the number of jobs whose cost is unknown: without it, a sum would read as complete.
    cost_nano_usd BIGINT NOT NULL DEFAULT 0,
    cost_unknown  BIGINT NOT NULL DEFAULT 0,
    -- The most that jobs can have cost whose cost is unknown: it counts against budgets, in addition to the known costs.
    assumed_nano_usd BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (key_id, day, user_id, group_name)
);

CREATE INDEX usage_days_by_day ON usage_days (day);
CREATE INDEX usage_days_by_user ON usage_days (user_id, day);
CREATE INDEX usage_days_by_group ON usage_days (group_name, day);

-- Counts by day, key and end user, of the jobs whose requests name an end user: to read one row for each day and key takes
-- less time than to count the records of an end user, who can have a large share of all of them.
CREATE TABLE end_user_days (
    end_user      TEXT COLLATE "C" NOT NULL,
    day           TEXT COLLATE "C" NOT NULL,
    key_id        TEXT COLLATE "C" NOT NULL,
    user_id       TEXT COLLATE "C" NOT NULL,
    group_name    TEXT COLLATE "C" NOT NULL,
    requests      BIGINT NOT NULL,
    succeeded     BIGINT NOT NULL,
    failed        BIGINT NOT NULL,
    images        BIGINT NOT NULL,
    input_tokens  BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL,
    total_tokens  BIGINT NOT NULL,
    cost_nano_usd BIGINT NOT NULL,
    cost_unknown  BIGINT NOT NULL,
    PRIMARY KEY (end_user, day, key_id, user_id, group_name)
);

CREATE INDEX end_user_days_by_day ON end_user_days (day);

-- The parts of running jobs in limits, and those of the last minutes. A part ends in the transaction that closes the
-- record of its request, which also counts the cost: so money is always either reserved or counted.
CREATE TABLE limit_reservations (
    request_id TEXT COLLATE "C" NOT NULL,
    subject    TEXT COLLATE "C" NOT NULL,
    node       TEXT COLLATE "C" NOT NULL,
    day        TEXT COLLATE "C" NOT NULL,
    images     BIGINT NOT NULL,
    -- An amount that is absent stands for everything that is left of the budget.
    nano_usd   BIGINT,
    begun_at   TIMESTAMPTZ NOT NULL,
    is_open    BOOLEAN NOT NULL,
    -- The ceiling of a response is not a bound: its text model decides the cost.
    is_ceiling BOOLEAN NOT NULL DEFAULT FALSE,
    PRIMARY KEY (request_id, subject)
);

CREATE INDEX limit_reservations_by_subject ON limit_reservations (subject, begun_at);
CREATE INDEX limit_reservations_open ON limit_reservations (subject) WHERE is_open;

-- The jobs that wait for room in budgets, the first one of each node. A node that waits sees its row again and again.
CREATE TABLE limit_waiters (
    subject    TEXT COLLATE "C" NOT NULL,
    request_id TEXT COLLATE "C" NOT NULL,
    since      TIMESTAMPTZ NOT NULL,
    seen_at    TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (subject, request_id)
);

-- Limits a sum to the largest integer. An error instead would refuse the outcome with it.
CREATE FUNCTION capped(total NUMERIC) RETURNS BIGINT LANGUAGE sql IMMUTABLE AS
    $$ SELECT least(total, 9223372036854775807)::BIGINT $$;

-- Functions that SQLite has, so that both databases understand the same statements. `total` ends at the largest integer.
CREATE FUNCTION end_total(total FLOAT8) RETURNS BIGINT LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
    $$ SELECT CASE WHEN total < 9223372036854775807 THEN total::BIGINT ELSE 9223372036854775807 END $$;

CREATE AGGREGATE total(FLOAT8) (
    SFUNC = float8pl, STYPE = FLOAT8, INITCOND = '0', FINALFUNC = end_total, COMBINEFUNC = float8pl, PARALLEL = SAFE
);

CREATE FUNCTION json_list(texts TEXT[]) RETURNS TEXT LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
    $$ SELECT to_json(texts)::TEXT $$;

CREATE AGGREGATE json_group_array(TEXT) (SFUNC = array_append, STYPE = TEXT[], INITCOND = '{}', FINALFUNC = json_list);

-- Writes intents and later states of different requests in one journey over the network, and returns the ids of those that
-- were written. The lock waits until no other session writes for the node; each statement after it sees what was committed
-- before. Another node may have closed the record of a job that still ran, because its node seemed to be dead. Such an
-- outcome is provisional: it has no duration. Only the node that opened the record replaces it, once, and only with an
-- outcome.
CREATE FUNCTION write_records(writer TEXT, intents JSON, changes JSON) RETURNS SETOF TEXT LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(writer, 0));
    -- Without a value, no statement runs, and no trigger.
    IF intents IS NOT NULL THEN RETURN QUERY INSERT INTO records AS opened (request_id, node, created_at, operation, state, model, account, group_name,
            user_id, key_id, end_user, fingerprint, max_cost_nano_usd, max_job_cost_nano_usd, document)
        SELECT new.request_id, new.node, new.created_at, new.operation, 'running', new.model, new.account, new.group_name,
            new.user_id, new.key_id, new.end_user, new.fingerprint, new.max_cost_nano_usd, new.max_job_cost_nano_usd,
            new.document
        FROM json_populate_recordset(NULL::records, intents) AS new ON CONFLICT DO NOTHING RETURNING opened.request_id;
    END IF;
    IF changes IS NOT NULL THEN RETURN QUERY UPDATE records SET state = new.state, account = new.account, error_code = new.error_code,
            error_reason = new.error_reason, latency_ms = new.latency_ms, images = new.images,
            input_tokens = new.input_tokens, output_tokens = new.output_tokens, total_tokens = new.total_tokens,
            cost_nano_usd = new.cost_nano_usd, document = new.document
        FROM json_populate_recordset(NULL::records, changes) AS new
        WHERE records.request_id = new.request_id AND (records.state = 'running' OR (records.state = 'interrupted'
            AND records.latency_ms IS NULL AND records.node = new.node AND new.state <> 'running'))
        RETURNING records.request_id;
    END IF;
END $$;

-- Exactly once for each record, whatever closes it: in the statement that does, so one cannot happen without the other. An
-- outcome that replaces a provisional one counts as the difference between both. The rows of all nodes are locked in the
-- same order, so two batches cannot wait for each other.
CREATE FUNCTION count_records() RETURNS TRIGGER LANGUAGE plpgsql AS $$
DECLARE
    counted BIGINT;
BEGIN
    INSERT INTO usage_days AS days (key_id, day, user_id, group_name, requests, succeeded, failed, images,
        input_tokens, output_tokens, total_tokens, cost_nano_usd, cost_unknown, assumed_nano_usd)
    SELECT closed.key_id, substr(closed.created_at, 1, 10), closed.user_id, closed.group_name,
        count(*) FILTER (WHERE running.state = 'running'), count(*) FILTER (WHERE closed.state = 'succeeded'),
        count(*) FILTER (WHERE closed.state <> 'succeeded') - count(*) FILTER (WHERE running.state = 'interrupted'),
        sum(closed.images),
        capped(coalesce(sum(closed.input_tokens), 0)),
        capped(coalesce(sum(closed.output_tokens), 0)),
        capped(coalesce(sum(closed.total_tokens), 0)),
        capped(sum(coalesce(closed.cost_nano_usd, 0))
            - coalesce(sum(running.cost_nano_usd) FILTER (WHERE running.state = 'interrupted'), 0)),
        count(*) FILTER (WHERE closed.cost_nano_usd IS NULL)
            - count(*) FILTER (WHERE running.state = 'interrupted' AND running.cost_nano_usd IS NULL),
        capped(coalesce(sum(coalesce(closed.max_job_cost_nano_usd, closed.max_cost_nano_usd))
            FILTER (WHERE closed.cost_nano_usd IS NULL), 0)
            - coalesce(sum(coalesce(closed.max_job_cost_nano_usd, closed.max_cost_nano_usd))
            FILTER (WHERE running.state = 'interrupted' AND running.cost_nano_usd IS NULL), 0))
    FROM closed JOIN running ON running.seq = closed.seq
    WHERE (running.state = 'running' AND closed.state <> 'running')
        OR (running.state = 'interrupted' AND running.latency_ms IS NULL AND closed.latency_ms IS NOT NULL)
    GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
    ON CONFLICT (key_id, day, user_id, group_name) DO UPDATE SET
        requests = days.requests + excluded.requests,
        succeeded = days.succeeded + excluded.succeeded,
        failed = days.failed + excluded.failed,
        images = days.images + excluded.images,
        input_tokens = capped(days.input_tokens::NUMERIC + excluded.input_tokens),
        output_tokens = capped(days.output_tokens::NUMERIC + excluded.output_tokens),
        total_tokens = capped(days.total_tokens::NUMERIC + excluded.total_tokens),
        cost_nano_usd = capped(days.cost_nano_usd::NUMERIC + excluded.cost_nano_usd),
        cost_unknown = days.cost_unknown + excluded.cost_unknown,
        assumed_nano_usd = capped(days.assumed_nano_usd::NUMERIC + excluded.assumed_nano_usd);
    INSERT INTO end_user_days AS days (end_user, day, key_id, user_id, group_name, requests, succeeded, failed, images,
        input_tokens, output_tokens, total_tokens, cost_nano_usd, cost_unknown)
    SELECT closed.end_user, substr(closed.created_at, 1, 10), closed.key_id, closed.user_id, closed.group_name,
        count(*) FILTER (WHERE running.state = 'running'), count(*) FILTER (WHERE closed.state = 'succeeded'),
        count(*) FILTER (WHERE closed.state <> 'succeeded') - count(*) FILTER (WHERE running.state = 'interrupted'),
        sum(closed.images),
        capped(coalesce(sum(closed.input_tokens), 0)),
        capped(coalesce(sum(closed.output_tokens), 0)),
        capped(coalesce(sum(closed.total_tokens), 0)),
        capped(sum(coalesce(closed.cost_nano_usd, 0))
            - coalesce(sum(running.cost_nano_usd) FILTER (WHERE running.state = 'interrupted'), 0)),
        count(*) FILTER (WHERE closed.cost_nano_usd IS NULL)
            - count(*) FILTER (WHERE running.state = 'interrupted' AND running.cost_nano_usd IS NULL)
    FROM closed JOIN running ON running.seq = closed.seq
    WHERE closed.end_user IS NOT NULL AND ((running.state = 'running' AND closed.state <> 'running')
        OR (running.state = 'interrupted' AND running.latency_ms IS NULL AND closed.latency_ms IS NOT NULL))
    GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5
    ON CONFLICT (end_user, day, key_id, user_id, group_name) DO UPDATE SET
        requests = days.requests + excluded.requests,
        succeeded = days.succeeded + excluded.succeeded,
        failed = days.failed + excluded.failed,
        images = days.images + excluded.images,
        input_tokens = capped(days.input_tokens::NUMERIC + excluded.input_tokens),
        output_tokens = capped(days.output_tokens::NUMERIC + excluded.output_tokens),
        total_tokens = capped(days.total_tokens::NUMERIC + excluded.total_tokens),
        cost_nano_usd = capped(days.cost_nano_usd::NUMERIC + excluded.cost_nano_usd),
        cost_unknown = days.cost_unknown + excluded.cost_unknown;
    UPDATE limit_reservations SET is_open = FALSE FROM closed JOIN running ON running.seq = closed.seq
    WHERE running.state = 'running' AND closed.state <> 'running'
        AND limit_reservations.request_id = closed.request_id;
    IF EXISTS (SELECT FROM running WHERE state = 'interrupted') THEN
        -- Waits for a step of counting that is running: it has counted the record before, or reads the new outcome.
        SELECT folded_seq INTO counted FROM usage_fold FOR SHARE;
        INSERT INTO provisional_records SELECT running.seq, running.account, running.cost_nano_usd
        FROM closed JOIN running ON running.seq = closed.seq
        WHERE running.state = 'interrupted' AND running.seq <= counted
            AND running.latency_ms IS NULL AND closed.latency_ms IS NOT NULL;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER records_are_counted AFTER UPDATE ON records REFERENCING OLD TABLE AS running NEW TABLE AS closed
    FOR EACH STATEMENT EXECUTE FUNCTION count_records();

-- ---------------------------------------------------------------------------------------------------------------------
-- Detailed counts
-- ---------------------------------------------------------------------------------------------------------------------

-- Counts of records by account, model, size, quality, reason and hour, with durations and kinds of tokens. They are made
-- after a record is closed, by a task and not by a trigger, so that no request waits for them.

-- Each combination of group, user and key that has records. Three empty texts stand for all of them together, so that
-- the counts of everybody are read from few rows.
CREATE TABLE usage_scopes (
    id         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    group_name TEXT COLLATE "C" NOT NULL,
    user_id    TEXT COLLATE "C" NOT NULL,
    key_id     TEXT COLLATE "C" NOT NULL,
    UNIQUE (group_name, user_id, key_id)
);

CREATE INDEX usage_scopes_by_user ON usage_scopes (user_id);
CREATE INDEX usage_scopes_by_key ON usage_scopes (key_id);

INSERT INTO usage_scopes (group_name, user_id, key_id) VALUES ('', '', '');

-- For each scope and day: the counts of each value of each dimension, and with the dimension `all`, of all records. The
-- replays are counted on their own day, everything else on the day on which the job began. The columns d00 to d35 count
-- the successful requests by duration; most of them are 0, and such a count is NULL, which needs no space.
--
-- One table for each dimension: a read of a long period reads all rows of its dimension, because the rows of a key are
-- spread over the days on which they were written, and with one table it would read those of all dimensions.
CREATE TABLE usage_details (
    scope                BIGINT NOT NULL,
    dimension            TEXT COLLATE "C" NOT NULL,
    day                  TEXT COLLATE "C" NOT NULL,
    value                TEXT COLLATE "C" NOT NULL,
    requests             BIGINT NOT NULL,
    succeeded            BIGINT NOT NULL,
    images               BIGINT NOT NULL,
    input_tokens         BIGINT NOT NULL,
    output_tokens        BIGINT NOT NULL,
    total_tokens         BIGINT NOT NULL,
    input_text_tokens    BIGINT NOT NULL,
    input_image_tokens   BIGINT NOT NULL,
    input_cached_tokens  BIGINT NOT NULL,
    output_text_tokens   BIGINT NOT NULL,
    output_image_tokens  BIGINT NOT NULL,
    host_input_tokens    BIGINT NOT NULL,
    host_output_tokens   BIGINT NOT NULL,
    cost_nano_usd        BIGINT NOT NULL,
    cost_unknown         BIGINT NOT NULL,
    replays              BIGINT NOT NULL,
    replayed_images      BIGINT NOT NULL,
    saved_nano_usd       BIGINT NOT NULL,
    saved_unknown        BIGINT NOT NULL,
    d00 BIGINT, d01 BIGINT, d02 BIGINT, d03 BIGINT, d04 BIGINT, d05 BIGINT,
    d06 BIGINT, d07 BIGINT, d08 BIGINT, d09 BIGINT, d10 BIGINT, d11 BIGINT,
    d12 BIGINT, d13 BIGINT, d14 BIGINT, d15 BIGINT, d16 BIGINT, d17 BIGINT,
    d18 BIGINT, d19 BIGINT, d20 BIGINT, d21 BIGINT, d22 BIGINT, d23 BIGINT,
    d24 BIGINT, d25 BIGINT, d26 BIGINT, d27 BIGINT, d28 BIGINT, d29 BIGINT,
    d30 BIGINT, d31 BIGINT, d32 BIGINT, d33 BIGINT, d34 BIGINT, d35 BIGINT,
    PRIMARY KEY (scope, dimension, day, value)
) PARTITION BY LIST (dimension);

CREATE TABLE usage_details_all PARTITION OF usage_details FOR VALUES IN ('all');
CREATE TABLE usage_details_hour PARTITION OF usage_details FOR VALUES IN ('hour');
CREATE TABLE usage_details_account PARTITION OF usage_details FOR VALUES IN ('account');
CREATE TABLE usage_details_model PARTITION OF usage_details FOR VALUES IN ('model');
CREATE TABLE usage_details_size PARTITION OF usage_details FOR VALUES IN ('size');
CREATE TABLE usage_details_quality PARTITION OF usage_details FOR VALUES IN ('quality');
CREATE TABLE usage_details_reason PARTITION OF usage_details FOR VALUES IN ('reason');

CREATE INDEX usage_details_by_day ON usage_details (day);

-- All records up to the sequence number `folded_seq` are counted in `usage_details`, each of them once. The other columns
-- are those of SQLite, for a step that an import has found.
CREATE TABLE usage_fold (
    "only"     BIGINT PRIMARY KEY CHECK ("only" = 1),
    folded_seq BIGINT NOT NULL,
    step_end   BIGINT NOT NULL DEFAULT 0,
    last_row   TEXT NOT NULL DEFAULT '["","","","","",""]'
);

INSERT INTO usage_fold ("only", folded_seq) VALUES (1, 0);

-- ---------------------------------------------------------------------------------------------------------------------
-- Alerts
-- ---------------------------------------------------------------------------------------------------------------------

-- Events that operators want to hear of, such as a budget that is spent. The same event is raised once, by whichever node
-- sees it first.
CREATE TABLE alerts (
    id         TEXT COLLATE "C" PRIMARY KEY NOT NULL,
    identity   TEXT COLLATE "C" NOT NULL UNIQUE,
    event      TEXT NOT NULL,
    details    TEXT NOT NULL,
    created_at TEXT COLLATE "C" NOT NULL
);

CREATE INDEX alerts_by_time ON alerts (created_at);

-- The delivery of an alert by a channel: pending until it was delivered or has failed too often.
CREATE TABLE alert_deliveries (
    alert_id   TEXT COLLATE "C" NOT NULL REFERENCES alerts (id) ON DELETE CASCADE,
    channel    TEXT COLLATE "C" NOT NULL,
    state      TEXT NOT NULL,
    attempts   BIGINT NOT NULL,
    due_at     TEXT COLLATE "C" NOT NULL,
    last_error TEXT,
    PRIMARY KEY (alert_id, channel)
);

CREATE INDEX alert_deliveries_due ON alert_deliveries (due_at) WHERE state = 'pending';

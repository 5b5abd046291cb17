-- Everything that the SQLite schema has after its migration 18, in the same tables and columns, so that the same
-- statements run on both. Times are RFC 3339 texts in UTC with milliseconds; every text is compared byte by byte, so that
-- the order of times and names does not depend on the locale of the database. `rowid` is the order of insertion.

CREATE TABLE users (
    id               TEXT COLLATE "C" PRIMARY KEY,
    rowid            BIGINT GENERATED ALWAYS AS IDENTITY UNIQUE,
    name             TEXT COLLATE "C" NOT NULL UNIQUE,
    role             TEXT NOT NULL CHECK (role IN ('admin', 'member')),
    created_at       TEXT COLLATE "C" NOT NULL,
    password         TEXT,
    disabled_at      TEXT COLLATE "C",
    last_sign_in_at  TEXT COLLATE "C",
    limits           TEXT
);

-- The owner of keys that belong to no person yet.
INSERT INTO users (id, name, role, created_at)
    VALUES ('usr_nobody', '', 'member', to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'));

-- Groups are never removed, because keys and records name them.
CREATE TABLE groups (
    id         TEXT COLLATE "C" PRIMARY KEY,
    name       TEXT COLLATE "C" NOT NULL UNIQUE,
    created_at TEXT COLLATE "C" NOT NULL,
    deleted_at TEXT COLLATE "C",
    policy     TEXT
);

INSERT INTO groups (id, name, created_at)
    VALUES ('grp_default', 'default', to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'));

CREATE TABLE user_groups (
    user_id  TEXT COLLATE "C" NOT NULL REFERENCES users (id),
    group_id TEXT COLLATE "C" NOT NULL REFERENCES groups (id),
    PRIMARY KEY (user_id, group_id)
);

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
    revision       BIGINT NOT NULL DEFAULT 1,
    locked         TEXT CHECK (locked IN ('admin', 'left_group')),
    latest_end     TEXT COLLATE "C",
    limits         TEXT
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
    BEFORE UPDATE OF user_id, group_id, hash, previous_hash, previous_until, expires_at, disabled_at, deleted_at, limits
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
    settings        TEXT,
    sealed          BYTEA,
    cooling_until   TEXT COLLATE "C",
    cooling_cause   TEXT,
    absent_since    TEXT COLLATE "C",
    failing_until   TEXT COLLATE "C",
    failing_since   TEXT COLLATE "C",
    failing_reason  TEXT
);

-- The server does not take a cast to JSON for immutable, as a generated column must be.
CREATE FUNCTION count_images(delivered TEXT) RETURNS BIGINT LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN json_array_length(delivered::JSON);
END $$;

-- No foreign keys: a record outlives whatever it names, and must never be refused for its sake.
CREATE TABLE records (
    seq                       BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    request_id                TEXT COLLATE "C" NOT NULL UNIQUE,
    node                      TEXT COLLATE "C" NOT NULL,
    created_at                TEXT COLLATE "C" NOT NULL,
    operation                 TEXT NOT NULL,
    model                     TEXT,
    stream                    BOOLEAN NOT NULL,
    state                     TEXT COLLATE "C" NOT NULL
        CHECK (state IN ('running', 'succeeded', 'failed', 'refused', 'cancelled', 'interrupted')),
    error_code                TEXT,
    size                      TEXT,
    quality                   TEXT,
    output_format             TEXT,
    n                         BIGINT,
    delivered                 TEXT NOT NULL DEFAULT '[]',
    input_tokens              BIGINT,
    input_image_tokens        BIGINT,
    input_text_tokens         BIGINT,
    output_tokens             BIGINT,
    output_image_tokens       BIGINT,
    output_text_tokens        BIGINT,
    total_tokens              BIGINT,
    latency_ms                BIGINT,
    first_byte_ms             BIGINT,
    attempts                  TEXT NOT NULL DEFAULT '[]',
    account                   TEXT COLLATE "C",
    group_name                TEXT COLLATE "C" NOT NULL,
    user_id                   TEXT COLLATE "C" NOT NULL,
    key_id                    TEXT COLLATE "C" NOT NULL,
    end_user                  TEXT COLLATE "C",
    fallback                  TEXT,
    injected_tool             BOOLEAN NOT NULL DEFAULT FALSE,
    error_reason              TEXT,
    error_detail              TEXT,
    response_id               TEXT COLLATE "C",
    fingerprint               BYTEA CHECK (length(fingerprint) = 32),
    image_model               TEXT,
    host_model                TEXT,
    host_input_tokens         BIGINT,
    host_output_tokens        BIGINT,
    host_total_tokens         BIGINT,
    maybe_paid_twice          BOOLEAN NOT NULL DEFAULT FALSE,
    cost_nano_usd             BIGINT,
    cost_basis                TEXT,
    cost_reason               TEXT,
    price_version             TEXT,
    max_cost_nano_usd         BIGINT,
    input_cached_image_tokens BIGINT,
    input_cached_text_tokens  BIGINT,
    host_input_cached_tokens  BIGINT,
    image_count               BIGINT GENERATED ALWAYS AS (count_images(delivered)) STORED
);

-- The sequence number is part of each index, because pages are ordered by time and number. The columns after it are other
-- columns that a filter can name and that never change, so that records that do not pass are skipped without being read.
CREATE INDEX records_by_time ON records (created_at, seq);
CREATE INDEX records_by_key ON records (key_id, created_at, seq, user_id, group_name);
CREATE INDEX records_by_user ON records (user_id, created_at, seq, group_name);
CREATE INDEX records_by_group ON records (group_name, created_at, seq);
CREATE INDEX records_running ON records (node) WHERE state = 'running';
CREATE INDEX records_unsuccessful ON records (state, created_at, seq, key_id, user_id, group_name, end_user)
    WHERE state <> 'running' AND state <> 'succeeded';
CREATE INDEX records_by_response ON records (response_id) WHERE response_id IS NOT NULL;
-- One end user can have a large share of all records, if a program names itself in each request. This index also has all
-- that is counted, so that the counts of an end user are made without reading the records.
CREATE INDEX records_by_end_user ON records (end_user, created_at, seq, key_id, user_id, group_name)
    INCLUDE (state, image_count, input_tokens, output_tokens, total_tokens, host_input_tokens, host_output_tokens,
        host_total_tokens, cost_nano_usd)
    WHERE end_user IS NOT NULL;
CREATE INDEX records_by_fingerprint ON records (fingerprint, created_at)
    WHERE fingerprint IS NOT NULL AND state <> 'succeeded';

-- The day is the one on which a job began, in UTC.
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
    refused       BIGINT NOT NULL DEFAULT 0,
    cost_nano_usd BIGINT NOT NULL DEFAULT 0,
    cost_unknown  BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (key_id, day, user_id, group_name)
);

CREATE INDEX usage_days_by_day ON usage_days (day);
CREATE INDEX usage_days_by_user ON usage_days (user_id, day);
CREATE INDEX usage_days_by_group ON usage_days (group_name, day);

-- The parts of running jobs in limits, and those of the last minutes. A part ends in the transaction that closes the
-- record of its request, which also counts the cost: so money is always either reserved or counted.
CREATE TABLE limit_reservations (
    request_id TEXT COLLATE "C" NOT NULL,
    subject    TEXT COLLATE "C" NOT NULL,
    node       TEXT COLLATE "C" NOT NULL,
    day        TEXT COLLATE "C" NOT NULL,
    images     BIGINT NOT NULL,
    nano_usd   BIGINT NOT NULL,
    begun_at   TIMESTAMPTZ NOT NULL,
    is_open    BOOLEAN NOT NULL,
    PRIMARY KEY (request_id, subject)
);

CREATE INDEX limit_reservations_by_subject ON limit_reservations (subject, begun_at);
CREATE INDEX limit_reservations_open ON limit_reservations (subject) WHERE is_open;

-- Limits a sum to the largest integer. An error instead would refuse the outcome with it.
CREATE FUNCTION capped(total NUMERIC) RETURNS BIGINT LANGUAGE sql IMMUTABLE AS
    $$ SELECT least(total, 9223372036854775807)::BIGINT $$;

-- Exactly once for each record, whoever closes it: in the statement that does, so one cannot happen without the other.
-- The rows of all nodes are locked in the same order, so two batches cannot wait for each other.
CREATE FUNCTION count_records() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO usage_days AS days (key_id, day, user_id, group_name, requests, succeeded, failed, images,
        input_tokens, output_tokens, total_tokens, cost_nano_usd, cost_unknown)
    SELECT closed.key_id, substr(closed.created_at, 1, 10), closed.user_id, closed.group_name, count(*),
        count(*) FILTER (WHERE closed.state = 'succeeded'), count(*) FILTER (WHERE closed.state <> 'succeeded'),
        sum(json_array_length(closed.delivered::JSON)),
        capped(sum(coalesce(closed.input_tokens, 0)::NUMERIC + coalesce(closed.host_input_tokens, 0))),
        capped(sum(coalesce(closed.output_tokens, 0)::NUMERIC + coalesce(closed.host_output_tokens, 0))),
        capped(sum(coalesce(closed.total_tokens, 0)::NUMERIC + coalesce(closed.host_total_tokens, 0))),
        capped(sum(coalesce(closed.cost_nano_usd, 0))), count(*) FILTER (WHERE closed.cost_nano_usd IS NULL)
    FROM closed JOIN running ON running.seq = closed.seq
    WHERE running.state = 'running' AND closed.state <> 'running'
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
        cost_unknown = days.cost_unknown + excluded.cost_unknown;
    UPDATE limit_reservations SET is_open = FALSE FROM closed JOIN running ON running.seq = closed.seq
    WHERE running.state = 'running' AND closed.state <> 'running'
        AND limit_reservations.request_id = closed.request_id;
    RETURN NULL;
END $$;
CREATE TRIGGER records_are_counted AFTER UPDATE ON records REFERENCING OLD TABLE AS running NEW TABLE AS closed
    FOR EACH STATEMENT EXECUTE FUNCTION count_records();

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

-- One row for each answer that may be repeated. Without a status it is still running.
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
    CHECK ((status IS NULL) = (content_type IS NULL)),
    CHECK ((status IS NULL) = (headers IS NULL)),
    CHECK ((status IS NULL) = (file IS NULL)),
    CHECK ((status IS NULL) = (size IS NULL)),
    CHECK ((status IS NULL) = (sealed_key IS NULL))
);

CREATE INDEX replays_by_end ON replays (expires_at);

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
    agent        TEXT NOT NULL
);

CREATE INDEX sessions_of_user ON sessions (user_id);

-- The addresses from which a user has signed in before.
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

CREATE TABLE admin_tokens (
    id           TEXT COLLATE "C" PRIMARY KEY,
    rowid        BIGINT GENERATED ALWAYS AS IDENTITY UNIQUE,
    public_id    TEXT COLLATE "C" NOT NULL UNIQUE,
    name         TEXT NOT NULL,
    user_id      TEXT COLLATE "C" NOT NULL REFERENCES users (id),
    hash         BYTEA NOT NULL CHECK (length(hash) = 32),
    created_at   TEXT COLLATE "C" NOT NULL,
    expires_at   TEXT COLLATE "C",
    last_used_at TEXT COLLATE "C"
);

CREATE INDEX admin_tokens_of_user ON admin_tokens (user_id);

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

-- A row that is written to find out whether the database accepts writes.
CREATE TABLE write_check (
    "only" BIGINT PRIMARY KEY CHECK ("only" = 1),
    times  BIGINT NOT NULL
);
INSERT INTO write_check ("only", times) VALUES (1, 0);

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
    PRIMARY KEY (model, valid_from)
);

-- The nodes that share this database, and the time of their last heartbeat.
CREATE TABLE nodes (
    id         TEXT COLLATE "C" PRIMARY KEY,
    version    TEXT NOT NULL,
    started_at TIMESTAMPTZ NOT NULL,
    seen_at    TIMESTAMPTZ NOT NULL
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

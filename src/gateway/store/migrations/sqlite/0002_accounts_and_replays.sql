-- What accounts have learnt, tokens, answers that may be repeated, and the keys that seal all of them.

ALTER TABLE records ADD COLUMN fallback TEXT;

-- `settings` and `sealed` belong to accounts of the store: the file keeps its own.
ALTER TABLE accounts ADD COLUMN settings TEXT;
ALTER TABLE accounts ADD COLUMN sealed BLOB;
ALTER TABLE accounts ADD COLUMN cooling_until TEXT;
ALTER TABLE accounts ADD COLUMN cooling_cause TEXT;
-- Since when the file no longer has an account whose source it was.
ALTER TABLE accounts ADD COLUMN absent_since TEXT;

-- Random keys, each wrapped by the master key, which is not in this database.
CREATE TABLE data_keys (
    purpose    TEXT PRIMARY KEY NOT NULL,
    wrapped    BLOB NOT NULL,
    created_at TEXT NOT NULL
) STRICT;

-- One row for each account that has a token or somebody who fetches one.
CREATE TABLE tokens (
    account    TEXT PRIMARY KEY NOT NULL,
    sealed     BLOB,
    updated_at TEXT,
    holder     TEXT,
    held_until TEXT,
    CHECK ((sealed IS NULL) = (updated_at IS NULL)),
    CHECK ((holder IS NULL) = (held_until IS NULL))
) STRICT;

-- One row for each answer that may be repeated. Without a status it is still running.
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
    CHECK ((status IS NULL) = (content_type IS NULL)),
    CHECK ((status IS NULL) = (headers IS NULL)),
    CHECK ((status IS NULL) = (file IS NULL)),
    CHECK ((status IS NULL) = (size IS NULL)),
    CHECK ((status IS NULL) = (sealed_key IS NULL))
) STRICT;

CREATE INDEX replays_by_end ON replays (expires_at);

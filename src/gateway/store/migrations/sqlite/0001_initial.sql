-- Users, groups, keys, accounts and records.
-- Moments are RFC 3339 in UTC with milliseconds, so that text order is time order.
-- This file is history: once released it is never edited, the next change is the next file.

-- "imgt": tells our file from another program's before anything in it is touched.
PRAGMA application_id = 1768777588;

CREATE TABLE users (
    id          TEXT PRIMARY KEY NOT NULL,
    name        TEXT NOT NULL UNIQUE,
    role        TEXT NOT NULL CHECK (role IN ('admin', 'member')),
    created_at  TEXT NOT NULL
) STRICT;

CREATE TABLE groups (
    id          TEXT PRIMARY KEY NOT NULL,
    name        TEXT NOT NULL UNIQUE,
    delivery    TEXT,
    created_at  TEXT NOT NULL
) STRICT;

CREATE TABLE keys (
    id           TEXT PRIMARY KEY NOT NULL,
    public_id    TEXT NOT NULL UNIQUE,
    name         TEXT NOT NULL,
    user_id      TEXT NOT NULL REFERENCES users (id),
    group_id     TEXT NOT NULL REFERENCES groups (id),
    hash         BLOB NOT NULL CHECK (length(hash) = 32),
    created_at   TEXT NOT NULL,
    expires_at   TEXT,
    last_used_at TEXT,
    disabled_at  TEXT,
    deleted_at   TEXT
) STRICT;

CREATE TABLE accounts (
    id              TEXT PRIMARY KEY NOT NULL,
    name            TEXT NOT NULL UNIQUE,
    kind            TEXT NOT NULL,
    protocol        TEXT NOT NULL,
    tier            TEXT NOT NULL CHECK (tier IN ('paid', 'free')),
    source          TEXT NOT NULL CHECK (source IN ('file', 'store')),
    disabled_at     TEXT,
    disabled_reason TEXT,
    created_at      TEXT NOT NULL
) STRICT;

-- No foreign keys here: a record outlives whatever it names, and must never be refused for its sake.
CREATE TABLE records (
    seq                 INTEGER PRIMARY KEY NOT NULL,
    request_id          TEXT NOT NULL UNIQUE,
    node                TEXT NOT NULL,
    created_at          TEXT NOT NULL,
    operation           TEXT NOT NULL,
    model               TEXT,
    stream              INTEGER NOT NULL CHECK (stream IN (0, 1)),
    state               TEXT NOT NULL
        CHECK (state IN ('running', 'succeeded', 'failed', 'refused', 'cancelled', 'interrupted')),
    error_code          TEXT,
    size                TEXT,
    quality             TEXT,
    output_format       TEXT,
    n                   INTEGER,
    delivered           TEXT NOT NULL DEFAULT '[]',
    input_tokens        INTEGER,
    input_image_tokens  INTEGER,
    input_text_tokens   INTEGER,
    output_tokens       INTEGER,
    output_image_tokens INTEGER,
    output_text_tokens  INTEGER,
    total_tokens        INTEGER,
    cost_usd            REAL,
    latency_ms          INTEGER,
    first_byte_ms       INTEGER,
    attempts            TEXT NOT NULL DEFAULT '[]',
    account             TEXT,
    group_name          TEXT NOT NULL,
    user_id             TEXT NOT NULL,
    key_id              TEXT NOT NULL,
    end_user            TEXT
) STRICT;

CREATE INDEX records_by_time ON records (created_at);
CREATE INDEX records_by_key ON records (key_id, created_at);
-- Holds only what is in flight, so that a start after a kill reads a handful of rows however large the table is.
CREATE INDEX records_running ON records (node) WHERE state = 'running';

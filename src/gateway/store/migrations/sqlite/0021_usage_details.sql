-- Counts of records by account, model, size, quality, reason and hour, with durations and kinds of tokens. They are made
-- after a record is closed, by a task and not by a trigger, so that no request waits for them. This migration only makes
-- the tables: the task counts the records that exist already, too.

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

-- All records up to this sequence number are counted in `usage_details`, each of them once.
CREATE TABLE usage_fold (
    "only"     INTEGER PRIMARY KEY CHECK ("only" = 1),
    folded_seq INTEGER NOT NULL
) STRICT;

INSERT INTO usage_fold ("only", folded_seq) VALUES (1, 0);

-- SQLite gives the sequence numbers of removed records again, if they were the highest: those records are not counted yet.
CREATE TRIGGER removed_numbers_are_not_folded AFTER DELETE ON records
WHEN NOT EXISTS (SELECT 1 FROM records WHERE seq > OLD.seq)
BEGIN
    UPDATE usage_fold SET folded_seq = min(folded_seq, coalesce((SELECT max(seq) FROM records), 0));
END;

-- Counts of records by account, model, size, quality, reason and hour, with durations and kinds of tokens. They are made
-- after a record is closed, by a task and not by a trigger, so that no request waits for them. This migration only makes
-- the tables: the task counts the records that exist already, too.

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
);

CREATE INDEX usage_details_by_day ON usage_details (day);

-- All records up to this sequence number are counted in `usage_details`, each of them once.
CREATE TABLE usage_fold (
    "only"     BIGINT PRIMARY KEY CHECK ("only" = 1),
    folded_seq BIGINT NOT NULL
);

INSERT INTO usage_fold ("only", folded_seq) VALUES (1, 0);

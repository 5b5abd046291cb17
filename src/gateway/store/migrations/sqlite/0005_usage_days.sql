-- Counts by day and key, and what pages of records need to be found without looking at all of them.

-- The day is the one on which a job began, in UTC. What was counted stays also where records are removed some day.
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
    PRIMARY KEY (key_id, day, user_id, group_name)
) STRICT, WITHOUT ROWID;

CREATE INDEX usage_days_by_day ON usage_days (day);
CREATE INDEX usage_days_by_user ON usage_days (user_id, day);

-- Exactly once for each record, whoever closes it: in the very statement that does, so one cannot happen without the
-- other. A sum stops at the largest number: beyond it would be a real number, which this table refuses, and with it
-- the outcome.
CREATE TRIGGER records_are_counted AFTER UPDATE OF state ON records
WHEN OLD.state = 'running' AND NEW.state <> 'running'
BEGIN
    INSERT INTO usage_days (key_id, day, user_id, group_name, requests, succeeded, failed, images,
        input_tokens, output_tokens, total_tokens)
    VALUES (NEW.key_id, substr(NEW.created_at, 1, 10), NEW.user_id, NEW.group_name, 1,
        NEW.state = 'succeeded', NEW.state <> 'succeeded', json_array_length(NEW.delivered),
        coalesce(NEW.input_tokens, 0), coalesce(NEW.output_tokens, 0), coalesce(NEW.total_tokens, 0))
    ON CONFLICT (key_id, day, user_id, group_name) DO UPDATE SET
        requests = requests + 1,
        succeeded = succeeded + excluded.succeeded,
        failed = failed + excluded.failed,
        images = images + excluded.images,
        input_tokens = min(input_tokens + excluded.input_tokens, 9223372036854775807),
        output_tokens = min(output_tokens + excluded.output_tokens, 9223372036854775807),
        total_tokens = min(total_tokens + excluded.total_tokens, 9223372036854775807);
END;

INSERT INTO usage_days (key_id, day, user_id, group_name, requests, succeeded, failed, images,
    input_tokens, output_tokens, total_tokens)
SELECT key_id, substr(created_at, 1, 10), user_id, group_name, count(*),
    sum(state = 'succeeded'), sum(state <> 'succeeded'), sum(json_array_length(delivered)),
    -- Unlike a sum of integers this ends at the largest number too.
    CAST(total(input_tokens) AS INTEGER), CAST(total(output_tokens) AS INTEGER), CAST(total(total_tokens) AS INTEGER)
FROM records WHERE state <> 'running'
GROUP BY key_id, substr(created_at, 1, 10), user_id, group_name;

CREATE INDEX records_by_user ON records (user_id, created_at);
CREATE INDEX records_by_group ON records (group_name, created_at);
-- Nearly every record succeeds: whoever looks for the others must not read those.
CREATE INDEX records_unsuccessful ON records (state, created_at) WHERE state <> 'running' AND state <> 'succeeded';

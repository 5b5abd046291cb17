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

-- In the statement that closes a record, like the trigger `records_are_counted`.
CREATE TRIGGER end_users_are_counted AFTER UPDATE OF state ON records
WHEN OLD.state = 'running' AND NEW.state <> 'running' AND NEW.end_user IS NOT NULL
BEGIN
    INSERT INTO end_user_days (end_user, day, key_id, user_id, group_name, requests, succeeded, failed, images,
        input_tokens, output_tokens, total_tokens, cost_nano_usd, cost_unknown)
    VALUES (NEW.end_user, substr(NEW.created_at, 1, 10), NEW.key_id, NEW.user_id, NEW.group_name, 1,
        NEW.state = 'succeeded', NEW.state <> 'succeeded', json_array_length(NEW.delivered),
        min(coalesce(NEW.input_tokens, 0) + coalesce(NEW.host_input_tokens, 0), 9223372036854775807),
        min(coalesce(NEW.output_tokens, 0) + coalesce(NEW.host_output_tokens, 0), 9223372036854775807),
        min(coalesce(NEW.total_tokens, 0) + coalesce(NEW.host_total_tokens, 0), 9223372036854775807),
        coalesce(NEW.cost_nano_usd, 0), NEW.cost_nano_usd IS NULL)
    ON CONFLICT (end_user, day, key_id, user_id, group_name) DO UPDATE SET
        requests = requests + 1,
        succeeded = succeeded + excluded.succeeded,
        failed = failed + excluded.failed,
        images = images + excluded.images,
        input_tokens = min(input_tokens + excluded.input_tokens, 9223372036854775807),
        output_tokens = min(output_tokens + excluded.output_tokens, 9223372036854775807),
        total_tokens = min(total_tokens + excluded.total_tokens, 9223372036854775807),
        cost_nano_usd = min(cost_nano_usd + excluded.cost_nano_usd, 9223372036854775807),
        cost_unknown = cost_unknown + excluded.cost_unknown;
END;

INSERT INTO end_user_days (end_user, day, key_id, user_id, group_name, requests, succeeded, failed, images,
    input_tokens, output_tokens, total_tokens, cost_nano_usd, cost_unknown)
SELECT end_user, substr(created_at, 1, 10), key_id, user_id, group_name, count(*), sum(state = 'succeeded'),
    sum(state <> 'succeeded'), sum(json_array_length(delivered)),
    -- Unlike a sum of integers, this ends at the largest number.
    CAST(total(coalesce(input_tokens, 0) + coalesce(host_input_tokens, 0)) AS INTEGER),
    CAST(total(coalesce(output_tokens, 0) + coalesce(host_output_tokens, 0)) AS INTEGER),
    CAST(total(coalesce(total_tokens, 0) + coalesce(host_total_tokens, 0)) AS INTEGER),
    CAST(total(cost_nano_usd) AS INTEGER), sum(cost_nano_usd IS NULL)
FROM records WHERE state <> 'running' AND end_user IS NOT NULL
GROUP BY 1, 2, 3, 4, 5;

-- Without the columns that were counted: an index entry now stays as it is when a record is closed.
DROP INDEX records_by_end_user;
CREATE INDEX records_by_end_user ON records (end_user, created_at, seq, key_id, user_id, group_name)
    WHERE end_user IS NOT NULL;

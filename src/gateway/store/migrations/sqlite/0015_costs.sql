-- The cost of each record in billionths of a dollar, how sure it is, and the prices of models that admins set. The older
-- column `cost_usd` was never filled and is no longer read.

ALTER TABLE records ADD COLUMN cost_nano_usd INTEGER;
ALTER TABLE records ADD COLUMN cost_basis TEXT;
ALTER TABLE records ADD COLUMN cost_reason TEXT;
ALTER TABLE records ADD COLUMN price_version TEXT;
-- The most that one call of a job can cost: known with the intent, and the cost of a job whose process was killed.
ALTER TABLE records ADD COLUMN max_cost_nano_usd INTEGER;
-- The part of the input tokens that the upstream had in its cache: those have prices of their own.
ALTER TABLE records ADD COLUMN input_cached_image_tokens INTEGER;
ALTER TABLE records ADD COLUMN input_cached_text_tokens INTEGER;
ALTER TABLE records ADD COLUMN host_input_cached_tokens INTEGER;

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
    PRIMARY KEY (model, valid_from)
) STRICT, WITHOUT ROWID;

-- The sum of the known costs, and the number of jobs whose cost is unknown: without it, a sum would read as complete. All
-- jobs before this have no known cost.
ALTER TABLE usage_days ADD COLUMN cost_nano_usd INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage_days ADD COLUMN cost_unknown INTEGER NOT NULL DEFAULT 0;
UPDATE usage_days SET cost_unknown = requests;

-- As before, and the cost.
DROP TRIGGER records_are_counted;
CREATE TRIGGER records_are_counted AFTER UPDATE OF state ON records
WHEN OLD.state = 'running' AND NEW.state <> 'running'
BEGIN
    INSERT INTO usage_days (key_id, day, user_id, group_name, requests, succeeded, failed, images,
        input_tokens, output_tokens, total_tokens, cost_nano_usd, cost_unknown)
    VALUES (NEW.key_id, substr(NEW.created_at, 1, 10), NEW.user_id, NEW.group_name, 1,
        NEW.state = 'succeeded', NEW.state <> 'succeeded', json_array_length(NEW.delivered),
        min(coalesce(NEW.input_tokens, 0) + coalesce(NEW.host_input_tokens, 0), 9223372036854775807),
        min(coalesce(NEW.output_tokens, 0) + coalesce(NEW.host_output_tokens, 0), 9223372036854775807),
        min(coalesce(NEW.total_tokens, 0) + coalesce(NEW.host_total_tokens, 0), 9223372036854775807),
        coalesce(NEW.cost_nano_usd, 0), NEW.cost_nano_usd IS NULL)
    ON CONFLICT (key_id, day, user_id, group_name) DO UPDATE SET
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

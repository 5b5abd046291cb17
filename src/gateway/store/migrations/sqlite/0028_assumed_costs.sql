-- The most that a job can cost, with the smaller images that a fallback may pay for in addition: what a budget reserves.
ALTER TABLE records ADD COLUMN max_job_cost_nano_usd INTEGER;
-- The most that jobs can have cost whose cost is unknown: it counts against budgets, in addition to the known costs. Jobs
-- that ended before this do not count.
ALTER TABLE usage_days ADD COLUMN assumed_nano_usd INTEGER NOT NULL DEFAULT 0;

-- As before, and the assumed costs.
DROP TRIGGER records_are_counted;
CREATE TRIGGER records_are_counted AFTER UPDATE OF state ON records
WHEN OLD.state = 'running' AND NEW.state <> 'running'
BEGIN
    INSERT INTO usage_days (key_id, day, user_id, group_name, requests, succeeded, failed, images,
        input_tokens, output_tokens, total_tokens, cost_nano_usd, cost_unknown, assumed_nano_usd)
    VALUES (NEW.key_id, substr(NEW.created_at, 1, 10), NEW.user_id, NEW.group_name, 1,
        NEW.state = 'succeeded', NEW.state <> 'succeeded', json_array_length(NEW.delivered),
        min(coalesce(NEW.input_tokens, 0) + coalesce(NEW.host_input_tokens, 0), 9223372036854775807),
        min(coalesce(NEW.output_tokens, 0) + coalesce(NEW.host_output_tokens, 0), 9223372036854775807),
        min(coalesce(NEW.total_tokens, 0) + coalesce(NEW.host_total_tokens, 0), 9223372036854775807),
        coalesce(NEW.cost_nano_usd, 0), NEW.cost_nano_usd IS NULL,
        CASE WHEN NEW.cost_nano_usd IS NULL THEN coalesce(NEW.max_job_cost_nano_usd, NEW.max_cost_nano_usd, 0) ELSE 0 END)
    ON CONFLICT (key_id, day, user_id, group_name) DO UPDATE SET
        requests = requests + 1,
        succeeded = succeeded + excluded.succeeded,
        failed = failed + excluded.failed,
        images = images + excluded.images,
        input_tokens = min(input_tokens + excluded.input_tokens, 9223372036854775807),
        output_tokens = min(output_tokens + excluded.output_tokens, 9223372036854775807),
        total_tokens = min(total_tokens + excluded.total_tokens, 9223372036854775807),
        cost_nano_usd = min(cost_nano_usd + excluded.cost_nano_usd, 9223372036854775807),
        cost_unknown = cost_unknown + excluded.cost_unknown,
        assumed_nano_usd = min(assumed_nano_usd + excluded.assumed_nano_usd, 9223372036854775807);
END;

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

-- As before, and an outcome that replaces a provisional one counts as the difference between both.
CREATE OR REPLACE FUNCTION count_records() RETURNS TRIGGER LANGUAGE plpgsql AS $$
DECLARE
    counted BIGINT;
BEGIN
    INSERT INTO usage_days AS days (key_id, day, user_id, group_name, requests, succeeded, failed, images,
        input_tokens, output_tokens, total_tokens, cost_nano_usd, cost_unknown, assumed_nano_usd)
    SELECT closed.key_id, substr(closed.created_at, 1, 10), closed.user_id, closed.group_name,
        count(*) FILTER (WHERE running.state = 'running'), count(*) FILTER (WHERE closed.state = 'succeeded'),
        count(*) FILTER (WHERE closed.state <> 'succeeded') - count(*) FILTER (WHERE running.state = 'interrupted'),
        sum(json_array_length(closed.delivered::JSON)),
        capped(sum(coalesce(closed.input_tokens, 0)::NUMERIC + coalesce(closed.host_input_tokens, 0))),
        capped(sum(coalesce(closed.output_tokens, 0)::NUMERIC + coalesce(closed.host_output_tokens, 0))),
        capped(sum(coalesce(closed.total_tokens, 0)::NUMERIC + coalesce(closed.host_total_tokens, 0))),
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
        sum(json_array_length(closed.delivered::JSON)),
        capped(sum(coalesce(closed.input_tokens, 0)::NUMERIC + coalesce(closed.host_input_tokens, 0))),
        capped(sum(coalesce(closed.output_tokens, 0)::NUMERIC + coalesce(closed.host_output_tokens, 0))),
        capped(sum(coalesce(closed.total_tokens, 0)::NUMERIC + coalesce(closed.host_total_tokens, 0))),
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

-- The most that a job can cost, with the smaller images that a fallback may pay for in addition: what a budget reserves.
-- No record is closed from here on until this migration ends.
ALTER TABLE records ADD COLUMN max_job_cost_nano_usd BIGINT;
-- The most that jobs can have cost whose cost is unknown: it counts against budgets, in addition to the known costs. Jobs
-- that ended before this do not count.
ALTER TABLE usage_days ADD COLUMN assumed_nano_usd BIGINT NOT NULL DEFAULT 0;

-- As before, and the assumed costs. The nodes of the version before close records with it, too.
CREATE OR REPLACE FUNCTION count_records() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO usage_days AS days (key_id, day, user_id, group_name, requests, succeeded, failed, images,
        input_tokens, output_tokens, total_tokens, cost_nano_usd, cost_unknown, assumed_nano_usd)
    SELECT closed.key_id, substr(closed.created_at, 1, 10), closed.user_id, closed.group_name, count(*),
        count(*) FILTER (WHERE closed.state = 'succeeded'), count(*) FILTER (WHERE closed.state <> 'succeeded'),
        sum(json_array_length(closed.delivered::JSON)),
        capped(sum(coalesce(closed.input_tokens, 0)::NUMERIC + coalesce(closed.host_input_tokens, 0))),
        capped(sum(coalesce(closed.output_tokens, 0)::NUMERIC + coalesce(closed.host_output_tokens, 0))),
        capped(sum(coalesce(closed.total_tokens, 0)::NUMERIC + coalesce(closed.host_total_tokens, 0))),
        capped(sum(coalesce(closed.cost_nano_usd, 0))), count(*) FILTER (WHERE closed.cost_nano_usd IS NULL),
        capped(coalesce(sum(coalesce(closed.max_job_cost_nano_usd, closed.max_cost_nano_usd))
            FILTER (WHERE closed.cost_nano_usd IS NULL), 0))
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
        cost_unknown = days.cost_unknown + excluded.cost_unknown,
        assumed_nano_usd = capped(days.assumed_nano_usd::NUMERIC + excluded.assumed_nano_usd);
    INSERT INTO end_user_days AS days (end_user, day, key_id, user_id, group_name, requests, succeeded, failed, images,
        input_tokens, output_tokens, total_tokens, cost_nano_usd, cost_unknown)
    SELECT closed.end_user, substr(closed.created_at, 1, 10), closed.key_id, closed.user_id, closed.group_name, count(*),
        count(*) FILTER (WHERE closed.state = 'succeeded'), count(*) FILTER (WHERE closed.state <> 'succeeded'),
        sum(json_array_length(closed.delivered::JSON)),
        capped(sum(coalesce(closed.input_tokens, 0)::NUMERIC + coalesce(closed.host_input_tokens, 0))),
        capped(sum(coalesce(closed.output_tokens, 0)::NUMERIC + coalesce(closed.host_output_tokens, 0))),
        capped(sum(coalesce(closed.total_tokens, 0)::NUMERIC + coalesce(closed.host_total_tokens, 0))),
        capped(sum(coalesce(closed.cost_nano_usd, 0))), count(*) FILTER (WHERE closed.cost_nano_usd IS NULL)
    FROM closed JOIN running ON running.seq = closed.seq
    WHERE running.state = 'running' AND closed.state <> 'running' AND closed.end_user IS NOT NULL
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
    RETURN NULL;
END $$;

-- What nodes have reserved that died before their jobs had a record: the row of such a node is removed after a week.
DELETE FROM limit_reservations AS reserved
WHERE is_open AND begun_at < clock_timestamp() - interval '1 day'
    AND NOT EXISTS (SELECT 1 FROM nodes WHERE nodes.id = reserved.node)
    AND NOT EXISTS (SELECT 1 FROM records WHERE records.request_id = reserved.request_id AND records.state = 'running');

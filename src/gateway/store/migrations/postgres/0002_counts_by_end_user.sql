-- Counts by day, key and end user, of the jobs whose requests name an end user: to read one row for each day and key takes
-- less time than to count the records of an end user, who can have a large share of all of them.
CREATE TABLE end_user_days (
    end_user      TEXT COLLATE "C" NOT NULL,
    day           TEXT COLLATE "C" NOT NULL,
    key_id        TEXT COLLATE "C" NOT NULL,
    user_id       TEXT COLLATE "C" NOT NULL,
    group_name    TEXT COLLATE "C" NOT NULL,
    requests      BIGINT NOT NULL,
    succeeded     BIGINT NOT NULL,
    failed        BIGINT NOT NULL,
    images        BIGINT NOT NULL,
    input_tokens  BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL,
    total_tokens  BIGINT NOT NULL,
    cost_nano_usd BIGINT NOT NULL,
    cost_unknown  BIGINT NOT NULL,
    PRIMARY KEY (end_user, day, key_id, user_id, group_name)
);

-- Nodes go on working while this counts the records, which takes minutes if there are many. So it counts the older ones
-- first, and then, under a lock, those that are younger or were still running when it counted the older ones.
CREATE TEMPORARY TABLE open_records (seq BIGINT PRIMARY KEY) ON COMMIT DROP;

-- One statement, so that both of its parts see the same records.
WITH running AS (INSERT INTO open_records SELECT seq FROM records WHERE state = 'running')
INSERT INTO end_user_days (end_user, day, key_id, user_id, group_name, requests, succeeded, failed, images,
    input_tokens, output_tokens, total_tokens, cost_nano_usd, cost_unknown)
SELECT end_user, substr(created_at, 1, 10), key_id, user_id, group_name, count(*),
    count(*) FILTER (WHERE state = 'succeeded'), count(*) FILTER (WHERE state <> 'succeeded'), sum(image_count),
    capped(sum(coalesce(input_tokens, 0)::NUMERIC + coalesce(host_input_tokens, 0))),
    capped(sum(coalesce(output_tokens, 0)::NUMERIC + coalesce(host_output_tokens, 0))),
    capped(sum(coalesce(total_tokens, 0)::NUMERIC + coalesce(host_total_tokens, 0))),
    capped(sum(coalesce(cost_nano_usd, 0))), count(*) FILTER (WHERE cost_nano_usd IS NULL)
FROM records
WHERE state <> 'running' AND end_user IS NOT NULL
    AND created_at < to_char((now() - interval '2 hours') AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
GROUP BY 1, 2, 3, 4, 5;

CREATE INDEX end_user_days_by_day ON end_user_days (day);

-- No record is closed from here on until this migration ends: it would be counted twice or not at all.
LOCK TABLE records IN SHARE ROW EXCLUSIVE MODE;

INSERT INTO open_records SELECT seq FROM records
WHERE created_at >= to_char((now() - interval '2 hours') AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
ON CONFLICT DO NOTHING;
ANALYZE open_records;

INSERT INTO end_user_days AS days (end_user, day, key_id, user_id, group_name, requests, succeeded, failed, images,
    input_tokens, output_tokens, total_tokens, cost_nano_usd, cost_unknown)
SELECT end_user, substr(created_at, 1, 10), key_id, user_id, group_name, count(*),
    count(*) FILTER (WHERE state = 'succeeded'), count(*) FILTER (WHERE state <> 'succeeded'), sum(image_count),
    capped(sum(coalesce(input_tokens, 0)::NUMERIC + coalesce(host_input_tokens, 0))),
    capped(sum(coalesce(output_tokens, 0)::NUMERIC + coalesce(host_output_tokens, 0))),
    capped(sum(coalesce(total_tokens, 0)::NUMERIC + coalesce(host_total_tokens, 0))),
    capped(sum(coalesce(cost_nano_usd, 0))), count(*) FILTER (WHERE cost_nano_usd IS NULL)
FROM records
WHERE state <> 'running' AND end_user IS NOT NULL AND seq IN (SELECT seq FROM open_records)
GROUP BY 1, 2, 3, 4, 5
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

-- As before, and the counts of end users. The nodes of the version before close records with it, too.
CREATE OR REPLACE FUNCTION count_records() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO usage_days AS days (key_id, day, user_id, group_name, requests, succeeded, failed, images,
        input_tokens, output_tokens, total_tokens, cost_nano_usd, cost_unknown)
    SELECT closed.key_id, substr(closed.created_at, 1, 10), closed.user_id, closed.group_name, count(*),
        count(*) FILTER (WHERE closed.state = 'succeeded'), count(*) FILTER (WHERE closed.state <> 'succeeded'),
        sum(json_array_length(closed.delivered::JSON)),
        capped(sum(coalesce(closed.input_tokens, 0)::NUMERIC + coalesce(closed.host_input_tokens, 0))),
        capped(sum(coalesce(closed.output_tokens, 0)::NUMERIC + coalesce(closed.host_output_tokens, 0))),
        capped(sum(coalesce(closed.total_tokens, 0)::NUMERIC + coalesce(closed.host_total_tokens, 0))),
        capped(sum(coalesce(closed.cost_nano_usd, 0))), count(*) FILTER (WHERE closed.cost_nano_usd IS NULL)
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
        cost_unknown = days.cost_unknown + excluded.cost_unknown;
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

-- The index `records_by_end_user` stays as it is: the nodes of the version before count with it.

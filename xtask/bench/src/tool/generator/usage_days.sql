-- Counts the records of a batch as the gateway counts each of them.
INSERT INTO usage_days (key_id, day, user_id, group_name, requests, succeeded, failed, images, input_tokens, output_tokens,
    total_tokens, cost_nano_usd, cost_unknown, assumed_nano_usd)
SELECT key_id, substr(created_at, 1, 10), user_id, group_name, {sums},
    sum(CASE WHEN cost_nano_usd IS NULL THEN coalesce(max_job_cost_nano_usd, max_cost_nano_usd, 0) ELSE 0 END)
FROM records
WHERE request_id >= 'req_000000000' || substr(CAST(100000000000 + {from} AS TEXT), 2)
    AND request_id < 'req_000000000' || substr(CAST(100000000000 + {to} AS TEXT), 2)
GROUP BY key_id, substr(created_at, 1, 10), user_id, group_name
ON CONFLICT (key_id, day, user_id, group_name) DO UPDATE SET requests = usage_days.requests + excluded.requests,
    succeeded = usage_days.succeeded + excluded.succeeded, failed = usage_days.failed + excluded.failed,
    images = usage_days.images + excluded.images, input_tokens = usage_days.input_tokens + excluded.input_tokens,
    output_tokens = usage_days.output_tokens + excluded.output_tokens,
    total_tokens = usage_days.total_tokens + excluded.total_tokens,
    cost_nano_usd = usage_days.cost_nano_usd + excluded.cost_nano_usd,
    cost_unknown = usage_days.cost_unknown + excluded.cost_unknown,
    assumed_nano_usd = usage_days.assumed_nano_usd + excluded.assumed_nano_usd

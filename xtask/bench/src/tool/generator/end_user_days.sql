-- Counts the records of a batch by end user, as the gateway counts each of them.
INSERT INTO end_user_days (end_user, day, key_id, user_id, group_name, requests, succeeded, failed, images, input_tokens,
    output_tokens, total_tokens, cost_nano_usd, cost_unknown)
SELECT end_user, substr(created_at, 1, 10), key_id, user_id, group_name, {sums}
FROM records
WHERE request_id >= 'req_000000000' || substr(CAST(100000000000 + {from} AS TEXT), 2)
    AND request_id < 'req_000000000' || substr(CAST(100000000000 + {to} AS TEXT), 2) AND end_user IS NOT NULL
GROUP BY end_user, substr(created_at, 1, 10), key_id, user_id, group_name
ON CONFLICT (end_user, day, key_id, user_id, group_name) DO UPDATE SET
    requests = end_user_days.requests + excluded.requests,
    succeeded = end_user_days.succeeded + excluded.succeeded, failed = end_user_days.failed + excluded.failed,
    images = end_user_days.images + excluded.images, input_tokens = end_user_days.input_tokens + excluded.input_tokens,
    output_tokens = end_user_days.output_tokens + excluded.output_tokens,
    total_tokens = end_user_days.total_tokens + excluded.total_tokens,
    cost_nano_usd = end_user_days.cost_nano_usd + excluded.cost_nano_usd,
    cost_unknown = end_user_days.cost_unknown + excluded.cost_unknown

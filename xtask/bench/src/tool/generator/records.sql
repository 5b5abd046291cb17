-- Without `MATERIALIZED`, an expression is computed again in each place that uses it.
-- The square of an even draw prefers small numbers: the busiest of 200 keys makes 7 % of the requests, the last 0.25 %.
INSERT INTO records (request_id, node, created_at, operation, model, stream, state, error_code, error_reason, size, quality,
    output_format, n, delivered, input_tokens, input_image_tokens, input_text_tokens, output_tokens, output_image_tokens,
    output_text_tokens, total_tokens, latency_ms, first_byte_ms, attempts, account, group_name, user_id, key_id, end_user,
    fingerprint, image_model, host_model, host_input_tokens, host_output_tokens, host_total_tokens,
    cost_nano_usd, cost_basis, cost_reason, price_version, max_cost_nano_usd)
WITH {numbers}, {draws},
choices AS MATERIALIZED (SELECT draws.*,
    (a % 10000) * (a % 10000) * {keys} / 100000000 AS key_number,
    CASE WHEN number * 1000 / {count} IN (137, 512, 733) AND b % 10 = 0 THEN 'interrupted'
        WHEN b % 1000 < 945 THEN 'succeeded' WHEN b % 1000 < 975 THEN 'failed' WHEN b % 1000 < 990 THEN 'refused'
        ELSE 'cancelled' END AS state,
    CASE WHEN c % 100 < 75 THEN 'create_image' WHEN c % 100 < 90 THEN 'edit_image' ELSE 'create_response' END AS operation,
    CASE WHEN c / 100 % 10 < 7 THEN 'gpt-image-2' WHEN c / 100 % 10 < 9 THEN 'gpt-image-1' ELSE 'unpriced-image' END
        AS image_model,
    CASE c / 1000 % 6 WHEN 0 THEN '1536x1024' WHEN 1 THEN '1024x1536' WHEN 2 THEN '2560x1440' ELSE '1024x1024' END AS size,
    CASE c / 10000 % 3 WHEN 0 THEN 'high' WHEN 1 THEN 'medium' ELSE 'low' END AS quality,
    CASE c / 100000 % 4 WHEN 0 THEN 'jpeg' WHEN 1 THEN 'webp' ELSE 'png' END AS output_format,
    CASE d / 100 % 10 WHEN 8 THEN 2 WHEN 9 THEN 4 ELSE 1 END AS n,
    CASE WHEN d % 100 < 60 THEN NULL WHEN d % 100 < 95 THEN 'person-' || (d / 100 % 20000) ELSE 'backend' END AS end_user,
    20 + e % 400 AS text_in, 3000 + f / 1000 % 60000 AS latency, f % {accounts} AS account_number
FROM draws),
facts AS MATERIALIZED (SELECT choices.*,
    CASE state WHEN 'succeeded' THEN n WHEN 'cancelled' THEN n ELSE 0 END AS made,
    CASE operation WHEN 'edit_image' THEN 1000 + e / 400 % 3000 ELSE 0 END AS image_in,
    n * CASE quality WHEN 'high' THEN 4160 WHEN 'medium' THEN 1056 ELSE 272 END AS image_out,
    '{"size":"' || size || '","output_format":"' || output_format || '","quality":"' || quality || '"}' AS image,
    CASE operation WHEN 'create_response' THEN 1 ELSE 0 END AS is_response
FROM choices)
SELECT 'req_000000000' || substr(CAST(100000000000 + number AS TEXT), 2), 'generated', {time}, operation,
    CASE is_response WHEN 1 THEN 'gpt-5.5' ELSE image_model END, c % 20 = 0, state,
    CASE state WHEN 'failed' THEN 'upstream_error' WHEN 'refused' THEN 'moderation_blocked' END,
    CASE state WHEN 'failed' THEN 'timeout' END,
    size, quality, output_format, n,
    CASE made WHEN 1 THEN '[' || image || ']' WHEN 2 THEN '[' || image || ',' || image || ']'
        WHEN 4 THEN '[' || image || ',' || image || ',' || image || ',' || image || ']' ELSE '[]' END,
    CASE WHEN made > 0 THEN text_in + image_in END, CASE WHEN made > 0 THEN image_in END,
    CASE WHEN made > 0 THEN text_in END, CASE WHEN made > 0 THEN image_out END,
    CASE WHEN made > 0 THEN image_out END, CASE WHEN made > 0 THEN 0 END,
    CASE WHEN made > 0 THEN text_in + image_in + image_out END,
    CASE state WHEN 'interrupted' THEN NULL ELSE latency END, CASE WHEN made > 0 THEN latency - 100 END,
    '[' || CASE WHEN f / 100000 % 100 < 8 THEN '{"account":"bench-' || ((account_number + 5) % {accounts})
            || '","class":"N","status":429,"latency_ms":120},' ELSE '' END
        || '{"account":"bench-' || account_number || '",' || CASE state WHEN 'succeeded' THEN '"class":null,"status":200'
            WHEN 'cancelled' THEN '"class":null,"status":200' WHEN 'refused' THEN '"class":"R","status":400'
            WHEN 'failed' THEN '"class":"F","status":502' ELSE '"class":"X","status":null' END
        || CASE state WHEN 'interrupted' THEN ',"latency_ms":null}]'
            ELSE ',"latency_ms":' || latency || ',"upstream_request_id":"' || {hex} || '"}]' END,
    'bench-' || account_number,
    CASE key_number / {users} WHEN 0 THEN 'default' ELSE 'group-' || (key_number / {users}) END,
    'usr_generated_' || (key_number % {users}), 'key_generated_' || key_number, end_user,
    {hash}, image_model,
    CASE is_response WHEN 1 THEN 'gpt-5.5' END, CASE WHEN is_response = 1 AND made > 0 THEN text_in * 4 END,
    CASE WHEN is_response = 1 AND made > 0 THEN 60 + e % 90 END,
    CASE WHEN is_response = 1 AND made > 0 THEN text_in * 4 + 60 + e % 90 END,
    CASE WHEN image_model = 'unpriced-image' THEN NULL WHEN made > 0 THEN text_in * 5000 + image_in * 8000 + image_out * 30000
        WHEN state = 'interrupted' THEN 700000000 ELSE 0 END,
    CASE WHEN image_model = 'unpriced-image' THEN 'unknown' WHEN state = 'interrupted' THEN 'estimated' ELSE 'exact' END,
    CASE WHEN image_model = 'unpriced-image' THEN 'no_price' WHEN state = 'interrupted' THEN 'interrupted' END,
    CASE WHEN image_model = 'unpriced-image' THEN NULL ELSE image_model || '@2026-04-21' END, 700000000
FROM facts

-- Without `MATERIALIZED`, an expression is computed again in each place that uses it.
-- The square of an even draw prefers small numbers: the busiest of 200 keys makes 7 % of the requests, the last 0.25 %.
INSERT INTO records (request_id, node, created_at, operation, state, model, account, group_name, user_id, key_id, end_user,
    error_code, error_reason, fingerprint, latency_ms, images, input_tokens, output_tokens, total_tokens, cost_nano_usd,
    max_cost_nano_usd, document)
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
    CASE operation WHEN 'create_response' THEN 1 ELSE 0 END AS is_response,
    'req_000000000' || substr(CAST(100000000000 + number AS TEXT), 2) AS request_id,
    CASE operation WHEN 'create_response' THEN 'gpt-5.5' ELSE image_model END AS model,
    CASE state WHEN 'failed' THEN 'upstream_error' WHEN 'refused' THEN 'moderation_blocked' END AS error_code,
    CASE state WHEN 'failed' THEN 'timeout' END AS error_reason,
    CASE key_number / {users} WHEN 0 THEN 'default' ELSE 'group-' || (key_number / {users}) END AS group_name,
    'usr_generated_' || (key_number % {users}) AS user_id, 'key_generated_' || key_number AS key_id
FROM choices),
sums AS MATERIALIZED (SELECT facts.*,
    CASE WHEN is_response = 1 THEN text_in * 4 ELSE 0 END AS host_in,
    CASE WHEN is_response = 1 THEN 60 + e % 90 ELSE 0 END AS host_out,
    CASE WHEN image_model = 'unpriced-image' THEN NULL WHEN made > 0 THEN text_in * 5000 + image_in * 8000 + image_out * 30000
        WHEN state = 'interrupted' THEN 700000000 ELSE 0 END AS nano_usd
FROM facts)
SELECT request_id, 'generated', {time}, operation, state, model, 'bench-' || account_number, group_name, user_id, key_id,
    end_user, error_code, error_reason, {hash}, CASE state WHEN 'interrupted' THEN NULL ELSE latency END, made,
    CASE WHEN made > 0 THEN text_in + image_in + host_in END, CASE WHEN made > 0 THEN image_out + host_out END,
    CASE WHEN made > 0 THEN text_in + image_in + image_out + host_in + host_out END, nano_usd, 700000000,
    '{"request_id":"' || request_id || '","created_at":"' || {time} || '","operation":"' || operation
        || '","state":"' || state || '","model":"' || model || '","stream":' || CASE c % 20 WHEN 0 THEN 'true' ELSE 'false' END
        || ',"size":"' || size || '","quality":"' || quality || '","output_format":"' || output_format || '","n":' || n
        || ',"group":"' || group_name || '","user":"' || user_id || '","key":"' || key_id || '","injected_tool":false'
        || ',"maybe_paid_twice":false,"account":"bench-' || account_number || '","image_model":"' || image_model || '"'
        || coalesce(',"end_user":"' || end_user || '"', '') || coalesce(',"error_code":"' || error_code || '"', '')
        || coalesce(',"error_reason":"' || error_reason || '"', '')
        || CASE state WHEN 'interrupted' THEN '' ELSE ',"latency_ms":' || latency END
        || CASE WHEN made > 0 THEN ',"first_byte_ms":' || (latency - 100) || ',"usage":{"input_tokens":' || (text_in + image_in)
            || ',"input_tokens_details":{"image_tokens":' || image_in || ',"text_tokens":' || text_in
            || '},"output_tokens":' || image_out || ',"output_tokens_details":{"image_tokens":' || image_out
            || ',"text_tokens":0},"total_tokens":' || (text_in + image_in + image_out) || '}' ELSE '' END
        || CASE WHEN is_response = 1 AND made > 0 THEN ',"host_model":"gpt-5.5","host_usage":{"input_tokens":' || host_in
            || ',"output_tokens":' || host_out || ',"total_tokens":' || (host_in + host_out) || '}' ELSE '' END
        || coalesce(',"cost_usd":' || (nano_usd / 1000000000) || '.' || substr(CAST(1000000000 + nano_usd % 1000000000 AS TEXT), 2), '')
        || CASE WHEN image_model = 'unpriced-image' THEN ',"cost_basis":"unknown","cost_reason":"no_price"'
            ELSE ',"price_version":"' || image_model || '@2026-04-21"' || CASE state WHEN 'interrupted'
                THEN ',"cost_basis":"estimated","cost_reason":"interrupted"' ELSE ',"cost_basis":"exact"' END END
        || ',"delivered":' || CASE made WHEN 1 THEN '[' || image || ']' WHEN 2 THEN '[' || image || ',' || image || ']'
            WHEN 4 THEN '[' || image || ',' || image || ',' || image || ',' || image || ']' ELSE '[]' END
        || ',"attempts":[' || CASE WHEN f / 100000 % 100 < 8 THEN '{"account":"bench-' || ((account_number + 5) % {accounts})
            || '","class":"N","status":429,"latency_ms":120},' ELSE '' END
        || '{"account":"bench-' || account_number || '"' || CASE state WHEN 'succeeded' THEN ',"status":200'
            WHEN 'cancelled' THEN ',"status":200' WHEN 'refused' THEN ',"class":"R","status":400'
            WHEN 'failed' THEN ',"class":"F","status":502' ELSE ',"class":"X"' END
        || CASE state WHEN 'interrupted' THEN '}]}'
            ELSE ',"latency_ms":' || latency || ',"upstream_request_id":"' || {hex} || '"}]}' END
FROM sums

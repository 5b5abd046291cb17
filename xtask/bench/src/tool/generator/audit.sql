INSERT INTO audit (at, actor_kind, actor_id, actor_name, address, action, target_kind, target_id, target_name, details)
WITH {numbers}
SELECT {time}, 'user', 'usr_generated_' || (number % {users}), 'user-' || (number % {users}), '192.0.2.1',
    CASE number % 3 WHEN 0 THEN 'session.open' WHEN 1 THEN 'key.rename' ELSE 'key.disable' END,
    CASE number % 3 WHEN 0 THEN 'user' ELSE 'key' END,
    CASE number % 3 WHEN 0 THEN 'usr_generated_' || (number % {users}) ELSE 'key_generated_' || (number % {keys}) END,
    'service ' || (number % {keys}), '{}'
FROM numbers

-- The last key belongs to the last user, and has no records.
INSERT INTO keys (id, public_id, name, user_id, group_id, hash, created_at, last_used_at)
WITH {numbers}, {draws}
SELECT 'key_generated_' || number, 'g' || substr(CAST(100000000000 + number AS TEXT), 2), 'service ' || number,
    'usr_generated_' || CASE WHEN number = {keys} THEN {users} ELSE number % {users} END,
    (SELECT id FROM groups WHERE name = CASE WHEN number % {keys} / {users} = 0 THEN 'default'
        ELSE 'group-' || (number % {keys} / {users}) END),
    {hash}, {time}, {time}
FROM draws

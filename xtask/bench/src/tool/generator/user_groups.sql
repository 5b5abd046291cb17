INSERT INTO user_groups (user_id, group_id)
SELECT users.id, groups.id FROM users CROSS JOIN groups WHERE users.id LIKE 'usr@_generated@_%' ESCAPE '@'

-- The last user has no records.
INSERT INTO users (id, name, role, created_at, last_sign_in_at)
WITH {numbers}
SELECT 'usr_generated_' || number, 'user-' || number, 'member', {time}, {time} FROM numbers

-- Groups beside `default`.
INSERT INTO groups (id, name, created_at)
WITH {numbers}
SELECT 'grp_generated_' || number, 'group-' || number, {time} FROM numbers

-- These indexes also hold what a list of an end user's records can be filtered by. The account of a record is written
-- again when the record is closed, the end user and the model are not: so the account is not in the index of end users.
-- The planner of PostgreSQL knows how rare a value is, and combines the indexes that exist.
DROP INDEX records_by_end_user;
CREATE INDEX records_by_end_user ON records (end_user, created_at, seq, key_id, user_id, group_name, model)
    WHERE end_user IS NOT NULL;
DROP INDEX records_by_account;
CREATE INDEX records_by_account ON records (account, created_at, seq, key_id, user_id, group_name, model, end_user)
    WHERE account IS NOT NULL;

-- Records are found by their model, account and error, and those that did not succeed together. Few records have an
-- error, so those indexes hold all that a filter can name. The others hold what never changes, so that records that do
-- not pass are skipped without being read.
CREATE INDEX records_by_model ON records (model, created_at, seq, group_name) WHERE model IS NOT NULL;
CREATE INDEX records_by_account ON records (account, created_at, seq, key_id, user_id, group_name, model)
    WHERE account IS NOT NULL;
CREATE INDEX records_by_error_reason ON records (error_reason, created_at, seq, state, error_code, key_id, user_id,
    group_name, end_user, model, account) WHERE error_reason IS NOT NULL;
CREATE INDEX records_by_error_code ON records (error_code, created_at, seq, state, key_id, user_id, group_name,
    end_user, model, account) WHERE error_code IS NOT NULL;
DROP INDEX records_by_key;
CREATE INDEX records_by_key ON records (key_id, created_at, seq, user_id, group_name, model);
DROP INDEX records_by_user;
CREATE INDEX records_by_user ON records (user_id, created_at, seq, group_name, model);
DROP INDEX records_unsuccessful;
CREATE INDEX records_unsuccessful ON records (state, created_at, seq, key_id, user_id, group_name, end_user, model,
    account) WHERE state <> 'running' AND state <> 'succeeded';
CREATE INDEX records_unsuccessful_by_time ON records (created_at, seq, key_id, user_id, group_name, end_user, model,
    account) WHERE state <> 'running' AND state <> 'succeeded';

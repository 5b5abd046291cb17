-- Filters of records can be combined. These indexes also hold the other columns that a filter can name and that never
-- change, so that records that do not pass are skipped without being read. The sequence number comes before those
-- columns, because pages are ordered by time and number.
DROP INDEX records_by_key;
CREATE INDEX records_by_key ON records (key_id, created_at, seq, user_id, group_name);
DROP INDEX records_by_user;
CREATE INDEX records_by_user ON records (user_id, created_at, seq, group_name);
DROP INDEX records_unsuccessful;
CREATE INDEX records_unsuccessful ON records (state, created_at, seq, key_id, user_id, group_name, end_user)
    WHERE state <> 'running' AND state <> 'succeeded';

-- One end user can have a large share of all records, if a program names itself in each request. This index also has all
-- that is counted, so that the counts of an end user are made without reading the records.
DROP INDEX records_by_end_user;
CREATE INDEX records_by_end_user ON records (end_user, created_at, seq, key_id, user_id, group_name, state,
    json_array_length(delivered), input_tokens, output_tokens, total_tokens, host_input_tokens, host_output_tokens,
    host_total_tokens, cost_nano_usd)
    WHERE end_user IS NOT NULL;

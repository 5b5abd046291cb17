-- The responses that have cost more than they had reserved: rare.
CREATE INDEX records_above_ceiling ON records (created_at, key_id, user_id, group_name, cost_nano_usd)
    WHERE operation = 'create_response' AND state <> 'running' AND cost_nano_usd > max_job_cost_nano_usd;

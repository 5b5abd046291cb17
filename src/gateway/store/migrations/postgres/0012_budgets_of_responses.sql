-- An amount that is absent stands for everything that is left of the budget. The ceiling of a response is not a bound: its
-- text model decides the cost.
ALTER TABLE limit_reservations ALTER COLUMN nano_usd DROP NOT NULL;
ALTER TABLE limit_reservations ADD COLUMN is_ceiling BOOLEAN NOT NULL DEFAULT FALSE;

-- The jobs that wait for room in budgets, the first one of each node. A node that waits sees its row again and again.
CREATE TABLE limit_waiters (
    subject    TEXT COLLATE "C" NOT NULL,
    request_id TEXT COLLATE "C" NOT NULL,
    since      TIMESTAMPTZ NOT NULL,
    seen_at    TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (subject, request_id)
);

-- The responses that have cost more than they had reserved: rare.
CREATE INDEX records_above_ceiling ON records (created_at, key_id, user_id, group_name, cost_nano_usd)
    WHERE operation = 'create_response' AND state <> 'running' AND cost_nano_usd > max_job_cost_nano_usd;

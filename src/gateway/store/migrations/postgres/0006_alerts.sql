-- Events that operators want to hear of, such as a budget that is spent. The same event is raised once, by whichever node
-- sees it first.
CREATE TABLE alerts (
    id         TEXT COLLATE "C" PRIMARY KEY NOT NULL,
    identity   TEXT COLLATE "C" NOT NULL UNIQUE,
    event      TEXT NOT NULL,
    details    TEXT NOT NULL,
    created_at TEXT COLLATE "C" NOT NULL
);
CREATE INDEX alerts_by_time ON alerts (created_at);

-- The delivery of an alert by a channel: pending until it was delivered or has failed too often.
CREATE TABLE alert_deliveries (
    alert_id   TEXT COLLATE "C" NOT NULL REFERENCES alerts (id) ON DELETE CASCADE,
    channel    TEXT COLLATE "C" NOT NULL,
    state      TEXT NOT NULL,
    attempts   BIGINT NOT NULL,
    due_at     TEXT COLLATE "C" NOT NULL,
    last_error TEXT,
    PRIMARY KEY (alert_id, channel)
);
CREATE INDEX alert_deliveries_due ON alert_deliveries (due_at) WHERE state = 'pending';

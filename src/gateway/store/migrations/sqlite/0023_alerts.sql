-- Events that operators want to hear of, such as a budget that is spent. The same event is raised once, by whichever node
-- sees it first.
CREATE TABLE alerts (
    id         TEXT PRIMARY KEY NOT NULL,
    identity   TEXT NOT NULL UNIQUE,
    event      TEXT NOT NULL,
    details    TEXT NOT NULL,
    created_at TEXT NOT NULL
) STRICT;
CREATE INDEX alerts_by_time ON alerts (created_at);

-- The delivery of an alert by a channel: pending until it was delivered or has failed too often.
CREATE TABLE alert_deliveries (
    alert_id   TEXT NOT NULL REFERENCES alerts (id) ON DELETE CASCADE,
    channel    TEXT NOT NULL,
    state      TEXT NOT NULL,
    attempts   INTEGER NOT NULL,
    due_at     TEXT NOT NULL,
    last_error TEXT,
    PRIMARY KEY (alert_id, channel)
) STRICT;
CREATE INDEX alert_deliveries_due ON alert_deliveries (due_at) WHERE state = 'pending';

-- An answer is kept until its last reason ends (`expires_at`). The reason `retry` has an end of its own, because a retry
-- that reads the answer ends it. A retry finds the answers of equal requests by their fingerprint. If a repeat is
-- expected, the caller was told that its image is still being made.
ALTER TABLE replays
    ADD COLUMN fingerprint BYTEA CHECK (length(fingerprint) = 32),
    ADD COLUMN retry_until TEXT COLLATE "C",
    ADD COLUMN repeat_expected BIGINT NOT NULL DEFAULT 0;

CREATE INDEX replays_by_fingerprint ON replays (fingerprint) WHERE fingerprint IS NOT NULL;

-- The dialects of a key, as words separated by spaces, and the changes that dialects made to the request of a record.

ALTER TABLE keys ADD COLUMN dialects TEXT;
ALTER TABLE records ADD COLUMN adapted TEXT;

-- As before, and the dialects: whoever checks keys must know them.
DROP TRIGGER keys_changed;
CREATE TRIGGER keys_changed
AFTER UPDATE OF user_id, group_id, hash, previous_hash, previous_until, expires_at, disabled_at, deleted_at, limits, dialects
ON keys BEGIN
    UPDATE key_revision SET value = value + 1;
    UPDATE keys SET revision = (SELECT value FROM key_revision) WHERE rowid = NEW.rowid;
END;

-- The limits of a key, as a JSON object with the fields of `[groups.limits]`.

ALTER TABLE keys ADD COLUMN limits TEXT;

-- As before, and the limits: whoever checks keys must know them.
DROP TRIGGER keys_changed;
CREATE TRIGGER keys_changed
AFTER UPDATE OF user_id, group_id, hash, previous_hash, previous_until, expires_at, disabled_at, deleted_at, limits ON keys
BEGIN
    UPDATE key_revision SET value = value + 1;
    UPDATE keys SET revision = (SELECT value FROM key_revision) WHERE rowid = NEW.rowid;
END;

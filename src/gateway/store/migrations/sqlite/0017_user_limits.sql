-- The limits of a user, as a JSON object with the fields of `[groups.limits]`. They count all keys of the user together.

ALTER TABLE users ADD COLUMN limits TEXT;

-- As before, and the limits: whoever checks a key must know those of its user.
DROP TRIGGER users_changed;
CREATE TRIGGER users_changed AFTER UPDATE OF disabled_at, limits ON users BEGIN
    UPDATE key_revision SET value = value + 1;
    UPDATE keys SET revision = (SELECT value FROM key_revision)
    WHERE user_id = NEW.id AND deleted_at IS NULL;
END;

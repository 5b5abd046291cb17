-- Keys without an owner, what an admin has decided about a key, and requests that were refused before they became a job.

-- The owner of keys that belong to no person yet. It is no person: it is never listed or found, has no password, and its
-- empty name can be given to nobody. The first admin receives its keys.
INSERT INTO users (id, name, role, created_at)
    VALUES ('usr_nobody', '', 'member', strftime('%Y-%m-%dT%H:%M:%fZ', 'now'));

-- With `disabled_at`: who alone can enable the key again, an admin, and why.
ALTER TABLE keys ADD COLUMN locked TEXT CHECK (locked IN ('admin', 'left_group'));
-- The latest end that the owner may choose, where somebody else has set an end.
ALTER TABLE keys ADD COLUMN latest_end TEXT;

-- The trail says who has disabled a key, and who has set its end last.
UPDATE keys SET locked = 'admin' WHERE disabled_at IS NOT NULL AND EXISTS (
    SELECT 1 FROM audit WHERE target_id = keys.id AND action = 'key.disable' AND at = keys.disabled_at
    AND actor_id IS NOT keys.user_id);
UPDATE keys SET latest_end = expires_at WHERE expires_at IS NOT NULL AND EXISTS (
    SELECT 1 FROM audit WHERE seq = (
        SELECT max(seq) FROM audit WHERE target_id = keys.id AND action IN ('key.create', 'key.expire'))
    AND actor_id IS NOT keys.user_id);

-- Requests with a known key that were refused before there was a job, on the day on which they came. Those without a
-- known key are counted together, under an empty key.
ALTER TABLE usage_days ADD COLUMN refused INTEGER NOT NULL DEFAULT 0;

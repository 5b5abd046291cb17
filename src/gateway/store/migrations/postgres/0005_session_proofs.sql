-- The last time at which the user of a session has proved who they are, with a password or a code. A session of an older
-- program has none; its sign-in counts.
ALTER TABLE sessions ADD COLUMN proved_at TEXT COLLATE "C";

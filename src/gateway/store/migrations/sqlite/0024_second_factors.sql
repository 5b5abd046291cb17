-- The second factors of people: the sealed secret of an authenticator app, and the hashes of recovery codes. A code is
-- used once: `last_step` is the time step of the last one, and a recovery code is deleted.
CREATE TABLE second_factors (
    user_id    TEXT PRIMARY KEY NOT NULL REFERENCES users (id),
    sealed     BLOB NOT NULL,
    last_step  INTEGER NOT NULL,
    created_at TEXT NOT NULL
) STRICT;

CREATE TABLE recovery_codes (
    user_id TEXT NOT NULL REFERENCES users (id),
    hash    BLOB NOT NULL CHECK (length(hash) = 32),
    PRIMARY KEY (user_id, hash)
) STRICT, WITHOUT ROWID;

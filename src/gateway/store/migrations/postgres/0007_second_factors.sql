-- The second factors of people: the sealed secret of an authenticator app, and the hashes of recovery codes. A code is
-- used once: `last_step` is the time step of the last one, and a recovery code is deleted.
CREATE TABLE second_factors (
    user_id    TEXT COLLATE "C" PRIMARY KEY REFERENCES users (id),
    sealed     BYTEA NOT NULL,
    last_step  BIGINT NOT NULL,
    created_at TEXT COLLATE "C" NOT NULL
);

CREATE TABLE recovery_codes (
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users (id),
    hash    BYTEA NOT NULL CHECK (length(hash) = 32),
    PRIMARY KEY (user_id, hash)
);

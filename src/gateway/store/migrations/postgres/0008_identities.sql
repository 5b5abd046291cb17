-- The accounts of users at a provider of OpenID Connect: at most one for each user. `subject` is the id of the person at
-- the issuer, and `name` the name there when the account was connected.
CREATE TABLE identities (
    user_id    TEXT COLLATE "C" PRIMARY KEY REFERENCES users (id),
    issuer     TEXT COLLATE "C" NOT NULL,
    subject    TEXT COLLATE "C" NOT NULL,
    name       TEXT NOT NULL,
    created_at TEXT COLLATE "C" NOT NULL,
    UNIQUE (issuer, subject)
);

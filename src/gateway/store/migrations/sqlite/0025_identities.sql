-- The accounts of users at a provider of OpenID Connect: at most one for each user. `subject` is the id of the person at
-- the issuer, and `name` the name there when the account was connected.
CREATE TABLE identities (
    user_id    TEXT PRIMARY KEY NOT NULL REFERENCES users (id),
    issuer     TEXT NOT NULL,
    subject    TEXT NOT NULL,
    name       TEXT NOT NULL,
    created_at TEXT NOT NULL,
    UNIQUE (issuer, subject)
) STRICT;

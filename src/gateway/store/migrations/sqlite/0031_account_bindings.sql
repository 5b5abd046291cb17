-- Ids, ciphertexts and conversations, each with the user that it belongs to and the account that serves it. A digest
-- stands for the value. The owner is a user, or the key if it has no user.
CREATE TABLE account_bindings (
    digest  TEXT NOT NULL,
    owner   TEXT NOT NULL,
    account TEXT NOT NULL,
    used_on TEXT NOT NULL,
    PRIMARY KEY (digest, owner)
) STRICT, WITHOUT ROWID;
CREATE INDEX account_bindings_by_day ON account_bindings (used_on);

-- The table has the ids of responses.
DROP INDEX records_by_response;
ALTER TABLE records DROP COLUMN response_id;

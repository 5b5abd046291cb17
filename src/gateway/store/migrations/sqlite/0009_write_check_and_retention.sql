-- What is written to find out whether the database takes writes.

CREATE TABLE write_check (
    only  INTEGER PRIMARY KEY NOT NULL CHECK (only = 1),
    times INTEGER NOT NULL
) STRICT;
INSERT INTO write_check (only, times) VALUES (1, 0);

-- Rows of the trail are removed only once they are older than this, and only within the transaction that says so: it adds
-- the row, removes, and takes the row away again.
CREATE TABLE audit_removal (
    only   INTEGER PRIMARY KEY NOT NULL CHECK (only = 1),
    before TEXT NOT NULL
) STRICT;

DROP TRIGGER audit_is_not_deleted;
CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON audit
WHEN NOT EXISTS (SELECT 1 FROM audit_removal WHERE OLD.at < before)
BEGIN
    SELECT raise(ABORT, 'the audit trail is never changed');
END;

-- Strangers cause these rows, so there is a bound on how many are added, and it must be found at once.
CREATE INDEX audit_refusals ON audit (target_id) WHERE action = 'session.refuse';

-- Why a job has failed, beside the code that its caller read; which account made which response, and which job a client's
-- own retry means: both are known after a restart too.

-- As ALTER TABLE ADD COLUMN writes it, which looks at every row of a table with checks once for each column (SQLite,
-- "ALTER TABLE", section 7): 2.5 s per million records each. There is nothing to look at: in the rows that are there the
-- columns are NULL, which all of these rules allow. `fingerprint` is a keyed hash of the API key and the request: it says
-- nothing to whoever has only the database. The next statement reads the table by its new schema, or all of this fails.
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = substr(sql, 1, length(sql) - length(') STRICT'))
    || ', error_reason TEXT, error_detail TEXT, response_id TEXT, fingerprint BLOB CHECK (length(fingerprint) = 32)) STRICT'
WHERE type = 'table' AND name = 'records' AND substr(sql, -8) = ') STRICT';
PRAGMA writable_schema = RESET;

CREATE INDEX records_by_response ON records (response_id) WHERE response_id IS NOT NULL;
CREATE INDEX records_by_fingerprint ON records (fingerprint, created_at) WHERE fingerprint IS NOT NULL;

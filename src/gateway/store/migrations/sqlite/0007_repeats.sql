-- Which account made which response, and which job a client's own retry means: both are known after a restart too.

ALTER TABLE records ADD COLUMN response_id TEXT;
-- A keyed hash of the API key and the request: it says nothing to whoever has only the database.
ALTER TABLE records ADD COLUMN fingerprint BLOB CHECK (length(fingerprint) = 32);

CREATE INDEX records_by_response ON records (response_id) WHERE response_id IS NOT NULL;
CREATE INDEX records_by_fingerprint ON records (fingerprint, created_at) WHERE fingerprint IS NOT NULL;

-- Only a job that has not succeeded can decide about a retry after a restart. Fingerprints are random, so an entry for
-- each record would be a change of another page, and the index would not fit into memory.
DROP INDEX records_by_fingerprint;
CREATE INDEX records_by_fingerprint ON records (fingerprint, created_at)
    WHERE fingerprint IS NOT NULL AND state <> 'succeeded';

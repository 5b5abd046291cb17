-- What an end user of a caller has asked for, newest first. Most callers name none.
CREATE INDEX records_by_end_user ON records (end_user, created_at) WHERE end_user IS NOT NULL;

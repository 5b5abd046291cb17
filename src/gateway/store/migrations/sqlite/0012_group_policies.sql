-- What is set of a group that the settings file has not: a JSON object with the names of `[[groups]]`. Secrets are named in
-- it, and not written.
ALTER TABLE groups ADD COLUMN policy TEXT;

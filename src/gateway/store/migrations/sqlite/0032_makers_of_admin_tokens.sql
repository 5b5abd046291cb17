-- A token that was made with another one ends with it.
ALTER TABLE admin_tokens ADD COLUMN parent_id TEXT REFERENCES admin_tokens (id) ON DELETE CASCADE;

CREATE INDEX admin_tokens_of_maker ON admin_tokens (parent_id);

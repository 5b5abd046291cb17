-- A token that was made with another one ends with it.
ALTER TABLE admin_tokens ADD COLUMN parent_id TEXT COLLATE "C" REFERENCES admin_tokens (id) ON DELETE CASCADE
    DEFERRABLE INITIALLY DEFERRED;

CREATE INDEX admin_tokens_of_maker ON admin_tokens (parent_id);

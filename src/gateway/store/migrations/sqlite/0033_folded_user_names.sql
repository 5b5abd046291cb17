-- The name without the differences that are no difference to a reader, such as case. The program computes it.
ALTER TABLE users ADD COLUMN folded_name TEXT;

CREATE UNIQUE INDEX users_by_folded_name ON users (folded_name);

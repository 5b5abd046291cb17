-- One table for each dimension of the detailed counts. A read of a long period reads all rows of its dimension, because
-- the rows of a key are spread over the days on which they were written; without this it reads those of all dimensions.
-- Nodes of the version before read and write the same table. Their statements wait until the rows are copied.

ALTER TABLE usage_details RENAME TO usage_details_before;
ALTER INDEX usage_details_pkey RENAME TO usage_details_before_pkey;
ALTER INDEX usage_details_by_day RENAME TO usage_details_before_by_day;

CREATE TABLE usage_details (LIKE usage_details_before, PRIMARY KEY (scope, dimension, day, value))
    PARTITION BY LIST (dimension);

CREATE TABLE usage_details_all PARTITION OF usage_details FOR VALUES IN ('all');
CREATE TABLE usage_details_hour PARTITION OF usage_details FOR VALUES IN ('hour');
CREATE TABLE usage_details_account PARTITION OF usage_details FOR VALUES IN ('account');
CREATE TABLE usage_details_model PARTITION OF usage_details FOR VALUES IN ('model');
CREATE TABLE usage_details_size PARTITION OF usage_details FOR VALUES IN ('size');
CREATE TABLE usage_details_quality PARTITION OF usage_details FOR VALUES IN ('quality');
CREATE TABLE usage_details_reason PARTITION OF usage_details FOR VALUES IN ('reason');

INSERT INTO usage_details SELECT * FROM usage_details_before;
DROP TABLE usage_details_before;

CREATE INDEX usage_details_by_day ON usage_details (day);

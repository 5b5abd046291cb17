-- Which accounts the running gateway has set aside. Why a job has failed is a column of records, and comes with 0007.

-- The end bounds how long this is believed: a process that is killed cannot take it back.
ALTER TABLE accounts ADD COLUMN failing_until TEXT;
ALTER TABLE accounts ADD COLUMN failing_since TEXT;
ALTER TABLE accounts ADD COLUMN failing_reason TEXT;

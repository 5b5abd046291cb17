-- Why a job has failed, beside the code that its caller read; and which accounts the running gateway has set aside.

ALTER TABLE records ADD COLUMN error_reason TEXT;
ALTER TABLE records ADD COLUMN error_detail TEXT;

-- The end bounds how long this is believed: a process that is killed cannot take it back.
ALTER TABLE accounts ADD COLUMN failing_until TEXT;
ALTER TABLE accounts ADD COLUMN failing_since TEXT;
ALTER TABLE accounts ADD COLUMN failing_reason TEXT;

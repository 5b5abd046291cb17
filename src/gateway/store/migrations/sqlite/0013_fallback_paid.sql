-- Whether a smaller image was asked for although the larger one, whose call failed, may have been paid for as well.

ALTER TABLE records ADD COLUMN maybe_paid_twice INTEGER NOT NULL DEFAULT 0;

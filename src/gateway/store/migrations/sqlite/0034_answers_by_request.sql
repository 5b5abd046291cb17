-- The page of a record shows the pictures of its request while the answer is kept.
CREATE INDEX replays_by_request ON replays (request_id);

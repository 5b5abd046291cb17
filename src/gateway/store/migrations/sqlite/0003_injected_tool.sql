-- Whether the gateway put an image tool into the request of a coding agent.

ALTER TABLE records ADD COLUMN injected_tool INTEGER NOT NULL DEFAULT 0;

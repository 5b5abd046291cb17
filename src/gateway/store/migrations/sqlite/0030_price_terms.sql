-- The prices of tokens that the upstream wrote to its cache, in billionths of a dollar for a million tokens.
ALTER TABLE prices ADD COLUMN cache_write INTEGER;
ALTER TABLE prices ADD COLUMN cache_write_1h INTEGER;
-- Factors of service tiers, prices of calls of tools, and the most tokens of the model, as JSON.
ALTER TABLE prices ADD COLUMN terms TEXT NOT NULL DEFAULT '{}';

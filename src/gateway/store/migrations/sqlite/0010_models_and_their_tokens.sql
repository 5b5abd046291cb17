-- Which models did the work, and the tokens of the text model apart from those of the image model: they have prices of their
-- own. Records of responses that are older than this have the tokens of both in one sum.

ALTER TABLE records ADD COLUMN image_model TEXT;
ALTER TABLE records ADD COLUMN host_model TEXT;
ALTER TABLE records ADD COLUMN host_input_tokens INTEGER;
ALTER TABLE records ADD COLUMN host_output_tokens INTEGER;
ALTER TABLE records ADD COLUMN host_total_tokens INTEGER;

-- As before, but for the tokens: those of both models are counted. A sum of two numbers stops at the largest one too.
DROP TRIGGER records_are_counted;
CREATE TRIGGER records_are_counted AFTER UPDATE OF state ON records
WHEN OLD.state = 'running' AND NEW.state <> 'running'
BEGIN
    INSERT INTO usage_days (key_id, day, user_id, group_name, requests, succeeded, failed, images,
        input_tokens, output_tokens, total_tokens)
    VALUES (NEW.key_id, substr(NEW.created_at, 1, 10), NEW.user_id, NEW.group_name, 1,
        NEW.state = 'succeeded', NEW.state <> 'succeeded', json_array_length(NEW.delivered),
        min(coalesce(NEW.input_tokens, 0) + coalesce(NEW.host_input_tokens, 0), 9223372036854775807),
        min(coalesce(NEW.output_tokens, 0) + coalesce(NEW.host_output_tokens, 0), 9223372036854775807),
        min(coalesce(NEW.total_tokens, 0) + coalesce(NEW.host_total_tokens, 0), 9223372036854775807))
    ON CONFLICT (key_id, day, user_id, group_name) DO UPDATE SET
        requests = requests + 1,
        succeeded = succeeded + excluded.succeeded,
        failed = failed + excluded.failed,
        images = images + excluded.images,
        input_tokens = min(input_tokens + excluded.input_tokens, 9223372036854775807),
        output_tokens = min(output_tokens + excluded.output_tokens, 9223372036854775807),
        total_tokens = min(total_tokens + excluded.total_tokens, 9223372036854775807);
END;

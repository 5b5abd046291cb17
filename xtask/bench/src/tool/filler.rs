//! Fills the database of a gateway that does not run with keys and records like its own.
//!
//! The rows are written by SQL, because a million commands or requests would take hours. Filler keys have random hashes:
//! nobody has their secrets, and the gateway loads them like any other key.

use std::path::Path;

use anyhow::{Context as _, Result};
use rusqlite::{Connection, params};

/// The file of the database in a gateway's data folder.
const DATABASE: &str = "data/imagate.db";
/// The number of rows that one transaction inserts.
const BATCH_ROWS: u64 = 500_000;

const INSERT_KEYS: &str = "\
    WITH RECURSIVE numbers (number) AS (SELECT ?1 UNION ALL SELECT number + 1 FROM numbers WHERE number + 1 < ?2) \
    INSERT INTO keys (id, public_id, name, user_id, group_id, hash, created_at) \
    SELECT printf('key_%020d', number), printf('%012d', number), 'filler', user_id, group_id, randomblob(32), created_at \
    FROM numbers, (SELECT user_id, group_id, created_at FROM keys ORDER BY rowid LIMIT 1)";

/// Records of the last year, oldest first. Like real ones, they belong to a thousand keys.
const INSERT_RECORDS: &str = "\
    WITH RECURSIVE numbers (number) AS (SELECT ?1 UNION ALL SELECT number + 1 FROM numbers WHERE number + 1 < ?2) \
    INSERT INTO records (request_id, node, created_at, operation, model, stream, state, size, quality, output_format, n, \
    delivered, input_tokens, input_image_tokens, input_text_tokens, output_tokens, output_image_tokens, \
    output_text_tokens, total_tokens, latency_ms, first_byte_ms, attempts, account, group_name, user_id, key_id, \
    fingerprint) \
    SELECT printf('req_%020d', number), 'filler', \
    strftime('%Y-%m-%dT%H:%M:%fZ', 'now', printf('-%.3f seconds', (?3 - number) * 31536000.0 / ?3)), \
    'generation', 'gpt-image-2', 0, 'succeeded', '1024x1024', 'high', 'png', 1, \
    '[{\"size\":\"1024x1024\",\"format\":\"png\",\"quality\":\"high\"}]', 50, 0, 50, 4160, 4160, 0, 4210, 900, 900, \
    '[{\"account\":\"bench-0\",\"class\":\"ok\",\"status\":200,\"latency_ms\":900}]', 'bench-0', 'default', \
    (SELECT user_id FROM keys LIMIT 1), printf('key_%020d', number * 7919 % 1000), randomblob(32) FROM numbers";

const COUNT_BY_DAY: &str = "\
    INSERT OR IGNORE INTO usage_days (key_id, day, user_id, group_name, requests, succeeded, failed, images, \
    input_tokens, output_tokens, total_tokens) \
    SELECT key_id, substr(created_at, 1, 10), user_id, group_name, count(*), count(*), 0, count(*), \
    sum(input_tokens), sum(output_tokens), sum(total_tokens) FROM records \
    GROUP BY key_id, substr(created_at, 1, 10), user_id, group_name";

/// Inserts this many keys and records.
pub(crate) fn fill(home: &Path, keys: u64, records: u64) -> Result<()> {
    let path = home.join(DATABASE);
    let mut connection = Connection::open(&path).with_context(|| path.display().to_string())?;
    // Nothing here has to survive a failure of the machine.
    connection.execute_batch("PRAGMA synchronous = OFF; PRAGMA cache_size = -1000000; PRAGMA temp_store = FILE")?;
    insert(&mut connection, INSERT_KEYS, keys, |connection, sql, from, to| {
        connection.execute(sql, params![from, to]).map(drop)
    })?;
    if records > 0 {
        // An index that is made at the end is sorted once, and not searched for each row.
        let indexes = drop_indexes(&connection)?;
        insert(&mut connection, INSERT_RECORDS, records, |connection, sql, from, to| {
            connection.execute(sql, params![from, to, to_integer(records)]).map(drop)
        })?;
        for index in indexes {
            connection.execute_batch(&index)?;
        }
        connection.execute(COUNT_BY_DAY, [])?;
    }
    connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?;
    Ok(())
}

fn insert(
    connection: &mut Connection,
    sql: &str,
    rows: u64,
    execute: impl Fn(&Connection, &str, i64, i64) -> rusqlite::Result<()>,
) -> Result<()> {
    let mut from = 0;
    while from < rows {
        let to = rows.min(from + BATCH_ROWS);
        let transaction = connection.transaction()?;
        execute(&transaction, sql, to_integer(from), to_integer(to))?;
        transaction.commit()?;
        from = to;
    }
    Ok(())
}

fn to_integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Drops the indexes of the records that SQL has made, and returns the statements that make them again.
fn drop_indexes(connection: &Connection) -> Result<Vec<String>> {
    let query = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = 'records' AND sql IS NOT NULL";
    let mut statement = connection.prepare(query)?;
    let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
    let indexes = rows.collect::<rusqlite::Result<Vec<_>>>()?;
    for (name, _) in &indexes {
        connection.execute_batch(&format!("DROP INDEX {name}"))?;
    }
    Ok(indexes.into_iter().map(|(_, sql)| sql).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts of the database that the statements name; the run itself uses the real one.
    const SCHEMA: &str = "\
        CREATE TABLE keys (id TEXT PRIMARY KEY, public_id TEXT UNIQUE, name TEXT, user_id TEXT, group_id TEXT, \
        hash BLOB CHECK (length(hash) = 32), created_at TEXT); \
        INSERT INTO keys VALUES ('key_real', 'abcdefghijkl', 'bench', 'usr_1', 'grp_1', randomblob(32), '2026'); \
        CREATE TABLE records (seq INTEGER PRIMARY KEY, request_id TEXT UNIQUE, node, created_at TEXT, operation, model, \
        stream, state, size, quality, output_format, n, delivered, input_tokens, input_image_tokens, input_text_tokens, \
        output_tokens, output_image_tokens, output_text_tokens, total_tokens, latency_ms, first_byte_ms, attempts, \
        account, group_name, user_id, key_id, fingerprint); \
        CREATE INDEX records_by_time ON records (created_at); \
        CREATE TABLE usage_days (key_id, day, user_id, group_name, requests, succeeded, failed, images, input_tokens, \
        output_tokens, total_tokens, PRIMARY KEY (key_id, day, user_id, group_name));";

    #[test]
    fn a_filled_database_has_the_rows_the_indexes_and_the_counts() {
        let home = tempfile::TempDir::new().unwrap();
        std::fs::create_dir(home.path().join("data")).unwrap();
        let connection = Connection::open(home.path().join(DATABASE)).unwrap();
        connection.execute_batch(SCHEMA).unwrap();
        fill(home.path(), 30, 2000).unwrap();
        let count = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(count("SELECT count(*) FROM keys"), 31);
        assert_eq!(count("SELECT count(*) FROM keys WHERE user_id = 'usr_1' AND length(public_id) = 12"), 31);
        assert_eq!(count("SELECT count(*) FROM records"), 2000);
        assert_eq!(count("SELECT count(DISTINCT key_id) FROM records"), 1000);
        assert_eq!(
            count(
                "SELECT count(*) FROM records a JOIN records b ON b.seq = a.seq + 1 \
            AND b.created_at < a.created_at"
            ),
            0
        );
        assert_eq!(count("SELECT count(*) FROM sqlite_master WHERE name = 'records_by_time'"), 1);
        assert_eq!(count("SELECT sum(requests) FROM usage_days"), 2000);
    }
}

//! Fills the database of a gateway that does not run with keys like its own.
//!
//! The rows are written by SQL, because a million commands would take hours. Filler keys have random hashes: nobody has
//! their secrets, and the gateway loads them like any other key.

use anyhow::Result;

use super::database::RecordDatabase;

/// The number of rows that one statement inserts.
const BATCH_ROWS: u64 = 500_000;

/// Inserts this many keys into an embedded database, with the owner and the group of its first key.
pub(crate) fn insert_keys(database: &RecordDatabase, keys: u64) -> Result<()> {
    let mut from = 0;
    while from < keys {
        let to = keys.min(from + BATCH_ROWS);
        database.execute(&format!(
            "WITH RECURSIVE numbers (number) AS (SELECT {from} UNION ALL SELECT number + 1 FROM numbers \
             WHERE number + 1 < {to}) \
             INSERT INTO keys (id, public_id, name, user_id, group_id, hash, created_at) \
             SELECT printf('key_%020d', number), printf('%012d', number), 'filler', user_id, group_id, randomblob(32), \
             created_at FROM numbers, (SELECT user_id, group_id, created_at FROM keys ORDER BY rowid LIMIT 1)"
        ))?;
        from = to;
    }
    database.settle()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The columns that the statement names; the run itself uses the real table.
    const SCHEMA: &str = "\
        CREATE TABLE keys (id TEXT PRIMARY KEY, public_id TEXT UNIQUE, name TEXT, user_id TEXT, group_id TEXT, \
        hash BLOB CHECK (length(hash) = 32), created_at TEXT); \
        INSERT INTO keys VALUES ('key_real', 'abcdefghijkl', 'bench', 'usr_1', 'grp_1', randomblob(32), '2026');";

    #[test]
    fn keys_have_the_owner_of_the_first() {
        let home = tempfile::TempDir::new().unwrap();
        std::fs::create_dir(home.path().join("data")).unwrap();
        let database = RecordDatabase::open_sqlite(home.path()).unwrap();
        database.execute(SCHEMA).unwrap();
        insert_keys(&database, 30).unwrap();
        let owned = "SELECT count(*) FROM keys WHERE user_id = 'usr_1' AND length(public_id) = 12";
        assert_eq!(database.query(owned).unwrap(), ["31"]);
    }
}

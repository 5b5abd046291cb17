//! Generates users, keys, records and their counts in the database of a gateway that does not run.
//!
//! Each kind of row is written by one statement for all rows, or for each batch of them, because a million requests
//! would take hours. The statements are the same for both databases but for some expressions. The rows depend only on
//! the number of records, the seed and the time of the last one.
//!
//! The rows are like those of a busy installation, with its extremes: few keys make most of the requests, one program
//! names itself as the end user of all of its requests, and jobs were interrupted on three days only.

use std::time::Instant;

use anyhow::{Result, ensure};

use super::database::RecordDatabase;

/// The users with records.
pub(crate) const USERS: u64 = 40;
/// The keys with records. Key `n` belongs to the user `n % USERS`, and to the group `n / USERS`.
pub(crate) const KEYS: u64 = 200;
/// The number of accounts that records name. They have the names of the accounts of the load tests.
pub(crate) const ACCOUNTS: usize = 12;
/// The days over which the records are spread evenly.
pub(crate) const DAYS: u64 = 400;
const AUDIT_ROWS: u64 = 20_000;
/// The number of records that one statement inserts.
const BATCH_ROWS: u64 = 500_000;
const LARGEST_SEED: u64 = 1000;

const RECORDS: &str = include_str!("generator/records.sql");
/// The statements that count the records by day.
const DAY_COUNTS: [&str; 2] = [include_str!("generator/usage_days.sql"), include_str!("generator/end_user_days.sql")];
/// The other statements, each with the numbers of its rows.
const SMALL_TABLES: [(&str, u64, u64); 5] = [
    (include_str!("generator/groups.sql"), 1, KEYS / USERS),
    (include_str!("generator/users.sql"), 0, USERS + 1),
    (include_str!("generator/user_groups.sql"), 0, 0),
    (include_str!("generator/keys.sql"), 0, KEYS + 1),
    (include_str!("generator/audit.sql"), 0, AUDIT_ROWS),
];

/// Independent numbers below 2^31 for each row. Neighbours differ by a constant, which is random enough for a load.
const DRAWS: &str = "\
    draws (number, a, b, c, d, e, f) AS MATERIALIZED (SELECT number, (number + {seed} * 7919) * 1103515245 % 2147483647, \
    (number + {seed} * 7919) * 1566083941 % 2147483647, (number + {seed} * 7919) * 630360016 % 2147483647, \
    (number + {seed} * 7919) * 1812433253 % 2147483647, (number + {seed} * 7919) * 214013001 % 2147483647, \
    (number + {seed} * 7919) * 742938285 % 2147483647 FROM numbers)";
/// The counts of a set of records, in the order of the columns of `usage_days`.
const SUMS: &str = "\
    count(*), sum(CASE state WHEN 'succeeded' THEN 1 ELSE 0 END), sum(CASE state WHEN 'succeeded' THEN 0 ELSE 1 END), \
    sum(images), sum(coalesce(input_tokens, 0)), sum(coalesce(output_tokens, 0)), sum(coalesce(total_tokens, 0)), \
    sum(coalesce(cost_nano_usd, 0)), sum(CASE WHEN cost_nano_usd IS NULL THEN 1 ELSE 0 END)";
const SUMS_OF_DAYS: &str = "SELECT sum(requests), sum(succeeded), sum(failed), sum(images), sum(input_tokens), \
    sum(output_tokens), sum(total_tokens), sum(cost_nano_usd), sum(cost_unknown) FROM";
/// The tables of counts, and the condition for the records that each of them counts.
const COUNTED: [(&str, &str); 2] = [("usage_days", "TRUE"), ("end_user_days", "end_user IS NOT NULL")];
/// The time of a row, in milliseconds after that of the first.
const MILLISECONDS: &str = "(number * 34560000000 / {count})";
const HASH_PARTS: [&str; 4] = ["a", "b", "c", "d"];

/// The number of records to generate, the seed of everything that differs between them, and the time after the last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordGenerator {
    pub(crate) records: u64,
    pub(crate) seed: u64,
    /// Seconds since 1970.
    pub(crate) end: u64,
}

impl RecordGenerator {
    /// Fills a database that has the tables of the gateway, the group `default`, and no records yet.
    pub(crate) fn fill(self, database: &RecordDatabase) -> Result<()> {
        ensure!(self.seed <= LARGEST_SEED, "the seed is at most {LARGEST_SEED}");
        let indexes = database.drop_indexes("records")?;
        for (template, from, to) in SMALL_TABLES {
            database.execute(&self.statement(database, template, to, (from, to)))?;
        }
        let mut from = 0;
        while from < self.records {
            let (to, begun) = (self.records.min(from + BATCH_ROWS), Instant::now());
            for template in [RECORDS].into_iter().chain(DAY_COUNTS) {
                database.execute(&self.statement(database, template, self.records, (from, to)))?;
            }
            eprintln!("{to} of {} records: {:.1} s for this batch", self.records, begun.elapsed().as_secs_f64());
            from = to;
        }
        database.execute("UPDATE usage_days SET refused = requests / 50")?;
        for index in indexes {
            let begun = Instant::now();
            database.execute(&index)?;
            eprintln!("{:.1} s for {index}", begun.elapsed().as_secs_f64());
        }
        database.settle()?;
        self.check_sums(database)
    }

    /// Compares the counts by day with the records.
    fn check_sums(self, database: &RecordDatabase) -> Result<()> {
        for (table, condition) in COUNTED {
            let query = format!("SELECT {{sums}} FROM records WHERE {condition}");
            let query = self.statement(database, &query, self.records, (0, self.records));
            let (records, days) = (database.query(&query)?, database.query(&format!("{SUMS_OF_DAYS} {table}"))?);
            ensure!(records == days, "the counts of {table} {days:?} differ from the records {records:?}");
            eprintln!("the sums of the records are those of {table}: {}", days.concat());
        }
        Ok(())
    }

    /// Returns a statement for the rows of this range, of `count` rows in all, in the language of the database.
    fn statement(self, database: &RecordDatabase, template: &str, count: u64, (from, to): (u64, u64)) -> String {
        let mut sql = template.replace("{draws}", DRAWS).replace("{sums}", SUMS);
        for (name, expression) in dialect(database) {
            sql = sql.replace(name, &expression);
        }
        let start = self.end.saturating_sub(DAYS * 86_400);
        for (name, number) in [
            ("{from}", from),
            ("{to}", to),
            ("{count}", count.max(1)),
            ("{seed}", self.seed),
            ("{start}", start),
            ("{users}", USERS),
            ("{keys}", KEYS),
            ("{accounts}", ACCOUNTS as u64),
        ] {
            sql = sql.replace(name, &number.to_string());
        }
        sql
    }
}

/// The expressions that the databases write in different ways.
fn dialect(database: &RecordDatabase) -> [(&'static str, String); 4] {
    let hex = |part: &str| match database {
        RecordDatabase::Sqlite(_) => format!("printf('%016x', {part} * 2654435761)"),
        RecordDatabase::Postgres(_) => format!("lpad(to_hex({part} * 2654435761), 16, '0')"),
    };
    let hexes = HASH_PARTS.map(hex).join(" || ");
    match database {
        RecordDatabase::Sqlite(_) => [
            (
                "{numbers}",
                "RECURSIVE numbers (number) AS (SELECT {from} UNION ALL SELECT number + 1 FROM numbers \
                 WHERE number + 1 < {to})"
                    .to_owned(),
            ),
            ("{time}", format!("strftime('%Y-%m-%dT%H:%M:%fZ', {{start}} + {MILLISECONDS} / 1000.0, 'unixepoch')")),
            ("{hash}", format!("unhex({hexes})")),
            ("{hex}", hex("a")),
        ],
        RecordDatabase::Postgres(_) => [
            ("{numbers}", "numbers (number) AS (SELECT generate_series(CAST({from} AS BIGINT), {to} - 1))".to_owned()),
            (
                "{time}",
                format!(
                    "to_char(to_timestamp({{start}} + {MILLISECONDS} / CAST(1000 AS DOUBLE PRECISION)) \
                     AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')"
                ),
            ),
            ("{hash}", format!("decode({hexes}, 'hex')")),
            ("{hex}", hex("a")),
        ],
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::super::database::PostgresDatabase;
    use super::*;

    const GENERATOR: RecordGenerator = RecordGenerator { records: 3000, seed: 7, end: 1_790_000_000 };
    /// Everything that differs between records.
    const ROWS: &str = "SELECT request_id, created_at, operation, model, state, images, input_tokens, output_tokens, \
        total_tokens, latency_ms, group_name, user_id, key_id, end_user, length(fingerprint), cost_nano_usd, document \
        FROM records ORDER BY seq";

    /// Runs the migrations of the gateway.
    fn migrate(database: &RecordDatabase, kind: &str) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src/gateway/store/migrations").join(kind);
        let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        for file in files {
            database.execute(&fs::read_to_string(file).unwrap()).unwrap();
        }
    }

    fn filled_sqlite(home: &Path) -> RecordDatabase {
        fs::create_dir(home.join("data")).unwrap();
        let database = RecordDatabase::open_sqlite(home).unwrap();
        migrate(&database, "sqlite");
        GENERATOR.fill(&database).unwrap();
        database
    }

    #[test]
    fn a_filled_database_has_rows_of_every_kind_and_its_indexes() {
        let home = tempfile::TempDir::new().unwrap();
        let database = filled_sqlite(home.path());
        let first = |sql: &str| database.query(sql).unwrap().swap_remove(0);
        assert_eq!(first("SELECT count(*), count(DISTINCT state), count(DISTINCT operation) FROM records"), "3000|5|3");
        assert_eq!(first("SELECT count(DISTINCT user_id), count(DISTINCT group_name) FROM records"), "40|5");
        assert_eq!(first("SELECT count(DISTINCT day) > 390, sum(requests) FROM usage_days"), "1|3000");
        let unknown = "SELECT count(*) FROM records LEFT JOIN keys ON keys.id = records.key_id \
            AND keys.user_id = records.user_id LEFT JOIN groups ON groups.id = keys.group_id \
            WHERE groups.name IS NULL OR groups.name <> records.group_name";
        assert_eq!(first(unknown), "0");
        assert_eq!(
            first("SELECT count(*) FROM records WHERE NOT json_valid(document) OR length(fingerprint) <> 32"),
            "0"
        );
        assert_eq!(first("SELECT count(*) FROM sqlite_master WHERE name = 'records_by_time'"), "1");
        let disorder =
            "SELECT count(*) FROM records a JOIN records b ON b.seq = a.seq + 1 WHERE b.created_at < a.created_at";
        assert_eq!(first(disorder), "0");
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the variable of `cargo xtask postgres`")]
    fn both_databases_get_the_same_rows() {
        let Ok(server) = std::env::var("IMAGATE_TEST_POSTGRES") else { return };
        let postgres = RecordDatabase::Postgres(PostgresDatabase::create(&server, "generator_test").unwrap());
        migrate(&postgres, "postgres");
        GENERATOR.fill(&postgres).unwrap();
        let home = tempfile::TempDir::new().unwrap();
        let sqlite = filled_sqlite(home.path());
        for query in [
            ROWS,
            "SELECT * FROM usage_days ORDER BY 1, 2, 3, 4",
            "SELECT * FROM end_user_days ORDER BY 1, 2, 3, 4, 5",
            "SELECT id, user_id, length(hash) FROM keys ORDER BY 1",
        ] {
            assert_eq!(sqlite.query(query).unwrap(), postgres.query(query).unwrap(), "{query}");
        }
    }
}

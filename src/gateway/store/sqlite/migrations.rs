//! The migrations of the database.
//!
//! A list of ours instead of the macro of sqlx: the macro compiles sqlx and SQLite a second time, for the host.

use std::sync::LazyLock;

use sqlx::SqlStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};

/// The description and the statements of each migration, in their order. The number of a migration is its position,
/// from 1.
const ALL: [(&str, &str); 1] = [("initial", include_str!("../migrations/sqlite/0001_initial.sql"))];

pub(in super::super) static MIGRATIONS: LazyLock<Migrator> = LazyLock::new(|| {
    let migrations = (1..).zip(ALL).map(|(version, (description, sql))| {
        Migration::new(version, description.into(), MigrationType::Simple, SqlStr::from_static(sql), false)
    });
    Migrator::with_migrations(migrations.collect())
});

/// The newest version of the schema that this program knows.
pub(super) fn newest_version() -> i64 {
    MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// The properties of a migration that a database stores, and compares with the program when it is opened.
    fn identity(migration: &Migration) -> (i64, &str, &[u8], bool) {
        (migration.version, &migration.description, &migration.checksum, migration.no_tx)
    }

    #[tokio::test]
    async fn the_list_has_every_file_of_the_folder_as_sqlx_reads_it() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/gateway/store/migrations/sqlite");
        let files = Migrator::new(folder).await.unwrap();
        let (listed, read): (Vec<_>, Vec<_>) =
            (MIGRATIONS.iter().map(identity).collect(), files.iter().map(identity).collect());
        assert_eq!(listed, read);
    }

    #[test]
    fn migrations_are_numbered_without_gaps_and_only_go_forward() {
        for (migration, number) in MIGRATIONS.iter().zip(1..) {
            assert_eq!(migration.version, number);
            assert!(migration.migration_type.is_up_migration(), "{number}");
        }
    }
}

//! The migrations of the database.
//!
//! A migration must leave the schema readable and writable for the version before it, because nodes of both versions run
//! during an upgrade: it adds tables, and columns that may be absent, and removes nothing that the version before uses.

use std::sync::LazyLock;

use sqlx::SqlStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};

/// The description and the statements of each migration, in their order. The number of a migration is its position,
/// from 1.
const ALL: [(&str, &str); 1] = [("initial", include_str!("../migrations/postgres/0001_initial.sql"))];

pub(super) static MIGRATIONS: LazyLock<Migrator> = LazyLock::new(|| {
    let migrations = (1..).zip(ALL).map(|(version, (description, sql))| {
        Migration::new(version, description.into(), MigrationType::Simple, SqlStr::from_static(sql), false)
    });
    Migrator::with_migrations(migrations.collect())
});

/// The newest version of the schema that this program knows.
pub(super) fn newest_version() -> i64 {
    MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or(0)
}

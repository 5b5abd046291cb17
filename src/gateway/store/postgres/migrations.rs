//! The migrations of the database.
//!
//! A migration must leave the schema readable and writable for the version before it, because nodes of both versions run
//! during an upgrade: it adds tables, and columns that may be absent, and removes nothing that the version before uses.

use std::sync::LazyLock;

use sqlx::SqlStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};

/// The description and the statements of each migration, in their order. The number of a migration is its position,
/// from 1.
const ALL: [(&str, &str); 19] = [
    ("initial", include_str!("../migrations/postgres/0001_initial.sql")),
    ("counts by end user", include_str!("../migrations/postgres/0002_counts_by_end_user.sql")),
    ("records by error", include_str!("../migrations/postgres/0003_records_by_error.sql")),
    ("usage details", include_str!("../migrations/postgres/0004_usage_details.sql")),
    ("session proofs", include_str!("../migrations/postgres/0005_session_proofs.sql")),
    ("alerts", include_str!("../migrations/postgres/0006_alerts.sql")),
    ("second factors", include_str!("../migrations/postgres/0007_second_factors.sql")),
    ("identities", include_str!("../migrations/postgres/0008_identities.sql")),
    ("usage details by dimension", include_str!("../migrations/postgres/0009_usage_details_by_dimension.sql")),
    ("dialects", include_str!("../migrations/postgres/0010_dialects.sql")),
    ("assumed costs", include_str!("../migrations/postgres/0011_assumed_costs.sql")),
    ("budgets of responses", include_str!("../migrations/postgres/0012_budgets_of_responses.sql")),
    ("price terms", include_str!("../migrations/postgres/0013_price_terms.sql")),
    ("account bindings", include_str!("../migrations/postgres/0014_account_bindings.sql")),
    ("makers of admin tokens", include_str!("../migrations/postgres/0015_makers_of_admin_tokens.sql")),
    ("folded user names", include_str!("../migrations/postgres/0016_folded_user_names.sql")),
    ("provisional outcomes", include_str!("../migrations/postgres/0017_provisional_outcomes.sql")),
    ("answers by request", include_str!("../migrations/postgres/0018_answers_by_request.sql")),
    ("reasons of stored answers", include_str!("../migrations/postgres/0019_reasons_of_stored_answers.sql")),
];

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

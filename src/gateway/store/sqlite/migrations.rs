//! The migrations of the database.
//!
//! A list of ours instead of the macro of sqlx: the macro compiles sqlx and SQLite a second time, for the host.

use std::sync::LazyLock;

use sqlx::SqlStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};

/// The description and the statements of each migration, in their order. The number of a migration is its position,
/// from 1.
const ALL: [(&str, &str); 35] = [
    ("initial", include_str!("../migrations/sqlite/0001_initial.sql")),
    ("accounts and replays", include_str!("../migrations/sqlite/0002_accounts_and_replays.sql")),
    ("injected tool", include_str!("../migrations/sqlite/0003_injected_tool.sql")),
    ("people", include_str!("../migrations/sqlite/0004_people.sql")),
    ("usage days", include_str!("../migrations/sqlite/0005_usage_days.sql")),
    ("reasons and health", include_str!("../migrations/sqlite/0006_reasons_and_health.sql")),
    ("repeats", include_str!("../migrations/sqlite/0007_repeats.sql")),
    ("people", include_str!("../migrations/sqlite/0008_people.sql")),
    ("write check and retention", include_str!("../migrations/sqlite/0009_write_check_and_retention.sql")),
    ("models and their tokens", include_str!("../migrations/sqlite/0010_models_and_their_tokens.sql")),
    ("records by end user", include_str!("../migrations/sqlite/0011_records_by_end_user.sql")),
    ("group policies", include_str!("../migrations/sqlite/0012_group_policies.sql")),
    ("fallback paid", include_str!("../migrations/sqlite/0013_fallback_paid.sql")),
    ("fingerprints of unfinished jobs", include_str!("../migrations/sqlite/0014_fingerprints_of_unfinished_jobs.sql")),
    ("costs", include_str!("../migrations/sqlite/0015_costs.sql")),
    ("limits", include_str!("../migrations/sqlite/0016_limits.sql")),
    ("user limits", include_str!("../migrations/sqlite/0017_user_limits.sql")),
    ("combined filters", include_str!("../migrations/sqlite/0018_combined_filters.sql")),
    ("counts by end user", include_str!("../migrations/sqlite/0019_counts_by_end_user.sql")),
    ("records by error", include_str!("../migrations/sqlite/0020_records_by_error.sql")),
    ("usage details", include_str!("../migrations/sqlite/0021_usage_details.sql")),
    ("session proofs", include_str!("../migrations/sqlite/0022_session_proofs.sql")),
    ("alerts", include_str!("../migrations/sqlite/0023_alerts.sql")),
    ("second factors", include_str!("../migrations/sqlite/0024_second_factors.sql")),
    ("identities", include_str!("../migrations/sqlite/0025_identities.sql")),
    ("end users by model and account", include_str!("../migrations/sqlite/0026_end_users_by_model_and_account.sql")),
    ("dialects", include_str!("../migrations/sqlite/0027_dialects.sql")),
    ("assumed costs", include_str!("../migrations/sqlite/0028_assumed_costs.sql")),
    ("budgets of responses", include_str!("../migrations/sqlite/0029_budgets_of_responses.sql")),
    ("price terms", include_str!("../migrations/sqlite/0030_price_terms.sql")),
    ("account bindings", include_str!("../migrations/sqlite/0031_account_bindings.sql")),
    ("makers of admin tokens", include_str!("../migrations/sqlite/0032_makers_of_admin_tokens.sql")),
    ("folded user names", include_str!("../migrations/sqlite/0033_folded_user_names.sql")),
    ("answers by request", include_str!("../migrations/sqlite/0034_answers_by_request.sql")),
    ("reasons of stored answers", include_str!("../migrations/sqlite/0035_reasons_of_stored_answers.sql")),
];

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

//! The command `imagate limits`.

use std::sync::Arc;

use clap::Args;
use serde_json::{Map, Value, json};

use super::failure::CommandFailure;
use super::installation::InstallationArgs;
use super::output::{Column, print, print_json, table};
use crate::gateway::config::{Config, limits_from_json};
use crate::gateway::limits::{LimitAmounts, LimitState, LimitSubject, LimitUsage, RequestLimiter, SubjectLimits};
use crate::gateway::store::{ReservationSubjectKind, Store};
use crate::gateway::work::WORK_PER_MINUTE;

/// The limits that a command can read without the memory of a server.
const STORED_LIMITS: [&str; 2] = ["images_per_day", "budget_usd"];

/// Arguments of `limits`.
#[derive(Debug, Args)]
pub(super) struct LimitsCommand {
    #[command(flatten)]
    installation: InstallationArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Only the limits of the key or the user with this id, or of the group with this name.
    #[arg(value_name = "ID")]
    subject: Option<String>,
}

/// A limit, and the subject that it belongs to.
struct LimitRow {
    kind: &'static str,
    id: String,
    name: String,
    usage: LimitUsage,
}

// === impl LimitsCommand ===

impl LimitsCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let Self { installation, json, subject } = self;
        installation.with_store(async |config, store| {
            let mut subjects = limited_subjects(config, &**store).await?;
            subjects.retain(|of| subject.as_ref().is_none_or(|wanted| of.subject.kind_and_id().1 == wanted));
            let rows = read(store, subjects).await?;
            if json { Ok(print_json(&rows.iter().map(to_json).collect::<Vec<_>>())?) } else { print_table(&rows) }
        })
    }
}

/// Returns the groups, the users and the keys that have limits.
async fn limited_subjects(config: &Config, store: &dyn Store) -> Result<Vec<SubjectLimits>, CommandFailure> {
    let of_file = config.groups.iter().map(|group| (group.name.clone(), (*group.limits).clone()));
    let file_groups = config.file_groups();
    let of_store = store.group_policies().await?;
    let of_store = of_store.into_iter().filter(|(name, _)| !file_groups.contains(name)).filter_map(|(name, policy)| {
        let policy: Map<String, Value> = serde_json::from_str(&policy).ok()?;
        Some((name, limits_from_json(policy.get("limits")?.as_object()?).ok()?))
    });
    let groups = of_file.chain(of_store).map(|(name, limits)| (LimitSubject::Group(name), limits));
    let stored = store.limited_subjects().await?.into_iter().filter_map(|row| {
        let limits = limits_from_json(&serde_json::from_str(&row.limits).ok()?).ok()?;
        Some(match row.kind {
            ReservationSubjectKind::User => (LimitSubject::User(row.id.into()), limits),
            _ => (LimitSubject::Key(row.id.into()), limits),
        })
    });
    Ok(groups.chain(stored).map(|(subject, limits)| SubjectLimits { subject, limits: Arc::new(limits) }).collect())
}

/// Reads what is used. The counts of a minute and of running requests are known only if the database has them.
async fn read(store: &Arc<dyn Store>, subjects: Vec<SubjectLimits>) -> Result<Vec<LimitRow>, CommandFailure> {
    let limiter = RequestLimiter::new(Arc::clone(store) as _);
    limiter.count_running_jobs().await?;
    let usages = limiter.usage(&subjects).await?;
    let knows_all = store.shared_reservations().is_some();
    let mut rows = Vec::new();
    for (of, usages) in subjects.iter().zip(usages) {
        let (kind, id) = of.subject.kind_and_id();
        let name = store.subject_name(kind, id).await?.unwrap_or_default();
        // The work is in the memory of each node.
        let is_known = |usage: &LimitUsage| match usage.name {
            WORK_PER_MINUTE => false,
            name => knows_all || STORED_LIMITS.contains(&name),
        };
        let known = usages.into_iter().filter(is_known);
        rows.extend(known.map(|usage| LimitRow { kind: kind.as_str(), id: id.to_owned(), name: name.clone(), usage }));
    }
    Ok(rows)
}

const fn state(row: &LimitRow) -> &'static str {
    match row.usage.state {
        LimitState::Free => "free",
        LimitState::Near => "near",
        LimitState::Reached => "reached",
    }
}

fn to_json(row: &LimitRow) -> Value {
    let mut object = json!({
        "kind": row.kind, "id": row.id, "name": row.name, "limit_name": row.usage.name, "state": state(row),
        "resets_at": row.usage.resets_at,
    });
    match row.usage.amounts {
        LimitAmounts::Count { limit, used } => {
            object["limit"] = limit.into();
            object["used"] = used.into();
        }
        LimitAmounts::Money { limit, used, reserved, alert } => {
            for (name, amount) in [("limit", limit), ("used", used), ("reserved", reserved), ("alert", alert)] {
                object[name] = amount.dollars().into();
            }
        }
    }
    object
}

fn print_table(rows: &[LimitRow]) -> Result<(), CommandFailure> {
    let cells = rows.iter().map(|row| {
        let (limit, used) = match row.usage.amounts {
            LimitAmounts::Count { limit, used } => (limit.to_string(), used.to_string()),
            LimitAmounts::Money { limit, used, reserved, .. } => (limit.to_string(), used.plus(reserved).to_string()),
        };
        let resets = row.usage.resets_at.map_or_else(|| "-".to_owned(), |at| at.format("%Y-%m-%d %H:%M").to_string());
        [row.kind.to_owned(), row.name.clone(), row.usage.name.to_owned(), used, limit, state(row).to_owned(), resets]
    });
    let [of, limit, used, at_most, resets] = ["OF", "LIMIT", "USED", "AT MOST", "RESETS (UTC)"].map(Column::from);
    let columns = [of, Column::name("NAME"), limit, used, at_most, Column::state("STATE"), resets];
    Ok(print(&table(columns, &cells.collect::<Vec<_>>()))?)
}

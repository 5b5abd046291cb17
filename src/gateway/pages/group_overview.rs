//! The parts of a group: the accounts that serve it, its keys, and the users who may have keys in it; and the form
//! that assigns accounts to it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::account_summary::AccountSummary;
use super::form::PageForm;
use super::http_messages::PageRequest;
use super::page_context::PageContext;
use super::page_error::PageError;
use super::setting_fields::CHECKED;
use crate::error::{Error, ResourceConflict};
use crate::gateway::console::Console;
use crate::gateway::people::Actor;
use crate::wire::admin::server::{ListUsersQuery, RetrieveUsageQuery};
use crate::wire::admin::types;

/// The number of keys and of users that the page lists (our choice). Others are behind a link.
const LISTED: usize = 5;
/// The fields of the form: the accounts that shall serve the group, and those that served it when the page was shown.
pub(super) const ACCOUNTS_FIELD: &str = "accounts";
const SHOWN_ACCOUNTS_FIELD: &str = "had";
/// The checkbox that allows a change after which no account serves the group.
pub(super) const UNSERVED_FIELD: &str = "unserved";

/// The accounts, keys and users of a group.
pub(super) struct GroupOverview {
    /// The accounts that serve the group.
    pub(super) serving: Vec<AccountSummary>,
    /// The other accounts of the store, which can be assigned to the group.
    pub(super) others: Vec<AccountSummary>,
    /// The keys of the group that cost most in the last 30 days.
    pub(super) keys: Vec<types::UsageKey>,
    /// The counts of the group in the last 30 days.
    pub(super) totals: types::UsageCounts,
    /// Users who may have keys in the group, and their number.
    pub(super) people: Vec<types::User>,
    pub(super) people_count: u64,
}

/// A change of the accounts of a group.
pub(super) struct AccountAssignment {
    /// The ids of the accounts that shall serve the group from now on, and of those that no longer shall.
    added: BTreeSet<String>,
    removed: BTreeSet<String>,
}

// === impl GroupOverview ===

impl GroupOverview {
    /// Reads what belongs to a group.
    pub(super) async fn of(context: &PageContext<'_>, group: &str) -> Result<Self, PageError> {
        let (console, actor) = (context.console(), context.actor()?);
        let accounts = console.list_accounts(actor).await?.data;
        let (serving, others): (Vec<_>, Vec<_>) =
            accounts.into_iter().map(AccountSummary::new).partition(|summary| summary.serves(group));
        let usage = RetrieveUsageQuery { group: Some(group.to_owned()), ..RetrieveUsageQuery::default() };
        let types::Usage { mut keys, totals, .. } = console.retrieve_usage(actor, &usage).await?;
        keys.retain(|key| !key.key.is_empty());
        let cost = |key: &types::UsageKey| key.cost_usd.unwrap_or_default();
        keys.sort_by(|first, second| cost(second).total_cmp(&cost(first)));
        keys.truncate(LISTED);
        let people = ListUsersQuery {
            group: Some(group.to_owned()),
            limit: i64::try_from(LISTED).ok().and_then(|limit| types::PageLimit::new(limit).ok()),
            ..ListUsersQuery::default()
        };
        let people = console.list_users(actor, &people).await?;
        Ok(Self {
            serving,
            others: others.into_iter().filter(|summary| !summary.is_of_file).collect(),
            keys,
            totals,
            people_count: people.total,
            people: people.data,
        })
    }

    /// True if no account that could serve the group is enabled.
    pub(super) fn is_unserved(&self) -> bool {
        !self.serving.iter().any(can_serve)
    }

    /// True if an account of the settings file serves the group.
    pub(super) fn has_file_account(&self) -> bool {
        self.serving.iter().any(|summary| summary.is_of_file)
    }

    /// True if there is an account that the form can assign or remove.
    pub(super) fn has_choices(&self) -> bool {
        !self.others.is_empty() || self.serving.iter().any(|summary| !summary.is_of_file)
    }

    /// True if no enabled account would serve the group after the change, and one does now.
    fn loses_service(&self, assignment: &AccountAssignment) -> bool {
        let stays = |summary: &&AccountSummary| !assignment.removed.contains(&summary.account.id);
        let comes = |summary: &&AccountSummary| assignment.added.contains(&summary.account.id);
        let later = self.serving.iter().filter(stays).chain(self.others.iter().filter(comes));
        !self.is_unserved() && !later.into_iter().any(can_serve)
    }
}

/// True if the account is enabled. A cooldown ends by itself.
fn can_serve(summary: &AccountSummary) -> bool {
    use types::AccountState::{CoolingDown, Enabled, Failing};
    matches!(summary.account.state, Enabled | CoolingDown | Failing)
}

// === impl AccountAssignment ===

impl AccountAssignment {
    /// Reads the form. Only accounts that the user has checked or unchecked are changed.
    pub(super) fn parse(request: &PageRequest) -> Self {
        let values = |name: &str| -> BTreeSet<String> {
            let Ok(form) = &request.form else { return BTreeSet::new() };
            form.get_all(name).filter(|id| !id.is_empty()).map(str::to_owned).collect()
        };
        let (wanted, shown) = (values(ACCOUNTS_FIELD), values(SHOWN_ACCOUNTS_FIELD));
        Self { added: &wanted - &shown, removed: &shown - &wanted }
    }

    /// The form with the submitted choice.
    pub(super) fn form(&self, overview: &GroupOverview) -> PageForm {
        let kept = overview.serving.iter().map(|summary| &summary.account.id).filter(|id| !self.removed.contains(*id));
        let chosen = kept.chain(&self.added);
        chosen.fold(PageForm::default(), |form, id| form.with_value(ACCOUNTS_FIELD, id.clone()))
    }

    /// True if the change needs the consent of the user, and has none.
    pub(super) fn needs_consent(&self, overview: &GroupOverview, request: &PageRequest) -> bool {
        overview.loses_service(self) && request.form_field(UNSERVED_FIELD) != CHECKED
    }

    /// Changes the groups of each account.
    ///
    /// # Errors
    ///
    /// Returns the error of the console for the first account that cannot be changed.
    pub(super) async fn apply(&self, console: &Console, actor: &Actor, group: &str) -> Result<(), Error> {
        // Accounts are added first, so that the group is served all the time.
        for (ids, is_added) in [(&self.added, true), (&self.removed, false)] {
            for id in ids {
                assign(console, actor, id, group, is_added).await?;
            }
        }
        Ok(())
    }
}

async fn assign(console: &Console, actor: &Actor, account: &str, group: &str, is_added: bool) -> Result<(), Error> {
    let (shown, settings) = console.retrieve_stored_account(actor, account).await?;
    let Some(mut settings) = settings else { return Err(Error::Conflict(ResourceConflict::ReadOnly(shown.name))) };
    let mut groups: BTreeSet<String> = shown.groups.into_iter().collect();
    let changes = if is_added { groups.insert(group.to_owned()) } else { groups.remove(group) };
    if !changes {
        return Ok(());
    }
    settings.insert("groups".to_owned(), groups.into_iter().map(Value::from).collect());
    let body = json!({ "settings": settings }).to_string();
    console.update_account(actor, account, body.as_bytes()).await?;
    Ok(())
}

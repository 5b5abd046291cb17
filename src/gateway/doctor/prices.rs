//! The price table: with a budget, a model without a price cannot be used.

use std::collections::BTreeSet;
use std::time::Duration;

use chrono::Utc;
use serde_json::{Map, Value};

use super::{CheckResult, InstallationContents, message_of};
use crate::gateway::config::{self, AccountProtocol, ImageModelSpec, RequestLimits, UpstreamConfig};
use crate::gateway::manage;
use crate::gateway::prices::{PriceTable, WorkEstimate};
use crate::gateway::store::{KeyState, ReservationSubjectKind, StoreError, Timestamp, UsedModel};

const CHECK: &str = "prices";
/// The time for which a model counts as in use after its last job (our choice).
const IN_USE: Duration = Duration::from_secs(30 * 24 * 3600);
/// The operation of responses, whose model is a text model.
const RESPONSE: &str = "create_response";
const IMAGE: &str = "create_image";

/// The limits with a budget: who has them, and the image models that they name.
#[derive(Debug, Default)]
pub(super) struct LimitsWithBudget {
    pub(super) owners: Vec<String>,
    pub(super) models: BTreeSet<String>,
}

pub(super) async fn check(installation: &InstallationContents<'_>) -> CheckResult {
    match read(installation).await {
        Ok((table, models, budgets)) => compare(&table, &models, &budgets),
        Err(error) => CheckResult::problem(CHECK, message_of(&error), None),
    }
}

/// Compares the models in use with the price table.
pub(super) fn compare(table: &PriceTable, used: &[UsedModel], budgets: &LimitsWithBudget) -> CheckResult {
    let today = Utc::now().date_naive();
    let has_price = |used: &UsedModel| {
        let work = WorkEstimate { text_bytes: 1, images: 1, ..WorkEstimate::default() };
        let work = match used.operation.as_str() {
            RESPONSE => WorkEstimate { text_model: Some(&used.model), ..work },
            _ => WorkEstimate { image_model: Some(&used.model), ..work },
        };
        table.max_cost(&work, today).is_ok()
    };
    let limited = budgets.models.iter().map(|model| UsedModel { operation: IMAGE.to_owned(), model: model.clone() });
    let all: BTreeSet<UsedModel> = used.iter().cloned().chain(limited).collect();
    let unpriced: BTreeSet<&str> = all.iter().filter(|used| !has_price(used)).map(|used| used.model.as_str()).collect();
    let Some(first) = unpriced.first() else {
        let (models, budgets) = (all.len(), budgets.owners.len());
        return CheckResult::ok(CHECK, format!("all models in use have a price: models {models}, budgets {budgets}"));
    };
    let names = unpriced.iter().copied().collect::<Vec<_>>().join(", ");
    let advice = format!("`imagate price set {first}` sets a price");
    if budgets.owners.is_empty() {
        let message = format!("there is no price for {names}: the costs of such requests are unknown");
        CheckResult::warning(CHECK, message, Some(&advice))
    } else {
        let owners = budgets.owners.join(", ");
        let message = format!("there is no price for {names}: requests are refused within the budgets of {owners}");
        CheckResult::problem(CHECK, message, Some(&advice))
    }
}

async fn read(
    installation: &InstallationContents<'_>,
) -> Result<(PriceTable, Vec<UsedModel>, LimitsWithBudget), StoreError> {
    let stored_prices = match installation.store {
        Some(store) => store.list_prices().await?,
        None => Vec::new(),
    };
    let table = PriceTable::new(&installation.config.prices, &stored_prices);
    Ok((table, models_in_use(installation).await?, LimitsWithBudget::read(installation).await?))
}

/// Returns the models of recent jobs, the text models of the accounts, and at least one image model.
async fn models_in_use(installation: &InstallationContents<'_>) -> Result<Vec<UsedModel>, StoreError> {
    let config = installation.config;
    let (mut models, accounts) = match installation.store {
        Some(store) => {
            let managed = manage::list(config, store).await?;
            let accounts = managed.into_iter().filter_map(|managed| managed.account.ok()).collect();
            (store.models_since(Timestamp::now() - IN_USE).await?, accounts)
        }
        None => (Vec::new(), config.accounts.clone()),
    };
    // An account of the protocol `responses` lets a text model call the image tool, which has its own price.
    models.extend(accounts.into_iter().filter_map(|account| match account.upstream {
        UpstreamConfig::Api(endpoint) if endpoint.protocol == AccountProtocol::Responses => {
            Some(UsedModel { operation: RESPONSE.to_owned(), model: endpoint.host_model })
        }
        UpstreamConfig::Api(_) | UpstreamConfig::Simulator => None,
    }));
    // If no image was made recently, the next request for one will probably name the default model.
    if models.iter().all(|used| used.operation == RESPONSE) {
        let model = ImageModelSpec::default_model().name;
        models.push(UsedModel { operation: IMAGE.to_owned(), model });
    }
    Ok(models)
}

/// Parses a JSON object; `None` if the text is not one.
fn parse_object(text: &str) -> Option<Map<String, Value>> {
    serde_json::from_str(text).ok()
}

// === impl LimitsWithBudget ===

impl LimitsWithBudget {
    /// Reads the limits of groups, of usable keys, and of users.
    async fn read(installation: &InstallationContents<'_>) -> Result<Self, StoreError> {
        let config = installation.config;
        let mut budgets = Self::default();
        for group in &config.groups {
            budgets.add(format!("group {}", group.name), &group.limits);
        }
        let Some(store) = installation.store else { return Ok(budgets) };
        let file_groups = config.file_groups();
        let groups = store.list_groups().await?.into_iter().filter(|group| !file_groups.contains(&group.name));
        for group in groups {
            let policy = group.policy.as_deref().and_then(parse_object).unwrap_or_default();
            let limits = policy.get("limits").and_then(Value::as_object);
            budgets.add_stored(format!("group {}", group.name), limits);
        }
        let keys = store.list_keys().await?.into_iter().filter(|key| key.state(Timestamp::now()) == KeyState::Active);
        for key in keys {
            budgets.add_stored(format!("key {}", key.id), key.limits.as_deref().and_then(parse_object).as_ref());
        }
        let subjects = store.limited_subjects().await?;
        for user in subjects.into_iter().filter(|subject| subject.kind == ReservationSubjectKind::User) {
            budgets.add_stored(format!("user {}", user.id), parse_object(&user.limits).as_ref());
        }
        Ok(budgets)
    }

    fn add(&mut self, owner: String, limits: &RequestLimits) {
        if limits.budget.is_some() {
            self.owners.push(owner);
            self.models.extend(limits.written.models.iter().flatten().cloned());
        }
    }

    /// Adds limits of the store. Limits that cannot be read let no request pass, so a budget among them has no effect.
    fn add_stored(&mut self, owner: String, limits: Option<&Map<String, Value>>) {
        if let Some(limits) = limits.and_then(|limits| config::limits_from_json(limits).ok()) {
            self.add(owner, &limits);
        }
    }
}

//! The text models that a caller can name: those that the operator chose, or those that the accounts of the caller's
//! group list.
//!
//! The module decides which accounts are asked, when they are asked again, and which parts of their answers are passed
//! on: a name, a date and an owner. It must not know what a model is good for. If an account does not answer, only its
//! models are missing. A caller waits at most [`CALLER_WAIT`], and not at all if there is an older answer.

mod model_cache;
mod model_list;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch::{self, Receiver};
use tokio::time::{Instant, timeout_at};

use super::accounts::{AccountEndpoint, Accounts, TextModelAccount};
use super::upstream::{ServiceCallError, UpstreamClient};
use model_cache::{ModelCache, ModelFetchError, TextModelList};

/// The longest wait of a caller if no list is known yet (our choice): a list is short, and many programs request it
/// when they start.
const CALLER_WAIT: Duration = Duration::from_secs(5);
/// The model that the simulator offers.
const SIMULATED_MODEL: &str = "gpt-5.5";

/// A text model, as callers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TextModel {
    /// The name, as requests spell it.
    pub(crate) id: String,
    /// The time of creation in Unix seconds, if an upstream states it.
    pub(crate) created: Option<i64>,
    /// The owner, if an upstream states one that identifies no account.
    pub(crate) owned_by: Option<String>,
}

/// The text models of all accounts.
pub(crate) struct TextModelCatalog {
    accounts: Arc<Accounts>,
    upstream: Arc<UpstreamClient>,
    cache: Arc<ModelCache<TextModelAccount>>,
}

// === impl TextModelCatalog ===

impl TextModelCatalog {
    /// Creates an empty catalog; no upstream is asked yet.
    pub(crate) fn new(accounts: &Arc<Accounts>, upstream: &Arc<UpstreamClient>) -> Self {
        Self { accounts: Arc::clone(accounts), upstream: Arc::clone(upstream), cache: ModelCache::new() }
    }

    /// Returns the models for this group: those of `chosen` in their order, or, if it is `None`, those that the
    /// accounts of the group list, by name.
    pub(crate) async fn models_for_group(&self, group: &str, chosen: Option<&[String]>) -> Vec<TextModel> {
        if let Some(chosen) = chosen {
            return chosen.iter().map(|id| TextModel::from_name(id)).collect();
        }
        let until = Instant::now() + CALLER_WAIT;
        // Every account is asked before the first answer is awaited.
        let pending_lists: Vec<_> =
            self.accounts.text_model_accounts(group).iter().map(|account| self.request_models(account)).collect();
        let mut models = BTreeMap::new();
        for mut answer in pending_lists {
            let Ok(Ok(answer)) = timeout_at(until, answer.wait_for(Option::is_some)).await else { continue };
            for model in answer.iter().flat_map(|models| models.iter()) {
                models.entry(model.id.clone()).or_insert_with(|| model.clone());
            }
        }
        models.into_values().collect()
    }

    /// Returns a receiver of the models of this account; it holds `None` until they are known.
    fn request_models(&self, account: &Arc<TextModelAccount>) -> Receiver<Option<TextModelList>> {
        if matches!(account.endpoint(), AccountEndpoint::Simulator) {
            let known: TextModelList = Arc::from([TextModel::from_name(SIMULATED_MODEL)]);
            return watch::channel(Some(known)).1;
        }
        let (accounts, upstream) = (Arc::clone(&self.accounts), Arc::clone(&self.upstream));
        let fetched_account = Arc::clone(account);
        self.cache.get_or_fetch(account, async move { fetch_models(&accounts, &upstream, &fetched_account).await })
    }
}

/// Fetches the models that an account lists.
async fn fetch_models(
    accounts: &Accounts,
    upstream: &UpstreamClient,
    account: &TextModelAccount,
) -> Result<Vec<TextModel>, ModelFetchError> {
    let Some(address) = account.endpoint().address() else { return Ok(Vec::new()) };
    let authorization = accounts.authorization_header(account).await.map_err(|_| ModelFetchError::Temporary)?;
    let answer = upstream.list_models(address, authorization.as_ref()).await;
    let answer = answer.map_err(|error| match error {
        ServiceCallError::Status(401 | 403) => ModelFetchError::Refused,
        _ => ModelFetchError::Temporary,
    });
    answer.and_then(|answer| model_list::parse_models(&answer).ok_or(ModelFetchError::Temporary)).inspect_err(|error| {
        tracing::warn!(account = account.name(), ?error, "the models of an account could not be listed");
    })
}

// === impl TextModel ===

impl TextModel {
    fn from_name(id: &str) -> Self {
        Self { id: id.to_owned(), created: None, owned_by: None }
    }
}

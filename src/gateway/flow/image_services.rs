//! The part of the gateway that the request flow needs. It reaches nothing else.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::gateway::accounts::Accounts;
use crate::gateway::active_settings::ActiveSettings;
use crate::gateway::admission::RequestBudgets;
use crate::gateway::catalog::TextModelCatalog;
use crate::gateway::keys::ApiKeys;
use crate::gateway::ledger::Ledger;
use crate::gateway::limits::RequestLimiter;
use crate::gateway::people::IdentityService;
use crate::gateway::prices::CurrentPrices;
use crate::gateway::replay::AnswerStore;
use crate::gateway::spool::Spool;
use crate::gateway::telemetry::Metrics;
use crate::gateway::upstream::UpstreamClient;
use crate::gateway::usage_fold::UsageFoldTask;

/// The services that make images and responses, with the settings that were in force when a request began. Clones share the
/// services.
#[derive(Clone)]
pub(crate) struct ImageServices {
    /// The settings in force.
    pub(crate) settings: Arc<ActiveSettings>,
    /// The API keys.
    pub(crate) keys: Arc<ApiKeys>,
    /// Knows whether the store has settings for a group.
    pub(crate) people: Arc<IdentityService>,
    /// The upstream accounts.
    pub(crate) accounts: Arc<Accounts>,
    /// Makes the calls to upstreams.
    pub(crate) upstream: Arc<UpstreamClient>,
    /// The text models.
    pub(crate) catalog: Arc<TextModelCatalog>,
    /// The answers that are kept.
    pub(crate) replay: Arc<AnswerStore>,
    /// The records.
    pub(crate) ledger: Ledger,
    /// The limits of groups, users and keys.
    pub(crate) limiter: Arc<RequestLimiter>,
    /// The prices of models.
    pub(crate) prices: Arc<CurrentPrices>,
    /// The bodies on disk.
    pub(crate) spool: Spool,
    /// The memory and disk space that requests share.
    pub(crate) request_budgets: Arc<RequestBudgets>,
    /// The counters.
    pub(crate) metrics: Arc<Metrics>,
    /// The task that counts usage in detail.
    pub(crate) usage_fold: Arc<UsageFoldTask>,
    /// This token is cancelled when the time for the drain is over: requests that still wait for an upstream are then
    /// answered at once, and answers that are being sent end early.
    pub(crate) cutoff: CancellationToken,
}

//! The text models that a caller can name: those that the operator chose, or those that the accounts of the caller's
//! group list themselves.
//!
//! Decides which accounts are asked, when again, and what of their answers goes on: a name, a day and an owner. Refuses
//! to know what a model is good for. An account that does not answer only leaves its models out; no caller waits for
//! it longer than [`PATIENCE`], and none at all once there is an older answer.

mod read;
mod shelf;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch::{self, Receiver};
use tokio::time::{Instant, timeout_at};

use super::accounts::{Accounts, Endpoint, Speaker};
use super::upstream::{CallFailed, Upstream};
use shelf::{Failed, Models, Shelf};

/// The longest that a caller waits where nothing is known yet (ours): a list is short, and many programs ask for it as
/// they start.
const PATIENCE: Duration = Duration::from_secs(5);
/// What the simulator answers for.
const SIMULATED: &str = "gpt-5.5";

/// A text model, as callers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TextModel {
    /// As requests spell it.
    pub(crate) id: String,
    /// In Unix seconds, where an upstream says so.
    pub(crate) created: Option<i64>,
    /// A word, where an upstream says one that tells nothing of its account.
    pub(crate) owned_by: Option<String>,
}

/// The text models.
pub(crate) struct Catalog {
    accounts: Arc<Accounts>,
    upstream: Arc<Upstream>,
    shelf: Arc<Shelf<Speaker>>,
}

// === impl Catalog ===

impl Catalog {
    /// An empty catalogue; no upstream is asked yet.
    pub(crate) fn new(accounts: &Arc<Accounts>, upstream: &Arc<Upstream>) -> Self {
        Self { accounts: Arc::clone(accounts), upstream: Arc::clone(upstream), shelf: Shelf::new() }
    }

    /// The models for this group: in the order of the configuration if it has `chosen` them, or else by name.
    pub(crate) async fn of_group(&self, group: &str, chosen: Option<&[String]>) -> Vec<TextModel> {
        if let Some(chosen) = chosen {
            return chosen.iter().map(|id| TextModel::named(id)).collect();
        }
        let until = Instant::now() + PATIENCE;
        // All of them are asked before any is waited for.
        let asked: Vec<_> = self.accounts.speakers(group).iter().map(|speaker| self.ask(speaker)).collect();
        let mut models = BTreeMap::new();
        for mut answer in asked {
            let Ok(Ok(answer)) = timeout_at(until, answer.wait_for(Option::is_some)).await else { continue };
            for model in answer.iter().flat_map(|models| models.iter()) {
                models.entry(model.id.clone()).or_insert_with(|| model.clone());
            }
        }
        models.into_values().collect()
    }

    /// What is known of this account, now or soon.
    fn ask(&self, speaker: &Arc<Speaker>) -> Receiver<Option<Models>> {
        if matches!(speaker.endpoint(), Endpoint::Simulator) {
            let known: Models = Arc::from([TextModel::named(SIMULATED)]);
            return watch::channel(Some(known)).1;
        }
        let (accounts, upstream) = (Arc::clone(&self.accounts), Arc::clone(&self.upstream));
        let asked = Arc::clone(speaker);
        self.shelf.look(speaker, async move { fetch(&accounts, &upstream, &asked).await })
    }
}

/// What an account lists.
async fn fetch(accounts: &Accounts, upstream: &Upstream, speaker: &Speaker) -> Result<Vec<TextModel>, Failed> {
    let address = match speaker.endpoint() {
        Endpoint::Images(address) => address,
        Endpoint::Responses(host) => host.address(),
        Endpoint::Simulator => return Ok(Vec::new()),
    };
    let authorization = accounts.pass(speaker).await.map_err(|_| Failed::Trouble)?;
    let listed = upstream.list_models(address, authorization.as_ref()).await;
    let listed = listed.map_err(|failed| match failed {
        CallFailed::Status(401 | 403) => Failed::Refused,
        _ => Failed::Trouble,
    });
    listed.and_then(|answer| read::models(&answer).ok_or(Failed::Trouble)).inspect_err(|failed| {
        tracing::warn!(account = speaker.name(), ?failed, "the models of an account are not known now");
    })
}

// === impl TextModel ===

impl TextModel {
    fn named(id: &str) -> Self {
        Self { id: id.to_owned(), created: None, owned_by: None }
    }
}

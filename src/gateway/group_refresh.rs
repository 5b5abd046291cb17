//! Brings groups of the store into force, and lets those who change a group wait for it.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinError;

use super::config::{Config, GroupConfig};
use super::filter::{FilterError, PromptFilters};
use super::upstream::UpstreamClient;
use super::{accounts, manage};

/// Large enough that a change does not wait for space in the queue.
const QUEUE_CAPACITY: usize = 64;

/// A handle that asks the serve loop to refresh the groups of the store. Clones ask the same loop.
#[derive(Clone)]
pub(crate) struct GroupRefreshHandle(mpsc::Sender<GroupRefreshRequest>);

/// The changes that wait, in the order of their arrival.
pub(super) struct GroupRefreshQueue(mpsc::Receiver<GroupRefreshRequest>);

/// A change that waits. It receives true if the groups of the store are in force.
pub(super) type GroupRefreshRequest = oneshot::Sender<bool>;

/// The reason why groups cannot be brought into force.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GroupRefreshError {
    /// A content filter cannot be used.
    #[error("a content filter cannot be used")]
    Filter(#[from] FilterError),
    /// The thread that compiles the filters did not come to its end.
    #[error("reading the groups of the store")]
    Task(#[from] JoinError),
}

/// Creates both ends of the queue.
pub(super) fn group_refresh_channel() -> (GroupRefreshHandle, GroupRefreshQueue) {
    let (sender, receiver) = mpsc::channel(QUEUE_CAPACITY);
    (GroupRefreshHandle(sender), GroupRefreshQueue(receiver))
}

/// True if the configuration has an encrypted upstream or moderation service.
pub(super) fn needs_tls(config: &Config) -> bool {
    accounts::need_tls(&config.accounts) || config.groups.iter().any(GroupConfig::needs_tls)
}

/// The settings with the groups of the store, and the filters of all groups. Runs on a blocking thread, because it
/// compiles patterns.
pub(super) async fn merge_stored_groups(
    config: &Config,
    stored: Vec<(String, String)>,
    upstream: &Arc<UpstreamClient>,
) -> Result<(Arc<Config>, PromptFilters), GroupRefreshError> {
    let (config, upstream) = (config.clone(), Arc::clone(upstream));
    let compiled = tokio::task::spawn_blocking(move || {
        let config = manage::with_store_groups(&config, &stored, &upstream);
        let filters = PromptFilters::new(&config.groups)?;
        Ok((Arc::new(config), filters))
    });
    compiled.await?
}

// === impl GroupRefreshHandle ===

impl GroupRefreshHandle {
    /// Waits until the groups that the store has now are in force. Returns false if that is unknown: the gateway is
    /// stopping, or the store has failed.
    pub(crate) async fn refresh(&self) -> bool {
        let (done, waiting) = oneshot::channel();
        self.0.send(done).await.is_ok() && waiting.await.unwrap_or(false)
    }
}

// === impl GroupRefreshQueue ===

impl GroupRefreshQueue {
    /// The next change, with all that came meanwhile: one refresh serves them all. Cancel safe: nothing is lost if this
    /// is dropped.
    pub(super) async fn next(&mut self) -> Option<Vec<GroupRefreshRequest>> {
        let mut waiting = vec![self.0.recv().await?];
        while let Ok(further) = self.0.try_recv() {
            waiting.push(further);
        }
        Some(waiting)
    }
}

//! Brings changed groups of the store into force. The handler that changes a group waits until they are in force.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinError;

use super::config::{Config, GroupConfig};
use super::filter::FilterError;
use super::group_policies::GroupPolicies;
use super::upstream::UpstreamClient;
use super::{accounts, manage};

/// The capacity of the queue (our choice): large enough that a change does not wait for space in it.
const QUEUE_CAPACITY: usize = 64;

/// A handle that asks the serve loop to refresh the groups of the store. Clones share the loop.
#[derive(Clone)]
pub(crate) struct GroupRefreshHandle(mpsc::Sender<GroupRefreshRequest>);

/// The waiting requests for a refresh, in the order of their arrival.
pub(super) struct GroupRefreshQueue(mpsc::Receiver<GroupRefreshRequest>);

/// A waiting request for a refresh: the sender of its result, which is true if the groups of the store are in force.
pub(super) type GroupRefreshRequest = oneshot::Sender<bool>;

/// The reason why groups cannot be brought into force.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GroupRefreshError {
    /// A content filter cannot be used.
    #[error("a content filter cannot be used")]
    Filter(#[from] FilterError),
    /// The task that compiles the filters panicked or was cancelled.
    #[error("the groups of the store cannot be read")]
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

/// Returns the settings with the groups of the store, and the policies of all groups. The work is done on a blocking
/// thread, because it compiles patterns.
pub(super) async fn merge_stored_groups(
    config: &Config,
    stored: Vec<(String, String)>,
    upstream: &Arc<UpstreamClient>,
) -> Result<(Arc<Config>, GroupPolicies), GroupRefreshError> {
    let (config, upstream) = (config.clone(), Arc::clone(upstream));
    let task = tokio::task::spawn_blocking(move || {
        let config = manage::with_store_groups(&config, &stored, &upstream);
        let others = GroupConfig::implicit("", config.deadlines, config.text_models.as_deref());
        let policies = GroupPolicies::new(&config.groups, others)?;
        Ok((Arc::new(config), policies))
    });
    task.await?
}

// === impl GroupRefreshHandle ===

impl GroupRefreshHandle {
    /// Waits until the groups that the store has now are in force. Returns false if this cannot be confirmed, for
    /// example because the gateway is stopping or the store has failed.
    pub(crate) async fn refresh(&self) -> bool {
        let (sender, receiver) = oneshot::channel();
        self.0.send(sender).await.is_ok() && receiver.await.unwrap_or(false)
    }
}

// === impl GroupRefreshQueue ===

impl GroupRefreshQueue {
    /// Returns the next request and all others that wait, because one refresh serves them all. Cancel safe: no request
    /// is lost if this future is dropped.
    pub(super) async fn next(&mut self) -> Option<Vec<GroupRefreshRequest>> {
        let mut requests = vec![self.0.recv().await?];
        while let Ok(request) = self.0.try_recv() {
            requests.push(request);
        }
        Some(requests)
    }
}

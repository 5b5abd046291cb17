//! Groups of the store: brought into force, and waited for by those who change them.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::config::{Config, Group};
use super::filter::Filters;
use super::serve::ServeError;
use super::upstream::Upstream;
use super::{accounts, manage};

/// Enough that no change waits to be asked for.
const QUEUE: usize = 64;

/// Asks the serve loop for a look at the groups of the store. Clones ask the same loop.
#[derive(Clone)]
pub(crate) struct GroupFollower(mpsc::Sender<FollowRequest>);

/// The changes that wait, in the order in which they came.
pub(super) struct FollowRequests(mpsc::Receiver<FollowRequest>);

/// A change that waits. It is told if the groups of the store are in force.
pub(super) type FollowRequest = oneshot::Sender<bool>;

/// Both ends.
pub(super) fn group_follower() -> (GroupFollower, FollowRequests) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    (GroupFollower(sender), FollowRequests(receiver))
}

/// True if something that the file says is called encrypted.
pub(super) fn needs_tls(config: &Config) -> bool {
    accounts::need_tls(&config.accounts) || config.groups.iter().any(Group::needs_tls)
}

/// The settings with the groups of the store, and the filters of all groups. On a thread of its own, because patterns are
/// compiled.
pub(super) async fn with_groups(
    config: &Config,
    stored: Vec<(String, String)>,
    upstream: &Arc<Upstream>,
) -> Result<(Arc<Config>, Filters), ServeError> {
    let (config, upstream) = (config.clone(), Arc::clone(upstream));
    let compiled = tokio::task::spawn_blocking(move || {
        let config = manage::with_groups_of_store(&config, &stored, &upstream);
        let filters = Filters::new(&config.groups)?;
        Ok((Arc::new(config), filters))
    });
    let failed =
        |error| ServeError::Io { doing: "reading the groups of the store", source: std::io::Error::other(error) };
    compiled.await.map_err(failed)?
}

// === impl GroupFollower ===

impl GroupFollower {
    /// Waits until what the store has of groups now is in force. False if that cannot be said: the gateway is stopping,
    /// or the store has trouble.
    pub(crate) async fn follow(&self) -> bool {
        let (done, waiting) = oneshot::channel();
        self.0.send(done).await.is_ok() && waiting.await.unwrap_or(false)
    }
}

// === impl FollowRequests ===

impl FollowRequests {
    /// The next change, with all that came meanwhile: one look answers them all. Nothing is lost if this is dropped.
    pub(super) async fn next(&mut self) -> Option<Vec<FollowRequest>> {
        let mut waiting = vec![self.0.recv().await?];
        while let Ok(further) = self.0.try_recv() {
            waiting.push(further);
        }
        Some(waiting)
    }
}

//! Brings changed groups of the store into force. The handler that changes a group waits until they are in force.

use tokio::sync::{mpsc, oneshot};

/// The capacity of the queue (our choice): large enough that a change does not wait for space in it.
const QUEUE_CAPACITY: usize = 64;

/// A handle that asks the serve loop to refresh the groups of the store. Clones share the loop.
#[derive(Clone)]
pub(crate) struct GroupRefreshHandle(mpsc::Sender<GroupRefreshRequest>);

/// The waiting requests for a refresh, in the order of their arrival.
pub(super) struct GroupRefreshQueue(mpsc::Receiver<GroupRefreshRequest>);

/// A waiting request for a refresh: the sender of its result, which is true if the groups of the store are in force.
pub(super) type GroupRefreshRequest = oneshot::Sender<bool>;

/// Creates both ends of the queue.
pub(super) fn group_refresh_channel() -> (GroupRefreshHandle, GroupRefreshQueue) {
    let (sender, receiver) = mpsc::channel(QUEUE_CAPACITY);
    (GroupRefreshHandle(sender), GroupRefreshQueue(receiver))
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

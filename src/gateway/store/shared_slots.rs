//! The slots of accounts, if several nodes share the accounts.

use std::time::Duration;

use async_trait::async_trait;

use super::StoreError;

/// The time after which the slots of a node are free for others if the node does not confirm them (our choice): much
/// longer than the interval of the confirmations, and shorter than the time that a request waits for a slot.
pub(crate) const SHARED_SLOT_TIMEOUT: Duration = Duration::from_secs(15);

/// The slots that the nodes of a shared database hold.
///
/// A node uses only slots that it holds, so all nodes together make no more concurrent calls of an account than it
/// permits, and a request needs no query to get a slot. A node whose process ends loses its slots after
/// [`SHARED_SLOT_TIMEOUT`].
#[async_trait]
pub(crate) trait SharedSlots: Send + Sync {
    /// Passes the slots that other nodes hold to `decide`, one entry for each account of which another node has a row,
    /// and writes what it returns as all slots of this node. No other node changes its slots meanwhile. If `decide`
    /// returns `None`, nothing is written.
    ///
    /// # Errors
    /// Returns an error if the database fails. The write may have taken effect even so.
    async fn exchange_slots(
        &self,
        decide: &mut (dyn FnMut(Vec<OtherNodeSlots>) -> Option<Vec<HeldSlots>> + Send),
    ) -> Result<(), StoreError>;

    /// Gives all slots of this node back.
    async fn release_slots(&self) -> Result<(), StoreError>;
}

/// The slots of an account that this node holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldSlots {
    /// The name of the account.
    pub(crate) account: String,
    /// The slots for all requests.
    pub(crate) all: SlotHolding,
    /// The slots for large requests, which are among those for all.
    pub(crate) large: SlotHolding,
}

/// A number of slots that a node holds, and the number that it needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlotHolding {
    /// The number of slots that no other node may use.
    pub(crate) held: usize,
    /// The number of slots that the node could use now.
    pub(crate) wanted: usize,
}

/// The slots of an account that the other nodes hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OtherNodeSlots {
    /// The name of the account.
    pub(crate) account: String,
    /// The number of other nodes that use the account.
    pub(crate) nodes: usize,
    /// The slots for all requests.
    pub(crate) all: OtherNodeHolding,
    /// The slots for large requests.
    pub(crate) large: OtherNodeHolding,
}

/// The sum over the other nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OtherNodeHolding {
    /// The number of slots that they hold.
    pub(crate) held: usize,
    /// True if at least one of them needs more slots than it holds.
    pub(crate) needs_more: bool,
}

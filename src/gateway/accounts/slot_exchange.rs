//! Shares the slots of accounts with the other nodes of a shared database: several times a second, this node tells the
//! store how many slots it holds and needs, and learns the same of the others.
//!
//! Fewer slots come into force before the store is asked, and more slots only after the store has confirmed them. So
//! whatever happens to a write, this node uses no slot that another one may hold.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::Accounts;
use super::pool::{AccountPool, AccountPoolState};
use super::slot_share::{MemberShare, SlotDemand, SlotShare};
use crate::gateway::store::{HeldSlots, OtherNodeSlots, SHARED_SLOT_TIMEOUT, StoreError};

/// The interval of the exchanges (our choice): after at most this time, a node notices that another one needs slots.
const EXCHANGE_INTERVAL: Duration = Duration::from_millis(250);
/// The interval while requests of this node wait for slots that other nodes hold (our choice).
const URGENT_INTERVAL: Duration = Duration::from_millis(50);
/// The shortest pause between two exchanges (our choice): it bounds the queries of a node.
const EXCHANGE_PAUSE: Duration = Duration::from_millis(20);
/// The age of the last write after which unchanged slots are confirmed (our choice).
const CONFIRM_AFTER: Duration = Duration::from_secs(4);
/// The time before [`SHARED_SLOT_TIMEOUT`] at which this node stops using slots that it could not confirm (our choice).
const EXPIRY_MARGIN: Duration = Duration::from_secs(3);
/// The time limit for one exchange (our choice).
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(5);

/// The task that exchanges slots.
#[derive(Debug)]
pub(super) struct SlotExchangeTask(JoinHandle<()>);

/// The next shares of the members of the pool, by the number of the member.
type MemberShares = HashMap<u64, (SlotShare, SlotShare)>;

// === impl Accounts ===

impl Accounts {
    /// Shares the slots of the accounts with the other nodes from now on, if the store has any. Must be called before the
    /// first request.
    ///
    /// # Errors
    ///
    /// Returns an error if the store fails.
    pub(super) async fn share_slots(self: &Arc<Self>) -> Result<(), StoreError> {
        if self.store.shared_slots().is_none() {
            return Ok(());
        }
        self.pool.share_slots();
        self.exchange_slots().await?;
        let task = Handle::current().spawn(run_exchange_loop(Arc::downgrade(self)));
        // Only the first call starts a task.
        if let Err(SlotExchangeTask(second)) = self.slot_exchange.set(SlotExchangeTask(task)) {
            second.abort();
        }
        Ok(())
    }

    /// Gives all slots back. Must be called at the end of the process, after the last call of an account: otherwise the
    /// other nodes get the slots only when they expire.
    pub(super) async fn return_slots(&self) {
        let Some(SlotExchangeTask(task)) = self.slot_exchange.get() else { return };
        task.abort();
        let Some(store) = self.store.shared_slots() else { return };
        match timeout(EXCHANGE_TIMEOUT, store.release_slots()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => tracing::warn!("the slots of accounts are not given back; they expire"),
        }
    }

    async fn exchange_slots(&self) -> Result<(), StoreError> {
        let Some(store) = self.store.shared_slots() else { return Ok(()) };
        let begin = Instant::now();
        let mut shares = None;
        let mut decide = |others: Vec<OtherNodeSlots>| {
            let (slots, next) = self.pool.next_shares(others, begin)?;
            shares = Some(next);
            Some(slots)
        };
        store.exchange_slots(&mut decide).await?;
        if let Some(shares) = shares {
            self.pool.apply_shares(&shares, begin + SHARED_SLOT_TIMEOUT - EXPIRY_MARGIN);
        }
        Ok(())
    }
}

/// Exchanges slots until the accounts are dropped.
async fn run_exchange_loop(accounts: Weak<Accounts>) {
    let mut was_successful = true;
    loop {
        let Some(pool) = accounts.upgrade().map(|accounts| Arc::clone(&accounts.pool)) else { return };
        sleep(EXCHANGE_PAUSE).await;
        // The wait ends early if a request begins to wait, or if a slot can be given back.
        let _elapsed = timeout(pool.exchange_interval(), pool.slot_change().notified()).await;
        let Some(accounts) = accounts.upgrade() else { return };
        let is_successful = matches!(timeout(EXCHANGE_TIMEOUT, accounts.exchange_slots()).await, Ok(Ok(())));
        if was_successful && !is_successful {
            tracing::warn!(
                "the slots of accounts could not be exchanged with other nodes; after they expire, none is used"
            );
        }
        was_successful = is_successful;
    }
}

// === impl AccountPool ===

impl AccountPool {
    /// From now on, this node uses only slots that it holds in the store.
    fn share_slots(&self) {
        let mut state = self.lock();
        state.is_shared = true;
        for member in &mut state.members {
            member.share = Some(MemberShare::empty());
        }
    }

    fn exchange_interval(&self) -> Duration {
        let state = self.lock();
        let is_urgent = state.members.iter().filter_map(|member| member.share).any(|share| share.needs_more());
        if is_urgent && state.waiting() > 0 { URGENT_INTERVAL } else { EXCHANGE_INTERVAL }
    }

    /// Returns the slots that the store shall have now, and the shares that come into force with them; `None` if the
    /// store has them already, and has confirmed them lately.
    fn next_shares(&self, others: Vec<OtherNodeSlots>, now: Instant) -> Option<(Vec<HeldSlots>, MemberShares)> {
        let others: HashMap<String, OtherNodeSlots> =
            others.into_iter().map(|slots| (slots.account.clone(), slots)).collect();
        let mut state = self.lock();
        let (mut slots, mut shares, mut is_current) = (Vec::new(), MemberShares::new(), true);
        for index in 0..state.members.len() {
            let (all, large) = state.next_share(index, others.get(state.members[index].account.name()), now);
            let member = &mut state.members[index];
            let share = member.share.get_or_insert_with(MemberShare::empty);
            let confirmed_until = share.valid_until + CONFIRM_AFTER + EXPIRY_MARGIN;
            is_current &= (share.all, share.large) == (all, large) && confirmed_until > now + SHARED_SLOT_TIMEOUT;
            share.all.usable = share.all.usable.min(all.usable);
            share.large.usable = share.large.usable.min(large.usable);
            let account = member.account.name().to_owned();
            slots.push(HeldSlots { account, all: all.holding, large: large.holding });
            shares.insert(member.id, (all, large));
        }
        is_current &= state.members.len() == state.shared_members;
        (!is_current).then_some((slots, shares))
    }

    fn apply_shares(self: &Arc<Self>, shares: &MemberShares, valid_until: Instant) {
        let now = Instant::now();
        let mut state = self.lock();
        state.shared_members = shares.len();
        for member in &mut state.members {
            if let Some((all, large)) = shares.get(&member.id) {
                member.share = Some(MemberShare { all: *all, large: *large, valid_until });
            }
        }
        state.update_queue(self, now);
    }
}

// === impl AccountPoolState ===

impl AccountPoolState {
    /// Returns the next share of a member, for all requests and for large ones.
    fn next_share(&self, index: usize, others: Option<&OtherNodeSlots>, now: Instant) -> (SlotShare, SlotShare) {
        let member = &self.members[index];
        let limits = member.account.slot_limits();
        let is_usable = !member.rests(now);
        let waiting = |large: bool| match is_usable {
            true => self.waiting_for(member, large),
            false => 0,
        };
        let all = SlotDemand { limit: limits.all, taken: member.taken_slots, waiting: waiting(false) };
        let large = SlotDemand { limit: limits.large, taken: member.taken_large_slots, waiting: waiting(true) };
        let share = member.share.unwrap_or_else(MemberShare::empty);
        let (nodes, of_all, of_large) =
            others.map_or_else(Default::default, |others| (others.nodes, others.all, others.large));
        (share.all.next(all, nodes + 1, of_all), share.large.next(large, nodes + 1, of_large))
    }
}

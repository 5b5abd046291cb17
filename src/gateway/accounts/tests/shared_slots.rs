//! Tests of accounts that two nodes share through a PostgreSQL database.
//!
//! They pass without a check if the run has no server: `cargo xtask test` starts one.

use std::time::Duration;

use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::*;
use crate::gateway::store::SqlStore;
use crate::gateway::store::testing::new_postgres_database;
use crate::gateway::store::{DatabaseUrl, MasterKey};

const SLOTS: u32 = 4;

/// A node: its accounts, its store, and the folder of the store.
struct SharedNode {
    accounts: Arc<Accounts>,
    store: Arc<SqlStore>,
    _dir: TempDir,
}

impl SharedNode {
    async fn open(url: &DatabaseUrl, configured: &[config::AccountConfig]) -> Self {
        let dir = TempDir::new().unwrap();
        let key = MasterKey::from_text(&"7".repeat(64)).unwrap();
        let store = Arc::new(SqlStore::open_postgres(dir.path(), url, Some(key)).await.unwrap());
        store_rows(&store, configured).await;
        let (vault, node, tokens) = (store.vault().clone(), store.node_id().clone(), Arc::clone(&store) as _);
        let credentials = FakeCredentialService::rotating();
        let accounts = Accounts::open(configured, tokens, vault, credentials, node).await.unwrap();
        accounts.share_slots().await.unwrap();
        Self { accounts, store, _dir: dir }
    }
}

async fn store_rows(store: &SqlStore, configured: &[config::AccountConfig]) {
    for account in configured {
        let (kind, protocol) = (account.upstream.kind(), "images");
        store.sync_account(AccountSpec { name: &account.name, kind, protocol, tier: "paid" }).await.unwrap();
    }
}

fn with_slots(slots: u32) -> config::AccountConfig {
    let slots = NonZeroU32::new(slots).unwrap();
    config::AccountConfig { concurrency: slots, large_concurrency: slots, ..with_key("a") }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_never_use_more_slots_than_the_account_has() {
    let Some(url) = new_postgres_database().await else { return };
    let configured = [with_slots(SLOTS)];
    let nodes = [SharedNode::open(&url, &configured).await, SharedNode::open(&url, &configured).await];
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut requests = JoinSet::new();
    for number in 0..600 {
        let (accounts, running, most) =
            (Arc::clone(&nodes[number % 2].accounts), Arc::clone(&running), Arc::clone(&most));
        requests.spawn(async move {
            let slot = lease(&accounts).await.unwrap();
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            sleep(Duration::from_millis(2)).await;
            running.fetch_sub(1, Ordering::SeqCst);
            drop(slot);
        });
    }
    requests.join_all().await;
    assert_eq!(most.load(Ordering::SeqCst), SLOTS as usize);
}

#[tokio::test]
async fn a_node_that_ends_gives_its_slots_to_the_others() {
    let Some(url) = new_postgres_database().await else { return };
    let configured = [with_slots(SLOTS)];
    let (first, second) = (SharedNode::open(&url, &configured).await, SharedNode::open(&url, &configured).await);
    let held = lease(&first.accounts).await.unwrap();
    first.accounts.stop();
    drop(held);
    first.accounts.finish().await;
    let mut leases = Vec::new();
    for _ in 0..SLOTS {
        leases.push(lease(&second.accounts).await.unwrap());
    }
    assert_eq!(leases.len(), SLOTS as usize);
}

#[tokio::test]
async fn one_slot_goes_back_and_forth_between_two_busy_nodes() {
    let Some(url) = new_postgres_database().await else { return };
    let configured = [with_slots(1)];
    let nodes = [SharedNode::open(&url, &configured).await, SharedNode::open(&url, &configured).await];
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut requests = JoinSet::new();
    for number in 0..16 {
        let (accounts, order) = (Arc::clone(&nodes[number % 2].accounts), Arc::clone(&order));
        requests.spawn(async move {
            let slot = lease(&accounts).await.unwrap();
            order.lock().unwrap().push(number % 2);
            sleep(Duration::from_millis(100)).await;
            drop(slot);
        });
    }
    requests.join_all().await;
    let order = order.lock().unwrap();
    let first_done = order.iter().rposition(|node| *node == order[0]).unwrap();
    assert!(first_done > 8, "the node that had the slot first did not serve all of its requests first: {order:?}");
}

#[tokio::test]
async fn an_account_that_is_added_later_is_shared_too() {
    let Some(url) = new_postgres_database().await else { return };
    let nodes = [SharedNode::open(&url, &[]).await, SharedNode::open(&url, &[]).await];
    let configured = [with_slots(1)];
    for node in &nodes {
        store_rows(&node.store, &configured).await;
        node.accounts.configure(&[], &configured).await;
    }
    let (other, held) = (Arc::clone(&nodes[1].accounts), lease(&nodes[0].accounts).await.unwrap());
    let mut waiting = JoinSet::new();
    waiting.spawn(async move { lease(&other).await });
    sleep(Duration::from_millis(600)).await;
    assert!(waiting.try_join_next().is_none(), "the only slot is in use");
    drop(held);
    waiting.join_next().await.unwrap().unwrap().unwrap();
}

//! Conversations over accounts that cannot read each other's encrypted content, on two nodes with one store, while
//! accounts cool down, die and are added: none is lost while its account lives, and nearly all turns are served by the
//! account that has cached them.

use std::collections::HashMap;
use std::time::Duration;

use http::HeaderMap;
use serde_json::json;

use super::*;
use crate::gateway::config::{DialectSet, StoredContextPolicy};
use crate::gateway::group_policies::GroupPolicies;
use crate::gateway::keys::{ApiKeys, NewKey, Pepper};
use crate::gateway::rules::{ResponseJob, check_response};
use crate::gateway::store::testing::{finished_record, new_postgres_store, record, running_record};
use crate::gateway::store::{BindingDigest, JobRecord, RowWrite, Store};

const TURNS: usize = 10;
/// The turn in which the first account is in a cooldown, and the one from which the last account is dead.
const COOLING_TURN: usize = 3;
const DEATH_TURN: usize = 6;
/// The turn from which there is one more account.
const ADDITION_TURN: usize = 8;

/// The number of conversations: a few among the ordinary tests, and many with `cargo xtask soak`.
#[expect(clippy::disallowed_methods, reason = "the runner of the tests passes the choice in a variable")]
fn conversation_count() -> usize {
    if std::env::var_os("IMAGATE_SOAK").is_some() { 2_000 } else { 120 }
}

/// The items that the client of a conversation has.
#[derive(Default)]
struct Conversation {
    /// The accounts that made the encrypted contents that it sends again.
    makers: Vec<String>,
    /// The account that served the last turn.
    served_by: Option<String>,
}

#[derive(Default)]
struct Counts {
    turns: usize,
    at_home: usize,
    lost: usize,
    moved: usize,
}

/// The upstream: the accounts that do not serve at present.
#[derive(Default)]
struct Faults {
    cooling: Option<String>,
    dead: Option<String>,
}

struct World {
    store: Arc<dyn Store>,
    nodes: [Arc<Accounts>; 2],
    caller: Caller,
    names: Vec<String>,
}

fn name(number: usize) -> String {
    format!("account-{number:02}")
}

fn responses_account(number: usize) -> config::AccountConfig {
    let mut account = with_key(&name(number));
    if let config::UpstreamConfig::Api(endpoint) = &mut account.upstream {
        (endpoint.protocol, endpoint.host_model) = (AccountProtocol::Responses, "m".to_owned());
    }
    account
}

async fn open_node(store: &Arc<dyn Store>, node: &str, accounts: &[config::AccountConfig]) -> Arc<Accounts> {
    for account in accounts {
        let (kind, protocol) = (account.upstream.kind(), "responses");
        store.sync_account(AccountSpec { name: &account.name, kind, protocol, tier: "paid" }).await.unwrap();
    }
    let endpoint = FakeCredentialService::rotating() as Arc<dyn CredentialService>;
    Accounts::open(accounts, Arc::clone(store) as _, store.vault().clone(), endpoint, NodeId::from(node)).await.unwrap()
}

async fn caller_of(store: &Arc<dyn Store>, user: &str) -> Caller {
    let keys = ApiKeys::new(store, Pepper::new(store.pepper_key()));
    let audit = AuditContext::command();
    let user = store.ensure_user(&audit, user).await.unwrap();
    let new_key = NewKey {
        name: "k",
        user: &user,
        group: "default",
        expires_at: None,
        limits: None,
        dialects: DialectSet::default(),
        max_keys: None,
    };
    let key = keys.create(&audit, new_key).await.unwrap();
    keys.authenticate(Some(format!("Bearer {}", key.secret.expose()).as_bytes()), &GroupPolicies::for_test())
        .await
        .unwrap()
}

fn response_job() -> ResponseJob {
    let body = Bytes::from(json!({"model": "m", "input": "x"}).to_string());
    check_response(body.into(), &HeaderMap::new(), Utc::now()).unwrap()
}

impl World {
    async fn open(store: Arc<dyn Store>, count: usize) -> Self {
        let accounts: Vec<_> = (0..count).map(responses_account).collect();
        let nodes = [open_node(&store, "one", &accounts).await, open_node(&store, "two", &accounts).await];
        let caller = caller_of(&store, "ada").await;
        Self { store, nodes, caller, names: (0..count).map(name).collect() }
    }

    /// Adds an account while the nodes run.
    async fn add_account(&mut self) {
        let before: Vec<_> = (0..self.names.len()).map(responses_account).collect();
        let mut after: Vec<_> = (0..=self.names.len()).map(responses_account).collect();
        // Without the memory of the store, it would take every conversation.
        after[before.len()].priority = 5;
        let new = &after[before.len()];
        let (kind, protocol) = (new.upstream.kind(), "responses");
        self.store.sync_account(AccountSpec { name: &new.name, kind, protocol, tier: "paid" }).await.unwrap();
        for node in &self.nodes {
            node.configure(&before, &after).await;
        }
        self.names.push(new.name.clone());
    }

    /// Ends the cooldown of an account on both nodes.
    async fn enable(&self, account: &str) {
        self.store.change_account(&AuditContext::command(), account, AccountChange::Enable).await.unwrap();
        for node in &self.nodes {
            refresh(node).await;
        }
    }

    /// Sends a turn, as the request flow does. Returns the account that serves it, with the record of the request; or
    /// `None` if the caller gets an error.
    async fn send(
        &self,
        number: usize,
        turn: usize,
        conversation: &Conversation,
        faults: &Faults,
    ) -> Result<(String, JobRecord), bool> {
        let node = &self.nodes[(number + turn) % 2];
        let session = format!("conversation-{number}");
        // A third of the clients names no session.
        let session = (!number.is_multiple_of(3)).then_some(session.as_bytes());
        let digest = |index: usize| BindingDigest::of_ciphertext(&format!("{number}-{index}"));
        let parts: Vec<_> = (0..conversation.makers.len())
            .map(|index| ContextPart { param: String::new(), digest: digest(index), is_stored: false })
            .collect();
        let policy = || StoredContextPolicy::Own;
        let accounts = node.serving_accounts(&self.caller, &parts, session, &policy).await.unwrap().unwrap();
        let job = response_job().for_accounts(accounts);
        let (mut tried, mut is_unreadable) = (Vec::new(), false);
        loop {
            let request_id = format!("req_{number}_{turn}");
            let lease = match node.lease(&job, &self.caller, &tried, &request_id).await {
                Ok(lease) => lease,
                // The caller may try again after a cooldown; nobody can read its context otherwise.
                Err(refusal) => return Err(is_unreadable && refusal == LeaseRefusal::NoneLeft),
            };
            let account = lease.account().name().to_owned();
            let feedback = if faults.dead.as_ref() == Some(&account) {
                AccountFeedback::Failed
            } else if faults.cooling.as_ref() == Some(&account) {
                AccountFeedback::Throttled { wait: Some(Duration::from_secs(3600)) }
            } else if conversation.makers.iter().any(|maker| *maker != account) {
                is_unreadable = true;
                AccountFeedback::Neutral
            } else {
                node.apply_feedback(&lease, AccountFeedback::Success).await;
                let used = job.serving_accounts().values_to_bind(Some(&account)).cloned();
                let bindings = used.chain([digest(conversation.makers.len())]).collect();
                let record = record! {
                    user: self.caller.user().clone(),
                    key: self.caller.key().clone(),
                    account: Some(account.clone()),
                    bindings,
                    ..finished_record(&request_id)
                };
                return Ok((account, record));
            };
            node.apply_feedback(&lease, feedback).await;
            tried.push(account);
        }
    }

    /// Closes the records of a turn, in batches as the writer does.
    async fn write(&self, records: &[JobRecord]) {
        for records in records.chunks(256) {
            let opened: Vec<_> = records
                .iter()
                .map(|record| record! { user: record.document.user, ..running_record(&record.document.request_id) })
                .collect();
            for writes in [
                opened.iter().map(RowWrite::Open).collect::<Vec<_>>(),
                records.iter().map(RowWrite::Close).collect::<Vec<_>>(),
            ] {
                self.store.write_rows(&NodeId::only(), &writes).await.unwrap();
            }
        }
    }
}

/// Ends the cooldown of the first account, if it is over.
async fn end_cooldown(world: &World, faults: &mut Faults, is_over: bool) {
    if is_over {
        faults.cooling = None;
        world.enable(&name(0)).await;
    }
}

async fn run_conversations(store: Arc<dyn Store>, account_count: usize) -> Counts {
    let mut world = World::open(store, account_count).await;
    let mut conversations: HashMap<usize, Conversation> = HashMap::new();
    let mut counts = Counts::default();
    let mut faults = Faults::default();
    for turn in 0..TURNS {
        faults.cooling = (turn == COOLING_TURN).then(|| name(0));
        if turn == DEATH_TURN {
            faults.dead = Some(name(account_count - 1));
        }
        if turn == ADDITION_TURN {
            world.add_account().await;
        }
        let mut records = Vec::new();
        let mut waiting: Vec<usize> = (0..conversation_count()).collect();
        while let Some(number) = waiting.pop() {
            let conversation = conversations.entry(number).or_default();
            match world.send(number, turn, conversation, &faults).await {
                Ok((account, record)) => {
                    counts.turns += 1;
                    let moved = conversation.served_by.as_ref().is_some_and(|served| *served != account);
                    counts.moved += usize::from(moved);
                    counts.at_home += usize::from(!moved);
                    conversation.makers.push(account.clone());
                    conversation.served_by = Some(account);
                    records.push(record);
                }
                Err(_) if faults.cooling.is_some() => {
                    // The client waits until the cooldown is over.
                    waiting.insert(0, number);
                    let is_of_first = |left: &usize| conversations[left].served_by.as_deref() == Some(&name(0));
                    end_cooldown(&world, &mut faults, waiting.iter().all(is_of_first)).await;
                }
                Err(is_unreadable) => {
                    // Only the dead account has made what the client sends: it goes on without that.
                    let is_dead = faults.dead == conversation.served_by;
                    counts.lost += usize::from(!is_dead && is_unreadable);
                    assert!(is_dead || is_unreadable, "conversation {number} got no account in turn {turn}");
                    *conversation = Conversation { makers: Vec::new(), served_by: None };
                    waiting.push(number);
                }
            }
        }
        world.write(&records).await;
    }
    counts
}

#[tokio::test]
async fn conversations_stay_with_the_account_that_can_read_them() {
    for account_count in [2, 3, 10] {
        let (_dir, sqlite) = new_store().await;
        let postgres = new_postgres_store().await;
        let mut stores: Vec<Arc<dyn Store>> = vec![sqlite];
        stores.extend(postgres.iter().map(|(_, _, store)| Arc::clone(store) as Arc<dyn Store>));
        for store in stores {
            let counts = run_conversations(store, account_count).await;
            assert_eq!(counts.lost, 0, "{account_count} accounts");
            assert_eq!(counts.turns, TURNS * conversation_count());
            assert!(
                counts.at_home * 100 >= counts.turns * 99,
                "{account_count} accounts: {} turns moved",
                counts.moved
            );
        }
    }
}

//! Conversations of agents over accounts that cannot read each other's encrypted content, on two nodes, while accounts
//! cool down, die and are added: none is lost while its account lives, and nearly all turns are served by the account
//! that has cached them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::{IN_FLIGHT, SoakRun, open_node};
use crate::kit::{Account, AccountFault, Call, CiphertextUpstream, Gateway, PostgresDatabase, pause};

const TURNS: usize = 10;
/// The turns in which the first account is in a cooldown, from which the last account is dead, and from which there is
/// one more account.
const COOLING_TURN: usize = 3;
const DEATH_TURN: usize = 6;
const ADDITION_TURN: usize = 8;
/// The time for which the first account refuses all calls.
const COOLING: Duration = Duration::from_secs(2);

/// The state of the client of a conversation.
#[derive(Default)]
struct Conversation {
    items: Vec<Value>,
    served_by: Option<String>,
}

#[derive(Default)]
struct Counts {
    turns: AtomicUsize,
    moved: AtomicUsize,
    lost: AtomicUsize,
}

struct Stage<'a> {
    nodes: &'a [Gateway; 2],
    accounts: usize,
    turn: usize,
    counts: &'a Counts,
}

/// Short names: the ids of the upstream have them, and a longer part of the account's key would be masked there.
fn name(number: usize) -> String {
    format!("a{number}")
}

fn account(number: usize, upstream: &CiphertextUpstream) -> Account {
    Account::with_base_url(&name(number), upstream.base_url()).with_responses_protocol()
}

impl Conversation {
    fn drop_ciphertext(&mut self) {
        self.items.retain(|item| item["encrypted_content"].is_null());
    }
}

impl Stage<'_> {
    /// Sends one turn, again and again until it is answered.
    fn take_turn(&self, number: usize, conversation: &mut Conversation) {
        conversation.items.push(json!({"role": "user", "content": format!("turn {}", self.turn)}));
        loop {
            let body = json!({
                "model": "gpt-5.5", "input": conversation.items, "store": false, "stream": false,
            });
            let node = &self.nodes[(number + self.turn) % 2];
            let call = Call::post("/v1/responses").key(self.nodes[0].secret()).json(&body);
            // A third of the clients names no session.
            let session = format!("conversation-{number}");
            let call = if number.is_multiple_of(3) { call } else { call.header("session-id", &session) };
            let Ok(answer) = call.try_send(node.address()) else { continue };
            let is_dead = self.turn >= DEATH_TURN && conversation.served_by == Some(name(self.accounts - 1));
            match answer.status {
                200 => {
                    self.note_answer(&answer.json(), conversation, is_dead);
                    return;
                }
                // The account has a cooldown: clients wait as long as the answer says.
                429 => pause(Duration::from_millis(300)),
                // The ciphertext of a dead account cannot be read any more; the client goes on without it.
                _ if is_dead => conversation.drop_ciphertext(),
                status => {
                    println!("conversation {number} lost in turn {}: {status} {}", self.turn, answer.text());
                    self.counts.lost.fetch_add(1, Ordering::Relaxed);
                    conversation.drop_ciphertext();
                }
            }
        }
    }

    fn note_answer(&self, response: &Value, conversation: &mut Conversation, must_move: bool) {
        let id = response["id"].as_str().expect("an id");
        let served = id.rsplit("_of_").next().expect("an account").to_owned();
        let moved = conversation.served_by.as_ref().is_some_and(|before| *before != served);
        self.counts.turns.fetch_add(1, Ordering::Relaxed);
        self.counts.moved.fetch_add(usize::from(moved && !must_move), Ordering::Relaxed);
        conversation.items.extend(response["output"].as_array().expect("items").iter().cloned());
        conversation.served_by = Some(served);
    }
}

fn run_conversations(upstream: &CiphertextUpstream, accounts: usize, count: usize) -> Option<Counts> {
    let database = PostgresDatabase::create()?;
    let settings: Vec<_> = (0..accounts).map(|number| account(number, upstream)).collect();
    let nodes = [(); 2].map(|()| open_node(&database, "", &settings));
    let (conversations, counts) =
        ((0..count).map(|_| Mutex::<Conversation>::default()).collect::<Vec<_>>(), Counts::default());
    for turn in 0..TURNS {
        let cooling = (turn == COOLING_TURN).then_some(AccountFault::Throttled);
        upstream.set_fault(&name(0), cooling);
        if turn == DEATH_TURN {
            upstream.set_fault(&name(accounts - 1), Some(AccountFault::Dead));
        }
        if turn == ADDITION_TURN {
            add_account(&nodes[0], upstream, accounts);
        }
        let (stage, next) = (Stage { nodes: &nodes, accounts, turn, counts: &counts }, AtomicUsize::new(0));
        let work = || {
            let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
            for number in numbers.take_while(|number| *number < count) {
                stage.take_turn(number, &mut conversations[number].lock().expect("a conversation"));
            }
        };
        std::thread::scope(|scope| {
            (0..IN_FLIGHT).for_each(|_| drop(scope.spawn(work)));
            if cooling.is_some() {
                // The conversations of other accounts go on meanwhile.
                pause(COOLING);
                upstream.set_fault(&name(0), None);
            }
        });
        upstream.take_asked();
    }
    upstream.set_fault(&name(accounts - 1), None);
    Some(counts)
}

/// Adds an account of higher priority to the store, from where both nodes get it.
fn add_account(node: &Gateway, upstream: &CiphertextUpstream, number: usize) {
    std::fs::write(node.home().join("new-account"), format!("sk-upstream-{}", name(number))).expect("a file");
    let (name, base_url) = (name(number), upstream.base_url());
    let words = ["account", "add", "--name", &name, "--base-url", &base_url, "--api-key-file", "new-account"];
    let words = [&words[..], &["--protocol", "responses", "--priority", "5"]].concat();
    node.run_command(&words).ok_stdout();
}

#[test]
fn conversations_stay_with_the_account_that_can_read_them() {
    let mut run = SoakRun::new("conversations of ten turns, two nodes, 2, 3 and 10 accounts", 24, 2_000);
    for accounts in [2, 3, 10] {
        let upstream = CiphertextUpstream::start();
        let Some(counts) = run_conversations(&upstream, accounts, run.rounds) else { return };
        let (turns, moved, lost) = (counts.turns.into_inner(), counts.moved.into_inner(), counts.lost.into_inner());
        run.note(&format!("turns, {accounts} accounts"), turns);
        run.note(&format!("turns at another account, {accounts} accounts"), moved);
        run.note(&format!("lost conversations, {accounts} accounts"), lost);
        assert_eq!((turns, lost), (run.rounds * TURNS, 0), "{accounts} accounts");
        assert!(moved * 100 <= turns, "{accounts} accounts: {moved} of {turns} turns moved");
    }
    run.print();
}

//! A budget of one dollar, two nodes, and 200 requests at once, each of which costs four cents if its image is made.
//!
//! Some requests fail upstream and cost nothing, some callers leave, and in every second round a node is killed. A
//! request that is refused while others still run is not repeated by its caller, so after these requests further ones
//! follow, one after another, until one is refused: the budget must then be used up, because a reservation that is lost
//! would leave a part of it.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use super::{SoakRun, TOKEN, open_node};
use crate::kit::{Account, Call, FakeUpstream, Gateway, PostgresDatabase, Random, eventually, pause, request};

/// The number of requests at once.
const AT_ONCE: usize = 200;
/// The number of images that the budget pays for.
const AFFORDABLE: usize = 25;
const CENTS_PER_IMAGE: usize = 4;
/// Each image costs four cents, and nothing else costs anything.
const SETTINGS: &str = "[[prices]]\nmodel = \"gpt-image-2\"\nfrom = \"2026-01-01\"\nper_image = 0.04\ntext_input = 0\n\
    image_input = 0\nimage_output = 0\n";

/// The behaviour of one caller.
#[derive(Clone, Copy)]
enum CallerBehaviour {
    Waits,
    /// The upstream refuses or fails, and makes no image.
    Fails(&'static str),
    /// The caller closes its connection after this many milliseconds.
    Leaves {
        millis: u64,
        streams: bool,
    },
}

/// The cents that one round has spent.
#[derive(Clone, Copy)]
struct BudgetSpending {
    /// For the images that the upstream made or may have made.
    upstream: usize,
    /// The costs of the records.
    recorded: usize,
}

/// One round: a key with a budget of its own.
struct BudgetRound<'a> {
    nodes: &'a mut [Gateway; 2],
    upstream: &'a FakeUpstream,
    number: usize,
    key: Value,
}

/// The spending of all rounds of one kind, in cents.
#[derive(Default)]
struct SpendingList {
    /// The costs of the records of the requests at once.
    at_once: Vec<usize>,
    /// The same with the requests that followed.
    in_all: Vec<usize>,
    upstream: Vec<usize>,
}

// === impl CallerBehaviour ===

impl CallerBehaviour {
    fn draw(random: &mut Random) -> Self {
        match random.between(0, 20) {
            0 | 1 => Self::Fails("status=400 body=parameter"),
            2 => Self::Fails("status=400 body=policy"),
            3 => Self::Fails("status=500"),
            4 | 5 => Self::Leaves { millis: random.between(0, 400), streams: false },
            6 => Self::Leaves { millis: random.between(0, 400), streams: true },
            _ => Self::Waits,
        }
    }

    /// Sends the request, and returns the status of the answer; 0 if the caller left or got no answer.
    fn send(self, address: SocketAddr, secret: &str, user: &str, delay: u64) -> u16 {
        let (script, streams) = match self {
            Self::Waits => (format!("delay={delay}"), false),
            Self::Fails(script) => (format!("delay={} {script}", delay / 4), false),
            Self::Leaves { streams: true, .. } => (format!("events=p,~{delay},c"), true),
            Self::Leaves { streams: false, .. } => (format!("delay={delay}"), false),
        };
        let mut fields = request(json!({"prompt": format!("a cube [[{script}]]"), "user": user}));
        if streams {
            fields["stream"] = json!(true);
            fields["partial_images"] = json!(1);
        }
        let call = Call::generation().json(&fields).key(secret);
        if let Self::Leaves { millis, .. } = self {
            let stream = call.dispatch(address);
            pause(Duration::from_millis(millis));
            drop(stream);
            return 0;
        }
        call.try_send(address).map_or(0, |answer| answer.status)
    }
}

// === impl BudgetRound ===

impl BudgetRound<'_> {
    fn secret(&self) -> &str {
        self.key["secret"].as_str().expect("a secret")
    }

    fn user(&self, request: usize) -> String {
        format!("b{}-{request}", self.number)
    }

    /// Sends all requests at once. With `killed`, kills the first node when the upstream has this many calls.
    fn send_all(&mut self, random: &mut Random, killed: Option<usize>) {
        let begun = self.upstream.attempt_count();
        let plans: Vec<_> = (0..AT_ONCE)
            .map(|number| (self.user(number), CallerBehaviour::draw(random), random.between(40, 250)))
            .collect();
        let secret = self.secret().to_owned();
        let addresses = [0, 1].map(|index| self.nodes[index].address());
        std::thread::scope(|scope| {
            for (number, (user, behaviour, delay)) in plans.iter().enumerate() {
                let (address, secret) = (addresses[number % 2], secret.as_str());
                scope.spawn(move || behaviour.send(address, secret, user, *delay));
            }
            if let Some(calls) = killed {
                self.upstream.wait_until("calls have begun", |attempts| attempts.len() >= begun + calls);
                self.nodes[0].kill();
            }
        });
        if killed.is_some() {
            self.nodes[0].start();
        }
    }

    /// Sends requests one after another until the budget refuses one. Returns the number of those that it allowed.
    fn use_up(&self) -> usize {
        let allowed = (AT_ONCE..).take_while(|number| {
            let (node, user) = (&self.nodes[number % 2], self.user(*number));
            match CallerBehaviour::Waits.send(node.address(), self.secret(), &user, 0) {
                200 => true,
                429 => false,
                status => panic!("{user}: {status}"),
            }
        });
        allowed.count()
    }

    /// Waits for the end of all jobs of this round, and adds up what they cost.
    fn spending(&self) -> BudgetSpending {
        let words = ["usage", "--json", "--key", self.key["key"]["id"].as_str().expect("an id")];
        let records: Vec<Value> = eventually("every job has its outcome", || {
            let output = self.nodes[1].run_command(&words);
            let lines = output.ok_stdout().lines();
            let records: Vec<Value> = lines.map(|line| serde_json::from_str(line).expect("a record")).collect();
            records.iter().all(|record| record["state"] != "running").then_some(records)
        });
        let cents = |record: &Value| match record["cost_usd"].as_f64() {
            Some(0.0) => 0,
            Some(0.04) => CENTS_PER_IMAGE,
            _ => panic!("another cost: {record}"),
        };
        let recorded = records.iter().map(cents).sum();
        let prefix = format!("b{}-", self.number);
        let attempts = self.upstream.received_attempts();
        let mine = attempts.iter().filter(|attempt| attempt.user().starts_with(&prefix));
        let made = mine.filter(|attempt| !attempt.script.contains("status=")).count();
        BudgetSpending { upstream: made * CENTS_PER_IMAGE, recorded }
    }
}

// === impl SpendingList ===

impl SpendingList {
    fn add(&mut self, at_once: BudgetSpending, in_all: BudgetSpending) {
        self.at_once.push(at_once.recorded);
        self.in_all.push(in_all.recorded);
        self.upstream.push(in_all.upstream);
    }

    fn note(&self, run: &mut SoakRun, kind: &str) {
        run.note(&format!("rounds {kind}"), self.in_all.len());
        for (what, cents) in [
            ("cents spent by the requests at once", &self.at_once),
            ("cents spent in all", &self.in_all),
            ("cents spent at the upstream", &self.upstream),
        ] {
            let (least, most) = (cents.iter().min().unwrap_or(&0), cents.iter().max().unwrap_or(&0));
            run.note(&format!("{what}, {kind}: least to most"), format_args!("{least} to {most}"));
        }
    }
}

/// Makes a key with a budget of one dollar.
fn make_key(gateway: &Gateway, number: usize) -> Value {
    let new = json!({"name": format!("budget {number}"), "user": "admin", "limits": {"budget_usd": 1.0}});
    Call::post("/admin/v1/keys").json(&new).key(TOKEN).send(gateway.address()).ok_json()
}

#[test]
fn two_nodes_spend_a_budget_and_no_more() {
    const BUDGET: usize = AFFORDABLE * CENTS_PER_IMAGE;
    let mut run = SoakRun::new("budgets of 100 cents, 200 requests of 4 cents at once", 2, 50);
    let upstream = FakeUpstream::start();
    let Some(database) = PostgresDatabase::create() else { return };
    let accounts = ["a", "b", "c", "d", "e"].map(|name| Account::for_upstream(name, &upstream));
    let mut nodes = [(); 2].map(|()| open_node(&database, SETTINGS, &accounts));
    let (mut unbroken, mut with_kill) = (SpendingList::default(), SpendingList::default());
    for number in 0..run.rounds {
        let mut random = run.random(number);
        let killed = (number % 2 == 1).then(|| usize::try_from(random.between(1, 20)).expect("a number"));
        let key = make_key(&nodes[1], number);
        let mut round = BudgetRound { nodes: &mut nodes, upstream: &upstream, number, key };
        round.send_all(&mut random, killed);
        let at_once = round.spending();
        round.use_up();
        let kind = if killed.is_some() { &mut with_kill } else { &mut unbroken };
        kind.add(at_once, round.spending());
    }
    unbroken.note(&mut run, "without a kill");
    with_kill.note(&mut run, "with a kill");
    let above = |cents: &&usize| **cents > BUDGET;
    let all = [&unbroken, &with_kill].map(|kind| kind.in_all.iter().chain(&kind.upstream).filter(above).count());
    let below = unbroken.in_all.iter().filter(|cents| **cents < BUDGET - CENTS_PER_IMAGE).count();
    run.note("rounds above the budget", all[0] + all[1]);
    run.note("rounds without a kill below 96 cents", below);
    run.print();
    assert_eq!((all, below), ([0, 0], 0));
}

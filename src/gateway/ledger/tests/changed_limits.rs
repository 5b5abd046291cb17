//! Limits that change while jobs run, against a model: for each subject, what is reserved is what its running jobs hold, and
//! what is spent is the sum of its records. With one database file, and with two nodes that share a database.

use std::collections::HashMap;

use super::*;
use crate::gateway::config::{Budget, BudgetPeriod, RequestLimits};
use crate::gateway::limits::{BoundKind, JobDemand, LimitAmounts, LimitSubject, RequestLimiter, SubjectLimits};
use crate::gateway::store::testing::{new_postgres_store, new_store, record, token_usage};
use crate::gateway::store::{RecordFilter, RequestId, SqlStore, UsageStore};

/// The number of requests of a run. A debug build takes some seconds.
const REQUESTS: u64 = 2_000;
/// The groups, users and keys: each key belongs to one user, and each user to one group.
const SUBJECTS: u64 = 4;

/// Numbers that depend on a seed only.
struct Random(u64);

/// A node: its limiter and its ledger.
struct Node {
    limiter: Arc<RequestLimiter>,
    ledger: Ledger,
}

/// An installation, and the limits that are in force.
struct Model {
    usage: Arc<dyn UsageStore>,
    nodes: Vec<Node>,
    limits: HashMap<LimitSubject, Arc<RequestLimits>>,
    running: Vec<OpenRecord>,
    /// The most that each job can cost, if that is known. An unknown cost counts as this.
    most: HashMap<String, Usd>,
    random: Random,
    begun: u64,
    refused: u64,
}

// === impl Random ===

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    fn usd(&mut self) -> Usd {
        Usd::from_nanos(self.next(90_000_000))
    }
}

// === impl Model ===

impl Model {
    fn subjects_of(key: u64) -> [LimitSubject; 3] {
        let user = format!("usr_{}", key % 3);
        [
            LimitSubject::Key(format!("key_{key}").into()),
            LimitSubject::User(user.into()),
            LimitSubject::Group(format!("group_{}", key % 3 % 2)),
        ]
    }

    /// Sets, raises, lowers or removes a limit.
    fn change_limits(&mut self) {
        let key = self.random.next(SUBJECTS);
        let subject = Self::subjects_of(key)[usize::try_from(self.random.next(3)).unwrap()].clone();
        if self.random.next(3) == 0 {
            self.limits.remove(&subject);
            return;
        }
        let periods = [BudgetPeriod::Day, BudgetPeriod::Week, BudgetPeriod::Month];
        let period = periods[usize::try_from(self.random.next(3)).unwrap()];
        let dollars = f64::from(u32::try_from(self.random.next(40)).unwrap()) + 0.1;
        let images_per_day = (self.random.next(2) == 0).then(|| u32::try_from(self.random.next(900)).unwrap());
        let limits = RequestLimits { images_per_day, ..budget(dollars, period) };
        self.limits.insert(subject, Arc::new(limits));
    }

    async fn begin_job(&mut self) {
        self.begun += 1;
        let (key, node) =
            (self.random.next(SUBJECTS), usize::try_from(self.random.next(99)).unwrap() % self.nodes.len());
        let subjects = Self::subjects_of(key);
        let limited = subjects.iter().map(|of| SubjectLimits::new(of.clone(), self.limits.get(of))).collect();
        let cost = (self.random.next(20) > 0).then(|| self.random.usd());
        let bound = if self.random.next(2) == 0 { BoundKind::Images } else { BoundKind::Ceiling };
        let images = u32::try_from(self.random.next(4)).unwrap();
        let id: RequestId = format!("req_{}", self.begun).as_str().into();
        let Node { limiter, ledger } = &self.nodes[node];
        // A job that would wait for room leaves: the others are not in its way in this test.
        let reserve = limiter.reserve(&id, limited, JobDemand { images, cost, bound });
        let Ok(Ok(reservation)) = tokio::time::timeout(Duration::from_millis(40), reserve).await else {
            self.refused += 1;
            return;
        };
        if self.random.next(10) == 0 {
            // The caller leaves before the intent.
            drop(reservation);
            return;
        }
        let operation = if bound == BoundKind::Images { "create_image" } else { "create_response" };
        let [LimitSubject::Key(key), LimitSubject::User(user), LimitSubject::Group(group)] = subjects else { return };
        let draft = record! {
            request_id: id.to_string(),
            operation: operation.to_owned(),
            n: (bound == BoundKind::Images).then_some(images.into()),
            size: (images > 0).then(|| "1024x1024".to_owned()),
            group,
            user,
            key,
            max_cost_usd: cost,
            max_job_cost_usd: cost,
            // A model without a price: its cost is unknown.
            model: Some(if self.random.next(20) == 0 { "sketch-1" } else { "gpt-image-2" }.to_owned()),
            ..draft("")
        };
        self.most.extend(cost.map(|cost| (draft.document.request_id.clone(), cost)));
        self.running.push(ledger.open(draft, reservation).await.unwrap());
    }

    async fn end_job(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let position = usize::try_from(self.random.next(self.running.len() as u64)).unwrap();
        let mut record = self.running.swap_remove(position);
        if self.random.next(8) == 0 {
            // The caller leaves, and the record is closed as interrupted.
            drop(record);
            return;
        }
        // An image token costs 0.00003 dollars: some jobs cost more than they have reserved.
        self.spend(&mut record, 3_300);
        let closed = record.close(JobOutcome::succeeded());
        if self.random.next(2) == 0 {
            closed.await.unwrap();
        }
    }

    /// Lets a job deliver images and use up to this many image tokens.
    fn spend(&mut self, record: &mut OpenRecord, tokens: u64) {
        let call = record.begin_attempt("primary");
        record.end_attempt(call, None, Some(200));
        for _ in 0..self.random.next(4) {
            record.add_delivered(types::RecordImage { size: None, output_format: None, quality: None });
        }
        let output_tokens = Some(self.random.next(tokens) + 1);
        let usage = token_usage! { input_tokens: Some(17), output_tokens, ..TokenUsage::default() };
        record.set_usage(ModelUsage { image: Some(usage), ..ModelUsage::default() });
    }

    /// Runs the requests, and waits for their records.
    async fn run(&mut self) {
        for _ in 0..REQUESTS {
            match self.random.next(20) {
                0 => self.change_limits(),
                _ if self.running.len() > 20 => self.end_job().await,
                1..=11 => self.begin_job().await,
                _ => self.end_job().await,
            }
        }
        while !self.running.is_empty() {
            self.end_job().await;
        }
        for node in &self.nodes {
            node.ledger.drain().await;
        }
    }

    /// Asserts that nothing is reserved, and that what is spent is the sum of the records, for each subject and period, also
    /// for limits that are set only now.
    async fn assert_at_rest(&self) {
        let records = self.usage.list_records(&RecordFilter::default()).await.unwrap();
        for (key, period) in (0..SUBJECTS).flat_map(|key| [(key, BudgetPeriod::Day), (key, BudgetPeriod::Month)]) {
            for subject in Self::subjects_of(key) {
                self.assert_subject_at_rest(&records, &subject, period).await;
            }
        }
        assert!(self.refused > 20 && self.begun > self.refused + 200, "{} of {}", self.refused, self.begun);
    }

    fn most_of(&self, record: &types::Record) -> Usd {
        self.most.get(&record.request_id).copied().unwrap_or_default()
    }

    async fn assert_subject_at_rest(&self, records: &[types::Record], subject: &LimitSubject, period: BudgetPeriod) {
        let is_mine = |record: &&types::Record| match subject {
            LimitSubject::Key(key) => record.key == key.as_str(),
            LimitSubject::User(user) => record.user == user.as_str(),
            LimitSubject::Group(group) => record.group == *group,
        };
        let costs = records.iter().filter(is_mine);
        let costs = costs.map(|of| of.cost_usd.and_then(Usd::from_dollars).unwrap_or_else(|| self.most_of(of)));
        let sum = costs.fold(Usd::ZERO, Usd::plus);
        let limited = SubjectLimits::new(subject.clone(), Some(&Arc::new(budget(1_000.0, period))));
        for Node { limiter, .. } in &self.nodes {
            assert_eq!(money_at_rest(limiter, &limited).await, (sum, Usd::ZERO), "{subject:?} {period:?}");
        }
    }
}

fn usd(dollars: f64) -> Usd {
    Usd::from_dollars(dollars).unwrap()
}

fn budget(dollars: f64, period: BudgetPeriod) -> RequestLimits {
    let budget = Budget { usd: usd(dollars), period, alert: usd(dollars) };
    RequestLimits { budget: Some(budget), ..RequestLimits::default() }
}

/// Returns what is used of the budget of a subject, and what is reserved.
async fn money_of(limiter: &RequestLimiter, limited: &SubjectLimits) -> (Usd, Usd) {
    let usage = limiter.usage(std::slice::from_ref(limited)).await.unwrap();
    let LimitAmounts::Money { used, reserved, .. } = usage[0][0].amounts else { panic!("no money") };
    (used, reserved)
}

/// Like [`money_of`], when nothing is reserved any more: the release of a job that did not begin is a task of its own.
async fn money_at_rest(limiter: &RequestLimiter, limited: &SubjectLimits) -> (Usd, Usd) {
    for _ in 0..200 {
        let money = money_of(limiter, limited).await;
        if money.1 == Usd::ZERO {
            return money;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    money_of(limiter, limited).await
}

async fn node_of(store: &Arc<impl RecordStore + UsageStore + 'static>) -> Node {
    let limiter = Arc::new(RequestLimiter::new(Arc::clone(store) as _));
    Node { limiter, ledger: Ledger::start_for_test(Arc::clone(store)).await }
}

fn model(usage: Arc<dyn UsageStore>, nodes: Vec<Node>, seed: u64) -> Model {
    let random = Random(seed);
    Model {
        usage,
        nodes,
        limits: HashMap::new(),
        running: Vec::new(),
        most: HashMap::new(),
        random,
        begun: 0,
        refused: 0,
    }
}

#[tokio::test]
async fn at_rest_nothing_is_reserved_and_the_sum_of_the_records_is_spent() {
    for seed in 1..=2 {
        let (_dir, store) = new_store().await;
        let mut model = model(Arc::clone(&store) as _, vec![node_of(&store).await], seed);
        model.run().await;
        model.assert_at_rest().await;
    }
}

#[tokio::test]
async fn at_rest_nothing_is_reserved_and_the_sum_of_the_records_is_spent_on_two_nodes() {
    let Some((dir, url, first)) = new_postgres_store().await else { return };
    let second = Arc::new(SqlStore::open_postgres(dir.path(), &url, None).await.unwrap());
    let nodes = vec![node_of(&first).await, node_of(&second).await];
    let mut model = model(Arc::clone(&first) as _, nodes, 3);
    model.run().await;
    model.assert_at_rest().await;
    drop(dir);
}

/// The jobs of a node that is killed: their records are closed by another node, and reservations without one are removed.
#[tokio::test]
async fn a_killed_node_leaves_nothing_reserved() {
    let Some((_dir, _, store)) = new_postgres_store().await else { return };
    let mut model = model(Arc::clone(&store) as _, vec![node_of(&store).await], 4);
    for _ in 0..60 {
        model.change_limits();
        model.begin_job().await;
    }
    // The process ends: its tasks close nothing more.
    std::mem::take(&mut model.running).into_iter().for_each(std::mem::forget);
    store.interrupt_running(&NodeId::only()).await.unwrap();
    model.refused = 50;
    model.begun = 1_000;
    model.assert_at_rest().await;
}

#[tokio::test]
async fn a_limit_that_is_set_counts_the_jobs_of_all_nodes_that_run() {
    let Some((_dir, _, store)) = new_postgres_store().await else { return };
    let node = node_of(&store).await;
    let unlimited = || Model::subjects_of(1).map(|of| SubjectLimits::new(of, None)).to_vec();
    let reservation = node
        .limiter
        .reserve(&"req_1".into(), unlimited(), JobDemand { images: 1, cost: Some(usd(0.4)), bound: BoundKind::Images })
        .await
        .unwrap();
    let most = Some(usd(0.4));
    let draft = record! {
        request_id: "req_1".into(),
        key: "key_1",
        n: Some(1),
        max_job_cost_usd: most,
        ..draft("")
    };
    let record = node.ledger.open(draft, reservation).await.unwrap();
    let limits = Arc::new(RequestLimits { images_per_day: Some(1), ..budget(0.5, BudgetPeriod::Day) });
    let key = SubjectLimits::new(LimitSubject::Key("key_1".into()), Some(&limits));
    let usage = node.limiter.usage(std::slice::from_ref(&key)).await.unwrap();
    assert_eq!(usage[0][0].amounts, LimitAmounts::Count { limit: 1, used: 1 });
    assert!(matches!(usage[0][1].amounts, LimitAmounts::Money { reserved, .. } if reserved == usd(0.4)));
    record.close(JobOutcome::failed("server_error")).await.unwrap();
    let usage = node.limiter.usage(std::slice::from_ref(&key)).await.unwrap();
    assert_eq!(usage[0][0].amounts, LimitAmounts::Count { limit: 1, used: 0 });
    assert!(matches!(usage[0][1].amounts, LimitAmounts::Money { reserved, .. } if reserved == Usd::ZERO));
}

//! The pure code in the way of every request, each part alone: ignored tests whose instructions
//! `cargo xtask bench instructions` counts.
//!
//! Valgrind counts only what runs inside of [`counted`]; everything else prepares it. The names of the tests are those in
//! `instructions.json`.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use http::HeaderValue;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use crate::gateway::accounts::{
    Accounts, CredentialService, CredentialServiceError, TokenRequest, TokenResponse, UpstreamAddress,
};
use crate::gateway::config::{AccountConfig, AccountTier, Budget, BudgetPeriod, RequestLimits, UpstreamConfig};
use crate::gateway::group_policies::GroupPolicies;
use crate::gateway::keys::{ApiKeys, Pepper};
use crate::gateway::limits::{JobDemand, LimitSubject, RequestLimiter, SubjectLimits};
use crate::gateway::money::Usd;
use crate::gateway::rules::check_generation;
use crate::gateway::store::InstallationStore as _;
use crate::gateway::store::testing::{finished_record, new_store, running_record};
use crate::gateway::store::{AccountSpec, AccountStore as _, JobRecord, NodeId, RecordStore as _, RowWrite};
use crate::stream::json::{CaptureLimits, JsonPosition, JsonReader, JsonSyntaxError, JsonVisitor, ValueInterest};
use crate::stream::sse::{SseFramer, SseSpan};

/// The size of the pieces in which bodies arrive.
const PIECE: usize = 64 << 10;
const GENERATION: &str = r#"{"model":"gpt-image-2","prompt":"a harbour at dawn","n":1,"size":"1536x1024","quality":"high","output_format":"png","background":"opaque","user":"u-1"}"#;

/// Runs the part of a test whose instructions are counted.
#[inline(never)]
fn counted<T>(work: impl FnOnce() -> T) -> T {
    black_box(work())
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

// === JSON ===

/// Looks at an answer as a relay does: the image piece by piece, `usage` as a whole.
#[derive(Default)]
struct AnswerVisitor {
    image_bytes: usize,
    usage: Option<Value>,
}

impl JsonVisitor for AnswerVisitor {
    type Error = JsonSyntaxError;

    fn start(&mut self, at: JsonPosition<'_>, _first: u8) -> Result<ValueInterest, JsonSyntaxError> {
        Ok(match at.key {
            "b64_json" => ValueInterest::Text,
            "usage" => ValueInterest::Value,
            _ => ValueInterest::Skip,
        })
    }

    fn value(&mut self, _at: JsonPosition<'_>, value: Option<Value>) -> Result<(), JsonSyntaxError> {
        self.usage = value;
        Ok(())
    }

    fn text(&mut self, _at: JsonPosition<'_>, text: &[u8]) -> Result<(), JsonSyntaxError> {
        self.image_bytes += text.len();
        Ok(())
    }

    fn escaped(&mut self, _at: JsonPosition<'_>, _unit: u16) -> Result<(), JsonSyntaxError> {
        Ok(())
    }

    fn text_end(&mut self, _at: JsonPosition<'_>) -> Result<(), JsonSyntaxError> {
        Ok(())
    }
}

/// Text like an image in base64, of this many characters.
fn image_text(length: usize) -> String {
    let mut text = "iVBORw0KGgoAAAANSUhEUgAA".repeat(length / 24 + 1);
    text.truncate(length);
    text
}

fn read_answer(image_bytes: usize) {
    let image = image_text(image_bytes);
    let answer = format!(
        "{{\"created\":1790000000,\"data\":[{{\"b64_json\":\"{image}\"}}],\"size\":\"1024x1024\",\
         \"usage\":{{\"input_tokens\":50,\"output_tokens\":4160,\"total_tokens\":4210}}}}"
    );
    let mut visitor = AnswerVisitor::default();
    let mut reader = JsonReader::new("", CaptureLimits { value: 4096, total: 4096 });
    counted(|| answer.as_bytes().chunks(PIECE).try_for_each(|piece| reader.push_last(piece, &mut visitor))).unwrap();
    assert_eq!((reader.is_done(), visitor.image_bytes), (true, image_bytes));
    assert!(visitor.usage.is_some());
}

#[test]
#[ignore = "its instructions are counted by `cargo xtask bench instructions`"]
fn json_of_2_mb() {
    read_answer(2_000_000);
}

#[test]
#[ignore = "its instructions are counted by `cargo xtask bench instructions`"]
fn json_of_28_mb() {
    read_answer(28_000_000);
}

// === events ===

/// The number of bytes of data in a stream, and of its events.
fn read_events(stream: &[u8]) -> (usize, usize) {
    let mut framer = SseFramer::default();
    let (mut data_bytes, mut events) = (0, 0);
    for piece in stream.chunks(PIECE) {
        let mut rest = piece;
        while !rest.is_empty() {
            let (length, span) = framer.next(rest);
            data_bytes += length * usize::from(span == SseSpan::Data);
            events += usize::from(span == SseSpan::EventEnd);
            rest = &rest[length..];
        }
    }
    (data_bytes, events)
}

#[test]
#[ignore = "its instructions are counted by `cargo xtask bench instructions`"]
fn event_of_2_mb() {
    let data = format!("{{\"type\":\"image_generation.completed\",\"b64_json\":\"{}\"}}", image_text(2_000_000));
    let event = format!("event: image_generation.completed\ndata: {data}\n\n");
    assert_eq!(counted(|| read_events(event.as_bytes())), (data.len(), 1));
}

// === size rules ===

#[test]
#[ignore = "its instructions are counted by `cargo xtask bench instructions`"]
fn rules_of_a_generation() {
    let check = || check_generation(GENERATION.as_bytes(), DateTime::<Utc>::UNIX_EPOCH);
    check().unwrap();
    counted(check).unwrap();
}

// === keys ===

#[test]
#[ignore = "its instructions are counted by `cargo xtask bench instructions`"]
fn check_of_a_known_key() {
    let runtime = runtime();
    let (_dir, store) = runtime.block_on(new_store());
    let keys = ApiKeys::new(&(Arc::clone(&store) as _), Pepper::new(store.pepper_key()));
    let key = runtime.block_on(keys.create_for_test("laptop", "ada", "default"));
    let header = format!("Bearer {}", key.secret.expose());
    let policies = GroupPolicies::for_test();
    let check = || runtime.block_on(keys.authenticate(Some(header.as_bytes()), &policies));
    check().unwrap();
    assert_eq!(counted(check).unwrap().key(), &key.row.id);
}

// === accounts ===

/// The accounts of these tests have no token.
struct NoCredentialService;

#[async_trait]
impl CredentialService for NoCredentialService {
    async fn exchange(&self, _request: TokenRequest<'_>) -> Result<TokenResponse, CredentialServiceError> {
        Err(CredentialServiceError)
    }

    async fn probe(
        &self,
        _address: &UpstreamAddress,
        _authorization: Option<&HeaderValue>,
    ) -> Result<u16, CredentialServiceError> {
        Err(CredentialServiceError)
    }
}

fn choose_account(count: usize) {
    let runtime = runtime();
    let account = |number| AccountConfig {
        name: format!("account-{number}"),
        upstream: UpstreamConfig::Simulator,
        tier: AccountTier::Paid,
        groups: vec!["default".to_owned()],
        priority: 0,
        concurrency: NonZeroU32::new(64).unwrap(),
        large_concurrency: NonZeroU32::new(2).unwrap(),
        implicit: false,
    };
    let configured: Vec<AccountConfig> = (0..count).map(account).collect();
    let (_dir, store) = runtime.block_on(new_store());
    let keys = ApiKeys::new(&(Arc::clone(&store) as _), Pepper::new(store.pepper_key()));
    let caller = runtime.block_on(async {
        for account in &configured {
            let spec = AccountSpec { name: &account.name, kind: "simulator", protocol: "images", tier: "paid" };
            store.sync_account(spec).await.unwrap();
        }
        let key = keys.create_for_test("laptop", "ada", "default").await;
        keys.authenticate(Some(format!("Bearer {}", key.secret.expose()).as_bytes()), &GroupPolicies::for_test())
            .await
            .unwrap()
    });
    let opening = Accounts::open(
        &configured,
        Arc::clone(&store) as _,
        store.vault().clone(),
        Arc::new(NoCredentialService),
        NodeId::only(),
    );
    let accounts = runtime.block_on(opening).unwrap();
    let job = check_generation(GENERATION.as_bytes(), DateTime::<Utc>::UNIX_EPOCH).unwrap();
    let _entered = runtime.enter();
    assert!(counted(|| accounts.likely_account(&job, &caller, "req_1")).is_some());
}

#[test]
#[ignore = "its instructions are counted by `cargo xtask bench instructions`"]
fn choice_among_1_account() {
    choose_account(1);
}

#[test]
#[ignore = "its instructions are counted by `cargo xtask bench instructions`"]
fn choice_among_10_accounts() {
    choose_account(10);
}

#[test]
#[ignore = "its instructions are counted by `cargo xtask bench instructions`"]
fn choice_among_1000_accounts() {
    choose_account(1000);
}

// === records ===

/// Intent and outcome, with the work of the database.
#[test]
#[ignore = "its instructions are counted by `cargo xtask bench instructions`"]
fn both_rows_of_a_record() {
    let runtime = runtime();
    let (_dir, store) = runtime.block_on(new_store());
    let node = NodeId::only();
    let records = ["req_1", "req_2"].map(|id| (running_record(id), finished_record(id)));
    let write = |(intent, outcome): &(JobRecord, JobRecord)| {
        let rows = [RowWrite::Open(intent), RowWrite::Close(outcome)];
        runtime.block_on(store.write_rows(&node, &rows)).unwrap().len()
    };
    // The first write prepares the statements.
    write(&records[0]);
    assert_eq!(counted(|| write(&records[1])), 2);
}

// === limits ===

/// A job of a group with limits, after as many others in the same minute: its reservation, its headers and its end.
fn reserve_after(jobs: u32) {
    let runtime = runtime();
    let (_dir, store) = runtime.block_on(new_store());
    let limiter = {
        let _entered = runtime.enter();
        Arc::new(RequestLimiter::new(store))
    };
    let budget = Budget { usd: Usd::MAX, period: BudgetPeriod::Month, alert: Usd::MAX };
    let limits = Arc::new(RequestLimits {
        requests_per_minute: Some(u32::MAX),
        images_per_day: Some(u32::MAX),
        concurrent_jobs: Some(1000),
        budget: Some(budget),
        ..RequestLimits::default()
    });
    let demand = JobDemand { images: 1, cost: Some(Usd::from_nanos(40_000_000)), ..JobDemand::default() };
    let run = || {
        let subject = LimitSubject::Group("default".to_owned());
        let subjects = vec![SubjectLimits { subject, limits: Arc::clone(&limits) }];
        let reservation = runtime.block_on(limiter.reserve(&"req_1".into(), subjects, demand)).unwrap();
        let headers = reservation.status().headers().count();
        reservation.settle(demand.cost, 1);
        headers
    };
    for _ in 0..jobs {
        black_box(run());
    }
    assert_eq!(counted(run), 4);
}

#[test]
#[ignore = "its instructions are counted by `cargo xtask bench instructions`"]
fn limits_of_the_second_job() {
    reserve_after(1);
}

#[test]
#[ignore = "its instructions are counted by `cargo xtask bench instructions`"]
fn limits_after_10000_jobs() {
    reserve_after(10_000);
}

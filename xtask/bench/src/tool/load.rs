//! The load generator: a number of clients, each with a kept-alive connection and one request at a time.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use tokio::task::LocalSet;
use tokio::time::timeout_at;

use super::cases::{BenchCase, BenchCell};
use super::http::{BodySink, Connection, Exchange};
use super::statistics::percentile;

/// The bytes per second that each client of [`BenchCase::Slow`] reads.
const SLOW_RATE: usize = 200_000;
/// The number of failed requests after which a client gives up.
const MAX_FAILURES: usize = 20;
/// The time after the end of the run in which requests that run can end.
const GRACE: Duration = Duration::from_secs(20);

/// The results of one run. Times are in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LoadReport {
    pub(crate) requests: u64,
    pub(crate) seconds: f64,
    /// The bytes of the requests and of the bodies of the answers.
    pub(crate) bytes: u64,
    pub(crate) first_byte: Latency,
    pub(crate) first_event: Latency,
    pub(crate) total: Latency,
    /// The number of failed requests by the text of the failure.
    pub(crate) failures: BTreeMap<String, u64>,
}

/// Percentiles of a latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) p50: Option<f64>,
    pub(crate) p99: Option<f64>,
}

/// The measured values of all clients.
#[derive(Default)]
struct Samples {
    first_byte: Vec<u32>,
    first_event: Vec<u32>,
    total: Vec<u32>,
    bytes: u64,
    last: Option<Instant>,
    failures: BTreeMap<String, u64>,
}

/// The properties of a run.
struct LoadPlan {
    address: SocketAddr,
    request: Vec<u8>,
    case: BenchCase,
    end: Instant,
}

/// Sends the requests of a cell for some seconds.
pub(crate) async fn run(address: SocketAddr, headers: &str, cell: BenchCell, duration: Duration) -> Result<LoadReport> {
    // A request of megabytes takes its time to be made, which is not part of the run.
    let request = cell.case.request(headers);
    let begun = Instant::now();
    let plan = LoadPlan { address, request, case: cell.case, end: begun + duration };
    let (plan, samples) = (Rc::new(plan), Rc::new(RefCell::new(Samples::default())));
    let clients = LocalSet::new();
    for _ in 0..cell.connections {
        let (plan, samples) = (Rc::clone(&plan), Rc::clone(&samples));
        clients.spawn_local(async move { send_requests(&plan, &samples).await });
    }
    clients.await;
    let samples = samples.take();
    let seconds = samples.last.map_or(0.0, |last| (last - begun).as_secs_f64());
    Ok(samples.report(seconds))
}

/// The requests of one client.
async fn send_requests(plan: &LoadPlan, samples: &RefCell<Samples>) {
    // A slow reader reads until the end of the run and leaves: its answer would take minutes.
    let is_slow = plan.case == BenchCase::Slow;
    let hard_end = if is_slow { plan.end } else { plan.end + GRACE };
    let rate = is_slow.then_some(SLOW_RATE);
    let (mut connection, mut failures) = (None, 0);
    while Instant::now() < plan.end && failures < MAX_FAILURES {
        match timeout_at(hard_end.into(), send(plan, rate, &mut connection)).await {
            Err(_) if is_slow => return,
            Err(_) => return samples.borrow_mut().fail("no end of the answer"),
            Ok(Ok(exchange)) if exchange.status == 200 => {
                if exchange.closes {
                    connection = None;
                }
                samples.borrow_mut().push(&exchange, plan.request.len());
            }
            Ok(Ok(exchange)) => {
                failures += 1;
                samples.borrow_mut().fail(&format!("status {}: {}", exchange.status, exchange.error));
                connection = connection.filter(|_| !exchange.closes);
            }
            Ok(Err(error)) => {
                failures += 1;
                samples.borrow_mut().fail(&format!("{error:#}"));
                connection = None;
            }
        }
    }
}

async fn send(plan: &LoadPlan, rate: Option<usize>, connection: &mut Option<Connection>) -> Result<Exchange> {
    let open = match connection.take() {
        Some(open) => open,
        None => Connection::open(plan.address, rate).await?,
    };
    let open = connection.insert(open);
    let mut sink = if plan.case == BenchCase::Stream { BodySink::for_events() } else { BodySink::default() };
    open.exchange(&plan.request, &mut sink).await
}

impl Samples {
    fn push(&mut self, exchange: &Exchange, request_bytes: usize) {
        let micros = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        self.first_byte.push(micros(exchange.first_byte));
        self.first_event.extend(exchange.first_event.map(micros));
        self.total.push(micros(exchange.total));
        self.bytes += exchange.body_bytes + request_bytes as u64;
        self.last = Some(Instant::now());
    }

    fn fail(&mut self, failure: &str) {
        *self.failures.entry(failure.to_owned()).or_default() += 1;
    }

    fn report(mut self, seconds: f64) -> LoadReport {
        LoadReport {
            requests: self.total.len() as u64,
            seconds,
            bytes: self.bytes,
            first_byte: Latency::of(&mut self.first_byte),
            first_event: Latency::of(&mut self.first_event),
            total: Latency::of(&mut self.total),
            failures: self.failures,
        }
    }
}

impl Latency {
    fn of(samples: &mut [u32]) -> Self {
        samples.sort_unstable();
        Self { p50: percentile(samples, 50), p99: percentile(samples, 99) }
    }
}

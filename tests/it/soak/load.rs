//! The load of soak tests: callers that send one request after another, and what each of them got.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::kit::{Answer, Call, Form, Random, alpha_png, pause, request};

/// The shortest and the longest time that the upstream takes for an image, in milliseconds.
const UPSTREAM_MILLIS: (u64, u64) = (20, 200);
/// The pause of a caller after an error: a client that is refused does not ask again at once.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(20);

/// A caller's view of one request.
pub(super) struct CallerResult {
    /// The `user` of the request, which is different for each.
    pub(super) user: String,
    pub(super) outcome: CallerOutcome,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CallerOutcome {
    /// The whole answer with its image.
    Image,
    /// A whole error of this status.
    Error(u16),
    /// The answer broke off, or there was none.
    Cut,
    /// No connection was accepted, so the request was not sent.
    Unreachable,
}

/// A mix of requests: half of them generations, a quarter streams and a quarter edits. One generation in eight has an
/// image of two megabytes.
pub(super) struct MixedLoad {
    secret: String,
    seed: u64,
    next: AtomicUsize,
    errors: AtomicUsize,
}

/// Ends the load when it is dropped, also by a panic.
struct EndOfLoad<'a>(&'a AtomicBool);

// === impl CallerOutcome ===

impl CallerOutcome {
    pub(super) fn of(sent: std::io::Result<Answer>) -> Self {
        let answer = match sent {
            Ok(answer) => answer,
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Self::Unreachable,
            Err(_) => return Self::Cut,
        };
        let is_stream = answer.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
        if !answer.complete {
            return Self::Cut;
        }
        match answer.status {
            200 if is_stream && !has_final_image(&answer) => Self::Cut,
            200 => Self::Image,
            status => Self::Error(status),
        }
    }
}

fn has_final_image(answer: &Answer) -> bool {
    let text = answer.text();
    text.lines().any(|line| line.starts_with("event: ") && line.ends_with(".completed"))
        && !text.contains("event: error")
}

// === impl MixedLoad ===

impl MixedLoad {
    pub(super) fn new(secret: &str, seed: u64) -> Self {
        Self { secret: secret.to_owned(), seed, next: AtomicUsize::new(0), errors: AtomicUsize::new(0) }
    }

    /// The number of requests that got an error so far.
    pub(super) fn errors(&self) -> usize {
        self.errors.load(Ordering::SeqCst)
    }

    /// Lets `callers` send requests without a pause while `work` runs. A caller whose connection breaks sends no more.
    pub(super) fn run<T>(
        &self,
        callers: usize,
        send: impl Fn(Call) -> std::io::Result<Answer> + Sync,
        work: impl FnOnce() -> T,
    ) -> (T, Vec<CallerResult>) {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let end = EndOfLoad(&is_over);
            let threads: Vec<_> = (0..callers).map(|_| scope.spawn(|| self.send_until(&is_over, &send))).collect();
            let done = work();
            drop(end);
            (done, threads.into_iter().flat_map(|caller| caller.join().expect("a caller")).collect())
        })
    }

    fn send_until(&self, is_over: &AtomicBool, send: impl Fn(Call) -> std::io::Result<Answer>) -> Vec<CallerResult> {
        let mut results = Vec::new();
        while !is_over.load(Ordering::SeqCst) {
            let (user, call) = self.request(self.next.fetch_add(1, Ordering::SeqCst));
            let outcome = CallerOutcome::of(send(call));
            results.push(CallerResult { user, outcome });
            match outcome {
                CallerOutcome::Image => {}
                CallerOutcome::Cut | CallerOutcome::Unreachable => break,
                CallerOutcome::Error(_) => {
                    self.errors.fetch_add(1, Ordering::SeqCst);
                    pause(PAUSE_AFTER_ERROR);
                }
            }
        }
        results
    }

    /// The request of this number, and its user. Its tokens tell it from its neighbours.
    fn request(&self, number: usize) -> (String, Call) {
        let mut random = Random::seeded(self.seed.wrapping_mul(1_000_003).wrapping_add(number as u64));
        let millis = random.between(UPSTREAM_MILLIS.0, UPSTREAM_MILLIS.1);
        let tokens = 200 + number % 1000;
        let user = format!("r-{number}");
        let call = match number % 8 {
            1 | 5 => {
                let prompt = format!("a cube [[events=p,~{millis},c tokens={tokens}]]");
                let fields = json!({"prompt": prompt, "user": user, "stream": true, "partial_images": 1});
                Call::generation().json(&request(fields))
            }
            3 | 7 => {
                let prompt = format!("a cube [[delay={millis} tokens={tokens}]]");
                let form = Form::new().text("model", "gpt-image-2").text("prompt", &prompt).text("user", &user);
                form.file("image", &alpha_png(96, 64)).call()
            }
            kind => {
                let size = if kind == 0 { " b64=2000000" } else { "" };
                let prompt = format!("a cube [[delay={millis} tokens={tokens}{size}]]");
                Call::generation().json(&request(json!({"prompt": prompt, "user": user})))
            }
        };
        (user, call.key(&self.secret))
    }
}

impl Drop for EndOfLoad<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The numbers of results by what the callers got: images, cut answers, unreachable gateways, and errors by status.
pub(super) fn count_outcomes(results: &[CallerResult]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for result in results {
        let name = match result.outcome {
            CallerOutcome::Image => "callers got the image".to_owned(),
            CallerOutcome::Error(status) => format!("callers got the error {status}"),
            CallerOutcome::Cut => "callers got a broken answer or none".to_owned(),
            CallerOutcome::Unreachable => "callers reached no gateway".to_owned(),
        };
        *counts.entry(name).or_default() += 1;
    }
    counts
}

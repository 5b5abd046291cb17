//! A fake upstream on loopback that speaks raw HTTP/1.1, can break every rule of it, and keeps a ledger.
//!
//! The script of an attempt comes from the first of these that has one: the queue ([`FakeUpstream::script_next`]), the
//! account's bearer token ([`FakeUpstream::script_sequence`]), the prompt (`a red cube [[status=429 retry-after=7]]`).
//! Without a script the answer is good. A script of a token with the word `early` takes precedence over the queue. The
//! words of scripts are listed in [`script`].

mod agent_turns;
mod answer;
mod closed_ports;
mod compression;
mod events;
mod form_parts;
mod ledger;
mod models;
mod responses;
mod script;
mod script_runner;

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{BufRead as _, BufReader, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use aws_lc_rs::digest;

use super::TEST_TIMEOUT;
use super::http::{find_header, read_headers, read_line};
pub(crate) use agent_turns::ModelStep;
pub(crate) use closed_ports::{RefusingPort, UnresponsivePort};
use form_parts::FormParser;
pub(crate) use form_parts::sha256;
pub(crate) use ledger::Attempt;
use script::Script;
use script_runner::AnswerEnd;

/// The server. Dropping it closes the port; connections that still stall are closed.
pub(crate) struct FakeUpstream {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    accepted: AtomicUsize,
}

#[derive(Default)]
struct State {
    attempts: Vec<Attempt>,
    queue: VecDeque<Script>,
    /// The remaining scripts of each token; the last one serves all further attempts.
    by_token: HashMap<String, VecDeque<Script>>,
    open_gates: HashSet<String>,
    /// The action of the model in each step; empty unless the test has set it.
    conversation: Vec<ModelStep>,
    closed: bool,
    /// The number of requests that wait for the beginning of their answer, and the largest such number so far.
    waiting: usize,
    most_waiting: usize,
    /// Of large bodies only the digest is kept.
    digests: bool,
}

// === impl FakeUpstream ===

impl FakeUpstream {
    pub(crate) fn start() -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").expect("a port"))
    }

    /// One that keeps no large body: it knows only its digest.
    pub(crate) fn digesting() -> Self {
        let upstream = Self::start();
        upstream.state().digests = true;
        upstream
    }

    fn on(listener: TcpListener) -> Self {
        let address = listener.local_addr().expect("an address");
        let shared = Arc::<Shared>::default();
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || accept(&listener, &serving));
        Self { address, shared }
    }

    /// The base URL for an account, `/v1` included.
    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Appends a script to the queue. Each attempt takes the first script of the queue, if there is one.
    pub(crate) fn script_next(&self, script: &str) {
        self.state().queue.push_back(Script::parse(script));
    }

    /// Forgets what is left in the queue.
    pub(crate) fn clear_queue(&self) {
        self.state().queue.clear();
    }

    /// Every attempt with this bearer token gets this script.
    pub(crate) fn always_for_token(&self, token: &str, script: &str) {
        self.script_sequence(token, &[script]);
    }

    /// The attempts with this bearer token get these scripts in order, and the last one again and again.
    pub(crate) fn script_sequence(&self, token: &str, scripts: &[&str]) {
        let scripts = scripts.iter().map(|script| Script::parse(script)).collect();
        self.state().by_token.insert(token.to_owned(), scripts);
    }

    /// From now on response requests without a script get these steps of a conversation.
    pub(crate) fn set_conversation(&self, steps: &[ModelStep]) {
        self.state().conversation = steps.to_vec();
    }

    /// Opens the gate that scripts name with `gate=` or `gate-middle=`; it stays open.
    pub(crate) fn open_gate(&self, name: &str) {
        self.state().open_gates.insert(name.to_owned());
        self.shared.changed.notify_all();
    }

    /// How many connections were ever accepted: a refused request must not move this.
    pub(crate) fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    pub(crate) fn received_attempts(&self) -> Vec<Attempt> {
        self.state().attempts.clone()
    }

    /// How many attempts arrived, without copying what they sent.
    pub(crate) fn attempt_count(&self) -> usize {
        self.state().attempts.len()
    }

    /// The largest number of requests that waited at once for the beginning of their answer.
    pub(crate) fn most_at_once(&self) -> usize {
        self.state().most_waiting
    }

    /// Waits until the ledger satisfies `enough`; panics with `what` when it never does.
    #[track_caller]
    pub(crate) fn wait_until(&self, what: &str, mut enough: impl FnMut(&[Attempt]) -> bool) {
        let start = Instant::now();
        let mut state = self.state();
        while !enough(&state.attempts) {
            assert!(start.elapsed() < TEST_TIMEOUT, "the upstream waited in vain: {what}");
            state = self.shared.wait(state);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }
}

impl Drop for FakeUpstream {
    fn drop(&mut self) {
        self.state().closed = true;
        self.shared.changed.notify_all();
        // Wakes the accepting thread, which then ends and closes the port.
        drop(TcpStream::connect(self.address));
    }
}

// === impl Shared ===

impl Shared {
    /// A connection thread that panicked, for instance at a misspelt script, must not hide its panic behind a poisoned
    /// lock.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let tick = Duration::from_millis(50);
        self.changed.wait_timeout(state, tick).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits at a gate; `false` if the upstream is dropped, or `gone` says that the peer has left.
    fn pass_gate(&self, name: &str, gone: impl Fn() -> bool) -> bool {
        let mut state = self.state();
        loop {
            if state.open_gates.contains(name) {
                return true;
            }
            if state.closed || gone() {
                return false;
            }
            state = self.wait(state);
        }
    }

    fn closed(&self) -> bool {
        self.state().closed
    }

    /// Counts a request as waiting while this function runs.
    fn count_waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        let mut state = self.state();
        state.waiting += 1;
        state.most_waiting = state.most_waiting.max(state.waiting);
        drop(state);
        let result = wait();
        self.state().waiting -= 1;
        result
    }

    fn note(&self, at: usize, change: impl FnOnce(&mut Attempt)) {
        if let Some(attempt) = self.state().attempts.get_mut(at) {
            change(attempt);
        }
        self.changed.notify_all();
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept() {
        if shared.closed() {
            return;
        }
        let number = shared.accepted.fetch_add(1, Ordering::SeqCst);
        let shared = Arc::clone(shared);
        std::thread::spawn(move || serve_connection(stream, &shared, number));
    }
}

/// Serves one connection to its end.
fn serve_connection(stream: TcpStream, shared: &Shared, number: usize) {
    stream.set_nodelay(true).expect("nodelay");
    let mut reader = BufReader::new(stream);
    let mut before = Script::default();
    while let Some(played) = serve(&mut reader, shared, number, &before).unwrap_or(None) {
        if !has_next_request(&mut reader, &played) {
            return;
        }
        before = played;
    }
}

/// Waits for the next request; `false` if the script has `idle`, and no request comes in that time.
fn has_next_request(reader: &mut BufReader<TcpStream>, played: &Script) -> bool {
    let Some(idle) = played.number("idle") else { return true };
    let wait = |reader: &BufReader<TcpStream>, time| reader.get_ref().set_read_timeout(time).is_ok();
    let came = wait(reader, Some(Duration::from_millis(idle.max(1)))) && reader.fill_buf().is_ok();
    came && wait(reader, None)
}

/// Serves one request; returns its script if the connection can serve another request, and otherwise `None`.
fn serve(
    reader: &mut BufReader<TcpStream>,
    shared: &Shared,
    connection: usize,
    before: &Script,
) -> std::io::Result<Option<Script>> {
    let (at, mut attempt) = read_head(reader, shared, connection)?;
    let early = early_script(shared, &attempt.token);
    if early.is_none() {
        let most = if shared.state().digests { MAX_KEPT_BODY } else { usize::MAX };
        read_body(reader, &mut attempt, most)?;
        let (body, parts, digest) = (attempt.body.clone(), attempt.parts.clone(), attempt.digest.clone());
        shared.note(at, |line| (line.body, line.parts, line.digest) = (body, parts, digest));
    }
    let last = early.is_some();
    let script = match early {
        Some(script) => script,
        None if before.has("sour") => Script::parse("hang-up how=reset"),
        None => choose_script(shared, &attempt),
    };
    let answer = if attempt.path.ends_with("/models") {
        models::build_model_list(&script, at)
    } else if attempt.path.ends_with("/responses") {
        let (steps, request) = (shared.state().conversation.clone(), attempt.json());
        agent_turns::answer(&steps, &script, &request, at)
            .unwrap_or_else(|| responses::build_response(&script, &request, at))
    } else {
        answer::build_answer(&script, &attempt.fields(), attempt.is_edit(), at)
    };
    shared.note(at, |line| {
        line.script = script.to_string();
        line.usage.clone_from(&answer.usage);
        line.images.clone_from(&answer.images);
    });
    let end = script_runner::run_script(reader.get_mut(), shared, at, &script, &answer);
    shared.note(at, |line| {
        line.completed = matches!(end, Ok(AnswerEnd::Whole | AnswerEnd::Last));
        line.peer_left = end.is_err();
    });
    if last {
        drain(reader);
    }
    Ok((end? == AnswerEnd::Whole && !last).then_some(script))
}

/// Reads what still comes: closing with unread bytes would be a reset, which could destroy the answer.
fn drain(reader: &mut BufReader<TcpStream>) {
    drop(reader.get_ref().shutdown(Shutdown::Write));
    drop(reader.get_ref().set_read_timeout(Some(TEST_TIMEOUT)));
    let mut buffer = vec![0; 1 << 16];
    while matches!(reader.read(&mut buffer), Ok(1..)) {}
}

/// Reads a head, and enters the attempt into the ledger before its body is read.
fn read_head(
    reader: &mut BufReader<TcpStream>,
    shared: &Shared,
    connection: usize,
) -> std::io::Result<(usize, Attempt)> {
    let line = read_line(reader)?;
    let mut words = line.split(' ').map(str::to_owned);
    let headers = read_headers(reader)?;
    let token =
        find_header(&headers, "authorization").and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
    let attempt = Attempt {
        came: Instant::now(),
        connection,
        token: token.to_owned(),
        method: words.next().unwrap_or_default(),
        path: words.next().unwrap_or_default(),
        headers,
        body: Vec::new(),
        digest: Vec::new(),
        parts: Vec::new(),
        script: String::new(),
        sent: Vec::new(),
        written: 0,
        completed: false,
        peer_left: false,
        usage: None,
        images: Vec::new(),
    };
    let mut state = shared.state();
    state.attempts.push(attempt.clone());
    Ok((state.attempts.len() - 1, attempt))
}

/// A body above this is not kept by an upstream that digests.
const MAX_KEPT_BODY: usize = 1 << 20;

fn read_body(reader: &mut BufReader<TcpStream>, attempt: &mut Attempt, most: usize) -> std::io::Result<()> {
    let mut parts = attempt.header("content-type").and_then(FormParser::for_content_type);
    let (mut body, mut context, mut total) = (Vec::new(), digest::Context::new(&digest::SHA256), 0);
    let length = attempt.header("content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
    let mut sink = |bytes: &[u8]| match &mut parts {
        Some(parts) => parts.feed(bytes),
        None => {
            context.update(bytes);
            total += bytes.len();
            if total <= most {
                body.extend_from_slice(bytes);
            } else {
                body = Vec::new();
            }
        }
    };
    if attempt.header("transfer-encoding").is_none() {
        copy(reader, length, &mut sink)?;
    } else {
        loop {
            let size = u64::from_str_radix(read_line(reader)?.trim(), 16).unwrap_or(0);
            copy(reader, size, &mut sink)?;
            read_line(reader)?;
            if size == 0 {
                break;
            }
        }
    }
    attempt.body = body;
    attempt.digest = context.finish().as_ref().to_vec();
    attempt.parts = parts.map(FormParser::finish).unwrap_or_default();
    Ok(())
}

fn copy(reader: &mut impl Read, length: u64, sink: &mut impl FnMut(&[u8])) -> std::io::Result<()> {
    let mut buffer = vec![0; usize::try_from(length).unwrap_or(usize::MAX).min(1 << 18)];
    let mut left = length;
    while left > 0 {
        let want = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        reader.read_exact(&mut buffer[..want])?;
        sink(&buffer[..want]);
        left -= want as u64;
    }
    Ok(())
}

/// The script of an account that answers before it has read a body.
fn early_script(shared: &Shared, token: &str) -> Option<Script> {
    shared.state().by_token.get(token)?.front().filter(|script| script.has("early")).cloned()
}

fn choose_script(shared: &Shared, attempt: &Attempt) -> Script {
    let mut state = shared.state();
    if let Some(script) = state.queue.pop_front() {
        return script;
    }
    if let Some(left) = state.by_token.get_mut(&attempt.token) {
        let script = if left.len() > 1 { left.pop_front() } else { left.front().cloned() };
        return script.unwrap_or_default();
    }
    let is_turn = attempt.path.ends_with("/responses") && !state.conversation.is_empty();
    drop(state);
    if is_turn && agent_turns::has_conflict(&attempt.json()) {
        return Script::parse("status=400 body=tool");
    }
    Script::in_prompt(&attempt.prompt())
}

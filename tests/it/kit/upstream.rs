//! A fake upstream on loopback that speaks raw HTTP/1.1, can break every rule of it, and keeps a ledger.
//!
//! What an attempt gets is decided by the first of these that speaks: the queue ([`FakeUpstream::next`]), the account's
//! bearer token ([`FakeUpstream::always`]), a directive in the prompt (`a red cube [[status=429 retry-after=7]]`), and
//! otherwise the good answer. The words are listed in [`script`].

mod answer;
mod play;
mod script;

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::PATIENCE;
use super::http::{find, read_headers, read_line};
use play::Told;
use script::Script;

/// One line of the ledger: an attempt, in the order in which the attempts arrived.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    /// The bearer token, which says which account called.
    pub(crate) token: String,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Whether everything that the script says was written.
    pub(crate) completed: bool,
    /// Whether the peer went away before that.
    pub(crate) peer_left: bool,
    /// The `usage` that the answer carries.
    pub(crate) usage: Option<Value>,
    /// The `b64_json` of each image of the answer; the filler of a huge image is left out.
    pub(crate) images: Vec<String>,
}

/// The server. Dropping it closes the port; connections that still stall are let go.
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
    ledger: Vec<Attempt>,
    queue: VecDeque<Script>,
    by_token: HashMap<String, Script>,
    open_gates: HashSet<String>,
    closed: bool,
}

// === impl FakeUpstream ===

impl FakeUpstream {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
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

    /// The next attempt without a script of its own gets this.
    pub(crate) fn next(&self, script: &str) {
        self.state().queue.push_back(Script::parse(script));
    }

    /// Every attempt with this bearer token gets this.
    pub(crate) fn always(&self, token: &str, script: &str) {
        self.state().by_token.insert(token.to_owned(), Script::parse(script));
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

    pub(crate) fn ledger(&self) -> Vec<Attempt> {
        self.state().ledger.clone()
    }

    /// How many attempts arrived, without copying what they sent.
    pub(crate) fn attempts(&self) -> usize {
        self.state().ledger.len()
    }

    /// Waits until the ledger satisfies `enough`; panics with `what` when it never does.
    #[track_caller]
    pub(crate) fn wait_until(&self, what: &str, mut enough: impl FnMut(&[Attempt]) -> bool) {
        let start = Instant::now();
        let mut state = self.state();
        while !enough(&state.ledger) {
            assert!(start.elapsed() < PATIENCE, "the upstream waited in vain: {what}");
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
    /// A connection thread that panicked (a script with a spelling error) must not hide why.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let tick = Duration::from_millis(50);
        self.changed.wait_timeout(state, tick).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits at a gate; `false` when the upstream is dropped or `gone` says that nobody waits any more.
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

    fn note(&self, at: usize, change: impl FnOnce(&mut Attempt)) {
        if let Some(attempt) = self.state().ledger.get_mut(at) {
            change(attempt);
        }
        self.changed.notify_all();
    }
}

// === impl Attempt ===

impl Attempt {
    /// The request body as JSON; `null` when it is none.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }

    /// The `user` of the request, by which tests tell requests apart.
    pub(crate) fn user(&self) -> String {
        self.json()["user"].as_str().unwrap_or_default().to_owned()
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept() {
        if shared.closed() {
            return;
        }
        shared.accepted.fetch_add(1, Ordering::SeqCst);
        let shared = Arc::clone(shared);
        std::thread::spawn(move || {
            stream.set_nodelay(true).expect("nodelay");
            let mut reader = BufReader::new(stream);
            while serve(&mut reader, &shared).unwrap_or(false) {}
        });
    }
}

/// One request and its answer; whether the connection can serve another.
fn serve(reader: &mut BufReader<TcpStream>, shared: &Shared) -> std::io::Result<bool> {
    let (at, mut attempt) = read_request(reader, shared)?;
    let script = choose(shared, &attempt);
    let answer = answer::make(&script, &attempt.json(), at);
    attempt.usage = answer.usage.clone();
    attempt.images = answer.images.clone();
    shared.note(at, |line| {
        line.usage = attempt.usage;
        line.images = attempt.images;
    });
    let told = play::play(reader.get_mut(), shared, &script, &answer);
    shared.note(at, |line| {
        line.completed = matches!(told, Ok(Told::Whole | Told::Last));
        line.peer_left = told.is_err();
    });
    Ok(told? == Told::Whole)
}

/// Enters the attempt into the ledger as soon as its head is there, then reads its body.
fn read_request(reader: &mut BufReader<TcpStream>, shared: &Shared) -> std::io::Result<(usize, Attempt)> {
    let line = read_line(reader)?;
    let mut words = line.split(' ').map(str::to_owned);
    let headers = read_headers(reader)?;
    let token = find(&headers, "authorization").and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
    let mut attempt = Attempt {
        token: token.to_owned(),
        method: words.next().unwrap_or_default(),
        path: words.next().unwrap_or_default(),
        headers,
        body: Vec::new(),
        completed: false,
        peer_left: false,
        usage: None,
        images: Vec::new(),
    };
    let at = {
        let mut state = shared.state();
        state.ledger.push(attempt.clone());
        state.ledger.len() - 1
    };
    attempt.body = read_body(reader, &attempt.headers)?;
    let body = attempt.body.clone();
    shared.note(at, |line| line.body = body);
    Ok((at, attempt))
}

fn read_body(reader: &mut BufReader<TcpStream>, headers: &[(String, String)]) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::new();
    if find(headers, "transfer-encoding").is_none() {
        let length: usize = find(headers, "content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
        body.resize(length, 0);
        reader.read_exact(&mut body)?;
        return Ok(body);
    }
    loop {
        let size = usize::from_str_radix(read_line(reader)?.trim(), 16).unwrap_or(0);
        let start = body.len();
        body.resize(start + size, 0);
        reader.read_exact(&mut body[start..])?;
        read_line(reader)?;
        if size == 0 {
            return Ok(body);
        }
    }
}

fn choose(shared: &Shared, attempt: &Attempt) -> Script {
    let mut state = shared.state();
    if let Some(script) = state.queue.pop_front() {
        return script;
    }
    if let Some(script) = state.by_token.get(&attempt.token) {
        return script.clone();
    }
    drop(state);
    Script::in_prompt(attempt.json()["prompt"].as_str().unwrap_or_default())
}

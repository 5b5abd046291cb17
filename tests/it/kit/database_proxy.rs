//! A proxy in front of the PostgreSQL server of the test run, which breaks connections in the middle of a commit.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::{PostgresDatabase, Random};

/// The message by which a client ends a transaction: its type, its length, and the statement.
const COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";
/// One commit in this many breaks.
const COMMITS_PER_CUT: u64 = 3;

/// The proxy. Dropping it closes the port.
pub(crate) struct DatabaseProxy {
    address: std::net::SocketAddr,
    url: String,
    plan: Arc<CutPlan>,
}

/// The commits that are still to break.
struct CutPlan {
    remaining: AtomicUsize,
    random: Mutex<Random>,
    /// The number of commits that broke, by their [`CommitCut`].
    cuts: [AtomicUsize; 3],
    is_closed: AtomicBool,
    /// True while no connection passes.
    is_cut_off: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

/// The moment at which the connection breaks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CommitCut {
    /// The server never gets the statement.
    BeforeServer,
    /// The server gets the statement and the end of the connection at the same time.
    AtOnce,
    /// The server commits, and its answer is lost.
    BeforeAnswer,
}

// === impl DatabaseProxy ===

impl DatabaseProxy {
    #[track_caller]
    pub(crate) fn in_front_of(database: &PostgresDatabase) -> Self {
        let (before, path) = database.url().rsplit_once('/').expect("the address ends with a database");
        let (scheme, server) = before.rsplit_once('@').expect("the address has a user");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let plan = Arc::new(CutPlan {
            remaining: AtomicUsize::new(0),
            random: Mutex::new(Random::seeded(0)),
            cuts: Default::default(),
            is_closed: AtomicBool::new(false),
            is_cut_off: AtomicBool::new(false),
            open: Mutex::default(),
        });
        let (server, serving) = (server.to_owned(), Arc::clone(&plan));
        std::thread::spawn(move || accept(&listener, &server, &serving));
        Self { address, url: format!("{scheme}@{address}/{path}"), plan }
    }

    /// The address of the database through the proxy, as `database_url` takes it.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Breaks this many connections in a commit.
    pub(crate) fn cut_commits(&self, count: usize, random: Random) {
        *self.plan.random.lock().unwrap_or_else(PoisonError::into_inner) = random;
        self.plan.remaining.store(count, Ordering::SeqCst);
    }

    /// Breaks every connection, and lets none through until [`DatabaseProxy::reconnect`].
    pub(crate) fn cut_off(&self) {
        self.plan.is_cut_off.store(true, Ordering::SeqCst);
        let mut open = self.plan.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.drain(..).for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }

    pub(crate) fn reconnect(&self) {
        self.plan.is_cut_off.store(false, Ordering::SeqCst);
    }

    pub(crate) fn remaining_cuts(&self) -> usize {
        self.plan.remaining.load(Ordering::SeqCst)
    }

    /// The number of commits that broke before the server had them, at that moment, and before the answer of the server.
    pub(crate) fn cuts(&self) -> [usize; 3] {
        self.plan.cuts.each_ref().map(|count| count.load(Ordering::SeqCst))
    }
}

impl Drop for DatabaseProxy {
    fn drop(&mut self) {
        self.plan.is_closed.store(true, Ordering::SeqCst);
        // Wakes the accepting thread, which then ends and closes the port.
        drop(TcpStream::connect(self.address));
    }
}

// === impl CutPlan ===

impl CutPlan {
    /// Decides whether the connection of this commit breaks.
    fn next_cut(&self) -> Option<CommitCut> {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        if random.between(0, COMMITS_PER_CUT) > 0 {
            return None;
        }
        let take = |remaining: usize| remaining.checked_sub(1);
        self.remaining.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).ok()?;
        let cut = match random.between(0, 3) {
            0 => CommitCut::BeforeServer,
            1 => CommitCut::AtOnce,
            _ => CommitCut::BeforeAnswer,
        };
        self.cuts[cut as usize].fetch_add(1, Ordering::SeqCst);
        Some(cut)
    }
}

fn accept(listener: &TcpListener, server: &str, plan: &Arc<CutPlan>) {
    while let Ok((client, _)) = listener.accept() {
        if plan.is_closed.load(Ordering::SeqCst) {
            return;
        }
        let mut open = plan.open.lock().unwrap_or_else(PoisonError::into_inner);
        if plan.is_cut_off.load(Ordering::SeqCst) {
            continue;
        }
        open.extend(client.try_clone());
        drop(open);
        // A server that refuses the connection is a client that is refused.
        let Ok(server) = TcpStream::connect(server) else { continue };
        client.set_nodelay(true).and_then(|()| server.set_nodelay(true)).expect("nodelay");
        let plan = Arc::clone(plan);
        std::thread::spawn(move || serve(&client, &server, &plan));
    }
}

fn serve(client: &TcpStream, server: &TcpStream, plan: &CutPlan) {
    let loses_answer = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            drop(forward_answers(server, client, &loses_answer));
            close(client, server);
        });
        drop(forward_statements(client, server, plan, &loses_answer));
        close(client, server);
    });
}

fn close(client: &TcpStream, server: &TcpStream) {
    [client, server].iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
}

fn forward_statements(
    mut client: &TcpStream,
    mut server: &TcpStream,
    plan: &CutPlan,
    loses_answer: &AtomicBool,
) -> std::io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let bytes = match client.read(&mut buffer)? {
            0 => return Ok(()),
            read => &buffer[..read],
        };
        let has_commit = bytes.windows(COMMIT.len()).any(|window| window == COMMIT);
        let cut = has_commit.then(|| plan.next_cut()).flatten();
        if cut == Some(CommitCut::BeforeServer) {
            return Ok(());
        }
        loses_answer.store(cut == Some(CommitCut::BeforeAnswer), Ordering::SeqCst);
        server.write_all(bytes)?;
        if cut == Some(CommitCut::AtOnce) {
            return Ok(());
        }
    }
}

fn forward_answers(mut server: &TcpStream, mut client: &TcpStream, loses_answer: &AtomicBool) -> std::io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = server.read(&mut buffer)?;
        if read == 0 || loses_answer.load(Ordering::SeqCst) {
            return Ok(());
        }
        client.write_all(&buffer[..read])?;
    }
}

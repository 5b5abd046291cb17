//! Connections that are closed at the moment at which they are used again (U30).

use std::mem::MaybeUninit;
use std::sync::Mutex;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::*;

/// An upstream closes a connection on which nothing arrived for this time.
const SERVER_IDLE_TIMEOUT: Duration = Duration::from_millis(4);
const REQUESTS: usize = 800;

/// The requests that the upstream has seen.
#[derive(Default)]
struct Ledger {
    requests: Mutex<Vec<String>>,
    connections: Mutex<usize>,
}

/// Accepts until the test ends.
async fn serve(upstream: Upstream, ledger: Arc<Ledger>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = upstream.0.accept().await {
        *ledger.connections.lock().unwrap() += 1;
        connections.spawn(impatient(stream, Arc::clone(&ledger)));
    }
}

/// Answers each request with its own body, and closes a connection that is silent.
async fn impatient(mut stream: TcpStream, ledger: Arc<Ledger>) {
    let mut part = [0; 4096];
    loop {
        let count = match timeout(SERVER_IDLE_TIMEOUT, stream.read(&mut part)).await {
            Ok(Ok(count @ 1..)) => count,
            // A last check before the close, as servers do.
            Err(_) if socket2::SockRef::from(&stream).peek(&mut [MaybeUninit::uninit()]).is_ok() => continue,
            _ => return,
        };
        // A request of this test fits into one piece.
        let text = std::str::from_utf8(&part[..count]).unwrap();
        let body = text.split_once("\r\n\r\n").unwrap().1.to_owned();
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        ledger.requests.lock().unwrap().push(body);
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_at_the_moment_of_the_close_is_served_once_or_told_as_it_is() {
    let (upstream, transport, ledger) = (Upstream::start().await, transport(), Arc::new(Ledger::default()));
    let uri = upstream.uri();
    let mut server = JoinSet::new();
    server.spawn(serve(upstream, Arc::clone(&ledger)));
    let (mut failed, mut unseen) = (0, Vec::new());
    for index in 0..REQUESTS {
        // The pauses range from well before the close to well after it, and are often close to it.
        sleep(SERVER_IDLE_TIMEOUT * u32::try_from(70 + index * 37 % 60).unwrap() / 100).await;
        let body = format!("request {index}");
        let request = Request::post(&uri).body(RequestBody::from(Bytes::from(body.clone()))).unwrap();
        match transport.send(request, soon()).await {
            Ok(answer) => assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), body),
            Err(error) => {
                assert_eq!(error.kind, SendErrorKind::Closed, "{error:?}");
                failed += 1;
                // A new connection can also be closed before its first byte, if the machine is busy enough.
                unseen.extend((error.sent == SendProgress::Nothing).then_some(body));
            }
        }
    }
    let (mut seen, connections) = (ledger.requests.lock().unwrap().clone(), *ledger.connections.lock().unwrap());
    println!("{REQUESTS} requests on {connections} connections, {failed} failed");
    let count = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), count, "no request came twice");
    assert!(unseen.iter().all(|body| !seen.contains(body)), "what has seen nothing has seen nothing");
    assert!(count >= REQUESTS - failed);
    // Everything here is 250 times as fast as on a real server, so the moment of the close is hit 250 times as often.
    assert!(failed <= REQUESTS / 10, "{failed} failed");
    assert!((2..REQUESTS).contains(&connections), "some were reused and some were not: {connections}");
}

#[tokio::test]
async fn a_request_whose_first_byte_has_left_is_not_made_again() {
    let (upstream, transport) = (Upstream::start().await, transport());
    let uri = upstream.uri();
    // The request is read completely, and then the connection ends without an answer: closed, or reset.
    for linger in [None, Some(Duration::ZERO)] {
        let (mut stream, body) = tokio::join!(upstream.answer(OK), fetch(&transport, &uri));
        assert_eq!((body.unwrap(), transport.0.pool.len()), (Bytes::from_static(b"ok"), 1));
        let server = async {
            request(&mut stream).await;
            socket2::SockRef::from(&stream).set_linger(linger).unwrap();
            drop(stream);
        };
        let ((), answer) = tokio::join!(server, send(&transport, &uri));
        let error = answer.unwrap_err();
        assert_eq!((error.sent, error.kind), (SendProgress::Maybe, SendErrorKind::Closed), "{linger:?}: {error:?}");
        assert!(!upstream.is_wanted().await, "{linger:?}");
    }
}

#[test]
fn connections_wait_shorter_than_common_servers_do() {
    assert!(TransportSettings::default().idle_timeout < Duration::from_secs(5));
}

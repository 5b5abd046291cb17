//! Tests of connections that the upstream closes while they are idle, at the moment of their next request, or after it
//! (U30).

use std::mem::MaybeUninit;
use std::sync::Mutex;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::*;

/// The time without bytes after which the upstream closes a connection.
const SERVER_IDLE_TIMEOUT: Duration = Duration::from_millis(4);
const REQUESTS: usize = 800;

/// The bodies of the requests that the upstream has received, and the number of its connections.
#[derive(Default)]
struct UpstreamLog {
    requests: Mutex<Vec<String>>,
    connections: Mutex<usize>,
}

/// Accepts connections until the test ends.
async fn serve(upstream: Upstream, ledger: Arc<UpstreamLog>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = upstream.0.accept().await {
        *ledger.connections.lock().unwrap() += 1;
        connections.spawn(serve_connection(stream, Arc::clone(&ledger)));
    }
}

/// Sends back the body of each request, and closes the connection after [`SERVER_IDLE_TIMEOUT`] without a request.
async fn serve_connection(mut stream: TcpStream, ledger: Arc<UpstreamLog>) {
    let mut part = [0; 4096];
    loop {
        let count = match timeout(SERVER_IDLE_TIMEOUT, stream.read(&mut part)).await {
            Ok(Ok(count @ 1..)) => count,
            // A last check before the close, as servers do.
            Err(_) if socket2::SockRef::from(&stream).peek(&mut [MaybeUninit::uninit()]).is_ok() => continue,
            _ => return,
        };
        // Each request of this test arrives in one read.
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
async fn a_request_during_a_close_is_served_once_or_reported_correctly() {
    let (upstream, transport, ledger) = (Upstream::start().await, transport(), Arc::new(UpstreamLog::default()));
    let uri = upstream.uri();
    let mut server = JoinSet::new();
    server.spawn(serve(upstream, Arc::clone(&ledger)));
    let (mut failed, mut unsent) = (0, Vec::new());
    for index in 0..REQUESTS {
        // The pauses range from well before the close to well after it, and are often close to it.
        sleep(SERVER_IDLE_TIMEOUT * u32::try_from(70 + index * 37 % 60).unwrap() / 100).await;
        let body = format!("request {index}");
        let request = Request::post(&uri).body(RequestBody::from(Bytes::from(body.clone()))).unwrap();
        match transport.send(request, test_deadline()).await {
            Ok(answer) => assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), body),
            Err(error) => {
                assert_eq!(error.kind, SendErrorKind::Closed, "{error:?}");
                failed += 1;
                // A new connection can also be closed before its first byte, if the machine is busy enough.
                unsent.extend((error.sent == SendProgress::Nothing).then_some(body));
            }
        }
    }
    let (mut seen, connections) = (ledger.requests.lock().unwrap().clone(), *ledger.connections.lock().unwrap());
    println!("{REQUESTS} requests on {connections} connections, {failed} failed");
    let count = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), count, "no request arrived twice");
    assert!(unsent.iter().all(|body| !seen.contains(body)), "no request that was reported as unsent arrived");
    assert!(count >= REQUESTS - failed);
    // The idle timeout is far shorter than that of a real server, so a close coincides with a request far more often.
    assert!(failed <= REQUESTS / 10, "{failed} failed");
    assert!((2..REQUESTS).contains(&connections), "some connections are reused and some are not: {connections}");
}

#[tokio::test]
async fn a_request_is_not_repeated_after_its_first_byte() {
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
        assert!(!upstream.has_pending_connection().await, "{linger:?}");
    }
}

#[test]
fn the_idle_timeout_is_shorter_than_that_of_common_servers() {
    assert!(TransportSettings::default().idle_timeout < Duration::from_secs(5));
}

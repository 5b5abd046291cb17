//! The addresses to listen on: each is free, or this gateway serves there and is ready.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use super::CheckResult;
use crate::gateway::config::{Config, ListenAddress};
use crate::gateway::store::ServingStatus;

const CHECK: &str = "ports";
const GATEWAY: &str = "gateway";
/// The time that a listener on this machine has to answer (our choice).
const TIMEOUT: Duration = Duration::from_secs(2);
/// The longest answer that is read (our choice).
const MAX_ANSWER_BYTES: u64 = 8192;

/// A server that answers on an address.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AnsweringServer {
    /// A gateway, with the body of its answer to the question whether it is ready.
    Gateway(String),
    /// A server of another kind.
    Other,
}

pub(super) fn check(config: &Config) -> Vec<CheckResult> {
    let server = match ServingStatus::is_served(&config.data_dir) {
        Ok(is_served) => is_served.then(|| ServingStatus::find(&config.data_dir).ok().flatten()),
        Err(error) => {
            let message = format!("the lock of the data folder cannot be read: {error}");
            return vec![CheckResult::problem(GATEWAY, message, Some("run this command as the user of the gateway"))];
        }
    };
    let is_served = server.is_some();
    let process = server.flatten().map(|status| format!("process {}", status.process_id));
    let state = match (is_served, process) {
        (false, _) => "no gateway serves from this data folder".to_owned(),
        (true, Some(process)) => format!("a gateway serves from this data folder ({process})"),
        (true, None) => "a gateway serves from this data folder, and is starting or stopping".to_owned(),
    };
    let mut results = vec![CheckResult::ok(GATEWAY, state)];
    results.push(check_address("listen", &config.listen, is_served));
    results.extend(config.metrics_listen.as_ref().map(|address| check_address("metrics_listen", address, is_served)));
    results
}

fn check_address(setting: &str, address: &ListenAddress, is_served: bool) -> CheckResult {
    let name = format!("{setting} {address}");
    if address.port() == 0 {
        return CheckResult::ok(CHECK, format!("{name}: each start takes a free port"));
    }
    let resolved = (address.host(), address.port()).to_socket_addrs().ok().and_then(|mut found| found.next());
    let Some(resolved) = resolved else {
        let message = format!("{name}: this machine cannot resolve the address");
        return CheckResult::problem(CHECK, message, Some("set an address of this machine"));
    };
    if is_served { check_served(&name, resolved) } else { check_free(&name, resolved) }
}

fn check_served(name: &str, address: SocketAddr) -> CheckResult {
    match ask(reachable(address)) {
        Some(AnsweringServer::Gateway(ready)) if ready == "ready" => {
            CheckResult::ok(CHECK, format!("{name}: a gateway answers, and is ready"))
        }
        Some(AnsweringServer::Gateway(ready)) => {
            let advice = "the guide to operation explains each reason; the log has the details";
            CheckResult::problem(CHECK, format!("{name}: the gateway answers `{ready}`"), Some(advice))
        }
        Some(AnsweringServer::Other) => {
            let message = format!("{name}: another program listens there, although the gateway runs");
            CheckResult::problem(CHECK, message, Some("set another address, and restart the gateway"))
        }
        None => {
            let message = format!("{name}: nobody answers there, although the gateway runs");
            let advice = "it was started with another address, or before this setting was changed: restart it";
            CheckResult::warning(CHECK, message, Some(advice))
        }
    }
}

/// Binds the address for a moment. Only if it is taken, its listener is asked, so no other machine is called.
fn check_free(name: &str, address: SocketAddr) -> CheckResult {
    let Err(error) = TcpListener::bind(address) else {
        return CheckResult::ok(CHECK, format!("{name}: the address is free"));
    };
    let is_taken = error.kind() == ErrorKind::AddrInUse;
    if is_taken && let Some(AnsweringServer::Gateway(_)) = ask(reachable(address)) {
        let message = format!("{name}: a gateway answers that does not serve from this data folder");
        return CheckResult::warning(CHECK, message, Some("check data_dir; to run both, give each its own address"));
    }
    let advice = match error.kind() {
        ErrorKind::AddrInUse => "end the program that listens there, or set another address",
        ErrorKind::PermissionDenied => "a low port needs a right of its own: use a higher port behind a proxy",
        _ => "set an address of this machine",
    };
    CheckResult::problem(CHECK, format!("{name}: the gateway cannot listen there: {error}"), Some(advice))
}

/// Returns the address at which a client on this machine reaches a listener.
fn reachable(address: SocketAddr) -> SocketAddr {
    let host = match address.ip() {
        IpAddr::V4(host) if host.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(host) if host.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        host => host,
    };
    SocketAddr::new(host, address.port())
}

/// Asks who listens on an address; `None` if nobody does.
pub(super) fn ask(address: SocketAddr) -> Option<AnsweringServer> {
    let alive = match get(address, "/healthz") {
        Ok(alive) => alive,
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => return None,
        Err(_) => return Some(AnsweringServer::Other),
    };
    let is_gateway = alive.head.starts_with("HTTP/1.1 200 ") && alive.head.contains("x-request-id: ");
    if !is_gateway || alive.body != "ok\n" {
        return Some(AnsweringServer::Other);
    }
    let ready = get(address, "/readyz").map_or_else(|error| error.to_string(), |answer| answer.body);
    Some(AnsweringServer::Gateway(ready.trim_end().to_owned()))
}

/// An answer, as far as it is read.
struct ProbeAnswer {
    head: String,
    body: String,
}

fn get(address: SocketAddr, path: &str) -> io::Result<ProbeAnswer> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    // In one piece: a server that answers before it has read all of the request may reset the connection.
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut bytes = Vec::new();
    let read = stream.take(MAX_ANSWER_BYTES).read_to_end(&mut bytes);
    if bytes.is_empty() {
        read?;
    }
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    Ok(ProbeAnswer { head: format!("{head}\r\n"), body: body.to_owned() })
}

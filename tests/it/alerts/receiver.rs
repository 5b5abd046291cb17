//! A receiver of webhooks that answers as it is told, and checks signatures with code of its own.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::kit::eventually;

/// The secret of the webhook: 24 bytes.
pub(super) const SECRET: &str = "whsec_Y2FuYXJ5LW9mLXRoZS13ZWJob29rLTEy";

/// A message that was received.
#[derive(Clone, Debug)]
pub(super) struct WebhookMessage {
    headers: Vec<(String, String)>,
    pub(super) body: String,
}

/// The receiver. Its thread ends with the test.
pub(super) struct WebhookReceiver {
    address: SocketAddr,
    messages: Arc<Mutex<Vec<WebhookMessage>>>,
}

// === impl WebhookMessage ===

impl WebhookMessage {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("JSON")
    }

    /// Checks the signature and the age, as Standard Webhooks requires it.
    #[track_caller]
    pub(super) fn assert_signed(&self) {
        let header = |name: &str| self.header(name).unwrap_or_else(|| panic!("no {name}: {self:?}"));
        let (id, timestamp) = (header("webhook-id"), header("webhook-timestamp"));
        let key = STANDARD.decode(SECRET.trim_start_matches("whsec_")).expect("base64");
        let signature = hmac_sha256(&key, format!("{id}.{timestamp}.{}", self.body).as_bytes());
        assert_eq!(header("webhook-signature"), format!("v1,{}", STANDARD.encode(signature)));
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time").as_secs();
        assert!(now.abs_diff(timestamp.parse().expect("seconds")) < 300, "{timestamp}");
        assert_eq!(header("content-type"), "application/json");
    }
}

/// HMAC as RFC 2104 defines it, without the library of the program.
fn hmac_sha256(key: &[u8], message: &[u8]) -> Vec<u8> {
    let padded = |with: u8| -> Vec<u8> { (0..64).map(|at| key.get(at).copied().unwrap_or(0) ^ with).collect() };
    let inner = Sha256::digest([padded(0x36), message.to_vec()].concat());
    Sha256::digest([padded(0x5c), inner.to_vec()].concat()).to_vec()
}

// === impl WebhookReceiver ===

impl WebhookReceiver {
    /// Answers the first messages with these statuses, and further ones with the last. Without any, the port is closed.
    pub(super) fn start(statuses: &[u16]) -> Self {
        Self::redirecting(statuses, "/")
    }

    /// As [`Self::start`], with this address in each answer.
    pub(super) fn redirecting(statuses: &[u16], location: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let messages = Arc::<Mutex<Vec<WebhookMessage>>>::default();
        if !statuses.is_empty() {
            let (received, statuses, location) = (Arc::clone(&messages), statuses.to_vec(), location.to_owned());
            std::thread::spawn(move || {
                // A connection that breaks off is no message.
                listener
                    .incoming()
                    .flatten()
                    .for_each(|stream| drop(serve(stream, next_status(&statuses, &received), &location, &received)));
            });
        }
        Self { address, messages }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    pub(super) fn count(&self) -> usize {
        self.messages.lock().expect("the messages").len()
    }

    /// Waits for this number of messages, and returns all.
    #[track_caller]
    pub(super) fn wait_for(&self, count: usize) -> Vec<WebhookMessage> {
        eventually("the messages arrive", || {
            let messages = self.messages.lock().expect("the messages").clone();
            (messages.len() >= count).then_some(messages)
        })
    }
}

/// The status of the answer to the next message: the last one stays.
fn next_status(statuses: &[u16], received: &Mutex<Vec<WebhookMessage>>) -> u16 {
    let number = received.lock().expect("the messages").len();
    statuses.get(number).or(statuses.last()).copied().unwrap_or(200)
}

fn serve(stream: TcpStream, status: u16, location: &str, received: &Mutex<Vec<WebhookMessage>>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let (mut line, mut headers) = (String::new(), Vec::new());
    reader.read_line(&mut line)?;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.trim().split_once(':') {
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    let length = headers.iter().find(|(name, _)| name == "content-length").and_then(|(_, value)| value.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body)?;
    let body = String::from_utf8_lossy(&body).into_owned();
    received.lock().expect("the messages").push(WebhookMessage { headers, body });
    let answer = format!("HTTP/1.1 {status} Said\r\nlocation: {location}\r\ncontent-length: 2\r\n\r\n{{}}");
    reader.get_mut().write_all(answer.as_bytes())
}

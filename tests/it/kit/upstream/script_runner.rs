//! Writes the answers of the upstream: framing, pauses, cuts and false lengths.

use std::io::{ErrorKind, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use super::super::{base64_filler, pause};
use super::Shared;
use super::answer::UpstreamAnswer;
use super::events::{self, Step};
use super::script::Script;

/// How an answer ended. A peer that left early is an error of the connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerEnd {
    /// Everything was written, and the connection can serve another request.
    Whole,
    /// Everything was written, and the connection is closed.
    Last,
    /// The script broke it off.
    BrokenOff,
}

/// Runs the script: writes the answer to the connection.
pub(super) fn run_script(
    stream: &mut TcpStream,
    shared: &Shared,
    at: usize,
    script: &Script,
    made: &UpstreamAnswer,
) -> std::io::Result<AnswerEnd> {
    shared.count_waiting(|| wait_before_head(stream, shared, script))?;
    if script.word("stall") == "head" {
        return stall(stream, shared);
    }
    for status in script.word("interim").split(',').filter(|status| !status.is_empty()) {
        stream.write_all(format!("HTTP/1.1 {status} Interim\r\nlink: </style.css>\r\n\r\n").as_bytes())?;
    }
    if script.has("hang-up") {
        return break_off(stream, script);
    }
    let total = total(script, made);
    stream.write_all(&head(script, made, total))?;
    if script.word("stall") == "body" {
        return stall(stream, shared);
    }
    let mut writer = AnswerWriter {
        stream,
        shared,
        at,
        script,
        framing: framing(script, made),
        sent: 0,
        total,
        cut: script.get("cut").map(|cut| byte_share(cut, total)),
        paused: false,
    };
    if let Some(steps) = &made.events {
        return writer.write_events(steps, made.weighed.is_some());
    }
    writer.write_body(made)?;
    if script.has("endless") {
        return writer.flood();
    }
    writer.finish()
}

fn wait_before_head(stream: &TcpStream, shared: &Shared, script: &Script) -> std::io::Result<()> {
    if let Some(delay) = script.number("delay") {
        pause(Duration::from_millis(delay));
    }
    script.get("gate").map_or(Ok(()), |gate| wait_at_gate(stream, shared, gate))
}

/// A stream has no length, so it is chunked unless the script says otherwise.
fn framing<'a>(script: &'a Script, made: &UpstreamAnswer) -> &'a str {
    match script.get("framing") {
        None if made.events.is_some() => "chunked",
        word => word.unwrap_or("length"),
    }
}

fn head(script: &Script, made: &UpstreamAnswer, total: usize) -> Vec<u8> {
    let status = script.number("status").unwrap_or(200);
    let content_type = script.get("type").unwrap_or(made.content_type);
    let mut head =
        format!("HTTP/1.1 {status} Scripted\r\ncontent-type: {content_type}\r\nx-request-id: req_upstream_{total}\r\n");
    for (word, name) in [
        ("retry-after", "retry-after"),
        ("location", "location"),
        ("label", "content-encoding"),
        ("retry-ms", "retry-after-ms"),
    ] {
        if let Some(value) = script.get(word) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
    }
    if script.has("coding") {
        head.push_str("content-encoding: gzip\r\n");
    }
    if let Some(seconds) = script.number("retry-date") {
        head.push_str(&format!("retry-after: {}\r\n", in_seconds(seconds)));
    }
    if let Some(time) = script.get("ratelimit") {
        head.push_str(&format!("x-ratelimit-remaining-requests: 0\r\nx-ratelimit-reset-requests: {time}\r\n"));
    }
    // Headers of the upstream's own, which the gateway must not pass on.
    head.push_str("set-cookie: provider-canary=1\r\nopenai-organization: provider-canary\r\n");
    head.push_str(&match framing(script, made) {
        "chunked" => "transfer-encoding: chunked\r\n".to_owned(),
        "close" => "connection: close\r\n".to_owned(),
        _ => format!("content-length: {total}\r\n"),
    });
    let mut head = head.into_bytes();
    if let Some(word) = script.get("flood") {
        flood(&mut head, word);
    }
    head.extend_from_slice(b"\r\n");
    head
}

/// Adds the headers of `flood=`.
fn flood(head: &mut Vec<u8>, word: &str) {
    match word {
        "wide" => head.extend_from_slice(format!("x-wide: {}\r\n", "w".repeat(5_000_000)).as_bytes()),
        "bytes" => head.extend_from_slice(b"connection: \xff\xfe\x80\r\n"),
        count => {
            let count: usize = count.parse().expect("a number of headers");
            (0..count).for_each(|at| head.extend_from_slice(format!("x-flood-{at}: {at}\r\n").as_bytes()));
        }
    }
}

/// The date in this many seconds, in the form of a header.
fn in_seconds(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).expect("seconds");
    // A date has no fractions: half a second is added so that it is not over before it is read.
    let at = chrono::Utc::now() + chrono::TimeDelta::milliseconds(seconds * 1000 + 500);
    at.format("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// The length of the body that the framing states; more than any test reads if the body has no fixed length.
fn total(script: &Script, made: &UpstreamAnswer) -> usize {
    let whole = match (&made.events, made.weighed) {
        (Some(steps), Some(count)) => steps[..count].iter().flat_map(events::pieces).map(|piece| piece.len()).sum(),
        (Some(_), None) => return 1 << 40,
        (None, _) if script.has("endless") => return 1 << 40,
        (None, _) => made.before.len() + made.filler + made.after.len(),
    };
    let clip = script.get("clip").map_or(whole, |clip| byte_share(clip, whole));
    let lack = script.get("lack").map_or(0, |lack| byte_share(lack, whole));
    whole.min(clip) - lack
}

/// This many bytes, or this many percent of `whole`.
fn byte_share(text: &str, whole: usize) -> usize {
    match text.strip_suffix('%') {
        Some(percent) => whole * percent.parse::<usize>().expect("percent") / 100,
        None => text.parse().expect("a number of bytes"),
    }
}

/// Silent until the peer leaves.
fn stall(stream: &TcpStream, shared: &Shared) -> std::io::Result<AnswerEnd> {
    while !shared.closed() && !has_peer_left(stream) {
        pause(Duration::from_millis(20));
    }
    Err(ErrorKind::BrokenPipe.into())
}

fn wait_at_gate(stream: &TcpStream, shared: &Shared, gate: &str) -> std::io::Result<()> {
    if shared.pass_gate(gate, || has_peer_left(stream)) { Ok(()) } else { Err(ErrorKind::BrokenPipe.into()) }
}

/// True if the peer has closed or reset; it sends nothing while it waits for its answer.
fn has_peer_left(stream: &TcpStream) -> bool {
    let mut byte = [0];
    stream.set_nonblocking(true).expect("nonblocking");
    let seen = stream.peek(&mut byte);
    stream.set_nonblocking(false).expect("blocking");
    match seen {
        Ok(0) => true,
        Ok(_) => false,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

/// Writes the body of one answer.
struct AnswerWriter<'a> {
    stream: &'a mut TcpStream,
    shared: &'a Shared,
    /// The line of the ledger.
    at: usize,
    script: &'a Script,
    framing: &'a str,
    sent: usize,
    total: usize,
    cut: Option<usize>,
    paused: bool,
}

impl AnswerWriter<'_> {
    fn write_body(&mut self, made: &UpstreamAnswer) -> std::io::Result<()> {
        self.write(&made.before)?;
        if made.filler > 0 {
            for piece in base64_filler(made.filler) {
                self.write(&piece)?;
            }
        }
        if self.script.word("endless") == "image" {
            return Ok(());
        }
        self.write(&made.after)
    }

    /// Writes the steps of a stream.
    fn write_events(mut self, steps: &[Step], weighed: bool) -> std::io::Result<AnswerEnd> {
        for step in steps {
            if !self.put_step(step, weighed)? {
                return break_off(self.stream, self.script);
            }
            match step {
                Step::Text(_) | Step::Filler(_) => {}
                Step::Sent => self.shared.note(self.at, |line| line.sent.push(Instant::now())),
                Step::Gate(gate) => wait_at_gate(self.stream, self.shared, gate)?,
                Step::Pause(time) => pause(*time),
                Step::CommentsForever => return self.write_comments_forever(),
                Step::EndlessLine => {
                    self.put(b"data: {\"type\":\"image_generation.completed\",\"note\":\"")?;
                    return self.flood();
                }
                Step::Stall => return stall(self.stream, self.shared),
                Step::End => break,
                Step::Break => return break_off(self.stream, self.script),
            }
        }
        self.finish()
    }

    /// Writes a step as far as `cut` allows; `false` if that was not all of it.
    fn put_step(&mut self, step: &Step, weighed: bool) -> std::io::Result<bool> {
        for piece in events::pieces(step) {
            let room = self.cut.filter(|_| weighed).map_or(piece.len(), |cut| cut.saturating_sub(self.sent));
            self.put(&piece[..piece.len().min(room)])?;
            if room < piece.len() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn write_comments_forever(mut self) -> std::io::Result<AnswerEnd> {
        while !self.shared.closed() && !has_peer_left(self.stream) {
            self.put(b": keep-alive\n\n")?;
            pause(Duration::from_millis(50));
        }
        Err(ErrorKind::BrokenPipe.into())
    }

    /// Base64 until the peer leaves.
    fn flood(mut self) -> std::io::Result<AnswerEnd> {
        let block = [b'A'; 1 << 16];
        while !self.shared.closed() {
            self.put(&block)?;
        }
        Err(ErrorKind::BrokenPipe.into())
    }

    /// Writes a piece, with the cut and the pause in the middle that the script wants.
    fn write(&mut self, piece: &[u8]) -> std::io::Result<()> {
        let room = self.cut.unwrap_or(self.total).min(self.total) - self.sent;
        let piece = &piece[..piece.len().min(room)];
        let middle = (self.total / 2).saturating_sub(self.sent);
        let pauses = self.script.has("gate-middle") || self.script.word("stall") == "middle";
        if pauses && !self.paused && middle < piece.len() {
            self.paused = true;
            self.put(&piece[..middle])?;
            self.pause()?;
            return self.put(&piece[middle..]);
        }
        self.put(piece)
    }

    fn pause(&mut self) -> std::io::Result<()> {
        match self.script.get("gate-middle") {
            Some(gate) => wait_at_gate(self.stream, self.shared, gate),
            None => stall(self.stream, self.shared).map(drop),
        }
    }

    fn put(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let reads = self.script.number("reads").map(|reads| usize::try_from(reads).expect("a size"));
        let step = reads.unwrap_or(if self.script.has("drip") { 1 } else { 1 << 16 });
        let pace = self.script.number("pace").map(Duration::from_millis);
        let still = self.script.number("still").map(|still| usize::try_from(still).expect("a size"));
        for bytes in bytes.chunks(step) {
            let room = still.map_or(bytes.len(), |still| still.saturating_sub(self.sent));
            if room < bytes.len() {
                self.put_now(&bytes[..room])?;
                return stall(self.stream, self.shared).map(drop);
            }
            self.put_now(bytes)?;
            if let Some(pace) = pace {
                pause(pace);
            }
        }
        let written = self.sent as u64;
        self.shared.note(self.at, |line| line.written = written);
        Ok(())
    }

    fn put_now(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        if !bytes.is_empty() {
            if self.framing == "chunked" {
                // In one write, so that a small piece is one packet.
                let chunk = [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
                self.stream.write_all(&chunk)?;
            } else {
                self.stream.write_all(bytes)?;
            }
            self.sent += bytes.len();
        }
        Ok(())
    }

    fn finish(self) -> std::io::Result<AnswerEnd> {
        if self.cut.is_some() {
            return break_off(self.stream, self.script);
        }
        if self.framing == "chunked" {
            self.stream.write_all(b"0\r\n\r\n")?;
        }
        if let Some(surplus) = self.script.get("surplus") {
            let body = format!("{{\"surplus\":\"{surplus}\"}}");
            let second = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            self.stream.write_all(second.as_bytes())?;
        }
        if self.framing == "close" {
            self.stream.shutdown(Shutdown::Write)?;
            return Ok(AnswerEnd::Last);
        }
        Ok(AnswerEnd::Whole)
    }
}

fn break_off(stream: &TcpStream, script: &Script) -> std::io::Result<AnswerEnd> {
    if script.word("how") == "reset" {
        // With a linger of zero the close that follows is a reset.
        socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO))?;
    } else {
        stream.shutdown(Shutdown::Both)?;
    }
    Ok(AnswerEnd::BrokenOff)
}

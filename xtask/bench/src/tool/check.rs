//! The check of a target before it is measured: a fast wrong answer must not count.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use tokio::time::timeout;

use super::cases::BenchCase;
use super::http::{BodySink, Connection};
use super::targets::{Target, authorization};

/// The time for one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The parts of an answer that a target must pass on unchanged.
#[derive(Debug, PartialEq)]
pub(crate) struct AnswerContent {
    images: Vec<String>,
    events: Vec<String>,
    usage: Value,
}

/// The contents of the upstream's own answers.
pub(crate) type UpstreamAnswers = BTreeMap<BenchCase, AnswerContent>;

/// Returns the essence of the target's answer to each case.
pub(crate) async fn read_originals(target: &Target, cases: &[BenchCase]) -> Result<UpstreamAnswers> {
    let mut originals = UpstreamAnswers::new();
    for case in cases {
        originals.insert(*case, ask(target, *case).await.with_context(|| format!("direct, case {}", case.name()))?);
    }
    Ok(originals)
}

/// The cases that the target fails, with reasons. A target that accepts a wrong key fails all of them.
pub(crate) async fn failures(target: &Target, originals: &UpstreamAnswers) -> BTreeMap<BenchCase, String> {
    let mut failures = BTreeMap::new();
    let wrong_key = refuses_wrong_key(target).await;
    for (case, original) in originals {
        let comparison = match (&wrong_key, ask(target, *case).await) {
            (Err(error), _) => Err(format!("{error:#}")),
            (Ok(()), Err(error)) => Err(format!("{error:#}")),
            (Ok(()), Ok(essence)) => essence.compare(original),
        };
        if let Err(reason) = comparison {
            failures.insert(*case, reason);
        }
    }
    failures
}

async fn ask(target: &Target, case: BenchCase) -> Result<AnswerContent> {
    let (status, body) = exchange(target, &case.request(&target.headers)).await?;
    ensure!(status == 200, "status {status}: {}", String::from_utf8_lossy(&body[..body.len().min(300)]));
    match case {
        BenchCase::Stream => AnswerContent::of_stream(&body),
        _ => AnswerContent::of_answer(&body),
    }
}

async fn refuses_wrong_key(target: &Target) -> Result<()> {
    let (status, _) = exchange(target, &BenchCase::Small.request(&wrong_key(&target.headers))).await?;
    // LiteLLM answers 400 without a database of keys.
    ensure!([400, 401, 403].contains(&status), "a wrong key gets status {status}");
    Ok(())
}

/// The header lines of a target with another key.
fn wrong_key(headers: &str) -> String {
    let others = headers.split_once("\r\n").map_or("", |(_, others)| others);
    authorization("sk-img-unknown") + others
}

async fn exchange(target: &Target, request: &[u8]) -> Result<(u16, Vec<u8>)> {
    let mut sink = BodySink::keeping();
    let work = async { Connection::open(target.address, None).await?.exchange(request, &mut sink).await };
    let exchange = timeout(ANSWER_TIMEOUT, work).await.context("no end of the answer")??;
    let body = if exchange.status == 200 { sink.kept.unwrap_or_default() } else { exchange.error.into_bytes() };
    Ok((exchange.status, body))
}

impl AnswerContent {
    fn of_answer(body: &[u8]) -> Result<Self> {
        let answer: Value = serde_json::from_slice(body).context("the answer")?;
        let items = answer.get("data").or_else(|| answer.get("output")).and_then(Value::as_array);
        let images = items.context("an answer without images")?.iter();
        let images = images.filter_map(|item| item.get("b64_json").or_else(|| item.get("result"))?.as_str());
        Ok(Self { images: images.map(str::to_owned).collect(), events: Vec::new(), usage: answer["usage"].clone() })
    }

    fn of_stream(body: &[u8]) -> Result<Self> {
        let text = std::str::from_utf8(body).context("the stream")?.replace("\r\n", "\n");
        let mut essence = Self { images: Vec::new(), events: Vec::new(), usage: Value::Null };
        for event in text.split_terminator("\n\n") {
            let data: String = event.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim).collect();
            if data.is_empty() || data == "[DONE]" {
                continue;
            }
            let event: Value = serde_json::from_str(&data).context("an event")?;
            essence.events.push(event["type"].as_str().unwrap_or_default().to_owned());
            essence.images.push(event["b64_json"].as_str().unwrap_or_default().to_owned());
            if let Some(usage) = event.get("usage") {
                essence.usage = usage.clone();
            }
        }
        if essence.images.is_empty() {
            bail!("a stream without events");
        }
        Ok(essence)
    }

    fn compare(&self, original: &Self) -> Result<(), String> {
        if self.images != original.images {
            Err("the images differ from the upstream's".to_owned())
        } else if self.events != original.events {
            Err(format!("the events are {:?}, not {:?}", self.events, original.events))
        } else if self.usage != original.usage {
            Err(format!("`usage` is {}, not {}", self.usage, original.usage))
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = r#"{"data":[{"b64_json":"AAAA"}],"usage":{"total_tokens":3}}"#;
    const STREAM: &str = "event: a\ndata: {\"type\":\"a\",\"b64_json\":\"AA\"}\n\n: beat\n\n\
        event: b\ndata: {\"type\":\"b\",\"b64_json\":\"BB\",\"usage\":{\"total_tokens\":3}}\n\n";

    #[test]
    fn every_difference_that_matters_is_found() {
        let original = AnswerContent::of_answer(ANSWER.as_bytes()).unwrap();
        let compare = |text: &str| AnswerContent::of_answer(text.as_bytes()).unwrap().compare(&original);
        assert_eq!(compare(&ANSWER.replace("{\"data\"", "{\"created\":1,\"data\"")), Ok(()));
        assert!(compare(&ANSWER.replace("AAAA", "AAAB")).unwrap_err().contains("images"));
        assert!(compare(&ANSWER.replace(":3}", ":4}")).unwrap_err().contains("usage"));
        let original = AnswerContent::of_stream(STREAM.as_bytes()).unwrap();
        let compare = |text: &str| AnswerContent::of_stream(text.as_bytes()).unwrap().compare(&original);
        assert_eq!(compare(&STREAM.replace('\n', "\r\n")), Ok(()));
        assert!(compare(&STREAM.replace("\"type\":\"a\"", "\"type\":\"c\"")).unwrap_err().contains("events"));
        assert!(compare(&STREAM.replace("BB", "BC")).unwrap_err().contains("images"));
    }

    #[test]
    fn an_answer_that_is_cut_is_an_error() {
        assert!(AnswerContent::of_answer(&ANSWER.as_bytes()[..20]).is_err());
        assert!(AnswerContent::of_stream(&STREAM.as_bytes()[..30]).is_err());
        assert!(AnswerContent::of_answer(br#"{"error":{}}"#).is_err());
    }
}

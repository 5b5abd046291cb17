//! The checks that decide from values alone; the others are tested with the program.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use super::clock;
use super::ports::{self, AnsweringServer};
use super::prices::{self, LimitsWithBudget};
use super::{CheckResult, CheckVerdict};
use crate::gateway::prices::PriceTable;
use crate::gateway::store::{Timestamp, UsedModel};

fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn a_clock_behind_the_newest_record_is_a_problem() {
    let now = time("2026-11-26T08:00:00.000Z");
    let verdict = |record: &str| clock::compare(now, &[("the newest record", Some(time(record)))]).verdict;
    assert_eq!(verdict("2026-11-26T08:00:59.000Z"), CheckVerdict::Ok);
    assert_eq!(verdict("2026-11-26T08:01:01.000Z"), CheckVerdict::Problem);
    assert_eq!(clock::compare(now, &[("the newest record", None)]).verdict, CheckVerdict::Ok);
    let both = [("the newest record", None), ("the program file", Some(time("2026-12-01T00:00:00.000Z")))];
    let result = clock::compare(now, &both);
    assert!(result.verdict == CheckVerdict::Problem && result.message.contains("the program file"), "{result:?}");
}

fn compare_prices(used: &[(&str, &str)], budgets: &LimitsWithBudget) -> CheckResult {
    let used = used
        .iter()
        .map(|(operation, model)| UsedModel { operation: (*operation).to_owned(), model: (*model).to_owned() });
    prices::compare(&PriceTable::new(&[], &[]), &used.collect::<Vec<_>>(), budgets)
}

#[test]
fn a_model_without_a_price_is_a_problem_only_within_a_budget() {
    let budget = || LimitsWithBudget { owners: vec!["group default".to_owned()], ..LimitsWithBudget::default() };
    let priced = ("create_image", "gpt-image-2");
    assert_eq!(compare_prices(&[priced], &budget()).verdict, CheckVerdict::Ok);
    for unpriced in [("create_image", "unknown-image"), ("create_response", "unknown-text")] {
        assert_eq!(compare_prices(&[priced, unpriced], &LimitsWithBudget::default()).verdict, CheckVerdict::Warning);
        let result = compare_prices(&[priced, unpriced], &budget());
        assert_eq!(result.verdict, CheckVerdict::Problem);
        assert!(result.message.contains(unpriced.1) && result.message.contains("group default"), "{result:?}");
    }
    // A price for images is none for the text of a response.
    assert_eq!(compare_prices(&[("create_response", "gpt-image-2")], &budget()).verdict, CheckVerdict::Problem);
    let limited = LimitsWithBudget { models: ["unknown-image".to_owned()].into(), ..budget() };
    assert_eq!(compare_prices(&[priced], &limited).verdict, CheckVerdict::Problem);
}

/// Answers every connection with this text, and returns what [`ports::ask`] makes of it.
fn ask_server(answer: &'static str) -> Option<AnsweringServer> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    ports::ask(address)
}

#[test]
fn only_a_gateway_is_taken_for_one() {
    let gateway = "HTTP/1.1 200 OK\r\nx-request-id: req_1\r\nconnection: close\r\n\r\nok\n";
    assert_eq!(ask_server(gateway), Some(AnsweringServer::Gateway("ok".to_owned())));
    for other in [
        "",
        "SSH-2.0-x\r\n",
        "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nok\n",
        "HTTP/1.1 200 OK\r\nx-request-id: 1\r\n\r\n<html>",
    ] {
        assert_eq!(ask_server(other), Some(AnsweringServer::Other), "{other}");
    }
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert_eq!(ports::ask(free), None);
}

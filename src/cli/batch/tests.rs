//! Batches against a service that makes fewer images than requested, or sends something else: no image that was paid for
//! is lost.

use std::fs;

use tempfile::TempDir;

use super::*;
use crate::testing::{Answer, StubServer, png};

/// A folder with images, and a service with scripted answers.
struct BatchRun {
    folder: TempDir,
    server: StubServer,
}

// === impl BatchRun ===

impl BatchRun {
    fn new(script: impl IntoIterator<Item = Answer>) -> Self {
        Self { folder: TempDir::new().unwrap(), server: StubServer::start(script).unwrap() }
    }

    /// Runs the lines one after the other; returns their reports and the summary.
    fn run(&self, lines: &str) -> (Vec<Value>, BatchSummary) {
        let client = Client::new(&self.server.base_url(), "sk-test").unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (permits, mut summary, mut reports) = (Semaphore::new(1), BatchSummary::default(), Vec::new());
        for line in BatchLine::parse_all(lines).unwrap() {
            let result = runtime.block_on(run_line(&client, &permits, &line, self.folder.path()));
            summary.add(&result);
            reports.push(report(&line, &result));
        }
        (reports, summary)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn image_answer(images: usize) -> Answer {
    let entry = json!({"b64_json": base64::Engine::encode(&base64::prelude::BASE64_STANDARD, png(16, 16, 0))});
    Answer::json(200, &json!({"data": vec![entry; images]})).completions(images)
}

const TWO: &str = r#"{"prompt": "a", "n": 2, "file": "a"}"#;

#[test]
fn a_line_that_was_delivered_short_is_completed_by_the_next_run() {
    let batch = BatchRun::new([image_answer(1), image_answer(2), image_answer(1)]);
    let (reports, summary) = batch.run(TWO);
    assert_eq!((batch.names(), &reports[0]["missing"]), (vec!["a-1.png".to_owned()], &json!(1)));
    assert_eq!(summary.problem(1).unwrap(), "1 image is missing: run the same command again to make them");
    assert!(summary.to_string().contains("images 1 (missing: 1)"), "{summary}");
    // The service makes both again: the one that is not missing is kept, too.
    let (reports, summary) = batch.run(TWO);
    assert_eq!(
        (batch.names(), &reports[0]["missing"]),
        (["a-1", "a-2", "a-3"].map(|name| format!("{name}.png")).to_vec(), &json!(0))
    );
    assert_eq!((summary.problem(1), batch.server.completions()), (None, 3));
    assert_eq!(batch.run(TWO).0[0]["result"], "existing");
    let keys: Vec<_> = batch.server.requests();
    assert_eq!(keys[0].header("idempotency-key"), keys[1].header("idempotency-key"));
}

#[test]
fn images_that_were_made_before_belong_to_their_numbers() {
    let replayed = |images| image_answer(images).header("x-imagate-replayed", "true");
    let batch = BatchRun::new([replayed(2), replayed(1)]);
    fs::write(batch.folder.path().join("a-1.jpg"), "kept").unwrap();
    batch.run(TWO);
    assert_eq!(batch.names(), ["a-1.jpg", "a-2.png"]);
    fs::remove_file(batch.folder.path().join("a-2.png")).unwrap();
    let (reports, summary) = batch.run(TWO);
    assert_eq!((batch.names(), &reports[0]["missing"]), (vec!["a-1.jpg".to_owned()], &json!(1)));
    assert_eq!(summary.problem(1).unwrap(), "1 image is missing", "the gateway sends the same again");
}

#[test]
fn failures_and_missing_images_are_both_in_the_last_message() {
    let refused = Answer::error(400, "moderation_blocked", "No.");
    let batch = BatchRun::new([image_answer(1), refused.clone()]);
    let (_, summary) = batch.run(&format!("{TWO}\n{{\"prompt\": \"b\"}}"));
    let expected = "1 of 2 lines have no images, and 1 image is missing in other lines: \
                    run the same command again to make them";
    assert_eq!(summary.problem(2).unwrap(), expected);
    let (_, summary) = BatchRun::new([refused]).run("{\"prompt\": \"b\"}");
    assert_eq!(summary.problem(1).unwrap(), "1 of 1 lines have no images", "a repeat does not help");
}

#[test]
fn an_exhausted_quota_ends_the_batch() {
    let batch = BatchRun::new([image_answer(1)]);
    batch.server.set_default(Answer::error(429, "insufficient_quota", "Used up."));
    let lines = "{\"prompt\": \"a\"}\n".repeat(5);
    let (_, summary) = batch.run(&lines);
    assert_eq!((summary.made, summary.failed, summary.not_sent), (1, 1, 3));
    assert_eq!(batch.server.requests().len(), 2);
}

#[test]
fn addresses_and_answers_that_are_not_understood_are_kept() {
    let addresses = json!({"data": [{"url": "https://cdn.example/1"}, {"url": "https://cdn.example/2"}]});
    let batch = BatchRun::new([Answer::json(200, &addresses), Answer::json(200, &json!({"pictures": ["x"]}))]);
    let (reports, summary) = batch.run("{\"prompt\": \"a\", \"n\": 2}\n{\"prompt\": \"b\"}");
    assert_eq!(reports[0]["urls"], json!(["https://cdn.example/1", "https://cdn.example/2"]));
    assert_eq!((&reports[0]["result"], summary.failed), (&json!("failed"), 2));
    assert_eq!(batch.names(), ["0002-b.answer.txt"]);
    let kept = fs::read_to_string(batch.folder.path().join("0002-b.answer.txt")).unwrap();
    assert_eq!(kept, r#"{"pictures":["x"]}"#);
}

#[test]
fn a_file_that_cannot_be_written_ends_the_batch_and_its_image_is_kept() {
    let batch = BatchRun::new([]);
    batch.server.set_default(image_answer(1));
    fs::remove_dir(batch.folder.path()).unwrap();
    let (reports, summary) = batch.run(&"{\"prompt\": \"a lost folder\"}\n".repeat(5));
    assert_eq!((summary.failed, summary.not_sent, batch.server.completions()), (1, 4, 1));
    let kept = PathBuf::from(reports[0]["files"][0].as_str().unwrap());
    assert!(kept.starts_with(std::env::temp_dir()), "{kept:?}");
    assert_eq!(fs::read(&kept).unwrap(), png(16, 16, 0));
    fs::remove_file(kept).unwrap();
}

#[test]
fn an_answer_whose_image_is_not_base64_is_kept() {
    let answer = json!({"data": [{"b64_json": "not base64!"}, {"b64_json": "neither!"}]});
    let batch = BatchRun::new([Answer::json(200, &answer)]);
    let (reports, summary) = batch.run(TWO);
    assert_eq!(
        (&reports[0]["result"], summary.failed, batch.names()),
        (&json!("failed"), 1, vec!["a-1.answer.txt".to_owned()])
    );
    assert_eq!(fs::read_to_string(batch.folder.path().join("a-1.answer.txt")).unwrap(), answer.to_string());
}

#[test]
fn nothing_is_requested_if_all_files_exist() {
    let folder = TempDir::new().unwrap();
    let lines = BatchLine::parse_all(&format!("{TWO}\n{{\"prompt\": \"b\", \"file\": \"b\"}}")).unwrap();
    for name in ["a-1.png", "a-2.jpg", "b.webp"] {
        assert!(has_requests(&lines, folder.path()), "before {name}");
        fs::write(folder.path().join(name), "an image").unwrap();
    }
    assert!(!has_requests(&lines, folder.path()));
}

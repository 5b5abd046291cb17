//! The command `imagate batch`: makes the images of many requests, and goes on after an interruption without paying
//! again.
//!
//! Each request has an idempotency key that is derived from its line, so a gateway that has made its image before sends
//! the same image. A file that exists is not made again.

mod line;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::connection::ConnectionArgs;
use super::failure::CommandFailure;
use super::image_command::{ProgressDisplay, cost_usd};
use super::installation::block_on;
use super::output::{ProgressArg, has_events, print, print_event, print_json, print_message};
use crate::client::{self, Client, Error, ErrorKind, Images};
use line::BatchLine;

/// Arguments of `batch`.
#[derive(Debug, Args)]
pub(super) struct BatchCommand {
    /// The file with one JSON object for each line, or `-` for standard input. `prompt` is required; `file` names the
    /// image [default: the number of the line and the prompt]; `image` and `mask` name files to edit; every other member
    /// is a field of the request, such as `size` or `n`.
    input: PathBuf,
    /// The folder for the images, which is made if it does not exist.
    #[arg(short, long, value_name = "FOLDER", default_value = ".")]
    output: PathBuf,
    /// The number of requests at the same time.
    #[arg(short, long, value_name = "NUMBER", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    concurrency: u16,
    /// Print one line of JSON for each line of the input, in the order in which they end.
    #[arg(long)]
    json: bool,
    /// The form of the messages on standard error: text for people, or jsonl, one JSON object per line for programs.
    #[arg(long, value_enum, default_value_t, value_name = "FORM", hide_possible_values = true)]
    progress: ProgressArg,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// The result of one line.
enum LineResult {
    /// The images were made, or the gateway had made them before.
    Written {
        files: Vec<PathBuf>,
        images: Images,
    },
    /// All files of the line exist; nothing was sent.
    Existing,
    Failed(Error),
    /// Nothing was sent, because an earlier failure holds for all lines.
    NotSent,
}

/// The numbers of lines by their result.
#[derive(Default)]
struct BatchSummary {
    made: usize,
    replayed: usize,
    existing: usize,
    failed: usize,
    not_sent: usize,
    images: usize,
    /// The images that a service did not make of those that were requested.
    missing_images: usize,
    tokens: u64,
    /// The sum of the costs that the service stated, in US dollars; `None` if it stated none.
    cost_usd: Option<f64>,
}

// === impl BatchCommand ===

impl BatchCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        self.progress.apply();
        let lines = BatchLine::parse_all(&read_input(&self.input)?).map_err(CommandFailure::Input)?;
        std::fs::create_dir_all(&self.output)
            .map_err(|error| CommandFailure::Usage(format!("{} cannot be made: {error}", self.output.display())))?;
        let client = self.connection.client()?;
        block_on(self.make_all(client, lines))
    }

    async fn make_all(&self, client: Client, lines: Vec<BatchLine>) -> Result<(), CommandFailure> {
        let total = lines.len();
        print_event("started", json!({ "lines": total }));
        let progress = ProgressDisplay::start(&format!("making the images of {total} lines"));
        let (permits, mut tasks) = (Arc::new(Semaphore::new(self.concurrency.into())), JoinSet::new());
        for line in lines {
            let (client, permits, folder) = (client.clone(), Arc::clone(&permits), self.output.clone());
            tasks.spawn(async move {
                let result = run_line(&client, &permits, &line, &folder).await;
                (line, result)
            });
        }
        let (mut summary, mut printed) = (BatchSummary::default(), Ok(()));
        while let Some(ended) = tasks.join_next().await {
            let (line, result) = ended?;
            summary.add(&line, &result);
            // The images are made also if the reader of standard output has gone.
            printed = printed.and(progress.suspend(|| self.print_result(&line, &result)));
            print_event("line", report(&line, &result));
            progress.draw(&format!("{} of {total} lines", summary.lines()));
        }
        progress.end();
        if has_events() {
            print_event("summary", summary.to_json());
        } else {
            print_message(&summary.to_string());
        }
        match (summary.failed + summary.not_sent, summary.missing_images) {
            (0, 0) => printed,
            (0, images) => Err(CommandFailure::Incomplete(format!("{images} images are missing"))),
            (missing, _) => Err(CommandFailure::Incomplete(format!(
                "{missing} of {total} lines have no images: run the same command again to make them"
            ))),
        }
    }

    fn print_result(&self, line: &BatchLine, result: &LineResult) -> Result<(), CommandFailure> {
        if self.json {
            return Ok(print_json(&report(line, result))?);
        }
        match result {
            LineResult::Written { files, .. } => {
                let names: String = files.iter().map(|file| format!("{}\n", file.display())).collect();
                Ok(print(&names)?)
            }
            LineResult::Failed(_) if has_events() => Ok(()),
            LineResult::Failed(error) => {
                print_message(&format!("line {}: {error}", line.number));
                Ok(())
            }
            LineResult::Existing | LineResult::NotSent => Ok(()),
        }
    }
}

/// Makes the images of a line, unless they exist or the batch has been stopped.
async fn run_line(client: &Client, permits: &Semaphore, line: &BatchLine, folder: &Path) -> LineResult {
    if line.paths(folder).iter().all(|path| exists(path)) {
        return LineResult::Existing;
    }
    let Ok(_permit) = permits.acquire().await else { return LineResult::NotSent };
    match make_images(client, line, folder).await {
        Ok((files, images)) => LineResult::Written { files, images },
        Err(error) => {
            if ends_batch(&error) {
                permits.close();
            }
            LineResult::Failed(error)
        }
    }
}

async fn make_images(client: &Client, line: &BatchLine, folder: &Path) -> Result<(Vec<PathBuf>, Images), Error> {
    let images = match line.edit_request() {
        Some(request) => client.images().edit(request).await?,
        None => client.images().generate(line.request()).await?,
    };
    let mut files = Vec::new();
    for (path, image) in line.paths(folder).iter().zip(images.iter()) {
        if !exists(path) {
            files.push(image.write_to(path).await?);
        }
    }
    Ok((files, images))
}

/// Returns true if the image exists, in any format: the extension is corrected when an image is written.
fn exists(path: &Path) -> bool {
    let formats = [None, Some(client::Output::Png), Some(client::Output::JPEG), Some(client::Output::WEBP)];
    formats.iter().any(|output| client::with_format_extension(path, output.map(client::Output::format)).exists())
}

/// Returns true if all other lines would fail in the same way.
fn ends_batch(error: &Error) -> bool {
    error.is_invalid_key() || error.is_usage_limit() || matches!(error.kind(), ErrorKind::Connect | ErrorKind::Settings)
}

fn report(line: &BatchLine, result: &LineResult) -> Value {
    let mut report = json!({"line": line.number, "prompt": line.prompt, "files": [], "result": result.word()});
    match result {
        LineResult::Written { files, images } => {
            report["files"] = files.iter().map(|file| file.display().to_string()).collect();
            report["request_id"] = images.request_id().into();
            report["replayed"] = images.is_replayed().into();
            report["missing"] = images.missing().into();
            report["usage"] = json!(images.usage());
            report["cost_usd"] = json!(cost_usd(images));
        }
        LineResult::Failed(error) => {
            report["error"] = error.message().into();
            report["code"] = error.code().into();
            report["param"] = error.param().into();
            report["request_id"] = error.request_id().into();
        }
        LineResult::Existing | LineResult::NotSent => {}
    }
    report
}

fn read_input(path: &Path) -> Result<String, CommandFailure> {
    let read = if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    read.map_err(|error| CommandFailure::Usage(format!("{} cannot be read: {error}", path.display())))
}

// === impl LineResult ===

impl LineResult {
    fn word(&self) -> &'static str {
        match self {
            Self::Written { .. } => "written",
            Self::Existing => "existing",
            Self::Failed(_) => "failed",
            Self::NotSent => "not_sent",
        }
    }
}

// === impl BatchSummary ===

impl BatchSummary {
    fn add(&mut self, line: &BatchLine, result: &LineResult) {
        match result {
            LineResult::Written { files, images } => {
                self.made += 1;
                self.images += files.len();
                self.missing_images += line.paths(Path::new("")).len().saturating_sub(images.len());
                if images.is_replayed() {
                    self.replayed += 1;
                } else {
                    self.tokens += images.usage().map_or(0, |usage| usage.total_tokens);
                    self.cost_usd = cost_usd(images).map(|cost| self.cost_usd.unwrap_or(0.0) + cost).or(self.cost_usd);
                }
            }
            LineResult::Existing => self.existing += 1,
            LineResult::Failed(_) => self.failed += 1,
            LineResult::NotSent => self.not_sent += 1,
        }
    }

    fn to_json(&self) -> Value {
        let Self { made, replayed, existing, failed, not_sent, images, missing_images, tokens, cost_usd } = self;
        json!({
            "made": made, "replayed": replayed, "existing": existing, "failed": failed, "not_sent": not_sent,
            "images": images, "missing_images": missing_images, "tokens": tokens, "cost_usd": cost_usd,
        })
    }

    fn lines(&self) -> usize {
        self.made + self.existing + self.failed + self.not_sent
    }
}

impl std::fmt::Display for BatchSummary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { made, replayed, existing, failed, not_sent, images, tokens, .. } = self;
        let cost = self.cost_usd.map_or_else(String::new, |cost| format!(", cost {} USD", (cost * 1e6).round() / 1e6));
        write!(
            f,
            "lines: made {made} (before: {replayed}), existing {existing}, failed {failed}, not sent {not_sent}; \
             images {images}, tokens {tokens}{cost}"
        )
    }
}

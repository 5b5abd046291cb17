//! The command `imagate batch`: makes the images of many requests, and goes on after an interruption without paying
//! again.
//!
//! Each request has an idempotency key that is derived from its line, so a gateway that has made its image before sends
//! the same image. A file that exists is not made again. Faults that can be found before anything is sent are reported
//! then, and a file that cannot be written ends the batch, because images are paid for before they are written.

mod line;
mod summary;
#[cfg(test)]
mod tests;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::connection::ConnectionArgs;
use super::failure::CommandFailure;
use super::image_command::{OutputImage, ProgressDisplay, addresses, name_from_prompt, unread_answer};
use super::image_cost::{ImageCost, PriceLookup};
use super::installation::block_on;
use super::output::{ProgressArg, has_events, print, print_event, print_json, print_message};
use super::retry_event::for_line;
use crate::client::{self, Client, Error, ErrorKind, Images};
use line::BatchLine;
use summary::BatchSummary;

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
    /// The service sent images: new ones, or those that it had made before.
    Delivered(LineDelivery),
    /// All files of the line exist; nothing was sent.
    Existing,
    Failed(Error),
    /// Nothing was sent, because an earlier failure holds for all lines.
    NotSent,
}

/// The images of one line, which have been paid for, and what became of them.
struct LineDelivery {
    images: Images,
    cost: ImageCost,
    /// The files that were written now.
    files: Vec<PathBuf>,
    /// The number of files of the line that do not exist afterwards.
    missing: usize,
    /// The first error of an image that could not be written. The others were written nevertheless.
    failure: Option<Error>,
}

// === impl BatchCommand ===

impl BatchCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        self.progress.apply();
        let lines = BatchLine::parse_all(&read_input(&self.input)?).map_err(CommandFailure::Input)?;
        std::fs::create_dir_all(&self.output)
            .map_err(|error| CommandFailure::Usage(format!("{} cannot be made: {error}", self.output.display())))?;
        let client = self.connection.client()?;
        block_on(async {
            self.check(&lines).await?;
            self.make_all(client, lines).await
        })
    }

    /// Finds the faults of the folder, and of all lines that are going to be sent, before the first one is sent.
    async fn check(&self, lines: &[BatchLine]) -> Result<(), CommandFailure> {
        if has_requests(lines, &self.output) {
            client::check_writable(&self.output.join("image")).map_err(|error| {
                CommandFailure::Usage(format!("no file can be written to {}: {error}", self.output.display()))
            })?;
        }
        let mut problems = Vec::new();
        for line in lines.iter().filter(|line| !is_complete(line, &self.output)) {
            if let Err(problem) = line.check(&self.output).await {
                problems.push(format!("line {}: {problem}", line.number));
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(CommandFailure::Input(problems)) }
    }

    async fn make_all(&self, client: Client, lines: Vec<BatchLine>) -> Result<(), CommandFailure> {
        let (total, service) = (lines.len(), client.origin());
        print_event("started", json!({ "lines": total, "service": service }));
        let progress = ProgressDisplay::start(&format!("making the images of {total} lines, from {service}"));
        let mut prices = has_requests(&lines, &self.output).then(|| PriceLookup::start(&client));
        let (permits, mut tasks) = (Arc::new(Semaphore::new(self.concurrency.into())), JoinSet::new());
        for line in lines {
            let (client, permits, folder) = (client.clone(), Arc::clone(&permits), self.output.clone());
            tasks.spawn(async move {
                let result = for_line(line.number, run_line(&client, &permits, &line, &folder)).await;
                (line, result)
            });
        }
        let (mut summary, mut printed) = (BatchSummary::default(), Ok(()));
        while let Some(ended) = tasks.join_next().await {
            let (line, mut result) = ended?;
            if let (LineResult::Delivered(delivery), Some(prices)) = (&mut result, &mut prices) {
                delivery.cost = prices.cost(line.cost_factors(), &delivery.images).await;
            }
            summary.add(&result);
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
        if summary.has_unknown_cost()
            && let Some(note) = prices.and_then(|prices| prices.fault())
        {
            print_message(&note);
        }
        summary.problem(total).map_or(printed, |problem| Err(CommandFailure::Incomplete(problem)))
    }

    fn print_result(&self, line: &BatchLine, result: &LineResult) -> Result<(), CommandFailure> {
        if self.json {
            return Ok(print_json(&report(line, result))?);
        }
        if let LineResult::Delivered(delivery) = result {
            let names: String = delivery.files.iter().map(|file| format!("{}\n", file.display())).collect();
            print(&names)?;
        }
        match result.error() {
            Some(error) if !has_events() => print_message(&format!("line {}: {error}", line.number)),
            _ => {}
        }
        Ok(())
    }
}

/// Returns true if a line has a file that does not exist.
fn has_requests(lines: &[BatchLine], folder: &Path) -> bool {
    lines.iter().any(|line| !is_complete(line, folder))
}

/// Returns true if all files of a line exist.
fn is_complete(line: &BatchLine, folder: &Path) -> bool {
    line.paths(folder).iter().all(|path| exists(path))
}

/// Makes the images of a line, unless they exist or the batch has been stopped.
async fn run_line(client: &Client, permits: &Semaphore, line: &BatchLine, folder: &Path) -> LineResult {
    if is_complete(line, folder) {
        return LineResult::Existing;
    }
    let Ok(_permit) = permits.acquire().await else { return LineResult::NotSent };
    match make_images(client, line).await {
        Ok(images) => {
            let delivery = write_images(images, line, folder).await;
            // The files of all lines are in one folder, so the next images would be paid for and not written either.
            if delivery.failure.as_ref().is_some_and(|error| error.kind() == ErrorKind::File) {
                permits.close();
            }
            LineResult::Delivered(delivery)
        }
        Err(error) => {
            if ends_batch(&error) {
                permits.close();
            }
            unread_answer::keep(&error, &line.path(folder, 0));
            LineResult::Failed(error)
        }
    }
}

async fn make_images(client: &Client, line: &BatchLine) -> Result<Images, Error> {
    match line.edit_request() {
        Some(request) => client.images().edit(request).await,
        None => client.images().generate(line.request()).await,
    }
}

/// Writes the images of a line. Images that were made before belong to the files of their numbers. New ones get the files
/// that do not exist, and then files of higher numbers: each has been paid for.
async fn write_images(images: Images, line: &BatchLine, folder: &Path) -> LineDelivery {
    let mut free_paths = (0..).map(|index| line.path(folder, index)).filter(|path| !exists(path));
    let (mut files, mut failure, mut undecodable) = (Vec::new(), None, None);
    for (index, image) in images.iter().enumerate() {
        let path = if images.is_replayed() {
            Some(line.path(folder, index)).filter(|path| !exists(path))
        } else {
            free_paths.next()
        };
        let Some(path) = path else { continue };
        match image.write_to(&path).await {
            Ok(file) => files.push(file),
            Err(error) => {
                if error.kind() == ErrorKind::File {
                    let name = name_from_prompt(&line.prompt);
                    files.extend(OutputImage::Original(image).keep_in_temporary_folder(&name).await);
                } else if unread_answer::is_undecodable(&error, &image) {
                    undecodable = undecodable.or(Some(path));
                }
                failure = failure.or(Some(error));
            }
        }
    }
    if let Some(path) = undecodable {
        unread_answer::keep_text(images.json().text(), &path);
    }
    let missing = line.paths(folder).iter().filter(|path| !exists(path)).count();
    LineDelivery { images, cost: ImageCost::Unknown, files, missing, failure }
}

/// Returns true if the image exists, in any format: the extension is corrected when an image is written.
fn exists(path: &Path) -> bool {
    let formats = [
        None,
        Some(client::Output::Png),
        Some(client::Output::JPEG),
        Some(client::Output::WEBP),
        Some(client::Output::Gif),
    ];
    formats.iter().any(|output| client::with_format_extension(path, output.map(client::Output::format)).exists())
}

/// Returns true if all other lines would fail in the same way.
fn ends_batch(error: &Error) -> bool {
    error.is_invalid_key() || error.is_usage_limit() || matches!(error.kind(), ErrorKind::Connect | ErrorKind::Settings)
}

fn report(line: &BatchLine, result: &LineResult) -> Value {
    let mut report = json!({"line": line.number, "prompt": line.prompt, "files": [], "result": result.word()});
    if let Some(error) = result.error() {
        report["error"] = error.message().into();
        report["code"] = error.code().into();
        report["param"] = error.param().into();
        report["request_id"] = error.request_id().into();
    }
    if let LineResult::Delivered(LineDelivery { images, cost, files, missing, .. }) = result {
        report["files"] = files.iter().map(|file| file.display().to_string()).collect();
        report["urls"] = addresses(images).into();
        report["request_id"] = images.request_id().into();
        report["replayed"] = images.is_replayed().into();
        report["missing"] = (*missing).into();
        report["usage"] = json!(images.usage());
        report["cost_usd"] = json!(cost.usd());
        report["cost_source"] = json!(cost.source());
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
            Self::Delivered(LineDelivery { failure: None, .. }) => "written",
            Self::Delivered(_) | Self::Failed(_) => "failed",
            Self::Existing => "existing",
            Self::NotSent => "not_sent",
        }
    }

    fn error(&self) -> Option<&Error> {
        match self {
            Self::Delivered(delivery) => delivery.failure.as_ref(),
            Self::Failed(error) => Some(error),
            Self::Existing | Self::NotSent => None,
        }
    }
}

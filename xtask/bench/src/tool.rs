//! The parts of the load tests, and the command line that starts them.

mod answers;
mod cases;
mod check;
mod console_client;
mod database;
mod filler;
mod gateway_run;
mod generator;
mod http;
mod load;
mod measure;
mod options;
mod peers;
mod picture;
mod process;
mod procfs;
mod read_requests;
mod reads;
mod relay;
mod report;
mod scale;
mod statistics;
mod targets;
mod upstream;

use std::net::Ipv4Addr;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use cases::{BenchCase, BenchCell};
use options::{Options, RunOptions};

/// The number of files that a run with many connections needs.
const WANTED_FILES: u64 = 65_536;

pub(crate) fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run_until_interrupted(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run_until_interrupted(arguments: &[String]) -> Result<()> {
    let Some((part, arguments)) = arguments.split_first() else { bail!("expected `gateway`, `scale` or `reads`") };
    raise_file_limit();
    // The clients of one process share a thread, so that they take little of a small machine.
    let is_load = part == "load";
    let mut builder = if is_load {
        tokio::runtime::Builder::new_current_thread()
    } else {
        tokio::runtime::Builder::new_multi_thread()
    };
    builder.enable_all().build()?.block_on(async {
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        // If a signal arrives, the work is dropped, and with it every process that it started.
        tokio::select! {
            result = Box::pin(run(part, arguments)) => result,
            _ = interrupt.recv() => bail!("interrupted"),
            _ = terminate.recv() => bail!("terminated"),
        }
    })
}

async fn run(part: &str, arguments: &[String]) -> Result<()> {
    match part {
        "gateway" => gateway_run::run(&RunOptions::parse(arguments)?).await,
        "scale" => scale::run(arguments).await,
        "reads" => reads::run(arguments).await,
        "upstream" => upstream::serve(listen(&Options::parse(arguments, &["port"])?).await?).await,
        "relay" => {
            let options = Options::parse(arguments, &["port", "key", "upstream-port"])?;
            let key: String = options.require("key")?;
            relay::serve(listen(&options).await?, &key, options.require("upstream-port")?).await
        }
        "load" => {
            let options = Options::parse(arguments, &["address", "headers", "case", "connections", "seconds"])?;
            let case = BenchCase::from_name(&options.require::<String>("case")?)?;
            let cell = BenchCell { case, connections: options.require("connections")? };
            let headers: String = options.require("headers")?;
            let report = load::run(options.require("address")?, &headers, cell, options.seconds(1.0)?).await?;
            println!("{}", serde_json::to_string(&report)?);
            Ok(())
        }
        _ => bail!("unknown part `{part}`"),
    }
}

async fn listen(options: &Options) -> Result<TcpListener> {
    let port: u16 = options.require("port")?;
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.with_context(|| format!("port {port}"))
}

/// Raises the limit of open files as far as this user may, for this process and those that it starts.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let maximum = limit.maximum.unwrap_or(WANTED_FILES);
    let wanted = Rlimit { current: Some(WANTED_FILES), maximum: Some(maximum.max(WANTED_FILES)) };
    if setrlimit(Resource::Nofile, wanted).is_err() {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(maximum.min(WANTED_FILES)), ..limit });
    }
}

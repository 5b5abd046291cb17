//! `gateway`: every case against imagate, nginx, the relay and the upstream itself, interleaved over rounds.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use super::cases::{BenchCase, BenchCell};
use super::check;
use super::measure::Row;
use super::options::RunOptions;
use super::report::Results;
use super::targets::{GatewayHome, GatewaySettings, Target};

/// Runs the cases and prints the tables.
pub(crate) async fn run(options: &RunOptions) -> Result<()> {
    let folder = TempDir::with_prefix("imagate-bench-").context("a folder for the run")?;
    let targets = start_targets(options, folder.path()).await?;
    let mut results = Results {
        targets: targets.iter().map(|target| target.name.clone()).collect(),
        gateways: gateway_names(options.programs.len()),
        cells: options.cells.clone(),
        ..Results::default()
    };
    check_targets(&targets, &mut results).await?;
    for round in 0..options.rounds {
        for cell in &options.cells {
            // Slow readers are there for the peak of the memory, which one round shows.
            if cell.case != BenchCase::Slow || round == 0 {
                eprintln!("round {} of {}: {cell}", round + 1, options.rounds);
                measure_all(&targets, *cell, round, options.duration, &mut results).await?;
            }
        }
    }
    for target in targets {
        target.process.stop().await?;
    }
    print!("{}", introduction(options));
    print!("{}", results.to_markdown());
    Ok(())
}

/// Measures all targets that pass the check of the case. Another target begins in each round.
async fn measure_all(
    targets: &[Target],
    cell: BenchCell,
    round: u32,
    duration: Duration,
    results: &mut Results,
) -> Result<()> {
    let (behind, ahead) = targets.split_at(round as usize % targets.len());
    for target in ahead.iter().chain(behind) {
        if !results.failures.contains_key(&(target.name.clone(), cell.case.checked_as())) {
            results.rows.push(Row::measure(target, cell, round, duration).await?);
        }
    }
    Ok(())
}

async fn start_targets(options: &RunOptions, folder: &Path) -> Result<Vec<Target>> {
    let upstream = Target::start_upstream(folder).await?;
    let address = upstream.address;
    let mut targets = vec![upstream, Target::start_relay(folder, address).await?];
    for peer in &options.peers {
        match peer.start(folder, address).await? {
            Some(target) => targets.push(target),
            None => eprintln!("{} is not installed: measured without it", peer.name()),
        }
    }
    let (durability, has_responses_account) = (options.durability.clone(), true);
    let settings = GatewaySettings { durability, has_responses_account, ..GatewaySettings::default() };
    for (name, program) in gateway_names(options.programs.len()).iter().zip(&options.programs) {
        let program = program.canonicalize().with_context(|| program.display().to_string())?;
        let home = GatewayHome::create(name, &program, folder, address, &settings).await?;
        targets.push(home.start().await?);
    }
    Ok(targets)
}

fn gateway_names(count: usize) -> Vec<String> {
    (1..=count).map(|number| if number == 1 { "imagate".to_owned() } else { format!("imagate-{number}") }).collect()
}

/// Compares the answers of every target with those of the upstream.
async fn check_targets(targets: &[Target], results: &mut Results) -> Result<()> {
    let mut cases: Vec<BenchCase> = results.cells.iter().map(|cell| cell.case.checked_as()).collect();
    cases.sort_unstable();
    cases.dedup();
    let (upstream, others) = targets.split_first().context("there is no upstream")?;
    let originals = check::read_originals(upstream, &cases).await?;
    for target in others {
        for (case, reason) in check::failures(target, &originals).await {
            eprintln!("{} fails the check of {}: {reason}", target.name, case.name());
            results.failures.insert((target.name.clone(), case), reason);
        }
    }
    Ok(())
}

fn introduction(options: &RunOptions) -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let programs =
        options.programs.iter().map(|program| program.display().to_string()).collect::<Vec<_>>().join(" and ");
    format!(
        "{programs}, durability = \"{}\", log to a file; {} rounds of {} s for each cell, medians of the rounds; \
         {cores} CPUs for clients, target and upstream together.\n\
         nginx: proxy_buffering off, request buffering and other settings as by default. No peer has a log of requests.\n\
         relay: checks the key and passes bodies on, with hyper.\n",
        options.durability,
        options.rounds,
        options.duration.as_secs_f64()
    )
}

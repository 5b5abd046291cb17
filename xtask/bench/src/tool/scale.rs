//! `scale`: how the cost of a small request grows with keys, accounts and records, and the memory with idle connections.
//!
//! A gateway for each number runs at the same time, and the rounds go through all of them, so that other load of the
//! machine affects all of them alike.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::cases::{BenchCase, BenchCell};
use super::database::RecordDatabase;
use super::filler;
use super::generator::RecordGenerator;
use super::http::{BodySink, Connection};
use super::measure::Row;
use super::options::Options;
use super::procfs;
use super::statistics::{median, median_ratio};
use super::targets::{GatewayHome, GatewaySettings, Target};

const OPTIONS: [&str; 7] = ["program", "rounds", "seconds", "durability", "keys", "accounts", "records"];
/// The load of each measurement.
const CELL: BenchCell = BenchCell { case: BenchCase::Small, connections: 16 };
/// The number of idle connections, and the settings that allow them.
const IDLE_CONNECTIONS: usize = 10_000;
const CONNECTION_SETTINGS: &str = "connections = { max = 12000, max_per_address = 12000 }\n";
/// The number of requests that open idle connections at a time.
const OPENERS: usize = 64;

/// A gateway of the run: what it holds beside one key and one account.
#[derive(Clone, Debug, PartialEq, Eq)]
struct GatewayContents {
    name: String,
    keys: u64,
    accounts: usize,
    records: u64,
}

/// The measurements of one gateway.
struct GatewayMeasurements {
    population: GatewayContents,
    rows: Vec<Row>,
    memory_mb: f64,
}

/// Runs the measurements and prints the tables.
pub(crate) async fn run(arguments: &[String]) -> Result<()> {
    let options = Options::parse(arguments, &OPTIONS)?;
    let program: PathBuf = options.require("program")?;
    let program = program.canonicalize().with_context(|| program.display().to_string())?;
    let (rounds, duration) = (options.rounds()?, options.seconds(2.0)?);
    let folder = TempDir::with_prefix("imagate-bench-").context("a folder for the run")?;
    let upstream = Target::start_upstream(folder.path()).await?;
    let mut targets = Vec::new();
    for (number, population) in populations(&options)?.into_iter().enumerate() {
        let folder = folder.path().join(number.to_string());
        let settings = GatewaySettings {
            durability: options.durability()?,
            accounts: population.accounts,
            ..GatewaySettings::default()
        };
        let target = start(&program, &folder, &upstream, &population, &settings).await?;
        targets.push((target, GatewayMeasurements { population, rows: Vec::new(), memory_mb: 0.0 }));
    }
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        for index in 0..targets.len() {
            let position = (index + round as usize) % targets.len();
            let (target, series) = &mut targets[position];
            series.rows.push(Row::measure(target, CELL, round, duration).await?);
            series.memory_mb = procfs::memory_mb(target.process.id(), "VmRSS")?;
        }
    }
    let (targets, series): (Vec<Target>, Vec<GatewayMeasurements>) = targets.into_iter().unzip();
    println!("{CELL}: a small request, {rounds} rounds of {} s\n{}", duration.as_secs_f64(), table(&series));
    for target in targets {
        target.process.stop().await?;
    }
    idle_connections(&program, folder.path(), &upstream).await?;
    upstream.process.stop().await
}

/// The gateways of a run. The first one is the base of the ratios.
fn populations(options: &Options) -> Result<Vec<GatewayContents>> {
    let base = GatewayContents { name: "1 key, 1 account, no records".to_owned(), keys: 0, accounts: 1, records: 0 };
    let numbers = |name: &str, default: &str| -> Result<Vec<u64>> {
        let list = options.get(name).unwrap_or(default).split(',');
        let numbers = list.map(|word| word.parse().with_context(|| format!("`--{name}`: `{word}` is not a number")));
        Ok(numbers.collect::<Result<Vec<u64>>>()?.into_iter().filter(|number| *number > 0).collect())
    };
    let mut populations = vec![base.clone()];
    for count in numbers("keys", "1000,1000000")? {
        populations.push(GatewayContents {
            name: format!("{count} keys"),
            keys: count.saturating_sub(1),
            ..base.clone()
        });
    }
    for count in numbers("accounts", "1000")? {
        let accounts = usize::try_from(count)?;
        populations.push(GatewayContents { name: format!("{count} accounts"), accounts, ..base.clone() });
    }
    for count in numbers("records", "10000000")? {
        populations.push(GatewayContents { name: format!("{count} records"), records: count, ..base.clone() });
    }
    Ok(populations)
}

async fn start(
    program: &Path,
    folder: &Path,
    upstream: &Target,
    population: &GatewayContents,
    settings: &GatewaySettings,
) -> Result<Target> {
    std::fs::create_dir(folder)?;
    let home = GatewayHome::create("imagate", program, folder, upstream.address, settings).await?;
    let begun = Instant::now();
    let (data, keys, records) = (home.folder.clone(), population.keys, population.records);
    tokio::task::spawn_blocking(move || fill(&data, keys, records)).await??;
    eprintln!("{}: filled in {:.0} s", population.name, begun.elapsed().as_secs_f64());
    let begun = Instant::now();
    let target = home.start().await?;
    ask_once(target.address, BenchCase::Small.request(&target.headers).into())
        .await
        .with_context(|| population.name.clone())?;
    eprintln!("{}: first answer {:.1} s after the start", population.name, begun.elapsed().as_secs_f64());
    Ok(target)
}

fn fill(home: &Path, keys: u64, records: u64) -> Result<()> {
    let database = RecordDatabase::open_sqlite(home)?;
    filler::insert_keys(&database, keys)?;
    if records == 0 {
        return Ok(());
    }
    let end = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    RecordGenerator { records, seed: 1, end }.fill(&database)?;
    // The gateway would count these records in detail beside the measurement.
    database.execute("UPDATE usage_fold SET folded_seq = (SELECT max(seq) FROM records)")
}

/// Opens a connection and sends a request.
async fn ask_once(address: SocketAddr, request: Arc<[u8]>) -> Result<Connection> {
    let mut connection = Connection::open(address, None).await?;
    let exchange = connection.exchange(&request, &mut BodySink::default()).await?;
    ensure!(exchange.status == 200, "status {}: {}", exchange.status, exchange.error);
    Ok(connection)
}

fn table(series: &[GatewayMeasurements]) -> String {
    let mut text =
        "\n| gateway | CPU s per 1000 requests | times the first | memory, MB |\n|---|---|---|---|\n".to_owned();
    for one in series {
        let cpu = median(one.rows.iter().filter_map(Row::cpu_per_1000_requests));
        let show = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"));
        let (cpu, ratio) = (show(cpu), show(ratio_to_first(series, one)));
        text += &format!("| {} | {cpu} | {ratio} | {:.0} |\n", one.population.name, one.memory_mb);
    }
    for one in series {
        for (failure, count) in one.rows.iter().flat_map(|row| &row.load.failures) {
            text += &format!("failed requests: {}: {count} times {failure}\n", one.population.name);
        }
    }
    text
}

fn ratio_to_first(series: &[GatewayMeasurements], one: &GatewayMeasurements) -> Option<f64> {
    let base = |round| series.first()?.rows.iter().find(|row| row.round == round)?.cpu_per_1000_requests();
    median_ratio(one.rows.iter().map(|row| (row.cpu_per_1000_requests(), base(row.round))))
}

/// Opens connections that have sent one request each, and reads the memory of the gateway before and after.
async fn idle_connections(program: &Path, folder: &Path, upstream: &Target) -> Result<()> {
    let folder = folder.join("idle");
    std::fs::create_dir(&folder)?;
    let settings = GatewaySettings { lines: CONNECTION_SETTINGS.to_owned(), ..GatewaySettings::default() };
    let home = GatewayHome::create("imagate", program, &folder, upstream.address, &settings).await?;
    let target = home.start().await?;
    // The cost of concurrent requests is not counted: only that of connections while nothing runs.
    drop(open_connections(&target, OPENERS).await?);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = procfs::memory_mb(target.process.id(), "VmRSS")?;
    let begun = Instant::now();
    let connections = open_connections(&target, IDLE_CONNECTIONS).await?;
    let after = procfs::memory_mb(target.process.id(), "VmRSS")?;
    println!(
        "{} connections, each idle after one request: {before:.0} MB before, {after:.0} MB after, {:.1} KB for each; \
         opened in {:.1} s. Buffers of the kernel are not counted.",
        connections.len(),
        (after - before) * 1000.0 / connections.len() as f64,
        begun.elapsed().as_secs_f64()
    );
    drop(connections);
    target.process.stop().await
}

async fn open_connections(target: &Target, count: usize) -> Result<Vec<Connection>> {
    let request: Arc<[u8]> = BenchCase::Small.request(&target.headers).into();
    let (mut openers, mut connections) = (JoinSet::new(), Vec::with_capacity(count));
    for started in 0..count {
        if started >= OPENERS {
            connections.extend(openers.join_next().await.transpose()?.transpose()?);
        }
        openers.spawn(ask_once(target.address, Arc::clone(&request)));
    }
    while let Some(connection) = openers.join_next().await {
        connections.push(connection?.with_context(|| format!("after {} connections", connections.len()))?);
    }
    Ok(connections)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(line: &str) -> Vec<(String, u64, usize, u64)> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let options = Options::parse(&arguments, &["keys", "accounts", "records"]).unwrap();
        let populations = populations(&options).unwrap();
        populations.into_iter().map(|one| (one.name, one.keys, one.accounts, one.records)).collect()
    }

    #[test]
    fn each_number_is_a_gateway_that_differs_in_it_alone() {
        assert_eq!(names("").len(), 5);
        let some = names("--keys 10 --accounts 3,4 --records 0");
        let expected = [("10 keys", 9, 1, 0), ("3 accounts", 0, 3, 0), ("4 accounts", 0, 4, 0)];
        assert_eq!(
            some[1..],
            expected.map(|(name, keys, accounts, records)| (name.to_owned(), keys, accounts, records))
        );
    }
}

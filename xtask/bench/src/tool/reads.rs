//! `reads`: the times of all pages, operations and commands that list or count, with ten million records.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::console_client::{ClientRole, ConsoleClient};
use super::database::{PostgresDatabase, RecordDatabase};
use super::generator::{ACCOUNTS, RecordGenerator};
use super::options::Options;
use super::process::{free_address, output};
use super::read_requests::{COMMANDS, FilterValues, ReadRequest, downloads, requests};
use super::statistics::median;
use super::targets::{GatewayHome, GatewaySettings};

const OPTIONS: [&str; 7] = ["program", "records", "store", "postgres", "folder", "seed", "rounds"];
/// The variable with the address of a server, as `cargo xtask postgres` sets it.
const SERVER_VARIABLE: &str = "IMAGATE_TEST_POSTGRES";
/// The file that says how to start the gateway of a folder that is used again.
const INSTALLATION_FILE: &str = "installation.json";
const ADMIN_TOKEN: &str = "admin-token-of-the-load-tests-0123456789";
/// The time in which each answer must be complete.
const GOAL: Duration = Duration::from_secs(1);
/// The number of records that are not counted in detail yet.
const UNCOUNTED_RECORDS: &str =
    "SELECT (SELECT coalesce(max(seq), 0) FROM records) - (SELECT folded_seq FROM usage_fold)";
/// The user whose token a member has: the busiest.
const MEMBER: &str = "user-0";

/// A filled installation.
#[derive(Debug, Serialize, Deserialize)]
struct MeasurementGateway {
    records: u64,
    /// The address of the database, if it is PostgreSQL.
    postgres: Option<String>,
    folder: PathBuf,
    address: SocketAddr,
    metrics: SocketAddr,
}

/// The times of one request or command.
struct ReadTimes {
    name: String,
    times: Vec<Duration>,
    /// The first failure, if any.
    failure: Option<String>,
}

/// Runs the measurement and prints the table.
pub(crate) async fn run(arguments: &[String]) -> Result<()> {
    let options = Options::parse(arguments, &OPTIONS)?;
    let program: PathBuf = options.require("program")?;
    let program = program.canonicalize().with_context(|| program.display().to_string())?;
    let (rounds, temporary) = (options.get_or("rounds", 5)?, TempDir::with_prefix("imagate-bench-")?);
    let folder: PathBuf = options.get_or("folder", temporary.path().to_owned())?;
    let installation = match fs::read(folder.join(INSTALLATION_FILE)) {
        Ok(file) => serde_json::from_slice(&file)?,
        Err(_) => MeasurementGateway::create(&options, &program, &folder).await?,
    };
    let database = installation.database()?;
    let size = database.size()? as f64 / 1e9;
    // Other load of the machine makes everything slower.
    let load = fs::read_to_string("/proc/loadavg")?;
    let load = load.split(' ').next().unwrap_or_default();
    println!("{} records, {size:.1} GB in {}; load average {load}", installation.records, installation.store_name());
    let values = filter_values(&database)?;
    drop(database);
    installation.measure(&program, &values, rounds).await
}

impl MeasurementGateway {
    /// Creates and fills the installation in a folder.
    async fn create(options: &Options, program: &Path, folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let folder = folder.canonicalize()?;
        let postgres = match options.get("store").unwrap_or("sqlite") {
            "sqlite" => None,
            "postgres" => {
                let server = server_address(options)?;
                let create = move || PostgresDatabase::create(&server, "imagate_reads");
                Some(tokio::task::spawn_blocking(create).await??.url)
            }
            store => bail!("`--store {store}` is neither `sqlite` nor `postgres`"),
        };
        let metrics = free_address()?;
        let secret = |name: &str, value: &str| -> Result<String> {
            fs::write(folder.join(name), value)?;
            Ok(format!("{{ file = \"{}\" }}", folder.join(name).display()))
        };
        let mut lines = format!("metrics_listen = \"{metrics}\"\nadmin_token = {}\n", secret("token", ADMIN_TOKEN)?);
        if let Some(url) = &postgres {
            lines += &format!("database_url = {}\n", secret("database", url)?);
        }
        let settings = GatewaySettings { accounts: ACCOUNTS, lines, ..GatewaySettings::default() };
        // No request is sent to the accounts.
        let home = GatewayHome::create("imagate", program, &folder, free_address()?, &settings).await?;
        let records = options.get_or("records", 10_000_000)?;
        let address = home.address;
        let installation = Self { records, postgres, folder: home.folder, address, metrics };
        let (database, seed) = (installation.database()?, options.get_or("seed", 1)?);
        let (begun, end) = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs());
        let generator = RecordGenerator { records, seed, end };
        tokio::task::spawn_blocking(move || generator.fill(&database)).await??;
        eprintln!("filled in {:.0} s", begun.elapsed().as_secs_f64());
        fs::write(folder.join(INSTALLATION_FILE), serde_json::to_vec(&installation)?)?;
        Ok(installation)
    }

    fn database(&self) -> Result<RecordDatabase> {
        match &self.postgres {
            None => RecordDatabase::open_sqlite(&self.folder),
            Some(url) => Ok(RecordDatabase::Postgres(PostgresDatabase::at(url)?)),
        }
    }

    const fn store_name(&self) -> &'static str {
        if self.postgres.is_some() { "PostgreSQL" } else { "SQLite" }
    }

    async fn measure(&self, program: &Path, values: &FilterValues, rounds: u32) -> Result<()> {
        let begun = Instant::now();
        let (program, folder, key) = (program.to_owned(), self.folder.clone(), String::new());
        let home = GatewayHome { name: "imagate".to_owned(), program, folder, address: self.address, key };
        let target = home.start().await?;
        println!("the gateway listened {:.1} s after its start", begun.elapsed().as_secs_f64());
        self.wait_until_counted().await?;
        let client = ConsoleClient::sign_in(self.address, ADMIN_TOKEN, MEMBER).await?;
        for (title, requests) in [("answer", requests(values)), ("download", downloads(values))] {
            let mut all = Vec::new();
            for request in &requests {
                all.push(self.times_of_request(&client, request, rounds).await);
            }
            println!("{}", table(title, &all));
        }
        let mut all = Vec::new();
        for command in COMMANDS {
            all.push(times_of_command(&home, command, rounds).await);
        }
        println!("{}", table("command", &all));
        target.process.stop().await
    }

    /// Waits until the gateway has counted all records in detail.
    async fn wait_until_counted(&self) -> Result<()> {
        let begun = Instant::now();
        let left = || -> Result<u64> {
            let rows = self.database()?.query(UNCOUNTED_RECORDS)?;
            Ok(rows.first().context("no number of the last counted record")?.parse()?)
        };
        while left()? > 0 {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        println!("all records were counted in detail {:.1} s after that", begun.elapsed().as_secs_f64());
        Ok(())
    }

    /// Sends a request once to warm the caches, and then as often as there are rounds.
    async fn times_of_request(&self, client: &ConsoleClient, request: &ReadRequest, rounds: u32) -> ReadTimes {
        let role = match request.role {
            ClientRole::SignedInAdmin => "page",
            ClientRole::AdminToken => "admin",
            ClientRole::MemberToken => "member",
            ClientRole::Anonymous => "anyone",
        };
        let mut read = ReadTimes { name: format!("{role} {}", request.path), times: Vec::new(), failure: None };
        for round in 0..=rounds {
            let address = request.is_metrics.then_some(self.metrics);
            let failure = match client.get(request.role, address, &request.path).await {
                Ok(answer) => {
                    read.times.extend((round > 0).then_some(answer.time));
                    let body = || String::from_utf8_lossy(&answer.body).chars().take(120).collect::<String>();
                    (![200, 303].contains(&answer.status)).then(|| format!("{} {}", answer.status, body()))
                }
                Err(error) => Some(format!("{error:#}")),
            };
            read.failure = read.failure.or(failure);
        }
        read
    }
}

fn server_address(options: &Options) -> Result<String> {
    if let Some(address) = options.get("postgres") {
        return Ok(address.to_owned());
    }
    #[expect(clippy::disallowed_methods, reason = "`cargo xtask postgres` tells the address by this variable")]
    let address = std::env::var(SERVER_VARIABLE);
    address
        .context("there is no server: give `--postgres ADDRESS`, or run `cargo xtask postgres cargo xtask bench reads`")
}

/// Looks up what the filters name.
fn filter_values(database: &RecordDatabase) -> Result<FilterValues> {
    let position = |percent: u32, condition: &str| -> Result<(String, String)> {
        let rows = database.query(&format!(
            "SELECT request_id, substr(created_at, 1, 10) FROM records WHERE {condition} AND seq >= \
             (SELECT min(seq) + (max(seq) - min(seq)) * {percent} / 100 FROM records) ORDER BY seq LIMIT 1"
        ))?;
        let (id, day) = rows.first().and_then(|row| row.split_once('|')).context("there are no records")?;
        Ok((id.to_owned(), day.to_owned()))
    };
    let ((middle, middle_day), (oldest, _), (_, first_day)) =
        (position(50, "TRUE")?, position(1, "TRUE")?, position(0, "TRUE")?);
    let (middle_of_user, _) = position(50, "user_id = 'usr_generated_0'")?;
    Ok(FilterValues { middle, oldest, middle_of_user, first_day, middle_day })
}

async fn times_of_command(home: &GatewayHome, command: &str, rounds: u32) -> ReadTimes {
    let mut read = ReadTimes { name: format!("imagate {command}"), times: Vec::new(), failure: None };
    let arguments: Vec<&str> = command.split(' ').chain(["--config", "imagate.toml"]).collect();
    for round in 0..=rounds {
        let begun = Instant::now();
        if let Err(error) = output(&home.program, &arguments, &home.folder).await {
            read.failure.get_or_insert(format!("{error:#}"));
        }
        read.times.extend((round > 0).then(|| begun.elapsed()));
    }
    read
}

/// A table of the medians and the longest times, the slowest first, with a mark at those above [`GOAL`].
fn table(title: &str, all: &[ReadTimes]) -> String {
    let milliseconds = |time: &Duration| time.as_secs_f64() * 1000.0;
    let mut rows: Vec<(f64, f64, &ReadTimes)> = all
        .iter()
        .map(|read| {
            let middle = median(read.times.iter().map(milliseconds)).unwrap_or_default();
            (middle, read.times.iter().map(milliseconds).fold(0.0, f64::max), read)
        })
        .collect();
    rows.sort_by(|one, other| other.1.total_cmp(&one.1));
    let slow = rows.iter().filter(|(_, longest, _)| *longest > milliseconds(&GOAL)).count();
    let failed = rows.iter().filter(|(.., read)| read.failure.is_some()).count();
    let mut text = format!(
        "\n{} {title}s: {slow} above {} s, {failed} failed\n\n| {title} | median, ms | longest, ms | |\n|---|---|---|---|\n",
        rows.len(),
        GOAL.as_secs()
    );
    for (middle, longest, read) in rows {
        let mark = if longest > milliseconds(&GOAL) { "**above**" } else { "" };
        let failure = read.failure.as_deref().map(|failure| format!(" {}", failure.replace(['\n', '|'], " ")));
        text += &format!("| `{}` | {middle:.1} | {longest:.1} | {mark}{} |\n", read.name, failure.unwrap_or_default());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_begins_with_the_slowest_and_marks_what_takes_too_long() {
        let read = |name: &str, times: &[u64], failure: Option<&str>| ReadTimes {
            name: name.to_owned(),
            times: times.iter().copied().map(Duration::from_millis).collect(),
            failure: failure.map(str::to_owned),
        };
        let all = [read("a", &[3, 1, 2], None), read("b", &[1, 1001, 2], None), read("c", &[], Some("503 |"))];
        let table = table("answer", &all);
        assert!(table.starts_with("\n3 answers: 1 above 1 s, 1 failed\n"), "{table}");
        let rows: Vec<&str> = table.lines().skip(5).collect();
        assert_eq!(
            rows,
            ["| `b` | 2.0 | 1001.0 | **above** |", "| `a` | 2.0 | 3.0 |  |", "| `c` | 0.0 | 0.0 |  503   |"]
        );
    }
}

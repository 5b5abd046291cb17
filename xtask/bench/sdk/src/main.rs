//! Compares the SDK of imagate with two other Rust crates that make images: time and memory of large answers, and what
//! a hundred images cost if attempts fail.
//!
//! `cargo run --release -- [--rounds 5] [--slow-rounds 1] [--seed 1]` prints two tables in Markdown. The server runs in
//! this process; each measurement is a child process of the same program.

mod child;
mod faults;
mod libraries;
mod money;
mod picture;
mod process;
mod report;
mod server;
mod speed;

use std::env;
use std::process::ExitCode;

use libraries::Fallible;
use server::ImageServer;

struct ComparisonOptions {
    rounds: usize,
    /// The rounds of async-openai with events.
    slow_rounds: usize,
    seed: u64,
}

fn parse_options(arguments: &[String]) -> Fallible<ComparisonOptions> {
    let mut options = ComparisonOptions { rounds: 5, slow_rounds: 1, seed: 1 };
    for pair in arguments.chunks(2) {
        let [name, value] = pair else {
            return Err(format!("{} needs a value", pair.concat()).into());
        };
        match name.as_str() {
            "--rounds" => options.rounds = value.parse()?,
            "--slow-rounds" => options.slow_rounds = value.parse()?,
            "--seed" => options.seed = value.parse()?,
            _ => return Err(format!("unknown option {name}").into()),
        }
    }
    Ok(options)
}

fn compare(options: &ComparisonOptions) -> Fallible<()> {
    let speed_routes = speed::CASES.iter().map(speed::SpeedCase::route);
    let server = ImageServer::start(speed_routes.chain(money::routes(options.seed)).collect())?;
    let mut speed_table = report::header();
    for case in &speed::CASES {
        let medians = case.measure(&server, options.rounds, options.slow_rounds)?;
        speed_table.push_str(&report::speed_rows(case.name, &medians));
    }
    let mut money_table = report::header();
    for (setting, outcomes) in money::SETTINGS.into_iter().zip(money::measure(&server)?) {
        money_table.push_str(&report::money_rows(setting, &outcomes));
    }
    println!("{speed_table}\n{money_table}");
    Ok(())
}

fn run(arguments: &[String]) -> Fallible<()> {
    if let [first, child @ ..] = arguments
        && first == "child"
    {
        println!("{}", child::run(child)?);
        return Ok(());
    }
    compare(&parse_options(arguments)?)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

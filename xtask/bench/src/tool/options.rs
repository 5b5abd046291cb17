//! The options of the command line: `--name value`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::cases::{self, BenchCell};
use super::peers::PeerProgram;

/// The longest time that one cell can take.
const MAX_SECONDS: f64 = 60.0;
const MAX_ROUNDS: u32 = 50;

/// Values by name, in the order of the command line.
#[derive(Debug)]
pub(crate) struct Options(Vec<(String, String)>);

/// The options of a run.
#[derive(Debug)]
pub(crate) struct RunOptions {
    /// One program, or two to compare.
    pub(crate) programs: Vec<PathBuf>,
    pub(crate) cells: Vec<BenchCell>,
    pub(crate) rounds: u32,
    /// The time of one cell.
    pub(crate) duration: Duration,
    pub(crate) durability: String,
    /// The programs beside imagate and the relay.
    pub(crate) peers: Vec<PeerProgram>,
}

impl Options {
    /// Reads the arguments. Only these names are known.
    pub(crate) fn parse(arguments: &[String], known: &[&str]) -> Result<Self> {
        let mut options = Vec::new();
        for pair in arguments.chunks(2) {
            let [name, value] = pair else { bail!("`{}` needs a value", pair.join(" ")) };
            let name = name.strip_prefix("--").filter(|name| known.contains(name));
            let known = || known.iter().map(|name| format!("--{name}")).collect::<Vec<_>>().join(", ");
            let name = name.with_context(|| format!("unknown option `{}`; expected {}", pair[0], known()))?;
            options.push((name.to_owned(), value.clone()));
        }
        Ok(Self(options))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(option, _)| option == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(option, _)| option == name).map(|(_, value)| value.as_str())
    }

    /// The value of an option that must be there.
    pub(crate) fn require<T: FromStr>(&self, name: &str) -> Result<T> {
        let value = self.get(name).with_context(|| format!("`--{name}` is missing"))?;
        value.parse().ok().with_context(|| format!("`--{name} {value}` is not valid"))
    }

    pub(crate) fn get_or<T: FromStr>(&self, name: &str, default: T) -> Result<T> {
        if self.get(name).is_none() { Ok(default) } else { self.require(name) }
    }

    /// The number of seconds in an option.
    pub(crate) fn seconds(&self, default: f64) -> Result<Duration> {
        let seconds: f64 = self.get_or("seconds", default)?;
        ensure!(seconds > 0.0 && seconds <= MAX_SECONDS, "`--seconds` is more than 0 and at most {MAX_SECONDS}");
        Ok(Duration::from_secs_f64(seconds))
    }

    /// The value of the gateway's setting `durability`.
    pub(crate) fn durability(&self) -> Result<String> {
        let durability = self.get("durability").unwrap_or("power");
        ensure!(["power", "process"].contains(&durability), "`--durability` is `power` or `process`");
        Ok(durability.to_owned())
    }

    /// The programs to measure beside imagate: two proxies, unless others are named.
    fn peers(&self) -> Result<Vec<PeerProgram>> {
        let names = self.get("peers").unwrap_or("nginx,envoy").split(',');
        let peer = |name| {
            PeerProgram::ALL.into_iter().find(|peer| peer.name() == name).with_context(|| {
                let known = PeerProgram::ALL.map(PeerProgram::name).join(", ");
                format!("`--peers` has no `{name}`; it has {known}")
            })
        };
        names.filter(|name| !name.is_empty()).map(peer).collect()
    }

    /// The number of rounds.
    pub(crate) fn rounds(&self) -> Result<u32> {
        let rounds = self.get_or("rounds", 3)?;
        ensure!((1..=MAX_ROUNDS).contains(&rounds), "`--rounds` is 1 to {MAX_ROUNDS}");
        Ok(rounds)
    }
}

impl RunOptions {
    pub(crate) fn parse(arguments: &[String]) -> Result<Self> {
        let options = Options::parse(arguments, &["program", "cases", "rounds", "seconds", "durability", "peers"])?;
        let programs: Vec<PathBuf> = options.all("program").map(PathBuf::from).collect();
        ensure!((1..=2).contains(&programs.len()), "`--program` is given once, or twice to compare two builds");
        Ok(Self {
            programs,
            cells: cases::select(options.get("cases"))?,
            rounds: options.rounds()?,
            duration: options.seconds(1.5)?,
            durability: options.durability()?,
            peers: options.peers()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<RunOptions> {
        RunOptions::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn one_program_is_enough() {
        let options = parse("--program a").unwrap();
        assert_eq!((options.rounds, options.duration), (3, Duration::from_millis(1500)));
        assert_eq!((options.cells.len(), options.durability.as_str()), (15, "power"));
        assert_eq!(options.peers, [PeerProgram::Nginx, PeerProgram::Envoy]);
    }

    #[test]
    fn every_option_is_read() {
        let options =
            parse("--program a --program b --cases S:1 --rounds 7 --seconds 0.5 --durability process --peers litellm");
        let options = options.unwrap();
        assert_eq!(options.programs, [PathBuf::from("a"), PathBuf::from("b")]);
        assert_eq!((options.cells.len(), options.rounds), (1, 7));
        assert_eq!((options.duration, options.durability.as_str()), (Duration::from_millis(500), "process"));
        assert_eq!(options.peers, [PeerProgram::LiteLlm]);
    }

    #[test]
    fn values_without_bounds_are_refused() {
        for wrong in [
            "",
            "--program",
            "--program a --program b --program c",
            "--program a --rounds 0",
            "--program a --rounds 51",
            "--program a --seconds 0",
            "--program a --seconds 61",
            "--program a --seconds NaN",
            "--program a --durability none",
            "--program a --peers apache",
            "--program a --colour red",
            "program a",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}

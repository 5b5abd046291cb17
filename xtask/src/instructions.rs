//! Counts the instructions of the pure code in the way of a request, with Valgrind, and compares them with the recorded
//! counts in `tests/bench/instructions.json`.
//!
//! The program is that of the unit tests: the crates that work on megabytes are optimised in it, and our own code is not.
//! A build with optimisation would take longer than all the counting. So a count shows that work was added or saved, and
//! not what the work costs in a release build.
//!
//! Unlike a time, such a count does not depend on the load of the machine. It depends on the compiler, on the system's
//! libraries and on the vector instructions of the CPU. If all of them are the same as at the time of the record, a
//! count may be 5 % greater; elsewhere 50 %, which still shows work that is done again and again.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use crate::ci;

/// The recorded counts.
const RECORD: &str = "tests/bench/instructions.json";
/// The module with the measured code, and the function in it inside of which instructions are counted.
const MODULE: &str = "gateway::hot_paths::";
const COUNTED_FUNCTION: &str = "*::hot_paths::counted*";
/// The greatest growth that is not a finding, in percent (our choice): counts of one program differ by less than one
/// percent from run to run, because hash tables have random seeds.
const TOLERANCE_PERCENT: u64 = 5;
/// The same for counts in another environment (our choice): the code of another compiler differs by much less.
const OTHER_ENVIRONMENT_TOLERANCE_PERCENT: u64 = 50;

/// The number of times that a test with a greater count is counted again (our choice).
const RECOUNTS: usize = 2;

/// The instructions of each test by name.
type InstructionCounts = BTreeMap<String, u64>;

/// Counts, and the environment in which they were made.
#[derive(Clone, Debug, PartialEq, Eq)]
struct InstructionRecord {
    environment: String,
    counts: InstructionCounts,
}

/// The result of a comparison.
#[derive(Debug, PartialEq, Eq)]
struct InstructionComparison {
    /// One line for each test.
    text: String,
    findings: Vec<String>,
}

/// Compares the counts with the record.
///
/// # Errors
///
/// A count has grown, or a test is missing in the record or in the program.
pub fn check(root: &Path) -> Result<()> {
    if !is_valgrind_installed() {
        println!("valgrind is not installed: omitted. `apt-get install valgrind` installs it");
        return Ok(());
    }
    let text = fs::read_to_string(root.join(RECORD)).context(RECORD)?;
    let recorded = InstructionRecord::parse(&text).context(RECORD)?;
    let program = build(root)?;
    let mut present = count_in(root, &program)?;
    recount_grown(&mut present.counts, &recorded.counts, |name| count_one(root, &program, name))?;
    let comparison = recorded.compare(&present);
    print!("\n{}", comparison.text);
    ensure!(
        comparison.findings.is_empty(),
        "{}\nif this is right, record it: `cargo xtask bench instructions --record`",
        comparison.findings.join("\n")
    );
    Ok(())
}

/// Counts, and writes the record.
///
/// # Errors
///
/// Valgrind is not installed, or a test fails.
pub fn record(root: &Path) -> Result<()> {
    ensure!(is_valgrind_installed(), "valgrind is not installed: `apt-get install valgrind`");
    let record = count(root)?;
    fs::write(root.join(RECORD), record.to_json()?).context(RECORD)?;
    print!("{}", record.compare(&record).text);
    Ok(())
}

fn is_valgrind_installed() -> bool {
    Command::new("valgrind").arg("--version").stdin(Stdio::null()).output().is_ok_and(|output| output.status.success())
}

/// Builds the tests and counts the instructions of each.
fn count(root: &Path) -> Result<InstructionRecord> {
    count_in(root, &build(root)?)
}

fn count_in(root: &Path, program: &Path) -> Result<InstructionRecord> {
    let mut list = Command::new(program);
    let list = ci::stdout_of(list.args(["--list", "--ignored", "--format", "terse", MODULE]).current_dir(root))?;
    let mut counts = InstructionCounts::new();
    for name in test_names(&list) {
        counts.insert(name.to_owned(), count_one(root, program, name)?);
    }
    ensure!(!counts.is_empty(), "the program has no test in `{MODULE}`");
    Ok(InstructionRecord { environment: environment()?, counts })
}

/// Returns the number of instructions of one test.
fn count_one(root: &Path, program: &Path, name: &str) -> Result<u64> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"]);
    valgrind.arg(format!("--toggle-collect={COUNTED_FUNCTION}")).arg(program);
    valgrind.args(["--ignored", "--exact", "--test-threads=1", &format!("{MODULE}{name}")]).current_dir(root);
    let output = valgrind.stdin(Stdio::null()).output().context("valgrind")?;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{name} fails under valgrind: {}\n{stdout}{stderr}", output.status);
    let count = collected(&stderr).filter(|count| *count > 0);
    count.with_context(|| format!("{name}: nothing was counted\n{stderr}"))
}

/// Counts again the tests whose counts have grown, and keeps the smallest count of each. A rare state of the program,
/// such as a page of the database that is split during the counted write, then causes no finding.
fn recount_grown(
    counts: &mut InstructionCounts,
    recorded: &InstructionCounts,
    count_again: impl Fn(&str) -> Result<u64>,
) -> Result<()> {
    for (name, count) in counts {
        let Some(recorded) = recorded.get(name) else { continue };
        for _ in 0..RECOUNTS {
            if !exceeds(*count, *recorded, TOLERANCE_PERCENT) {
                break;
            }
            *count = (*count).min(count_again(name)?);
        }
    }
    Ok(())
}

/// Builds the unit tests, and returns the path of the program.
fn build(root: &Path) -> Result<PathBuf> {
    // The same build as that of the other test steps, so that nothing is compiled for this one alone.
    let mut arguments = vec!["test", "--workspace", "--features", ci::features::EVERYTHING, "--lib", "--no-run"];
    arguments.push("--message-format=json-render-diagnostics");
    println!("$ cargo {}", arguments.join(" "));
    let messages = ci::stdout_of(&mut ci::command(root, &arguments))?;
    test_program(&messages).context("cargo names no program with the unit tests")
}

/// The path of the program in the messages of cargo.
fn test_program(messages: &str) -> Option<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut programs = messages.filter(|message| message["target"]["name"] == "imagate");
    programs.find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

/// The names in a list of tests, without their module.
fn test_names(list: &str) -> Vec<&str> {
    list.lines().filter_map(|line| line.strip_prefix(MODULE)?.strip_suffix(": test")).collect()
}

/// The number of instructions in the output of callgrind: `==12== Collected : 3456`.
fn collected(output: &str) -> Option<u64> {
    output.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok())
}

/// Everything outside of the sources that changes a count.
fn environment() -> Result<String> {
    let compiler = ci::stdout_of(Command::new("rustc").arg("--version"))?;
    let valgrind = ci::stdout_of(Command::new("valgrind").arg("--version"))?;
    let library = ci::stdout_of(Command::new("ldd").arg("--version"))?;
    let library = library.lines().next().unwrap_or_default();
    Ok(format!("{}; {}; {library}; {}", compiler.trim(), valgrind.trim(), vector_instructions()))
}

#[cfg(target_arch = "x86_64")]
fn vector_instructions() -> &'static str {
    if std::arch::is_x86_feature_detected!("avx2") { "x86_64 with AVX2" } else { "x86_64 without AVX2" }
}

#[cfg(not(target_arch = "x86_64"))]
fn vector_instructions() -> &'static str {
    std::env::consts::ARCH
}

impl InstructionRecord {
    fn parse(text: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(text)?;
        let environment = value["environment"].as_str().context("`environment` is missing")?.to_owned();
        let mut counts = InstructionCounts::new();
        for (name, count) in value["counts"].as_object().context("`counts` is missing")? {
            let Some(count) = count.as_u64().filter(|count| *count > 0) else { bail!("`{name}` has no count") };
            counts.insert(name.clone(), count);
        }
        Ok(Self { environment, counts })
    }

    fn to_json(&self) -> Result<String> {
        let value = json!({"environment": self.environment, "counts": self.counts});
        Ok(serde_json::to_string_pretty(&value)? + "\n")
    }

    /// Compares the present counts with this record.
    fn compare(&self, present: &Self) -> InstructionComparison {
        let is_same = self.environment == present.environment;
        let tolerance = if is_same { TOLERANCE_PERCENT } else { OTHER_ENVIRONMENT_TOLERANCE_PERCENT };
        let mut findings = Vec::new();
        let mut text = format!("recorded with {}\n", self.environment);
        if !is_same {
            let _ = writeln!(text, "here: {}", present.environment);
        }
        let _ = writeln!(text, "a count may be {tolerance} % greater");
        for (name, count) in &present.counts {
            let Some(recorded) = self.counts.get(name) else {
                findings.push(format!("{name} is not in {RECORD}"));
                continue;
            };
            let permille = count.saturating_mul(1000) / recorded;
            let _ = writeln!(text, "{name:32} {count:>14} instructions, {permille:>5} permille of the record");
            if exceeds(*count, *recorded, tolerance) {
                findings.push(format!("{name} has {count} instructions, and {recorded} in {RECORD}"));
            }
        }
        let missing = self.counts.keys().filter(|name| !present.counts.contains_key(*name));
        findings.extend(missing.map(|name| format!("{name} is in {RECORD}, and no such test exists")));
        InstructionComparison { text, findings }
    }
}

fn exceeds(count: u64, recorded: u64, tolerance_percent: u64) -> bool {
    u128::from(count) * 100 > u128::from(recorded) * u128::from(100 + tolerance_percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(environment: &str, counts: &[(&str, u64)]) -> InstructionRecord {
        let counts = counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        InstructionRecord { environment: environment.to_owned(), counts }
    }

    #[test]
    fn a_grown_count_must_be_grown_each_time() {
        let of = |count| InstructionCounts::from([("rows".to_owned(), count)]);
        for (again, expected) in [(1000, 1000), (1180, 1180), (1200, 1190)] {
            let mut counts = of(1190);
            recount_grown(&mut counts, &of(1000), |_| Ok(again)).unwrap();
            assert_eq!(counts, of(expected));
        }
        let mut counts = of(1010);
        recount_grown(&mut counts, &of(1000), |_| bail!("within the tolerance")).unwrap();
    }

    #[test]
    fn growth_beyond_the_tolerance_is_a_finding() {
        let recorded = record("a", &[("json", 1000)]);
        for (count, findings) in [(1, 0), (1000, 0), (1050, 0), (1051, 1), (u64::MAX, 1)] {
            assert_eq!(recorded.compare(&record("a", &[("json", count)])).findings.len(), findings, "{count}");
        }
    }

    #[test]
    fn growth_in_another_environment_is_a_finding_if_it_is_large() {
        let recorded = record("a", &[("json", 1000)]);
        for (count, findings) in [(1, 0), (1500, 0), (1501, 1), (9000, 1)] {
            let comparison = recorded.compare(&record("b", &[("json", count)]));
            assert_eq!(comparison.findings.len(), findings, "{count}");
            assert!(comparison.text.contains("recorded with a\nhere: b\na count may be 50 % greater"));
        }
    }

    #[test]
    fn new_and_missing_tests_are_findings_everywhere() {
        for environment in ["a", "b"] {
            let comparison =
                record("a", &[("old", 1), ("same", 1)]).compare(&record(environment, &[("new", 1), ("same", 1)]));
            assert_eq!(comparison.findings.len(), 2, "{comparison:?}");
        }
    }

    #[test]
    fn a_record_survives_the_file() {
        let record = record("rustc 1", &[("b", 2), ("a", 1)]);
        let text = record.to_json().unwrap();
        assert!(text.ends_with("}\n") && text.find("\"a\"") < text.find("\"b\""), "{text}");
        assert_eq!(InstructionRecord::parse(&text).unwrap(), record);
        for wrong in ["", "{}", "{\"environment\":\"a\"}", "{\"environment\":\"a\",\"counts\":{\"x\":0}}"] {
            assert!(InstructionRecord::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_output_of_the_tools_is_read() {
        assert_eq!(collected("==7== Events    : Ir\n==7== Collected : 3456\n==7==\n"), Some(3456));
        assert_eq!(collected("==7== Events    : Ir\n"), None);
        assert_eq!(
            test_names("gateway::hot_paths::json: test\nother::a: test\ngateway::hot_paths::b: benchmark\n"),
            ["json"]
        );
        let messages = "{\"target\":{\"name\":\"build-script-build\"},\"executable\":\"b\"}\nnoise\n\
            {\"target\":{\"name\":\"imagate\"},\"executable\":null}\n{\"target\":{\"name\":\"imagate\"},\"executable\":\"p\"}\n";
        assert_eq!(test_program(messages), Some(PathBuf::from("p")));
    }
}

//! `cargo xtask`: the development tasks of this repository.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use xtask::{
    bench, ci, corpus, examples, generated_clients, instructions, mutations, postgres, public_api, readme, release,
    semver, soak, statements, tidy, tree, zoo,
};

const USAGE: &str = "\
usage: cargo xtask <task>

  generate           write generated/, and the tables of docs/ and of the API reference, from the documents
  generate --check   compare only; exit 4 if a file is stale
  tidy               check ARCHITECTURE.md, docs/specification.md and the rules of the project; exit 4 on a finding
  api                write tests/golden/public_api.txt, the list of the public API
  lines              count the lines of code in src/ by module, without blank lines, comments and tests
  vocabulary         print counts of type names, comments and lines; tidy has bounds for some of them
  check              checks before a commit: format, generated files, tidy, clippy, unit tests; exit 4 if one fails
  test               all checks before a merge; continues after a failure; exit 4 if a check fails
  test --only STEP   one step of it (may be repeated)
  test --list        the steps
  release-checks     further checks before a release, with the same options
  postgres COMMAND   run a command, such as `cargo test`, with a PostgreSQL server for the tests
  statements REASON  write tests/golden/statements.txt, with this reason for each statement that has changed
  mutations          change documents and skills, and list the tests that detect each change; exit 4 if none does
  mutations --sample N  the same with N of the changes, which the commit selects
  tours              the tests of further real clients, which `test` omits
  zoo [NAME…]        run real client programs against a gateway, and write the table of docs/clients.md
  zoo --program PATH the same with this program of the gateway, and not with a debug build
  generated-clients  generate clients from the API document with public generators, and make images with each
  generated-clients --program PATH
  examples           run the programs of examples/ against the simulator; the images are below target/examples
  readme             run the Rust program of README.md with the packaged crate, and compare crates and build time
  semver [REVISION]  compare the public API with a revision, or with the newest tag; installs cargo-semver-checks
  release            build the program for users into target/distribution: optimized and laid out by what runs
  release --profiles FOLDER   the same with the profiles of an earlier build, without running the load tests
  soak               long runs under load with kills, restarts and faults of the database; prints a table for each
  soak --only NAME --rounds N --seed S --store sqlite|postgres
  abuse              print a table of the effect of hostile callers on other callers
  wasm               test the SDK and the feature `manifest` in WebAssembly
  corpus unpack      unpack the stored inputs of cargo-fuzz into its folders
  corpus pack        write the archives in tests/fuzz/corpus from those folders
  bench skills       time the checks of ten thousand skills in a release build, compared with `sha256sum`
  bench gateway      put a release build under load, compared with a direct connection, with nginx and with a bare relay
  bench scale        measure how CPU time and memory grow with keys, accounts, records and idle connections
  bench reads        time every page, operation and command that lists or counts, with ten million records
  bench instructions count the instructions of the code in the way of a request, and compare them with the record
  bench instructions --record
  screenshots        take a screenshot of every page in every state, below target/screenshots
  screenshots --out DIR
";

/// The result of a task.
enum Verdict {
    Passed,
    HasFindings,
}

fn main() -> ExitCode {
    if let Some(code) = public_api::run_rustdoc() {
        return code;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let verdict = match arguments.as_slice() {
        ["generate"] => generate(),
        ["generate", "--check"] => check_generated(),
        ["tidy"] => run_tidy(),
        ["api"] => public_api::write(&tree::root()).map(|()| Verdict::Passed),
        ["lines"] => print_lines(),
        ["vocabulary"] => print_vocabulary(),
        ["check"] => ci::check(&tree::root()).map(verdict),
        ["test", steps @ ..] => ci::TEST.run(&tree::root(), steps).map(verdict),
        ["release-checks", steps @ ..] => ci::RELEASE.run(&tree::root(), steps).map(verdict),
        ["corpus", "unpack"] => corpus::unpack(&tree::root()).map(|()| Verdict::Passed),
        ["corpus", "pack"] => corpus::pack(&tree::root()).map(|()| Verdict::Passed),
        ["bench", "skills"] => bench::skills(&tree::root()).map(|()| Verdict::Passed),
        ["bench", part @ ("gateway" | "scale" | "reads"), arguments @ ..] => {
            bench::load(&tree::root(), part, arguments).map(|()| Verdict::Passed)
        }
        ["bench", "instructions"] => instructions::check(&tree::root()).map(|()| Verdict::Passed),
        ["bench", "instructions", "--record"] => instructions::record(&tree::root()).map(|()| Verdict::Passed),
        ["postgres", command @ ..] => postgres::run_with_server(&tree::root(), command).map(|()| Verdict::Passed),
        ["generated-clients"] => generated_clients::run(&tree::root(), None).map(verdict),
        ["generated-clients", "--program", path] => generated_clients::run(&tree::root(), Some(path)).map(verdict),
        ["statements", reason] => write_statements(reason),
        ["mutations"] => mutations::run(&tree::root(), None).map(verdict),
        ["mutations", "--sample", count] => run_sample(count),
        ["examples"] => examples::run(&tree::root()).map(|()| Verdict::Passed),
        ["readme"] => readme::run(&tree::root()).map(|()| Verdict::Passed),
        ["semver"] => semver::run(&tree::root(), None).map(|()| Verdict::Passed),
        ["semver", revision] => semver::run(&tree::root(), Some(revision)).map(|()| Verdict::Passed),
        ["release"] => release::run(&tree::root(), None).map(|()| Verdict::Passed),
        ["release", "--profiles", folder] => release::run(&tree::root(), Some(folder)).map(|()| Verdict::Passed),
        ["soak", arguments @ ..] => soak::run(&tree::root(), arguments).map(|()| Verdict::Passed),
        ["abuse"] => ci::abuse(&tree::root()).map(|()| Verdict::Passed),
        ["tours"] => ci::tours(&tree::root()).map(|()| Verdict::Passed),
        ["zoo", arguments @ ..] => zoo::run(&tree::root(), arguments).map(verdict),
        ["wasm"] => ci::wasm::run(&tree::root()).map(|()| Verdict::Passed),
        ["screenshots"] => ci::screenshots(&tree::root(), None).map(|()| Verdict::Passed),
        ["screenshots", "--out", folder] => ci::screenshots(&tree::root(), Some(folder)).map(|()| Verdict::Passed),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match verdict {
        Ok(Verdict::Passed) => ExitCode::SUCCESS,
        Ok(Verdict::HasFindings) => ExitCode::from(4),
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(100)
        }
    }
}

fn generate() -> Result<Verdict> {
    let root = tree::root();
    let outputs = xtask::generate(&tree::read(&root)?)?;
    for path in tree::write(&root, &outputs)? {
        println!("wrote {path}");
    }
    Ok(Verdict::Passed)
}

fn check_generated() -> Result<Verdict> {
    let root = tree::root();
    let outputs = xtask::generate(&tree::read(&root)?)?;
    let stale = tree::stale_outputs(&root, &outputs)?;
    for output in &stale {
        eprintln!("stale: {}", output.path);
    }
    if stale.is_empty() {
        return Ok(Verdict::Passed);
    }
    eprintln!("run `cargo xtask generate`");
    Ok(Verdict::HasFindings)
}

fn run_tidy() -> Result<Verdict> {
    let findings = tidy::check(&tidy::read(&tree::root())?)?;
    for finding in &findings {
        eprintln!("{finding}");
    }
    Ok(verdict(findings.is_empty()))
}

fn print_vocabulary() -> Result<Verdict> {
    print!("{}", tidy::Vocabulary::from_sources(&tidy::read(&tree::root())?));
    Ok(Verdict::Passed)
}

fn print_lines() -> Result<Verdict> {
    print!("{}", tidy::CodeLines::from_sources(&tidy::read(&tree::root())?));
    Ok(Verdict::Passed)
}

fn write_statements(reason: &str) -> Result<Verdict> {
    for place in statements::write(&tree::root(), reason)? {
        println!("{place}");
    }
    Ok(Verdict::Passed)
}

fn run_sample(count: &str) -> Result<Verdict> {
    let count = count.parse().with_context(|| format!("'{count}' is no number of changes"))?;
    Ok(verdict(mutations::run(&tree::root(), Some(count))?))
}

fn verdict(passed: bool) -> Verdict {
    if passed { Verdict::Passed } else { Verdict::HasFindings }
}

//! `cargo xtask mutations`: checks that a test detects each seeded change of documents, prose and skills.
//!
//! Each change is made in a copy, and the copy is generated again, as if a developer had edited a document and run
//! `cargo xtask generate`. Then tests that were built before the change read the copy. Tests that only compare digests,
//! or documents with compiled-in copies of them, do not count: they detect every change, but only until the code is
//! generated and built again. The list of statements counts only for a change of a [`SeedKind::Statement`].

mod seeds;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::{Sources, ci, fingerprint, statements, tree};
use seeds::all_seeds;

/// One change of a file: the first `from` behind `after` becomes `to`.
struct Seed {
    kind: SeedKind,
    description: &'static str,
    path: &'static str,
    /// The text behind which the search for `from` begins; if it is empty, at the beginning of the file.
    after: &'static str,
    from: &'static str,
    to: &'static str,
}

/// What must detect a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SeedKind {
    /// A comparison with code, with values or with another document.
    Fact,
    /// The list of statements or the text of the specification: nothing in the code says the same.
    Statement,
}

/// A test program, and those of its tests that compare documents with code, values and each other.
struct GuardTests {
    program: &'static str,
    tests: &'static [&'static str],
}

const GUARDS: [GuardTests; 2] = [
    GuardTests {
        program: "drift",
        tests: &[
            "addresses::each_address_on_a_page_has_a_route",
            "addresses::each_route_is_an_operation_or_has_a_reason",
            "admin::errors_mean_the_same_in_both_documents",
            "admin::every_operation_has_a_client_a_server_and_a_row_in_the_table_of_roles",
            "admin::schema_and_type_of_operators_agree_on_every_value",
            "answers::every_error_is_answered_as_the_tables_say",
            "answers::the_declared_error_headers_are_those_of_the_code",
            "descriptions::each_description_has_the_unit_of_its_member",
            "descriptions::each_example_obeys_its_schema",
            "descriptions::each_limit_of_the_specification_is_in_its_text",
            "descriptions::each_model_allows_the_compression_that_its_cases_have",
            "descriptions::each_operation_names_the_role_that_it_demands",
            "descriptions::the_address_is_the_default_one",
            "descriptions::the_schema_and_the_program_judge_each_manifest_alike",
            "errors::the_error_table_has_all_codes_types_and_reasons",
            "fields::every_field_of_a_request_has_a_case",
            "fields::every_property_and_word_has_a_test_value",
            "headers::the_declared_answer_headers_are_those_of_the_code",
            "limits::every_limit_of_the_document_is_held_by_code",
            "models::the_table_of_models_says_what_the_components_say",
            "pages::every_rule_of_manifests_is_on_its_page",
            "pages::every_variable_of_the_settings_is_on_its_page",
            "prose::every_text_states_the_same_bound_of_large_images",
            "prose::every_default_in_prose_is_that_of_the_schema",
            "prose::every_number_in_prose_is_that_of_the_code",
            "prose::every_status_in_prose_goes_with_its_code",
            "prose::the_descriptions_of_code_and_reason_show_the_error_table",
            "served::the_same_operations_are_deprecated",
            "settings::the_headers_of_an_alert_are_those_of_its_document",
            "settings::the_values_that_depend_on_the_model_are_those_of_the_rules",
            "settings::words_and_bounds_are_those_of_the_operators_document",
            "specified::a_generation_has_the_fields_of_the_specification",
            "specified::a_manifest_has_the_fields_of_the_specification",
            "statuses::every_operation_declares_the_statuses_of_its_errors",
            "values::schema_and_type_agree_on_every_value",
            "wire::each_answer_has_the_headers_of_its_document",
            "wire::each_event_type_has_its_component",
            "wire::each_member_of_an_answer_is_in_its_document",
            "wire::each_operation_demands_the_key_that_its_document_states",
            "wire::each_operation_reads_and_writes_the_content_types_of_its_document",
            "wire::the_schema_of_the_settings_is_that_of_the_program",
        ],
    },
    GuardTests {
        program: "skills",
        tests: &[
            "own::the_retry_advice_agrees_with_the_api_document",
            "own::the_error_tables_list_every_error_of_the_api_document",
            "required::the_schema_has_the_fields_of_the_specification",
        ],
    },
];

/// The repository, its test programs in the order of [`GUARDS`], and the sources of its generated files.
struct MutationRun<'a> {
    root: &'a Path,
    programs: Vec<PathBuf>,
    sources: Sources,
}

/// The paths that generation and the guards read.
const COPIED: [&str; 6] = ["openapi", "schemas", "docs", "src/guide", "tests/specification", "README.md"];
/// The number of changes that [`check`] makes, so that it takes less than two minutes.
const SAMPLE: usize = 16;
/// The number of copies that are tested at the same time.
const WORKERS: usize = 2;

// === impl Seed ===

impl Seed {
    /// The text with the change.
    fn apply(&self, text: &str) -> Result<String> {
        let start = text.find(self.after).with_context(|| format!("{}: no '{}'", self.path, self.after))?;
        let (before, following) = text.split_at(start + self.after.len());
        ensure!(following.contains(self.from), "{}: no '{}' after '{}'", self.path, self.from, self.after);
        Ok(format!("{before}{}", following.replacen(self.from, self.to, 1)))
    }
}

/// Builds the tests, makes each change or a sample of this number, and prints the tests that detect it. Returns whether
/// each change is detected.
///
/// # Errors
///
/// The tests do not build, or fail without a change.
pub fn run(root: &Path, sample: Option<usize>) -> Result<bool> {
    let seeds = selected_seeds(root, sample);
    let mutation_run = MutationRun { root, programs: build(root)?, sources: tree::read(root)? };
    let folder = root.join("target").join("mutations");
    let unchanged = copy(root, &folder.join("unchanged"))?;
    let failed =
        [mutation_run.statement_differences(&unchanged)?, failing_tests(&mutation_run.programs, &unchanged)?].concat();
    ensure!(failed.is_empty(), "these fail without a change: {}", failed.join(", "));
    let detections = mutation_run.test_all_seeds(&folder, &seeds)?;
    let mut survivors = 0;
    for (seed, detected_by) in seeds.iter().zip(&detections) {
        survivors += usize::from(detected_by.is_empty());
        let tests = if detected_by.is_empty() { "NOT DETECTED".to_owned() } else { detected_by.join(", ") };
        println!("{:9} {:58} {tests}", format!("{:?}", seed.kind).to_lowercase(), seed.description);
    }
    println!("\n{} changes, {survivors} not detected", seeds.len());
    Ok(survivors == 0)
}

/// Makes a sample of the changes.
///
/// # Errors
///
/// No test detects one of them, or an error of [`run`].
pub fn check(root: &Path) -> Result<()> {
    ensure!(run(root, Some(SAMPLE))?, "a change is not detected");
    Ok(())
}

/// All seeds, or a sample of this number of facts, which the newest commit selects: a unit test makes every change of a
/// statement.
fn selected_seeds(root: &Path, sample: Option<usize>) -> Vec<&'static Seed> {
    let Some(count) = sample else { return all_seeds().collect() };
    let mut command = Command::new("git");
    command.args(["rev-parse", "HEAD"]).current_dir(root);
    // Without git, the sample is always the same.
    let commit = ci::stdout_of(&mut command).unwrap_or_default();
    let facts = all_seeds().filter(|seed| seed.kind == SeedKind::Fact);
    let in_order: BTreeMap<String, &Seed> =
        facts.map(|seed| (fingerprint::digest(&format!("{}{commit}", seed.description)), seed)).collect();
    in_order.into_values().take(count).collect()
}

// === impl MutationRun ===

impl MutationRun<'_> {
    /// The tests that detect each change, in the order of the seeds.
    fn test_all_seeds(&self, folder: &Path, seeds: &[&Seed]) -> Result<Vec<Vec<String>>> {
        let next = AtomicUsize::new(0);
        let results = Mutex::new(Vec::new());
        let test_next_seeds = |worker: usize| {
            let folder = folder.join(worker.to_string());
            while let Some((index, seed)) = seeds.iter().enumerate().nth(next.fetch_add(1, Ordering::Relaxed)) {
                let detected_by = self.test_seed(&folder, seed).with_context(|| seed.description);
                results.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((index, detected_by));
            }
        };
        thread::scope(|scope| {
            (0..WORKERS).for_each(|worker| drop(scope.spawn(move || test_next_seeds(worker))));
        });
        let mut results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        results.sort_by_key(|(index, _)| *index);
        results.into_iter().map(|(_, detected_by)| detected_by).collect()
    }

    fn test_seed(&self, folder: &Path, seed: &Seed) -> Result<Vec<String>> {
        let copy = copy(self.root, folder)?;
        let file = copy.join(seed.path);
        let changed = seed.apply(&fs::read_to_string(&file).with_context(|| seed.path)?)?;
        fs::write(&file, changed)?;
        if seed.kind == SeedKind::Statement {
            return self.statement_differences(&copy);
        }
        // Generation takes most of the time.
        let sources = tree::read(&copy)?;
        if sources != self.sources {
            match crate::generate(&sources) {
                Ok(outputs) => drop(tree::write(&copy, &outputs)?),
                Err(error) => return Ok(vec![format!("cargo xtask generate ({:#})", error.root_cause())]),
            }
        }
        failing_tests(&self.programs, &copy)
    }

    /// The statements and demands of this copy that differ from those that were accepted.
    fn statement_differences(&self, copy: &Path) -> Result<Vec<String>> {
        Ok([statements::demand_differences(copy)?, statements::differences(self.root, copy)?].concat())
    }
}

/// Creates a new copy of [`COPIED`] and of the generated files.
fn copy(root: &Path, folder: &Path) -> Result<PathBuf> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    for path in COPIED {
        copy_all(&root.join(path), &folder.join(path)).with_context(|| path.to_owned())?;
    }
    copy_all(&root.join("generated"), &folder.join("generated"))?;
    Ok(folder.to_path_buf())
}

fn copy_all(from: &Path, to: &Path) -> Result<()> {
    if from.is_file() {
        to.parent().map(fs::create_dir_all).transpose()?;
        fs::copy(from, to)?;
        return Ok(());
    }
    for entry in fs::read_dir(from)? {
        let name = entry?.file_name();
        copy_all(&from.join(&name), &to.join(&name))?;
    }
    Ok(())
}

/// The test programs, in the order of the guards.
fn build(root: &Path) -> Result<Vec<PathBuf>> {
    let arguments = [
        "test",
        "--workspace",
        "--features",
        ci::features::EVERYTHING,
        "--test",
        "drift",
        "--test",
        "skills",
        "--no-run",
    ];
    println!("$ cargo {}", arguments.join(" "));
    let mut command = ci::command(root, &[&arguments[..], &["--message-format=json"]].concat());
    let output = command.stderr(Stdio::inherit()).output().context("cargo")?;
    ensure!(output.status.success(), "the tests do not build");
    let messages = String::from_utf8_lossy(&output.stdout);
    let built: Vec<Value> = messages.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let program = |guards: &GuardTests| {
        let is_program =
            |message: &&Value| message["target"]["name"] == guards.program && message["executable"].is_string();
        let message = built.iter().find(is_program).with_context(|| format!("no test program {}", guards.program))?;
        Ok(PathBuf::from(message["executable"].as_str().unwrap_or_default()))
    };
    GUARDS.iter().map(program).collect()
}

/// The guards that fail on this copy.
fn failing_tests(programs: &[PathBuf], copy: &Path) -> Result<Vec<String>> {
    let mut failed = Vec::new();
    for (guards, program) in GUARDS.iter().zip(programs) {
        let mut command = Command::new(program);
        command.args(guards.tests).args(["--exact", "--test-threads=1"]).stdin(Stdio::null());
        let variable = (OsString::from("IMAGATE_DOCUMENTS"), copy.as_os_str());
        let output = command.env(variable.0, variable.1).output().with_context(|| program.display().to_string())?;
        let text = String::from_utf8_lossy(&output.stdout);
        let results: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("test ")).collect();
        let results: Vec<_> = results.into_iter().filter_map(|line| line.split_once(" ... ")).collect();
        if results.len() != guards.tests.len() {
            bail!("{}: {} of {} guards ran", guards.program, results.len(), guards.tests.len());
        }
        failed.extend(results.into_iter().filter(|(_, outcome)| *outcome != "ok").map(|(name, _)| name.to_owned()));
    }
    Ok(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_changes_one_occurrence_after_its_start() {
        let (kind, description) = (SeedKind::Fact, "");
        let seed = Seed { kind, description, path: "a", after: "b", from: "1", to: "2" };
        assert_eq!(seed.apply("1 b 1 1").unwrap(), "1 b 2 1");
        assert!(seed.apply("1 c 1").is_err() && seed.apply("1 b").is_err());
    }

    #[test]
    fn every_seed_applies_and_changes_its_file() {
        for seed in all_seeds() {
            let text = fs::read_to_string(tree::root().join(seed.path)).unwrap();
            assert_ne!(seed.apply(&text).unwrap_or_else(|error| panic!("{}: {error}", seed.description)), text);
        }
    }

    #[test]
    fn every_changed_statement_is_a_difference() {
        let root = tree::root();
        let mutation_run = MutationRun { root: &root, programs: Vec::new(), sources: tree::read(&root).unwrap() };
        let folder = root.join("target").join("mutations").join("statement");
        for seed in all_seeds().filter(|seed| seed.kind == SeedKind::Statement) {
            assert!(!mutation_run.test_seed(&folder, seed).unwrap().is_empty(), "{}", seed.description);
        }
    }

    #[test]
    fn a_sample_has_its_number_of_different_seeds() {
        let sample = selected_seeds(&tree::root(), Some(20));
        let descriptions: std::collections::BTreeSet<&str> = sample.iter().map(|seed| seed.description).collect();
        assert_eq!(descriptions.len(), 20);
    }
}

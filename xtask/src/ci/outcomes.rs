//! Runs steps one after another, and prints their results.

use std::path::Path;
use std::time::{Duration, Instant};

use super::test_run::TestReport;
use super::{Step, StepFunction};

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
enum StepOutcome {
    Ok(Duration),
    Failed(Duration, String),
    /// The named step, which this step needs, has failed.
    NotRun(&'static str),
}

/// The outcomes of the steps, in order, and the results of their tests.
#[derive(Debug, Default)]
pub(super) struct StepOutcomes {
    steps: Vec<(&'static str, StepOutcome)>,
    pub(super) tests: TestReport,
}

/// Runs each step, even after a failure, unless the step that it needs failed.
pub(super) fn run_all(root: &Path, steps: &[&Step]) -> StepOutcomes {
    let mut outcomes = StepOutcomes::default();
    for step in steps {
        let outcome = match step.needs.filter(|name| outcomes.has_failed(name)) {
            Some(needs) => StepOutcome::NotRun(needs),
            None => run_step(root, step, &mut outcomes.tests),
        };
        outcomes.steps.push((step.name, outcome));
    }
    outcomes
}

fn run_step(root: &Path, step: &Step, tests: &mut TestReport) -> StepOutcome {
    println!("\n=== {}: {}", step.name, step.description);
    let start = Instant::now();
    let result = match step.run {
        StepFunction::Check(run) => run(root),
        StepFunction::Tests(run) => run(root, tests),
    };
    match result {
        Ok(()) => StepOutcome::Ok(start.elapsed()),
        Err(error) => {
            println!("\n{}: {error:#}", step.name);
            StepOutcome::Failed(start.elapsed(), format!("{error:#}"))
        }
    }
}

// === impl StepOutcomes ===

impl StepOutcomes {
    pub(super) fn passed(&self) -> bool {
        self.steps.iter().all(|(_, outcome)| matches!(outcome, StepOutcome::Ok(_)))
    }

    fn has_failed(&self, name: &str) -> bool {
        self.steps.iter().any(|(step, outcome)| *step == name && matches!(outcome, StepOutcome::Failed(..)))
    }

    /// One line for each step of this task, then the failures with their reasons.
    pub(super) fn summary(&self, task: &str) -> String {
        let line = |(name, outcome): &(&str, StepOutcome)| match outcome {
            StepOutcome::Ok(time) => format!("ok       {name:12} {:>5} s\n", time.as_secs()),
            StepOutcome::Failed(time, _) => format!("FAILED   {name:12} {:>5} s\n", time.as_secs()),
            StepOutcome::NotRun(needs) => format!("not run  {name:12}         needs {needs}, which failed\n"),
        };
        let reason = |(name, outcome): &(&str, StepOutcome)| match outcome {
            StepOutcome::Failed(_, reason) => {
                let reason = reason.replace('\n', "\n  ");
                Some(format!("\n{name} (again: cargo xtask {task} --only {name})\n  {reason}\n"))
            }
            StepOutcome::Ok(_) | StepOutcome::NotRun(_) => None,
        };
        let lines: String = self.steps.iter().map(line).collect();
        let reasons: String = self.steps.iter().filter_map(reason).collect();
        if reasons.is_empty() { lines } else { format!("{lines}\nfailed:\n{reasons}\n") }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn a_failed_step_prevents_only_steps_that_need_it() {
        let steps = [
            Step::new("tools", "", |_| bail!("missing: curl")),
            Step::new("fmt", "", |_| Ok(())),
            Step::new("clippy", "", |_| bail!("a lint")),
            Step::new("test", "", |_| bail!("not reached")).needs("tools"),
            Step::of_tests("unit", "", |_, _| Ok(())),
        ];
        let outcomes = run_all(Path::new(""), &steps.iter().collect::<Vec<_>>());
        let label = |(_, outcome): &(&'static str, StepOutcome)| match outcome {
            StepOutcome::Ok(_) => "ok".to_owned(),
            StepOutcome::Failed(_, reason) => reason.clone(),
            StepOutcome::NotRun(needs) => (*needs).to_owned(),
        };
        let labels: Vec<String> = outcomes.steps.iter().map(label).collect();
        assert_eq!(labels, ["missing: curl", "ok", "a lint", "tools", "ok"]);
        assert!(!outcomes.passed());
    }

    #[test]
    fn a_step_that_is_not_chosen_prevents_no_other_step() {
        let step = Step::new("test", "", |_| Ok(())).needs("tools");
        assert!(run_all(Path::new(""), &[&step]).passed());
    }

    #[test]
    fn the_summary_ends_with_the_failures() {
        let second = Duration::from_secs(1);
        let steps = vec![
            ("fmt", StepOutcome::Ok(second)),
            ("clippy", StepOutcome::Failed(second, "two\nlines".to_owned())),
            ("test", StepOutcome::NotRun("tools")),
        ];
        let outcomes = StepOutcomes { steps, tests: TestReport::default() };
        assert_eq!(
            outcomes.summary("test"),
            "ok       fmt              1 s\n\
             FAILED   clippy           1 s\n\
             not run  test                 needs tools, which failed\n\n\
             failed:\n\n\
             clippy (again: cargo xtask test --only clippy)\n  two\n  lines\n\n"
        );
    }
}

//! The failures of commands, their messages for people, and their exit codes for scripts.

use std::fmt::Write as _;
use std::io;
use std::process::ExitCode;

use super::output::print_failure;
use crate::manifest::BuildError;

const FAILED: u8 = 1;
pub(super) const USAGE: u8 = 2;
const INCOMPLETE: u8 = 3;
const CONFIGURATION: u8 = 64;

/// The reason why a command did not do what was requested.
#[derive(Debug)]
pub(super) enum CommandFailure {
    /// The command ran and failed.
    Failed(anyhow::Error),
    /// The command ran and failed, and there is advice.
    Advised(anyhow::Error, String),
    /// The command ran and failed because of these problems.
    Problems(Vec<String>),
    /// The command did only a part of the request; that part is kept.
    Incomplete(String),
    /// The arguments are invalid or contradict each other.
    Usage(String),
    /// The arguments or the input file have these problems.
    Input(Vec<String>),
    /// A signal has stopped the command.
    Stopped { message: String, advice: Option<String>, exit_code: u8 },
    /// The settings cannot be used.
    Settings(Vec<String>),
    /// The command ran, and its findings have been printed as a result.
    HasFindings,
    /// The reader of standard output has closed it, as `head` does. The exit code is 0.
    OutputClosed,
}

// === impl CommandFailure ===

impl CommandFailure {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) | Self::Advised(..) | Self::Problems(_) | Self::HasFindings => FAILED,
            Self::Usage(_) | Self::Input(_) => USAGE,
            Self::Incomplete(_) => INCOMPLETE,
            Self::Settings(_) => CONFIGURATION,
            Self::Stopped { exit_code, .. } => *exit_code,
            Self::OutputClosed => 0,
        }
    }

    /// Returns the problems. Each has a line of its own, so that editors and scripts can parse it.
    fn problems(&self) -> Vec<String> {
        match self {
            Self::Failed(error) | Self::Advised(error, _) => vec![message_with_causes(error)],
            Self::Usage(message) | Self::Incomplete(message) | Self::Stopped { message, .. } => vec![message.clone()],
            Self::Settings(problems) | Self::Input(problems) | Self::Problems(problems) => problems.clone(),
            Self::HasFindings | Self::OutputClosed => Vec::new(),
        }
    }

    fn advice(&self) -> Option<&str> {
        match self {
            Self::Advised(_, advice) | Self::Stopped { advice: Some(advice), .. } => Some(advice),
            _ => None,
        }
    }
}

/// Returns the message followed by its causes; a cause that the text before it already contains is left out.
fn message_with_causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            // Writing into a string cannot fail.
            let _ = write!(text, ": {cause}");
        }
    }
    text
}

impl<E: Into<anyhow::Error>> From<E> for CommandFailure {
    fn from(error: E) -> Self {
        let error = error.into();
        match (error.downcast_ref::<io::Error>(), error.downcast_ref::<BuildError>()) {
            (Some(source), _) if source.kind() == io::ErrorKind::BrokenPipe => Self::OutputClosed,
            (_, Some(BuildError(problems))) => Self::Problems(problems.iter().map(ToString::to_string).collect()),
            _ => Self::Failed(error),
        }
    }
}

/// Prints the failure and returns the exit code.
pub(super) fn report(result: Result<(), CommandFailure>) -> ExitCode {
    let Err(failure) = result else { return ExitCode::SUCCESS };
    let (problems, exit_code) = (failure.problems(), failure.exit_code());
    if !problems.is_empty() {
        print_failure(&problems, failure.advice(), exit_code);
    }
    ExitCode::from(exit_code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_cause_is_printed_once() {
        let error = anyhow::anyhow!("the disk is full").context("the file cannot be written");
        assert_eq!(message_with_causes(&error), "the file cannot be written: the disk is full");
        let error = anyhow::anyhow!("the disk is full").context("writing failed: the disk is full");
        assert_eq!(message_with_causes(&error), "writing failed: the disk is full");
    }

    #[test]
    fn a_closed_standard_output_has_exit_code_zero() {
        let failure = CommandFailure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!((failure.exit_code(), failure.problems().len()), (0, 0));
        assert_eq!(CommandFailure::from(io::Error::from(io::ErrorKind::StorageFull)).exit_code(), 1);
    }
}

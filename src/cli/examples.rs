//! The examples in the help of each command, and in its manual page.
//!
//! The tests parse every example, so that an example with a renamed option is found.

use clap::Command;

/// The heading above the examples.
pub(super) const HEADING: &str = "Examples:";

/// The examples of each command, below the words of the command after `imagate` in brackets. No line is longer than 78
/// characters, so that it fits a terminal with its indentation.
const EXAMPLES: &str = include_str!("examples.txt");

/// Adds its examples to the help of every command, and shows the options of the command itself first.
pub(super) fn with_examples(program: Command) -> Command {
    add_examples(program, "")
}

/// The place in the help of the options that several commands have in common: after those of the command itself.
const COMMON_OPTIONS_ORDER: usize = 1000;

fn add_examples(command: Command, path: &str) -> Command {
    let command =
        command.mut_args(|arg| if arg.is_global_set() { arg.display_order(COMMON_OPTIONS_ORDER) } else { arg });
    let command = match text(path) {
        Some(text) => command.after_help(text),
        None => command,
    };
    command.mut_subcommands(|subcommand| {
        let separator = if path.is_empty() { "" } else { " " };
        let path = format!("{path}{separator}{}", subcommand.get_name());
        add_examples(subcommand, &path)
    })
}

/// Returns the examples of a command as the help shows them.
fn text(path: &str) -> Option<String> {
    let (_, lines) = examples().find(|(known, _)| *known == path)?;
    let lines: String = lines.map(|example| format!("\n  {example}")).collect();
    Some(format!("{HEADING}{lines}"))
}

/// Returns the words of each command and its examples.
fn examples() -> impl Iterator<Item = (&'static str, std::str::Lines<'static>)> {
    let commands = EXAMPLES.split("\n\n").filter_map(|command| command.strip_prefix('[')?.split_once("]\n"));
    commands.map(|(path, lines)| (path, lines.lines()))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use clap::error::ErrorKind;

    use super::*;
    use crate::cli::{CliArguments, program};

    /// Calls the function with each command and its words, without the commands `help`.
    fn for_each_command(command: &mut Command, path: &str, check: &mut dyn FnMut(&str, &mut Command)) {
        check(path, command);
        for subcommand in command.get_subcommands_mut().filter(|subcommand| subcommand.get_name() != "help") {
            let path = format!("{path} {}", subcommand.get_name());
            for_each_command(subcommand, path.trim_start(), check);
        }
    }

    /// Splits a command line as a shell does; only single quotes are known.
    fn words(line: &str) -> Vec<String> {
        let mut words = Vec::new();
        for (index, part) in line.split('\'').enumerate() {
            if index % 2 == 1 {
                words.push(part.to_owned());
            } else {
                words.extend(part.split_whitespace().map(str::to_owned));
            }
        }
        words
    }

    #[test]
    fn every_help_fits_80_columns_and_has_examples() {
        let mut program = program().term_width(80);
        program.build();
        let mut commands = 0;
        for_each_command(&mut program, "", &mut |path, command| {
            commands += 1;
            for help in [command.render_help(), command.render_long_help()].map(|help| help.to_string()) {
                let long: Vec<&str> = help.lines().filter(|line| line.chars().count() > 80).collect();
                assert!(long.is_empty(), "{path}: {long:#?}");
                assert!(help.contains("\nExamples:\n  imagate"), "{path}: {help}");
            }
        });
        assert_eq!(commands, examples().count(), "an example belongs to no command");
    }

    #[test]
    fn every_example_is_a_valid_command() {
        for (path, examples) in examples() {
            for example in examples {
                let words = words(example);
                let parsed = CliArguments::try_parse_from(&words);
                let is_help = parsed.as_ref().is_err_and(|error| error.kind() == ErrorKind::DisplayHelp);
                assert!(parsed.is_ok() || is_help, "{example}: {parsed:?}");
                assert!(words[1..].join(" ").starts_with(path), "{example} is an example of `{path}`");
                assert!(example.chars().count() <= 78, "{example}");
            }
        }
    }
}

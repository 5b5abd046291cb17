//! The command line: arguments as typed become arguments as usable, then one call.
//!
//! Decides words, exit codes, and what is printed where: results go to standard output, everything said to a person
//! goes to standard error. Refuses to know how anything is done.
//!
//! Carries: the commands of this version; exit codes 0 done, 1 failed, 2 wrong usage, 64 wrong configuration.

mod account;
mod audit;
mod completions;
mod config;
mod drawing;
mod edit;
mod failure;
mod generate;
mod group;
mod installation;
mod key;
mod master_key;
mod openapi;
mod output;
mod secret;
mod serve;
mod skills;
mod span;
mod token;
mod upscale;
mod usage;
mod user;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use failure::Failure;

/// An OpenAI-compatible gateway for image generation, and a client for it.
#[derive(Debug, Parser)]
#[command(name = "imagate", version, arg_required_else_help = true, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the API until the process is asked to stop.
    Serve(serve::Serve),
    /// Make and manage the keys of callers; the server may be running or not.
    Key(key::Key),
    /// Manage the people who sign in; the server may be running or not.
    User(user::User),
    /// Manage the admin tokens of programs; the server may be running or not.
    Token(token::Token),
    /// Print who has changed what, the newest last.
    Audit(audit::Audit),
    /// Manage the groups of keys and their policies; the server may be running or not.
    Group(group::Group),
    /// Manage the upstream accounts; the server may be running or not.
    Account(account::Account),
    /// Change the key that seals every secret at rest.
    MasterKey(master_key::MasterKey),
    /// Print the records of requests, the newest last.
    Usage(usage::Usage),
    /// Make images with the client, and write them to files.
    Generate(generate::Generate),
    /// Change images, or make new ones from them, and write them to files.
    Edit(edit::Edit),
    /// Resize an image file on this machine, such as one that came smaller than was asked for.
    Upscale(upscale::Upscale),
    /// Check, format and compare skills registry manifests.
    Skills(skills::Skills),
    /// Check or show the settings.
    Config(config::Config),
    /// Print the document of the API.
    Openapi(openapi::OpenApi),
    /// Print the completions for a shell.
    Completions(completions::Completions),
}

/// Reads the arguments of the process, does what they say, and says how it went.
#[must_use]
pub fn main() -> ExitCode {
    match Arguments::try_parse() {
        Ok(arguments) => failure::report(run(arguments.command)),
        Err(error) => {
            // It goes where it belongs: help to standard output, an error to standard error. Nobody may be listening.
            let _ = error.print();
            ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(failure::USAGE))
        }
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Serve(serve) => serve.run(),
        Command::Key(key) => key.run(),
        Command::User(user) => user.run(),
        Command::Token(token) => token.run(),
        Command::Audit(audit) => audit.run(),
        Command::Group(group) => group.run(),
        Command::Account(account) => account.run(),
        Command::MasterKey(master_key) => master_key.run(),
        Command::Usage(usage) => usage.run(),
        Command::Generate(generate) => generate.run(),
        Command::Edit(edit) => edit.run(),
        Command::Upscale(upscale) => upscale.run(),
        Command::Skills(skills) => skills.run(),
        Command::Config(config) => config.run(),
        Command::Openapi(openapi) => openapi.run(),
        Command::Completions(completions) => completions.run(&mut Arguments::command()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_do_not_contradict_each_other() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn commands_of_later_versions_are_not_offered() {
        for command in ["batch", "doctor"] {
            assert!(Arguments::try_parse_from(["imagate", command, "x"]).is_err(), "{command}");
        }
    }

    #[test]
    fn an_edit_takes_its_images_in_one_go_or_one_by_one() {
        let parsed = |words: &[&str]| Arguments::try_parse_from([&["imagate", "edit"], words].concat()).is_ok();
        assert!(parsed(&["a hat", "--image", "a.png", "b.png", "--mask", "m.png", "--size", "1536x1024"]));
        assert!(parsed(&["a hat", "-i", "a.png", "-i", "b.png", "--stream", "--partials", "2", "--keep-partials"]));
        assert!(!parsed(&["a hat"]));
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let parsed =
            |words: &[&str]| Arguments::try_parse_from([&["imagate", "generate", "a"], words].concat()).is_ok();
        assert!(parsed(&["--draft", "--compression", "50"]) && parsed(&["--stream", "--partials", "0"]));
        for words in [
            &["--draft", "--quality", "low"][..],
            &["--draft", "--format", "jpeg"],
            &["--partials", "1"],
            &["--stream", "--keep-partials"],
            &["--stream", "--partials", "4"],
        ] {
            assert!(!parsed(words), "{words:?}");
        }
    }
}

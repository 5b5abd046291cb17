//! The command line: parses the arguments of a command, validates them, and calls the library once.
//!
//! This module decides wording, exit codes and output: results go to standard output, messages for people go to
//! standard error. It must not contain the logic of the commands themselves.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage, 3 partly done, 64 wrong configuration, 130 and 143 stopped by a signal.

mod account;
mod alerts;
mod audit;
mod backup;
mod batch;
mod completions;
mod config;
mod confirmation;
mod connection;
mod doctor;
mod edit;
mod examples;
mod failure;
mod generate;
mod group;
mod hidden_line;
mod image_command;
mod image_cost;
mod installation;
mod key;
mod limit_arg;
mod limits;
mod login;
mod man;
mod managed_gateway;
mod master_key;
mod mcp;
mod migrate;
mod models;
mod moment_arg;
mod open;
mod openapi;
mod output;
mod price;
mod request_digest;
mod restore;
mod retry_event;
mod secret;
mod serve;
mod skills;
mod time_span;
mod token;
mod upscale;
mod usage;
mod user;

use std::process::ExitCode;

use clap::{Command, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use failure::CommandFailure;
use output::{ColorArg, print, print_argument_error};

/// An OpenAI-compatible gateway for image generation, and a client for it.
#[derive(Debug, Parser)]
#[command(name = "imagate", version, arg_required_else_help = true)]
struct CliArguments {
    /// Colors in the output: auto is on a terminal, and respects `NO_COLOR` and `CLICOLOR_FORCE`.
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN", hide_possible_values = true)]
    color: ColorArg,
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Serve the API until the process is asked to stop.
    Serve(serve::ServeCommand),
    /// Create and manage the API keys of callers, whether the gateway is running or not.
    Key(key::KeyCommand),
    /// Manage the users who sign in, whether the gateway is running or not.
    User(user::UserCommand),
    /// Manage the admin tokens of programs, whether the gateway is running or not.
    Token(token::TokenCommand),
    /// Print the audit trail: who changed what and when, newest entry last.
    Audit(audit::AuditCommand),
    /// Manage the groups of keys and their policies, whether the gateway is running or not.
    Group(group::GroupCommand),
    /// Manage the upstream accounts, whether the gateway is running or not.
    Account(account::AccountCommand),
    /// List image models, and learn the rules of a model from its upstream.
    Models(models::ModelsCommand),
    /// Manage the prices of models, from which requests get their cost.
    Price(price::PriceCommand),
    /// Show what is used of the limits of groups, users and keys.
    ///
    /// With SQLite, limits by the minute and running requests are known only to the server; the admin API shows them.
    Limits(limits::LimitsCommand),
    /// Show the alerts, such as budgets that are spent, and test their delivery.
    Alerts(alerts::AlertsCommand),
    /// Save a gateway and an admin token for it, so that other commands manage it with `--profile`.
    Login(login::LoginCommand),
    /// Remove a gateway and its token that `imagate login` has saved.
    Logout(login::LogoutCommand),
    /// Write everything that the installation needs to one file, whether the gateway is running or not.
    Backup(backup::BackupCommand),
    /// Restore a backup into a new data folder.
    Restore(restore::RestoreCommand),
    /// Check the installation, and print what is wrong and what to do about it. Nothing is changed.
    ///
    /// The exit code is 0 if there is no problem, and 1 otherwise. Warnings do not count.
    Doctor(doctor::DoctorCommand),
    /// Move the installation to another database.
    Migrate(migrate::MigrateCommand),
    /// Change the master key, which encrypts all stored secrets.
    MasterKey(master_key::MasterKeyCommand),
    /// Print the records of requests, newest last.
    Usage(usage::UsageCommand),
    /// Generate images through a gateway and write them to files.
    Generate(generate::GenerateCommand),
    /// Edit images, or make new ones from them, and write the results to files.
    Edit(edit::EditCommand),
    /// Make the images of many requests, and go on after an interruption; with a gateway, without paying again.
    Batch(batch::BatchCommand),
    /// Give an agent the image tools of a gateway, over standard input and output (MCP).
    Mcp(mcp::McpCommand),
    /// Resize an image file on this machine, for example one that was delivered smaller than requested.
    Upscale(upscale::UpscaleCommand),
    /// Build, check, format and compare skills registry manifests, and install skills.
    Skills(skills::SkillsCommand),
    /// Check or show the settings.
    Config(config::ConfigCommand),
    /// Open the pages of the gateway in the browser, and print their address.
    Open(open::OpenCommand),
    /// Print the OpenAPI document of the API.
    Openapi(openapi::OpenApiCommand),
    /// Print the completion script for a shell.
    Completions(completions::CompletionsCommand),
    /// Print the manual page of `imagate`, or write the pages of all commands.
    Man(man::ManCommand),
    /// Print the version.
    Version,
}

/// Returns the definition of all commands, with the examples in their help.
fn program() -> Command {
    examples::with_examples(CliArguments::command())
}

/// Parses the arguments of the process, runs the command, and reports its result.
#[must_use]
pub fn main() -> ExitCode {
    let parsed = program().try_get_matches().and_then(|matches| CliArguments::from_arg_matches(&matches));
    match parsed {
        Ok(arguments) => {
            arguments.color.apply();
            failure::report(run(arguments.command))
        }
        Err(error) => {
            if error.use_stderr() {
                print_argument_error(&error);
            } else {
                // Help goes to standard output. A failed write is ignored: the output may be closed.
                let _ = error.print();
            }
            ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(failure::USAGE))
        }
    }
}

fn run(command: CliCommand) -> Result<(), CommandFailure> {
    match command {
        CliCommand::Serve(serve) => serve.run(),
        CliCommand::Key(key) => key.run(),
        CliCommand::User(user) => user.run(),
        CliCommand::Token(token) => token.run(),
        CliCommand::Audit(audit) => audit.run(),
        CliCommand::Group(group) => group.run(),
        CliCommand::Account(account) => account.run(),
        CliCommand::Models(models) => models.run(),
        CliCommand::Price(price) => price.run(),
        CliCommand::Limits(limits) => limits.run(),
        CliCommand::Alerts(alerts) => alerts.run(),
        CliCommand::Login(login) => login.run(),
        CliCommand::Logout(logout) => logout.run(),
        CliCommand::Backup(backup) => backup.run(),
        CliCommand::Restore(restore) => restore.run(),
        CliCommand::Doctor(doctor) => doctor.run(),
        CliCommand::Migrate(migrate) => migrate.run(),
        CliCommand::MasterKey(master_key) => master_key.run(),
        CliCommand::Usage(usage) => usage.run(),
        CliCommand::Generate(generate) => generate.run(),
        CliCommand::Edit(edit) => edit.run(),
        CliCommand::Batch(batch) => batch.run(),
        CliCommand::Mcp(mcp) => mcp.run(),
        CliCommand::Upscale(upscale) => upscale.run(),
        CliCommand::Skills(skills) => skills.run(),
        CliCommand::Config(config) => config.run(),
        CliCommand::Open(open) => open.run(),
        CliCommand::Openapi(openapi) => openapi.run(),
        CliCommand::Completions(completions) => completions.run(&mut program()),
        CliCommand::Man(man) => man.run(program()),
        CliCommand::Version => Ok(print(concat!("imagate ", env!("CARGO_PKG_VERSION"), "\n"))?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_argument_definitions_are_consistent() {
        CliArguments::command().debug_assert();
    }

    #[test]
    fn no_help_has_a_placeholder_that_clap_replaces_with_a_line_break() {
        fn check(command: &Command) {
            let texts = [
                command.get_about(),
                command.get_long_about(),
                command.get_after_help(),
                command.get_after_long_help(),
            ];
            let of_args = command.get_arguments().flat_map(|arg| [arg.get_help(), arg.get_long_help()]);
            for text in texts.into_iter().chain(of_args).flatten().map(ToString::to_string) {
                assert!(!text.contains("{n}"), "{}: {text}", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        check(&program());
    }

    #[test]
    fn an_edit_takes_images_in_one_option_or_in_several() {
        let parses =
            |arguments: &[&str]| CliArguments::try_parse_from([&["imagate", "edit"], arguments].concat()).is_ok();
        assert!(parses(&["a hat", "--image", "a.png", "b.png", "--mask", "m.png", "--size", "1536x1024"]));
        assert!(parses(&["a hat", "-i", "a.png", "-i", "b.png", "--stream", "--partials", "2", "--keep-partials"]));
        assert!(!parses(&["a hat"]));
    }

    #[test]
    fn conflicting_arguments_are_refused() {
        let parses = |arguments: &[&str]| {
            CliArguments::try_parse_from([&["imagate", "generate", "a"], arguments].concat()).is_ok()
        };
        assert!(parses(&["--draft", "--compression", "50"]) && parses(&["--stream", "--partials", "0"]));
        for arguments in [
            &["--draft", "--quality", "low"][..],
            &["--draft", "--format", "jpeg"],
            &["--partials", "1"],
            &["--stream", "--keep-partials"],
            &["--stream", "--partials", "4"],
        ] {
            assert!(!parses(arguments), "{arguments:?}");
        }
    }
}

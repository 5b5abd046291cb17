//! The examples in the help of each command, and in its manual page.
//!
//! The tests parse every example, so that an example with a renamed option is found.

use clap::Command;

/// The heading above the examples.
pub(super) const HEADING: &str = "Examples:";

/// The words of a command after `imagate`, and its examples. No line is longer than 78 characters, so that it fits a
/// terminal with its indentation.
const EXAMPLES: &[(&str, &[&str])] = &[
    ("", &["imagate serve", "imagate generate 'a fox in the snow' -o fox.png", "imagate help key create"]),
    ("serve", &["imagate serve", "imagate serve --listen 0.0.0.0:8080 --config /etc/imagate.toml"]),
    ("key", &["imagate key create --name laptop", "imagate key list --json"]),
    ("key create", &["imagate key create --name laptop", "imagate key create --name ci --group team --expires 30d"]),
    ("key dialects", &["imagate key dialects key_1a2b --dialect sizes --dialect legacy-fields"]),
    ("key limit", &["imagate key limit key_1a2b --limit requests_per_minute=10"]),
    ("key list", &["imagate key list", "imagate key list --json"]),
    ("key rotate", &["imagate key rotate key_1a2b --grace 1h"]),
    ("key disable", &["imagate key disable key_1a2b"]),
    ("key enable", &["imagate key enable key_1a2b"]),
    ("key delete", &["imagate key delete key_1a2b"]),
    ("user", &["imagate user invite anna", "imagate user list --json"]),
    ("user list", &["imagate user list", "imagate user list --json"]),
    ("user invite", &["imagate user invite anna", "imagate user invite ben --admin"]),
    ("user limit", &["imagate user limit anna --limit requests_per_minute=10"]),
    ("user setup-link", &["imagate user setup-link"]),
    ("user reset", &["imagate user reset anna"]),
    ("user reset-factor", &["imagate user reset-factor anna"]),
    ("user disconnect", &["imagate user disconnect anna"]),
    ("user disable", &["imagate user disable anna"]),
    ("user enable", &["imagate user enable anna"]),
    ("user groups", &["imagate user groups anna --group team --group default"]),
    ("user role", &["imagate user role anna admin"]),
    ("token", &["imagate token create --name backup --user anna", "imagate token list"]),
    ("token create", &["imagate token create --name backup --user anna --expires 90d"]),
    ("login", &["imagate login https://images.example", "imagate login https://images.example --profile studio"]),
    ("logout", &["imagate logout --profile studio"]),
    ("token list", &["imagate token list", "imagate token list --json"]),
    ("token delete", &["imagate token delete tok_1a2b"]),
    ("audit", &["imagate audit", "imagate audit --actor anna --json"]),
    ("group", &["imagate group list", "imagate group create team --policy team.toml"]),
    ("group list", &["imagate group list", "imagate group list --json"]),
    ("group show", &["imagate group show team"]),
    ("group create", &["imagate group create team", "imagate group create team --policy team.toml"]),
    ("group change", &["imagate group change team --policy team.toml"]),
    ("group delete", &["imagate group delete team"]),
    ("account", &["imagate account list", "imagate account test openai"]),
    ("account list", &["imagate account list", "imagate account list --json"]),
    (
        "account add",
        &[
            "imagate account add --name openai --api-key-env OPENAI_API_KEY",
            "imagate account add --name tests --kind simulator --group tests",
        ],
    ),
    ("account disable", &["imagate account disable openai --reason 'invoice open'"]),
    ("account enable", &["imagate account enable openai"]),
    ("account rotate", &["imagate account rotate openai --api-key-file new-key.txt"]),
    ("account delete", &["imagate account delete openai"]),
    ("account test", &["imagate account test openai"]),
    ("account explain", &["imagate account explain --group team --size 3840x2160"]),
    ("models", &["imagate models list", "imagate models probe primary --model gpt-image-2"]),
    ("models list", &["imagate models list", "imagate models list --json"]),
    ("models probe", &["imagate models probe primary --model next-1 --field complexity"]),
    ("price", &["imagate price list", "imagate price delete gpt-image-2 --from 2026-12-01"]),
    ("price list", &["imagate price list", "imagate price list --json"]),
    ("price set", &["imagate price set sketch-1 --from 2026-12-01 --per-image 0.04"]),
    ("price delete", &["imagate price delete gpt-image-2 --from 2026-12-01"]),
    ("limits", &["imagate limits", "imagate limits key_1a2b --json"]),
    ("alerts", &["imagate alerts list", "imagate alerts test"]),
    ("alerts list", &["imagate alerts list", "imagate alerts list --json"]),
    ("alerts test", &["imagate alerts test"]),
    ("backup", &["imagate backup -o imagate.backup", "imagate backup -o copy.backup --without-master-key"]),
    ("backup key", &["imagate backup key -o backup.key"]),
    ("restore", &["imagate restore imagate.backup --data-dir restored"]),
    ("doctor", &["imagate doctor", "imagate doctor --online", "imagate doctor --service"]),
    ("migrate", &["imagate migrate sqlite-to-postgres"]),
    ("migrate sqlite-to-postgres", &["imagate migrate sqlite-to-postgres --config imagate.toml"]),
    ("master-key", &["imagate master-key rotate"]),
    ("master-key rotate", &["imagate master-key rotate", "imagate master-key rotate --new-key-env NEW_MASTER_KEY"]),
    (
        "usage",
        &[
            "imagate usage --by key --since 7d",
            "imagate usage --follow",
            "imagate usage --unsuccessful --model gpt-image-2 --json",
        ],
    ),
    (
        "generate",
        &[
            "imagate generate 'a fox in the snow' --size 1536x1024 -o fox.png",
            "imagate generate 'a fox in the snow' -n 3 -o '{date}-{prompt}-{number}.{ext}'",
            "imagate generate --prompt-file prompt.txt --draft --show",
        ],
    ),
    (
        "edit",
        &[
            "imagate edit 'give the fox a hat' --image fox.png -o fox-with-hat.png",
            "imagate edit 'a red door' --image house.png --mask door.png",
        ],
    ),
    ("batch", &["imagate batch requests.jsonl -o images", "imagate batch - --concurrency 8 --progress jsonl"]),
    ("mcp", &["imagate mcp", "imagate mcp --base-url https://images.example/v1"]),
    ("upscale", &["imagate upscale fox.png --size 3840x2160 -o fox-4k.png"]),
    ("skills", &["imagate skills new image-generation", "imagate skills build", "imagate skills list"]),
    (
        "skills new",
        &["imagate skills new image-generation", "imagate skills new pdf-reading --description 'Reads PDF files.'"],
    ),
    ("skills validate", &["imagate skills validate", "imagate skills validate --previous published.json --root ."]),
    (
        "skills build",
        &[
            "imagate skills build",
            "imagate skills build --check",
            "imagate skills build --repository example/skills --branch main",
        ],
    ),
    (
        "skills list",
        &["imagate skills list", "imagate skills list --json", "imagate skills list --into ~/.agents/skills"],
    ),
    ("skills update", &["imagate skills update", "imagate skills update image-generation --check"]),
    (
        "skills remove",
        &[
            "imagate skills remove image-generation",
            "imagate skills remove image-generation@1.2.0 --manifest public/skills.json",
            "imagate skills remove image-generation --into ~/.agents/skills",
        ],
    ),
    ("skills verify", &["imagate skills verify", "imagate skills verify public/skills.json --format junit"]),
    ("skills fmt", &["imagate skills fmt", "imagate skills fmt --check a.json b.json"]),
    ("skills diff", &["imagate skills diff published.json", "imagate skills diff old.json new.json --json"]),
    ("skills export", &["imagate skills export -o .well-known/agent-skills/index.json"]),
    (
        "skills install",
        &[
            "imagate skills install image-generation@^1 --into ~/.agents/skills",
            "imagate skills install pdf --from https://example.com/s.json --into skills",
        ],
    ),
    ("skills explain", &["imagate skills explain", "imagate skills explain M113"]),
    ("config", &["imagate config check", "imagate config show"]),
    ("config check", &["imagate config check --config imagate.toml"]),
    ("config reload", &["imagate config reload"]),
    ("config schema", &["imagate config schema"]),
    ("config show", &["imagate config show"]),
    ("open", &["imagate open"]),
    ("openapi", &["imagate openapi", "imagate openapi admin"]),
    ("completions", &["imagate completions bash"]),
    ("man", &["imagate man", "imagate man --output ~/.local/share/man/man1"]),
    ("version", &["imagate version"]),
];

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
    let (_, examples) = EXAMPLES.iter().find(|(known, _)| *known == path)?;
    let lines: String = examples.iter().map(|example| format!("\n  {example}")).collect();
    Some(format!("{HEADING}{lines}"))
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
        assert_eq!(commands, EXAMPLES.len(), "an example belongs to no command");
    }

    #[test]
    fn every_example_is_a_valid_command() {
        for (path, examples) in EXAMPLES {
            for example in *examples {
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

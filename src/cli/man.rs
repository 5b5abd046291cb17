//! The command `imagate man`: manual pages, generated from the help of the commands.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Command};
use clap_mangen::Man;

use super::examples;
use super::failure::CommandFailure;
use super::output::{print, print_message};

/// Arguments of `man`.
#[derive(Debug, Args)]
pub(super) struct ManCommand {
    /// Write the pages of all commands to this folder, which is made if it does not exist, instead of printing the page
    /// of `imagate`.
    #[arg(short, long, value_name = "FOLDER")]
    output: Option<PathBuf>,
}

// === impl ManCommand ===

impl ManCommand {
    pub(super) fn run(self, program: Command) -> Result<(), CommandFailure> {
        let mut program = without_help_commands(program);
        program.build();
        let Some(folder) = self.output else {
            return Ok(print(&String::from_utf8_lossy(&page(&program)?))?);
        };
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let mut pages = Vec::new();
        collect_pages(&program, &mut pages)?;
        for (name, page) in &pages {
            let path = folder.join(name);
            fs::write(&path, page).with_context(|| path.display().to_string())?;
        }
        print_message(&format!("wrote {} pages to {}", pages.len(), folder.display()));
        Ok(())
    }
}

/// Removes the generated commands `help`, which need no pages.
fn without_help_commands(command: Command) -> Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help_commands)
}

/// Adds the pages of a command and of its subcommands, with the names of their files.
fn collect_pages(command: &Command, pages: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    pages.push((Man::new(command.clone()).get_filename(), page(command)?));
    for subcommand in command.get_subcommands() {
        collect_pages(subcommand, pages)?;
    }
    Ok(())
}

/// Returns the page of a command. The program must have been built, so that its commands know their full names.
fn page(command: &Command) -> io::Result<Vec<u8>> {
    let source = concat!("imagate ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).source(source);
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if command.get_arguments().next().is_some() {
        man.render_options_section(&mut page)?;
    }
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    write_examples(command, &mut page)?;
    Ok(page)
}

/// Writes the examples line by line; as normal text, they would be one paragraph.
fn write_examples(command: &Command, page: &mut Vec<u8>) -> io::Result<()> {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let Some(examples) = help.strip_prefix(examples::HEADING) else { return Ok(()) };
    writeln!(page, ".SH EXAMPLES\n.nf")?;
    for line in examples.lines().filter(|line| !line.trim().is_empty()) {
        // A backslash, a hyphen and a quotation mark would be changed; a `.` or `'` at the start would be a request.
        let line = line.trim().replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq");
        writeln!(page, "{line}")?;
    }
    writeln!(page, ".fi")
}

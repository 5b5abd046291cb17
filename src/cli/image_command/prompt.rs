//! The prompt: from the command line, a file, standard input, or an editor.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use clap::Args;

use crate::cli::failure::CommandFailure;
use crate::cli::output::print_message;
use crate::cli::secret::STDIN;
use crate::gateway::config::{HostEnvironment as _, SystemEnvironment};

/// The maximum number of bytes that are read of a prompt, which is more than any service accepts (our choice).
const MAX_BYTES: u64 = 1024 * 1024;

/// The arguments for the prompt.
#[derive(Debug, Args)]
pub(super) struct PromptArgs {
    /// The prompt: the content of the image, or the change to make; `-` reads it from standard input.
    #[arg(required_unless_present_any = ["prompt_file", "editor"])]
    prompt: Option<String>,
    /// Read the prompt from this file; `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "prompt")]
    prompt_file: Option<PathBuf>,
    /// Write the prompt in the editor that `VISUAL` or `EDITOR` names. It begins with the prompt that was given, if any.
    #[arg(long)]
    editor: bool,
}

// === impl PromptArgs ===

impl PromptArgs {
    /// Returns the prompt.
    pub(super) fn read(&self) -> Result<String, CommandFailure> {
        let given = match (&self.prompt, &self.prompt_file) {
            (Some(prompt), _) if prompt == STDIN => read_stdin()?,
            (Some(prompt), _) => prompt.clone(),
            (None, Some(file)) if file == Path::new(STDIN) => read_stdin()?,
            (None, Some(file)) => read_file(file)?,
            (None, None) => String::new(),
        };
        if self.editor { edit(&given) } else { Ok(given) }
    }
}

fn read_stdin() -> Result<String, CommandFailure> {
    if io::stdin().is_terminal() {
        print_message("reading the prompt; end it with Ctrl-D");
    }
    Ok(read_text(io::stdin().lock()).context("the prompt cannot be read from standard input")?)
}

fn read_file(path: &Path) -> Result<String, CommandFailure> {
    let text = File::open(path).and_then(read_text);
    text.map_err(|error| CommandFailure::Usage(format!("--prompt-file: {} cannot be read: {error}", path.display())))
}

/// Reads a text without the line end that `echo` and editors add, which is not part of the prompt.
fn read_text(reader: impl io::Read) -> io::Result<String> {
    let mut text = String::new();
    reader.take(MAX_BYTES).read_to_string(&mut text)?;
    let end = text.trim_end_matches(['\n', '\r']).len();
    text.truncate(end);
    Ok(text)
}

/// Opens the text in an editor, and returns the text that was saved.
fn edit(text: &str) -> Result<String, CommandFailure> {
    let variable = |name: &str| SystemEnvironment.variable(name)?.into_string().ok();
    let setting = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
    let Some(editor) = setting("VISUAL").or_else(|| setting("EDITOR")) else {
        return Err(CommandFailure::Usage("--editor needs the name of an editor in VISUAL or EDITOR".to_owned()));
    };
    let mut file = tempfile::Builder::new().prefix("imagate-prompt-").suffix(".txt").tempfile()?;
    file.write_all(text.as_bytes())?;
    // The file is closed and read again by its path, because an editor may replace it.
    let path = file.into_temp_path();
    // The setting may have arguments, such as `code --wait`.
    let mut words = editor.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    let status = command.args(words).arg(&path).status().with_context(|| format!("the editor `{editor}`"))?;
    if !status.success() {
        return Err(anyhow::anyhow!("the editor `{editor}` failed ({status}), and nothing was sent").into());
    }
    let text = File::open(&path).and_then(read_text).context("the prompt cannot be read back from the editor")?;
    if text.trim().is_empty() {
        return Err(CommandFailure::Usage("the prompt is empty, and nothing was sent".to_owned()));
    }
    Ok(text)
}

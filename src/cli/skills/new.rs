//! The command `imagate skills new`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Args;

use super::atomic_file::{refuse_symlinks, write_file};
use super::git_repository::{fields_from_git, missing_options};
use crate::checkout::Checkout;
use crate::cli::failure::CommandFailure;
use crate::cli::output::{print, print_message};
use crate::manifest::package::{SKILL_FILE, front, skill};
use crate::manifest::{RepositoryFields, RepositoryFiles as _, SkillRequirement};

/// The version of a new skill.
const FIRST_VERSION: &str = "0.1.0";
/// The description of a new skill, until its author writes one.
const DESCRIPTION: &str = "Replace this text: the task of the skill, and when an agent should use it.";
/// Plain words that YAML does not read as text.
const YAML_WORDS: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];

/// Arguments of `skills new`.
#[derive(Debug, Args)]
pub(super) struct NewCommand {
    /// The name of the skill and of its folder: lower-case letters, digits and single hyphens.
    #[arg(value_name = "NAME")]
    name: String,
    /// The root folder of the repository.
    #[arg(long, value_name = "DIR", default_value = ".")]
    root: PathBuf,
    /// The folder with one subfolder per skill, relative to the root.
    #[arg(long, value_name = "PATH", default_value = "skills")]
    skills: String,
    /// The task of the skill, and when an agent should use it.
    #[arg(long, value_name = "TEXT", default_value = DESCRIPTION, hide_default_value = true)]
    description: String,
}

// === impl NewCommand ===

impl NewCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let text = skill_text(&self.name, &self.description);
        let problems = problems(&self.name, &text);
        if !problems.is_empty() {
            return Err(CommandFailure::Input(problems));
        }
        let checkout = Checkout::open(&self.root).with_context(|| self.root.display().to_string())?;
        let folder = format!("{}/{}", self.skills.trim_end_matches('/'), self.name);
        refuse_symlinks(&checkout, &folder)?;
        let file = format!("{folder}/{SKILL_FILE}");
        create_skill(&self.root.join(&folder), text.as_bytes())?;
        let has_manifest = checkout.metadata("skills.json")?.is_some();
        print(&format!("{file}\n"))?;
        print_message(&format!("next: write the skill in {file}, then run `imagate skills build`"));
        if !has_manifest {
            print_message(&first_build_text(&fields_from_git(&self.root)));
        }
        Ok(())
    }
}

/// Returns what the first build takes from git, and what it needs.
fn first_build_text(known: &RepositoryFields) -> String {
    let missing = missing_options(known);
    let needed = match &missing[..] {
        [] => None,
        [only] => Some((*only).to_owned()),
        [first @ .., last] => Some(format!("{} and {last}", first.join(", "))),
    };
    match (&known.git_url, needed) {
        (Some(url), None) => format!("the first build takes the repository from git: {url}"),
        (Some(url), Some(needed)) => {
            format!("the first build takes the repository from git: {url}; it also needs {needed}")
        }
        (None, needed) => format!("the first build also needs {}", needed.unwrap_or_default()),
    }
}

/// Creates the folder of a skill with its file. A folder that exists is an error and stays as it is.
fn create_skill(folder: &Path, text: &[u8]) -> anyhow::Result<()> {
    if let Some(parent) = folder.parent() {
        fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
    }
    fs::create_dir(folder).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => anyhow!("{} already exists", folder.display()),
        _ => anyhow!(error).context(folder.display().to_string()),
    })?;
    // The folder is empty if the file cannot be written, so it is removed again.
    write_file(&folder.join(SKILL_FILE), text).inspect_err(|_| drop(fs::remove_dir(folder)))
}

/// Returns the problems of the name and of the text, as a build would report them.
fn problems(name: &str, text: &str) -> Vec<String> {
    let problems: Vec<String> = match front::read(text.as_bytes()) {
        Ok(file) => skill::faults(&file, Some(name)).into_iter().map(|fault| fault.message).collect(),
        Err(error) => vec![error.message],
    };
    // A name that is no portable file name, such as `con`, is refused like in `skills install`.
    match name.parse::<SkillRequirement>() {
        Err(_) if problems.is_empty() => vec![format!("`{name}` is not a valid file name on every system")],
        Ok(_) if problems.is_empty() && skill::normal_name(name) != name => {
            vec![format!("the name is not in Unicode normal form KC; write `{}`", skill::normal_name(name))]
        }
        _ => problems,
    }
}

fn skill_text(name: &str, description: &str) -> String {
    let mut title = name.replace('-', " ");
    if let Some(first) = title.chars().next() {
        title.replace_range(..first.len_utf8(), &first.to_uppercase().to_string());
    }
    let (name, description) = (yaml_name(name), yaml_text(description));
    format!(
        "---\nname: {name}\ndescription: {description}\nmetadata:\n  version: \"{FIRST_VERSION}\"\n---\n\n\
         # {title}\n\nReplace this text: the steps that the agent takes, in their order.\n"
    )
}

/// Returns a name as a YAML text; it is quoted if YAML could read it as a number, a date or another value.
fn yaml_name(name: &str) -> String {
    let is_plain = name.starts_with(char::is_alphabetic) && !YAML_WORDS.contains(&name);
    if is_plain { name.to_owned() } else { yaml_text(name) }
}

/// Returns a quoted YAML text. Texts of JSON are texts of YAML.
fn yaml_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_and_description_is_read_back_as_it_was_given() {
        for name in ["image-generation", "2026-11-27", "true", "no", "1e5", "größe"] {
            for description in [DESCRIPTION, "It says \"yes\": it's # not a comment, \\ and {so on}."] {
                let text = skill_text(name, description);
                assert_eq!(problems(name, &text), Vec::<String>::new(), "{text}");
                let front = front::read(text.as_bytes()).unwrap().front;
                assert_eq!(front.name.map(|word| word.text).as_deref(), Some(name), "{text}");
                assert_eq!(front.description.map(|word| word.text).as_deref(), Some(description), "{text}");
            }
        }
        assert!(skill_text("größe", "d").contains("# Größe\n") && skill_text("über", "d").contains("# Über\n"));
        assert!(skill_text("true", "d").contains("name: \"true\"\n"));
    }

    #[test]
    fn an_invalid_name_or_description_is_refused() {
        for name in ["Images", "a_b", "-a", "a--b", "../a", "a/b", "con", "", "a@1", "gro\u{308}ße"] {
            assert!(!problems(name, &skill_text(name, "d")).is_empty(), "{name}");
        }
        assert!(problems("a", &skill_text("a", " "))[0].contains("`description` is empty"));
    }
}

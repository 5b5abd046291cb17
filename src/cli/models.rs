//! The command `imagate models list|probe`.

use clap::{Args, Subcommand};

use super::connection::ConnectionArgs;
use super::failure::CommandFailure;
use super::installation::{InstallationArgs, block_on, settings_failure};
use super::output::{cell, print, print_json, table};
use crate::client::{ImageModel, ImageModelParameter};
use crate::gateway::manage::{self, ManageError};

/// Arguments of `models`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(super) struct ModelsCommand {
    #[command(subcommand)]
    action: ModelsAction,
}

#[derive(Debug, Subcommand)]
enum ModelsAction {
    /// List the image models of a service with their parameters.
    List {
        #[command(flatten)]
        connection: ConnectionArgs,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Learn the rules of an image model from the refusals of its upstream, and print them as a `[[models]]` table.
    ///
    /// The upstream gets requests that it must refuse: they have no prompt, and invalid values. A refusal costs nothing.
    /// An upstream that accepts such a request nevertheless may charge for it; the command stops at the first one. A rule
    /// that no refusal states clearly is printed as a comment.
    Probe(ProbeArgs),
}

/// Arguments of `models probe`.
#[derive(Debug, Args)]
struct ProbeArgs {
    #[command(flatten)]
    installation: InstallationArgs,
    /// The name or id of an account with the protocol `images`.
    account: String,
    /// The model.
    #[arg(long, value_name = "ID", default_value = "gpt-image-2")]
    model: String,
    /// A further field to ask for, in addition to those of the API. Can be given several times.
    #[arg(long = "field", value_name = "NAME")]
    fields: Vec<String>,
}

// === impl ModelsCommand ===

impl ModelsCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        match self.action {
            ModelsAction::List { connection, json } => {
                let client = connection.client()?;
                let models = block_on(async { Ok(client.models().list_images().await?) })?;
                print_models(&models, json)
            }
            ModelsAction::Probe(args) => args.run(),
        }
    }
}

// === impl ProbeArgs ===

impl ProbeArgs {
    fn run(self) -> Result<(), CommandFailure> {
        let Self { installation, account, model, fields } = self;
        // A request that has a prompt could be made and paid for.
        if let Some(name) = fields.iter().find(|name| ["prompt", "model"].contains(&name.as_str())) {
            return Err(CommandFailure::Usage(format!("--field: `{name}` cannot be asked for")));
        }
        installation.with_store(async |config, store| {
            match manage::probe_model(config, store, &account, &model, &fields).await {
                Err(ManageError::InvalidSettings(problems)) => Err(settings_failure(problems)),
                learned => Ok(print(&learned?)?),
            }
        })
    }
}

fn print_models(models: &[ImageModel], json: bool) -> Result<(), CommandFailure> {
    if json {
        return Ok(print_json(&models.iter().map(|model| &model.json).collect::<Vec<_>>())?);
    }
    let mut rows = Vec::new();
    for model in models {
        rows.extend(model.parameters.iter().map(|parameter| {
            [model.id.clone(), parameter.name.clone(), parameter.kind.clone(), values_text(parameter)]
        }));
    }
    Ok(print(&table(["MODEL", "PARAMETER", "TYPE", "VALUES"], &rows))?)
}

/// Returns the values of a parameter as words.
fn values_text(parameter: &ImageModelParameter) -> String {
    let limit = |name: &str| parameter.json.member(name).map(|limit| limit.text().trim_end_matches(".0").to_owned());
    match (limit("min"), limit("max"), limit("max_length").or(limit("max_count"))) {
        (Some(min), Some(max), _) => format!("{min} to {max}"),
        (Some(min), None, _) => format!("at least {min}"),
        (None, Some(max), _) | (None, None, Some(max)) => format!("at most {max}"),
        (None, None, None) => cell((!parameter.values.is_empty()).then(|| parameter.values.join(", "))),
    }
}

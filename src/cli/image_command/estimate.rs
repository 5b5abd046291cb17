//! The option `--estimate`: what the images of a request would cost at most.

use super::ImageArgs;
use super::advice::{is_of_gateway, with_advice};
use super::report::image_count_text;
use crate::cli::failure::CommandFailure;
use crate::cli::installation::block_on;
use crate::cli::output::{print, print_json, print_message};
use crate::client::{self, Client, Error};
use crate::wire::types::CostEstimate;

// === impl ImageArgs ===

impl ImageArgs {
    /// Prints what the images would cost at most, in US dollars, and makes none.
    pub(in crate::cli) fn print_estimate(mut self) -> Result<(), CommandFailure> {
        self.progress.apply();
        self.prompt = self.prompt_args.read()?;
        // Nothing is written, so the file need not be writable; only its extension counts.
        let named = self.output.as_deref().filter(|path| !path.is_dir()).and_then(client::format_from_extension);
        let (client, request) = (self.connection.client()?, self.request(self.output_format(named)?));
        let estimate =
            block_on(async { client.images().estimate(request).await.map_err(|error| failure(error, &client)) })?;
        if self.json {
            return Ok(print_json(&estimate)?);
        }
        // The amount is alone on its line, so that a script can read the line unchanged.
        let amount = estimate.max_cost_usd.map_or_else(|| "unknown".to_owned(), |usd| usd.to_string());
        print(&format!("{amount}\n"))?;
        print_message(&explanation(&estimate));
        if let Some(refusal) = &estimate.refusal {
            print_message(&format!("note: the request would be refused now: {}", refusal.message));
        }
        Ok(())
    }
}

fn failure(error: Error, client: &Client) -> CommandFailure {
    if matches!(error.status(), Some(404 | 405 | 501)) && !is_of_gateway(&error) {
        return anyhow::anyhow!("this service has no estimates; only a gateway has them ({error})").into();
    }
    with_advice(error, client)
}

fn explanation(estimate: &CostEstimate) -> String {
    let images = image_count_text(usize::try_from(estimate.images).unwrap_or(usize::MAX));
    match (estimate.max_cost_usd, &estimate.unpriced_model) {
        (Some(_), _) => format!("US dollars at most for {images}; no image was made"),
        (None, Some(model)) => format!("the cost of {images} is not known: the price of the model {model} is missing"),
        (None, None) => format!("the cost of {images} is not known"),
    }
}

//! A task for a text model that may draw: what it says as it says it, and its image as a file.
//!
//! Start the gateway with `imagate serve`, then run this with the key that it printed:
//! `IMAGATE_API_KEY=sk-img-… cargo run --example response`.

use std::io::Write as _;

use imagate::client::{Client, ImageTool, OutputItem, ResponseRequest, ResponseStep};
use imagate::{size, types::Quality};

async fn respond() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::from_env()?;
    let tool = ImageTool::new().size(size!("1536x1024")).quality(Quality::Low);
    let request = ResponseRequest::new("gpt-5.5", "Draw a lighthouse on a cliff at dusk.").tool(tool);
    let mut stream = client.responses().stream(request).await?;
    while let Some(event) = stream.next().await {
        match event?.into_step() {
            ResponseStep::ItemDone { item: OutputItem::Image(call), .. } => {
                if let Some(image) = call.image() {
                    println!("{}", image.write_to("lighthouse").await?.display());
                }
            }
            ResponseStep::TextDelta { delta, .. } => {
                print!("{delta}");
                std::io::stdout().flush()?;
            }
            ResponseStep::Completed { response, .. } => {
                let tokens = response.usage().map_or(0, |usage| usage.total_tokens);
                println!("\n{tokens} tokens of text");
            }
            // A later version may know of more.
            _ => {}
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // By hand, so that the example needs no more of tokio than the SDK itself does.
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(respond())
}

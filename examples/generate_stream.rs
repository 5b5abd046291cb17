//! An image as it comes into being: intermediate images first, then the final one.
//!
//! Start the gateway with `imagate serve`, then run this with the key that it printed:
//! `IMAGATE_API_KEY=sk-img-… cargo run --example generate_stream`.

use imagate::client::{Client, Error, GenerateRequest, ImageEvent, PartialImages};
use imagate::{size, types::Quality};

async fn generate() -> Result<(), Error> {
    let client = Client::from_env()?;
    let request = GenerateRequest::new("A lighthouse on a cliff at dusk")
        .size(size!("1536x1024"))
        .quality(Quality::Low)
        .partial_images(PartialImages::MAX);
    let mut stream = client.images().generate_stream(request).await?;
    while let Some(event) = stream.next().await {
        match event? {
            ImageEvent::PartialImage { index, image, .. } => {
                let file = image.write_to(format!("lighthouse-{index}.png")).await?;
                println!("so far: {}", file.display());
            }
            ImageEvent::Completed { image, usage, .. } => {
                let file = image.write_to("lighthouse").await?;
                let tokens = usage.map_or(0, |usage| usage.total_tokens);
                println!("{} for {tokens} tokens", file.display());
            }
            // A later version may know of more.
            _ => {}
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // By hand, so that the example needs no more of tokio than the SDK itself does.
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(generate())?)
}

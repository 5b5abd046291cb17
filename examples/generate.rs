//! The SDK in ten lines: one image from a gateway on this machine.
//!
//! Start the gateway with `imagate serve`, then run this with the key that it printed:
//! `IMAGATE_API_KEY=sk-img-… cargo run --example generate`.

use imagate::client::{Client, Error, GenerateRequest};
use imagate::{size, types::Quality};

async fn generate() -> Result<(), Error> {
    let client = Client::from_env()?;
    let request =
        GenerateRequest::new("A lighthouse on a cliff at dusk").size(size!("1536x1024")).quality(Quality::Low);
    let images = client.images().generate(request).await?;
    for file in images.write_all("lighthouse").await? {
        println!("{} (request {})", file.display(), images.request_id().unwrap_or("unknown"));
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // By hand, so that the example needs no more of tokio than the SDK itself does.
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(generate())?)
}

//! Two edits: an image that was just made, and one from a file with a mask.
//!
//! Start the gateway with `imagate serve`, then run this with the key that it printed:
//! `IMAGATE_API_KEY=sk-img-… cargo run --example edit [IMAGE [MASK]]`.

use std::path::PathBuf;

use imagate::client::{Client, EditRequest, Error, Input};
use imagate::types::Quality;

async fn edit(image: Option<PathBuf>, mask: Option<PathBuf>) -> Result<(), Error> {
    let client = Client::from_env()?;
    let input = match image {
        // A file is read while it is sent, so it may be as large as the service allows.
        Some(path) => Input::from_path(path),
        None => {
            let images = client.images().generate("A lighthouse on a cliff at dusk").await?;
            Input::from_bytes(images.first().bytes()?).file_name("lighthouse.png")
        }
    };
    let mut request = EditRequest::new("The same by night, with stars").image(input).quality(Quality::Low);
    if let Some(mask) = mask {
        // Its transparent part is what is changed.
        request = request.mask(mask);
    }
    let images = client.images().edit(request).await?;
    println!("{}", images.first().write_to("lighthouse-by-night").await?.display());
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut paths = std::env::args_os().skip(1).map(PathBuf::from);
    let edit = edit(paths.next(), paths.next());
    // By hand, so that the example needs no more of tokio than the SDK itself does.
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(edit)?)
}

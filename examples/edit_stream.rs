//! An edit as a stream, of which only the end is of interest: a slow image is waited for as long as the service shows
//! that it is at work.
//!
//! Start the gateway with `imagate serve`, then run this with the key that it printed:
//! `IMAGATE_API_KEY=sk-img-… cargo run --example edit_stream IMAGE…`.

use std::path::PathBuf;

use imagate::client::{Client, EditRequest, Error};
use imagate::{image::Format, size};

async fn edit(images: Vec<PathBuf>) -> Result<(), Error> {
    let client = Client::from_env()?;
    let request =
        EditRequest::new("All of this in one picture").images(images).size(size!("2048x1152")).format(Format::Webp);
    let image = client.images().edit_stream(request).await?.collect_image().await?;
    println!("{}", image.write_to("together").await?.display());
    println!("request {}", image.answer().request_id().unwrap_or("unknown"));
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let edit = edit(std::env::args_os().skip(1).map(PathBuf::from).collect());
    // By hand, so that the example needs no more of tokio than the SDK itself does.
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(edit)?)
}

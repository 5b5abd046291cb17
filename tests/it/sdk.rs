//! The SDK of this crate against the gateway of this crate: responses, and models that an operator has configured.

mod dropped;
mod newer_contract;

use imagate::client::{
    Client, Error, GenerateRequest, ImageCount, ImageTool, OutputItem, PartialImages, ResponseItem, ResponseRequest,
    ResponseStep,
};
use imagate::image::Format;
use imagate::size;
use imagate::types::Quality;
use serde_json::json;

use crate::kit::{Account, FakeUpstream, Gateway};

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

fn client(gateway: &Gateway) -> Client {
    Client::new(&gateway.base_url(), gateway.secret()).expect("a client")
}

fn image_request(input: &str) -> ResponseRequest {
    let tool = ImageTool::new().size(size!("1024x640")).quality(Quality::Low).format(Format::Jpeg);
    ResponseRequest::new("gpt-5.5", input).tool(tool.partial_images(PartialImages::MAX))
}

#[test]
fn a_response_writes_its_image_and_its_output_is_the_next_input() {
    let gateway = Gateway::simulated();
    let (client, folder) = (client(&gateway), tempfile::TempDir::new().expect("a directory"));
    run(async {
        let first = client.responses().create(image_request("a fox")).await?;
        assert!(first.is_simulated() && !first.text().is_empty() && first.image_usage().is_some(), "{first:?}");
        let image = first.images().next().expect("an image");
        let path = image.write_to(folder.path().join("fox")).await?;
        assert_eq!(
            (path.extension().and_then(|end| end.to_str()), image.dimensions()),
            (Some("jpg"), Some((1024, 640)))
        );
        let mut items: Vec<ResponseItem> = first.output().iter().map(Into::into).collect();
        items.push(ResponseItem::user("at night"));
        let second = client.responses().create(ResponseRequest::new("gpt-5.5", items)).await?;
        assert_eq!((second.status(), second.images().count()), (Some("completed"), 0), "{second:?}");
        Ok::<(), Error>(())
    })
    .expect("two turns");
    assert_eq!(gateway.final_records(2).len(), 2);
}

#[test]
fn a_loop_over_the_images_of_an_answer_writes_all_of_them() {
    let gateway = Gateway::simulated();
    let folder = tempfile::TempDir::new().expect("a directory");
    let request = GenerateRequest::new("a fox").size(size!("1024x640")).quality(Quality::Low);
    let request = request.count(ImageCount::new(3).expect("a count"));
    let names = run(async {
        let mut names = Vec::new();
        for image in &client(&gateway).images().generate(request).await? {
            let path = image.write_to(folder.path().join("fox")).await?;
            names.push(path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned());
        }
        Ok::<_, Error>(names)
    })
    .expect("three images");
    let files = std::fs::read_dir(folder.path()).expect("a directory").count();
    assert_eq!((files, names), (3, ["fox.png", "fox-2.png", "fox-3.png"].map(str::to_owned).to_vec()));
}

#[test]
fn a_response_stream_has_partial_images_and_the_complete_response() {
    let gateway = Gateway::simulated();
    let client = client(&gateway);
    run(async {
        let mut stream = client.responses().stream(image_request("a fox")).await?;
        let (mut partials, mut done, mut text, mut last) = (0, None, String::new(), None);
        while let Some(event) = stream.next().await {
            match event?.into_step() {
                ResponseStep::PartialImage { image, .. } => {
                    assert_eq!(image.dimensions(), Some((1024, 640)));
                    partials += 1;
                }
                ResponseStep::ItemDone { item: OutputItem::Image(call), .. } => done = call.image().cloned(),
                ResponseStep::TextDelta { delta, .. } => text.push_str(&delta),
                ResponseStep::Completed { response, .. } => last = Some(response),
                _ => {}
            }
        }
        let (done, last) = (done.expect("an image"), last.expect("a response"));
        assert_eq!((partials, last.text()), (3, text));
        assert_eq!(last.images().next().map(|image| image.base64()), Some(done.base64()));
        Ok::<(), Error>(())
    })
    .expect("a stream");
}

#[test]
fn a_failure_in_a_stream_is_the_failed_response_and_one_error() {
    let upstream = FakeUpstream::start();
    let gateway = Gateway::with("", &[Account::for_upstream("one", &upstream).with_responses_protocol()]);
    upstream.script_next("events=created,progress,added,p,cut");
    let (mut kinds, mut end) = (Vec::new(), None);
    run(async {
        let mut stream = client(&gateway).responses().stream(image_request("a fox")).await.expect("a stream");
        while let Some(event) = stream.next().await {
            match event {
                Ok(event) => kinds.push(event.kind().to_owned()),
                Err(error) => end = Some(error),
            }
        }
    });
    assert_eq!(kinds.last().map(String::as_str), Some("response.failed"), "{kinds:?}");
    let error = end.expect("an error");
    assert_eq!((error.code(), error.is_retryable()), (Some("upstream_error"), false), "{error:?}");
    assert!(error.request_id().is_some());
    assert_eq!((upstream.attempt_count(), gateway.final_records(1).len()), (1, 1), "nothing was sent twice");
}

#[test]
fn a_request_that_breaks_a_rule_names_the_parameter() {
    let gateway = Gateway::simulated();
    let error = run(client(&gateway).responses().create(ResponseRequest::new("gpt-image-2", "a fox")));
    assert_eq!(error.expect_err("an image model").param(), Some("model"));
    let tool = ImageTool::new().set("quality", "hd");
    let error = run(client(&gateway).responses().create(ResponseRequest::new("gpt-5.5", "a fox").tool(tool)));
    assert_eq!(error.expect_err("no such quality").param(), Some("tools[0].quality"));
}

#[test]
fn a_configured_model_is_found_by_its_id_and_makes_images() {
    let upstream = FakeUpstream::start();
    upstream.always_for_token("sk-upstream-talking", "models=gpt-5.5");
    let accounts = [
        Account::for_upstream("drawing", &upstream),
        Account::for_upstream("talking", &upstream).with_responses_protocol(),
    ];
    let gateway = Gateway::with("[[models]]\nid = \"sketch-1\"\nmax_images = 1\n", &accounts);
    let client = client(&gateway);
    run(async {
        let list = client.models().list().await?;
        assert_eq!(list.iter().map(|model| model.id.as_str()).collect::<Vec<_>>(), ["gpt-5.5"]);
        assert_eq!(client.models().retrieve("sketch-1").await?.id, "sketch-1");
        let missing = client.models().retrieve("sketch-2").await.expect_err("no such model");
        assert_eq!((missing.status(), missing.code()), (Some(404), Some("model_not_found")));
        let images = client.images().generate(GenerateRequest::new("a fox").model("sketch-1")).await?;
        assert_eq!(images.model(), Some("sketch-1"));
        Ok::<(), Error>(())
    })
    .expect("the configured model works");
    let upstream_request = upstream.received_attempts().pop().expect("an attempt").json();
    assert_eq!(upstream_request["model"], json!("sketch-1"));
}

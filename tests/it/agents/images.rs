//! The image tool of Codex, which calls the image endpoints of its provider and writes the files.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::AgentFixture;
use super::codex::{Codex, Release};
use crate::kit::{ModelStep, image_specimen};

/// A turn in which the model calls the image tool.
fn draw(arguments: Value) -> ModelStep {
    ModelStep::Calls { namespace: Some("image_gen"), name: "imagegen", arguments }
}

#[test]
fn the_image_tool_of_codex_generates_and_edits_files() {
    let fixture = AgentFixture::start();
    let codex = Codex::with_chatgpt_login(&fixture.proxy, fixture.gateway.secret());
    let photo = codex.home().join("photo.png");
    std::fs::write(&photo, &*image_specimen("png 96x64")).expect("a photo");
    fixture.upstream.set_conversation(&[
        draw(json!({"prompt": "a red square [[size=1024x640]]"})),
        draw(json!({"prompt": "add a hat [[size=640x1024]]", "num_last_images_to_include": 1})),
        draw(json!({"prompt": "make it blue [[size=1280x640]]", "referenced_image_paths": [photo]})),
        ModelStep::Says("Three images."),
    ]);
    let output = codex.exec("Draw a red square, give it a hat, and make my photo blue.");
    assert_eq!(output.message(), "Three images.");

    let attempts = fixture.upstream.received_attempts();
    let drawn: Vec<_> = attempts.iter().filter(|attempt| !attempt.images.is_empty()).collect();
    let images: Vec<Vec<u8>> =
        drawn.iter().flat_map(|attempt| &attempt.images).map(|image| STANDARD.decode(image).expect("base64")).collect();
    let files: Vec<Vec<u8>> = codex.generated_images().into_iter().map(|(_, image)| image).collect();
    assert_eq!(images.len(), 3);
    assert!(files.len() == 3 && images.iter().all(|image| files.contains(image)), "the files differ from the images");
    assert!(images[0] != images[1] && images[1] != images[2] && images[0] != images[2]);
    let input_digest = |index: usize| drawn[index].files().first().map(|file| file.digest.clone());
    assert_eq!((input_digest(0), input_digest(1)), (None, Some(crate::kit::sha256(&images[0]))));
    assert_eq!(input_digest(2), Some(crate::kit::sha256(&std::fs::read(&photo).expect("a photo"))));
    fixture.check_passthrough(4);
    assert!(fixture.gateway.final_records(7).iter().all(|record| record["state"] == "succeeded"));
}

#[test]
fn a_refused_parameter_of_the_image_tool_costs_nothing() {
    let fixture = AgentFixture::start();
    let codex = Codex::with_chatgpt_login(&fixture.proxy, fixture.gateway.secret());
    fixture.upstream.set_conversation(&[
        draw(json!({"prompt": "a cut-out", "transparent_background": true})),
        ModelStep::Says("Not transparent, then."),
    ]);
    assert_eq!(codex.exec("Draw a cut-out.").message(), "Not transparent, then.");
    let attempts = fixture.upstream.received_attempts();
    assert!(attempts.iter().all(|attempt| attempt.path.ends_with("/responses")), "an image request went upstream");
    let tool_output = attempts[1].json()["input"].to_string();
    assert!(tool_output.contains("background") && tool_output.contains("400"), "{tool_output}");
    assert_eq!(fixture.proxy.requests_to("POST", "/v1/images/generations").len(), 1);
    assert!(codex.generated_images().is_empty());
    fixture.check_passthrough(2);
}

/// The number of requests that Codex sends if they fail with 5xx. It does not read `x-should-retry`.
const MAX_REQUESTS: usize = 5;

#[test]
fn retries_of_the_image_tool_do_not_pay_twice() {
    for script in ["hang-up how=reset", "status=400 body=policy", "data=empty", "status=524 body=html"] {
        let fixture = AgentFixture::start();
        fixture.upstream.always_for_token("sk-upstream-draws", script);
        let codex = Codex::with_chatgpt_login(&fixture.proxy, fixture.gateway.secret());
        fixture.upstream.set_conversation(&[draw(json!({"prompt": "a red square"})), ModelStep::Says("It failed.")]);
        assert_eq!(codex.exec("Draw a red square.").message(), "It failed.");
        assert_eq!(fixture.proxy.requests_to("POST", "/v1/images/generations").len(), MAX_REQUESTS, "{script}");
        let attempts = fixture.upstream.received_attempts();
        let images = attempts.iter().filter(|attempt| attempt.token == "sk-upstream-draws").count();
        assert_eq!(images, 1, "{script}");
        let tool_output = attempts.last().map(|attempt| attempt.json()["input"].to_string()).unwrap_or_default();
        assert!(tool_output.contains("502"), "{script}: {tool_output}");
    }
}

#[test]
fn the_same_prompt_can_be_drawn_repeatedly() {
    let fixture = AgentFixture::start();
    let codex = Codex::with_chatgpt_login(&fixture.proxy, fixture.gateway.secret());
    let square = || draw(json!({"prompt": "a red square"}));
    fixture.upstream.set_conversation(&[square(), square(), ModelStep::Says("Two.")]);
    assert_eq!(codex.exec("Draw it twice.").message(), "Two.");
    assert_eq!(codex.generated_images().len(), 2);
    fixture.upstream.set_conversation(&[square(), ModelStep::Says("One more.")]);
    assert_eq!(codex.exec("Draw it again.").message(), "One more.");
    assert_eq!(codex.generated_images().len(), 3);
    assert_eq!(fixture.proxy.requests_to("POST", "/v1/images/generations").len(), 3);
    let attempts = fixture.upstream.received_attempts();
    assert_eq!(attempts.iter().filter(|attempt| attempt.token == "sk-upstream-draws").count(), 3);
}

/// Older releases use the image tool of the upstream and write the files that it returns. They compress requests by
/// default.
#[test]
#[ignore = "cargo xtask tours"]
fn the_hosted_tool_of_an_older_codex_writes_its_image() {
    let fixture = AgentFixture::start();
    fixture.upstream.set_conversation(&[ModelStep::Draws]);
    let codex = Codex::with_chatgpt_login(&fixture.proxy, fixture.gateway.secret())
        .with_release(Release::V0_125)
        .without_compression();
    assert_eq!(codex.exec("Draw a red cube.").message(), "Here is your image.");
    // Before its task this release lists the models, a request that the gateway passes on to the account for responses.
    let attempts = fixture.upstream.received_attempts();
    let attempt = attempts.iter().find(|attempt| attempt.path.ends_with("/responses")).expect("a task");
    let tools = attempt.json()["tools"].take();
    assert!(tools.to_string().contains("\"image_generation\""), "the tools have no image tool: {tools}");
    let image = STANDARD.decode(&attempt.images[0]).expect("base64");
    assert!(codex.generated_images().iter().any(|(_, file)| *file == image), "no file has the image of the upstream");
    fixture.check_passthrough(1);
    assert_eq!(fixture.gateway.final_records(1)[0]["delivered"].as_array().map(Vec::len), Some(1));
}

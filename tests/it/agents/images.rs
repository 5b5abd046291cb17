//! The image tool that Codex has itself: it calls the image endpoints of its provider and keeps the files.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::Stage;
use super::codex::{Codex, Release};
use crate::kit::{Turn, image_specimen};

fn draw(arguments: Value) -> Turn {
    Turn::Calls { namespace: Some("image_gen"), name: "imagegen", arguments }
}

#[test]
fn the_image_tool_of_codex_draws_and_edits_to_the_disk() {
    let stage = Stage::set();
    let codex = Codex::with_a_login(&stage.tap, stage.gateway.secret());
    let photo = codex.home().join("photo.png");
    std::fs::write(&photo, &*image_specimen("png 96x64")).expect("a photo");
    stage.upstream.set_conversation(&[
        draw(json!({"prompt": "a red square [[size=1024x640]]"})),
        draw(json!({"prompt": "add a hat [[size=640x1024]]", "num_last_images_to_include": 1})),
        draw(json!({"prompt": "make it blue [[size=1280x640]]", "referenced_image_paths": [photo]})),
        Turn::Says("Three images."),
    ]);
    let told = codex.exec("Draw a red square, give it a hat, and make my photo blue.");
    assert_eq!(told.message(), "Three images.");

    let ledger = stage.upstream.ledger();
    let drawn: Vec<_> = ledger.iter().filter(|attempt| !attempt.images.is_empty()).collect();
    let images: Vec<Vec<u8>> =
        drawn.iter().flat_map(|attempt| &attempt.images).map(|image| STANDARD.decode(image).expect("base64")).collect();
    let kept: Vec<Vec<u8>> = codex.generated().into_iter().map(|(_, image)| image).collect();
    assert_eq!(images.len(), 3);
    assert!(kept.len() == 3 && images.iter().all(|image| kept.contains(image)), "the files are other images");
    assert!(images[0] != images[1] && images[1] != images[2] && images[0] != images[2]);
    let edited = |at: usize| drawn[at].files().first().map(|file| file.digest.clone());
    assert_eq!((edited(0), edited(1)), (None, Some(crate::kit::sha256(&images[0]))));
    assert_eq!(edited(2), Some(crate::kit::sha256(&std::fs::read(&photo).expect("a photo"))));
    stage.passed(4);
    assert!(stage.gateway.final_records(7).iter().all(|record| record["state"] == "succeeded"));
}

#[test]
fn a_parameter_that_the_image_tool_may_not_use_is_told_to_the_model_and_costs_nothing() {
    let stage = Stage::set();
    let codex = Codex::with_a_login(&stage.tap, stage.gateway.secret());
    stage.upstream.set_conversation(&[
        draw(json!({"prompt": "a cut-out", "transparent_background": true})),
        Turn::Says("Not transparent, then."),
    ]);
    assert_eq!(codex.exec("Draw a cut-out.").message(), "Not transparent, then.");
    let ledger = stage.upstream.ledger();
    assert!(ledger.iter().all(|attempt| attempt.path.ends_with("/responses")), "an image was asked for");
    let heard = ledger[1].json()["input"].to_string();
    assert!(heard.contains("background") && heard.contains("400"), "{heard}");
    assert_eq!(stage.tap.requests_to("POST", "/v1/images/generations").len(), 1);
    assert!(codex.generated().is_empty());
    stage.passed(2);
}

/// Codex repeats a call of the tool that failed with 5xx, and knows nothing of `x-should-retry`.
const REPEATS: usize = 5;

#[test]
fn what_may_have_been_paid_for_is_not_asked_for_again_however_often_the_image_tool_of_codex_does() {
    for script in ["hang-up how=reset", "status=400 body=policy", "data=empty", "status=524 body=html"] {
        let stage = Stage::set();
        stage.upstream.always_for_token("sk-upstream-draws", script);
        let codex = Codex::with_a_login(&stage.tap, stage.gateway.secret());
        stage.upstream.set_conversation(&[draw(json!({"prompt": "a red square"})), Turn::Says("It failed.")]);
        assert_eq!(codex.exec("Draw a red square.").message(), "It failed.");
        assert_eq!(stage.tap.requests_to("POST", "/v1/images/generations").len(), REPEATS, "{script}");
        let ledger = stage.upstream.ledger();
        let images = ledger.iter().filter(|attempt| attempt.token == "sk-upstream-draws").count();
        assert_eq!(images, 1, "{script}");
        let heard = ledger.last().map(|attempt| attempt.json()["input"].to_string()).unwrap_or_default();
        assert!(heard.contains("502"), "{script}: {heard}");
    }
}

#[test]
fn the_same_image_can_be_drawn_twice_in_one_turn_and_in_another() {
    let stage = Stage::set();
    let codex = Codex::with_a_login(&stage.tap, stage.gateway.secret());
    let again = || draw(json!({"prompt": "a red square"}));
    stage.upstream.set_conversation(&[again(), again(), Turn::Says("Two.")]);
    assert_eq!(codex.exec("Draw it twice.").message(), "Two.");
    assert_eq!(codex.generated().len(), 2);
    stage.upstream.set_conversation(&[again(), Turn::Says("One more.")]);
    assert_eq!(codex.exec("Draw it again.").message(), "One more.");
    assert_eq!(codex.generated().len(), 3);
    assert_eq!(stage.tap.requests_to("POST", "/v1/images/generations").len(), 3);
    let ledger = stage.upstream.ledger();
    assert_eq!(ledger.iter().filter(|attempt| attempt.token == "sk-upstream-draws").count(), 3);
}

/// Older releases leave the drawing to the upstream, and keep what comes back. They compress what they send, unless told.
#[test]
#[ignore = "cargo xtask tours"]
fn the_hosted_tool_of_an_older_codex_draws_to_the_disk() {
    let stage = Stage::set();
    stage.upstream.set_conversation(&[Turn::Draws]);
    let codex = Codex::with_a_login(&stage.tap, stage.gateway.secret()).of(Release::V0_125).without_compression();
    assert_eq!(codex.exec("Draw a red cube.").message(), "Here is your image.");
    // Before its task this release lists the models, a request that the gateway passes on to the account for responses.
    let ledger = stage.upstream.ledger();
    let attempt = ledger.iter().find(|attempt| attempt.path.ends_with("/responses")).expect("a task");
    let tools = attempt.json()["tools"].take();
    assert!(tools.to_string().contains("\"image_generation\""), "it asks for no image: {tools}");
    let image = STANDARD.decode(&attempt.images[0]).expect("base64");
    assert!(codex.generated().iter().any(|(_, file)| *file == image), "the file is another image");
    stage.passed(1);
    assert_eq!(stage.gateway.final_records(1)[0]["delivered"].as_array().map(Vec::len), Some(1));
}

//! The prices of the settings file, of commands and of the admin API, while the gateway runs.

use serde_json::{Value, json};

use super::{ask, assert_exact, open, record_of};
use crate::kit::{Call, FakeUpstream, Gateway, eventually};

const USAGE: Option<i32> = Some(2);
const FAILED: Option<i32> = Some(1);

/// Sends a generation of 13 text tokens and 196 image tokens, and returns its record.
#[track_caller]
fn record_now(gateway: &Gateway, user: &str) -> Value {
    gateway.generate(json!({"prompt": "a cube", "user": user})).ok_json();
    record_of(&gateway.final_records(1), user).clone()
}

/// `price set` for the image model from the beginning of the year on.
#[track_caller]
fn set_price(gateway: &Gateway, text_input: &str, image_output: &str) -> String {
    let words = ["price", "set", "gpt-image-2", "--from", "2026-01-01", "--text-input", text_input];
    gateway.run_command(&[&words[..], &["--image-output", image_output]].concat()).ok_stdout().trim().to_owned()
}

#[test]
fn a_price_set_by_command_applies_within_seconds_and_only_to_later_records() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream, "");
    let before = record_now(&gateway, "before");
    assert_exact(&before, 0.005_945);
    let version = set_price(&gateway, "10", "60");
    assert!(version.starts_with("gpt-image-2@2026-01-01#"), "{version}");
    let mut count = 0;
    let after = eventually("the price is in force", || {
        count += 1;
        let record = record_now(&gateway, &format!("after-{count}"));
        (record["price_version"] == version.as_str()).then_some(record)
    });
    // 13 x 10 + 196 x 60
    assert_exact(&after, 0.011_89);
    assert_eq!(*record_of(&gateway.records(), "before"), before, "a finished record keeps its cost");
    // Without a price of its own, the model has that of the program again.
    gateway.run_command(&["price", "delete", "gpt-image-2", "--from", "2026-01-01"]).ok_stdout();
    let restored = eventually("the price of the program is in force", || {
        count += 1;
        let record = record_now(&gateway, &format!("after-{count}"));
        (record["price_version"] == before["price_version"]).then_some(record)
    });
    assert_exact(&restored, 0.005_945);
    let trail = gateway.run_command(&["audit", "--json"]).ok_stdout().to_owned();
    let actions = ["price.set", "price.delete"].map(|action| trail.matches(&format!("\"{action}\"")).count());
    assert_eq!(actions, [1, 1], "{trail}");
}

#[test]
fn a_price_set_by_the_api_applies_to_the_next_request() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream, "");
    let new = json!({"model": "gpt-image-2", "from": "2026-01-01", "per_image": 0.04, "source": "our contract"});
    let set = ask(&gateway, Call::put("/admin/v1/prices").json(&new)).ok_json();
    assert_eq!((&set["per_image"], &set["origin"], set.get("image_output")), (&json!(0.04), &json!("store"), None));
    let record = record_now(&gateway, "one");
    // The contract charges for images, and its tokens have no price, so their part is not known.
    assert_eq!((&record["cost_basis"], &record["cost_reason"]), (&json!("unknown"), &json!("incomplete_price")));
    let free_tokens = json!({"model": "gpt-image-2", "from": "2026-01-01", "per_image": 0.04, "text_input": 0,
        "image_output": 0});
    let set = ask(&gateway, Call::put("/admin/v1/prices").json(&free_tokens)).ok_json();
    let record = record_now(&gateway, "two");
    assert_exact(&record, 0.04);
    assert_eq!(record["price_version"], set["version"]);
    let listed = ask(&gateway, Call::get("/admin/v1/prices")).ok_json();
    assert_eq!(listed["data"], json!([set]), "{listed}");
    for (field, value) in
        [("text_input", json!(-1)), ("per_image", json!(1e7)), ("model", json!("a b")), ("image_input", json!("5"))]
    {
        let mut wrong = free_tokens.clone();
        wrong[field] = value;
        let error = ask(&gateway, Call::put("/admin/v1/prices").json(&wrong)).error_object(400);
        assert_eq!(error["param"], field, "{error}");
    }
    let error = ask(&gateway, Call::put("/admin/v1/prices").json(&json!({"model": "m", "from": "2026-13-01"})))
        .error_object(400);
    assert_eq!(error["param"], "from", "{error}");
    let deleted = ask(&gateway, Call::delete("/admin/v1/prices/gpt-image-2/2026-01-01")).ok_json();
    assert_eq!(deleted, json!({"model": "gpt-image-2", "from": "2026-01-01", "deleted": true}));
    assert_exact(&record_now(&gateway, "three"), 0.005_945);
    let missing = ask(&gateway, Call::delete("/admin/v1/prices/gpt-image-2/2026-01-01")).error_object(404);
    assert_eq!(missing["code"], "price_not_found");
}

#[test]
fn a_price_of_the_settings_file_wins_over_one_of_the_store() {
    let upstream = FakeUpstream::start();
    let mut gateway = open(&upstream, "");
    set_price(&gateway, "10", "60");
    let file = std::fs::read_to_string(gateway.config()).expect("a configuration");
    // The day may have quotes, and the prices may have a fraction.
    let price = "\n[[prices]]\nmodel = \"gpt-image-2\"\nfrom = 2026-01-01\ntext_input = 4\nimage_output = 40.0\n";
    std::fs::write(gateway.config(), format!("{file}{price}")).expect("a configuration");
    gateway.run_command(&["config", "reload"]).ok_stdout();
    // 13 x 4 + 196 x 40
    assert_exact(&record_now(&gateway, "reloaded"), 0.007_892);
    gateway.kill();
    gateway.start();
    assert_exact(&record_now(&gateway, "restarted"), 0.007_892);
    let listed = gateway.run_command(&["price", "list", "--json"]).json();
    assert_eq!((&listed[0]["origin"], &listed[0]["image_output"]), (&json!("file"), &json!(40.0)), "{listed}");

    // Neither a command nor the API changes or deletes a price of the file.
    for words in [
        ["price", "set", "gpt-image-2", "--from", "2026-01-01", "--per-image=1"],
        ["price", "delete", "gpt-image-2", "--from", "2026-01-01", "--json"],
    ] {
        let output = gateway.run_command(&words);
        assert_eq!(output.code, FAILED, "{output:#?}");
        assert!(output.stderr.contains("gpt-image-2") && output.stderr.contains("settings file"), "{output:#?}");
    }
    let new = json!({"model": "gpt-image-2", "from": "2026-01-01", "per_image": 1});
    for call in [Call::put("/admin/v1/prices").json(&new), Call::delete("/admin/v1/prices/gpt-image-2/2026-01-01")] {
        assert_eq!(ask(&gateway, call).error_object(409)["code"], "price_read_only");
    }
    // Without the price of the file, that of the store applies.
    std::fs::write(gateway.config(), file).expect("a configuration");
    gateway.run_command(&["config", "reload"]).ok_stdout();
    assert_exact(&record_now(&gateway, "without"), 0.011_89);
}

#[test]
fn wrong_prices_are_refused_with_the_name_of_the_field() {
    let gateway = Gateway::simulated();
    let set = |words: &[&str]| gateway.run_command(&[&["price", "set"], words].concat());
    for (words, field) in [
        (vec!["m", "--from", "2026-01-01", "--image-output", "-1"], "image-output"),
        (vec!["m", "--from", "2026-01-01", "--per-image", "nan"], "per-image"),
        (vec!["m", "--from", "2026-01-01", "--text-input", "1000001"], "text-input"),
        (vec!["m", "--from", "2026-01-01", "--text-input", "five"], "--text-input"),
        (vec!["m", "--from", "2026-01-01"], "image-output"),
        (vec!["m", "--from", "2026-02-30", "--per-image", "1"], "--from"),
        (vec!["m", "--per-image", "1"], "--from"),
        (vec!["a model", "--from", "2026-01-01", "--per-image", "1"], "model"),
        (vec!["m", "--from", "2026-01-01", "--per-image", "1", "--source", "two\nlines"], "source"),
    ] {
        let output = set(&words);
        assert_eq!(output.code, USAGE, "{words:?}: {output:#?}");
        assert!(output.stderr.contains(field) && output.stdout.is_empty(), "{words:?}: {output:#?}");
    }
    let output = gateway.run_command(&["price", "delete", "m", "--from", "2026-01-01"]);
    assert_eq!(output.code, FAILED, "{output:#?}");
    assert!(output.stderr.contains("no price of m from 2026-01-01"), "{output:#?}");
    let listed = gateway.run_command(&["price", "list", "--json"]).json();
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "only the price of the program: {listed}");
}

#[test]
fn wrong_prices_of_the_settings_file_stop_the_start() {
    let gateway = Gateway::simulated();
    let file = std::fs::read_to_string(gateway.config()).expect("a configuration");
    for (lines, place) in [
        ("from = \"2026-01-01\"\nper_image = 1", "`model` is missing"),
        ("model = \"m\"\nper_image = 1", "`from` is missing"),
        ("model = \"m\"\nfrom = \"2026-01-01\"", "`model` has no price"),
        ("model = \"m\"\nfrom = \"2026-02-30\"\nper_image = 1", "`from` must be a day"),
        (
            "model = \"m\"\nfrom = \"2026-01-01\"\nimage_output = \"5\"",
            "`image_output` is a string but must be a number",
        ),
        ("model = \"m\"\nfrom = \"2026-01-01\"\nimage_output = -1", "`image_output` must be from 0 to 1000000"),
        ("model = \"m\"\nfrom = \"2026-01-01\"\nimage_output = 1e7", "`image_output` must be from 0 to 1000000"),
        ("model = \"m\"\nfrom = \"2026-01-01\"\nimage_outputs = 1", "image_outputs"),
    ] {
        std::fs::write(gateway.config(), format!("{file}\n[[prices]]\n{lines}\n")).expect("a configuration");
        let output = gateway.run_command(&["config", "check"]);
        assert_eq!(output.code, Some(64), "{lines}: {output:#?}");
        assert!(output.stderr.contains(place), "{lines}: {output:#?}");
    }
    std::fs::write(gateway.config(), file).expect("a configuration");
}

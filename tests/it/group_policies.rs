//! Policies of groups that are not in the settings file: set by API and command, checked as the file is, and in force
//! within a second.

use serde_json::{Value, json};

use crate::kit::{Account, Answer, Call, FLAGGED, FakeModerator, FakeUpstream, Gateway, eventually, request};

const TOKEN: &str = "admin-token-canary-0123456789abcdef";
const KEY: &str = "sk-moderation-canary";
const GROUPS: &str = "/admin/v1/groups";

/// The secrets of the environment. A policy may not name the last one.
const SECRETS: [(&str, &str); 3] = [("IT_ADMIN", TOKEN), ("IT_MODERATION", KEY), ("IT_OTHER", "sk-other-canary")];

/// A gateway whose file has the group `written`.
fn open(upstream: &FakeUpstream) -> Gateway {
    let top = "admin_token = { env = \"IT_ADMIN\" }\n[[groups]]\nname = \"written\"\ndelivery = \"fail\"\n\
               [groups.filter]\nwords = [\"airship\"]\n";
    let account = Account::for_upstream("only", upstream).with_line("groups = [\"default\", \"written\"]");
    Gateway::with_secrets(top, &[account], &SECRETS)
}

/// Sends a call with the admin token.
fn ask(gateway: &Gateway, call: Call) -> Answer {
    call.key(TOKEN).send(gateway.address())
}

fn change(gateway: &Gateway, group: &str, policy: &Value) -> Answer {
    ask(gateway, Call::patch(&format!("{GROUPS}/{group}")).json(&json!({ "policy": policy })))
}

/// Sends a generation; returns the status of the answer.
fn draw(gateway: &Gateway, prompt: &str) -> u16 {
    gateway.generate(json!({ "prompt": prompt })).status
}

/// A policy with this moderation endpoint and this reference to its key.
fn moderated(moderator: &FakeModerator, key: &Value) -> Value {
    json!({"filter": {"moderation": {"base_url": moderator.base_url(), "api_key": key, "on_error": "closed"}}})
}

#[test]
fn a_policy_is_in_force_within_a_second_and_after_a_restart_and_can_be_removed() {
    let upstream = FakeUpstream::start();
    let mut gateway = open(&upstream);
    assert_eq!(ask(&gateway, Call::get(&format!("{GROUPS}/default"))).ok_json()["source"], "store");
    assert_eq!(draw(&gateway, "a zeppelin"), 200);
    let policy = json!({"image_deadline": "90s", "filter": {"words": ["zeppelin"], "patterns": ["bal+oon"]}});
    let changed = change(&gateway, "default", &policy).ok_json();
    assert_eq!((&changed["policy"], &changed["problem"]), (&policy, &Value::Null));
    eventually("the filter is in force", || (draw(&gateway, "a zeppelin") == 502).then_some(()));
    assert_eq!((draw(&gateway, "a balllloon"), draw(&gateway, "a boat")), (502, 200));
    gateway.kill();
    gateway.start();
    assert_eq!((draw(&gateway, "a zeppelin"), draw(&gateway, "a boat")), (502, 200), "from the first request on");
    // Reading the file again does not lose the policies in the store.
    gateway.run_command(&["config", "reload"]).ok_stdout();
    assert_eq!(draw(&gateway, "a zeppelin"), 502);
    // A setting that the new policy leaves out has its default value again.
    change(&gateway, "default", &json!({"filter": {"words": ["boat"]}})).ok_json();
    eventually("the other filter is in force", || (draw(&gateway, "a boat") == 502).then_some(()));
    assert_eq!(draw(&gateway, "a zeppelin"), 200);
    // An empty list allows nothing, and is not the same as a missing one.
    let nothing = json!({"text_models": [], "tools": []});
    assert_eq!(change(&gateway, "default", &nothing).ok_json()["policy"], nothing);
    assert_eq!(change(&gateway, "default", &json!({})).ok_json()["policy"], json!({}));
    eventually("nothing is filtered", || (draw(&gateway, "a boat") == 200).then_some(()));
    let trail = ask(&gateway, Call::get("/admin/v1/audit?action=group.change")).ok_json();
    let last = &trail["data"][0];
    assert_eq!((&last["target_name"], &trail["total"]), (&json!("default"), &json!(4)));
    assert_eq!(last["details"], json!({"from": nothing, "to": {}}));
}

#[test]
fn a_new_group_has_its_policy_from_its_first_request_on() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream);
    let new = json!({"name": "Design team", "policy": {"delivery": "fail", "filter": {"words": ["zeppelin"]}}});
    let made = ask(&gateway, Call::post(GROUPS).json(&new)).ok_json();
    assert_eq!((&made["name"], &made["policy"]), (&new["name"], &new["policy"]));
    let listed = ask(&gateway, Call::get(GROUPS)).ok_json();
    let found = listed["data"].as_array().expect("groups").iter().find(|group| group["name"] == "Design team");
    assert_eq!(found.map(|group| &group["policy"]), Some(&new["policy"]));
    let created = ask(&gateway, Call::get("/admin/v1/audit?action=group.create")).ok_json();
    assert_eq!(created["data"][0]["details"], json!({ "policy": new["policy"] }));
    assert_eq!(ask(&gateway, Call::post(GROUPS).json(&new)).error_object(409)["code"], "group_exists");
    // A group that is deleted and made again begins without a policy.
    ask(&gateway, Call::delete(&format!("{GROUPS}/Design%20team"))).ok_json();
    let again = ask(&gateway, Call::post(GROUPS).json(&json!({"name": "Design team"}))).ok_json();
    assert_eq!(again["policy"], json!({}));
}

#[test]
fn a_filter_is_in_force_when_the_answer_comes() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream);
    for round in 0..8 {
        let word = format!("zeppelin{round}");
        let policy = json!({"filter": {"words": [word]}});
        change(&gateway, "default", &policy).ok_json();
        assert_eq!(draw(&gateway, &word), 502, "the filter is in force when the answer comes");
        let group = format!("team{round}");
        ask(&gateway, Call::post(GROUPS).json(&json!({"name": group, "policy": policy}))).ok_json();
        let key =
            ask(&gateway, Call::post("/admin/v1/keys").json(&json!({"name": group, "group": group, "user": "admin"})))
                .ok_json();
        let secret = key["secret"].as_str().expect("a secret");
        let call = Call::generation().key(secret).json(&request(json!({ "prompt": word })));
        let answer = call.send(gateway.address());
        // No account serves the group: an unfiltered request would get another code.
        assert_eq!(answer.error_object(502)["reason"], "content_refused", "{answer:?}");
    }
    assert_eq!(upstream.attempt_count(), 0);
}

#[test]
fn a_group_made_by_command_passes_nothing_unfiltered() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream);
    let path = gateway.home().join("policy.toml");
    std::fs::write(&path, "[filter]\nwords = [\"zeppelin\"]\n").expect("a file");
    let policy = path.to_str().expect("a path");
    for round in 0..4 {
        let group = format!("team{round}");
        gateway.run_command(&["group", "create", &group, "--policy", policy]).ok_stdout();
        let key =
            ask(&gateway, Call::post("/admin/v1/keys").json(&json!({"name": group, "group": group, "user": "admin"})))
                .ok_json();
        let secret = key["secret"].as_str().expect("a secret");
        let call = || Call::generation().key(secret).json(&request(json!({"prompt": "a zeppelin"})));
        eventually("the filter is in force", || {
            let answer = call().send(gateway.address());
            let error = answer.json()["error"].clone();
            let is_refused = error["reason"] == "content_refused";
            // No account serves the group: an unfiltered request would get another code.
            assert!(is_refused || error["code"] == "service_unavailable", "{answer:?}");
            is_refused.then_some(())
        });
    }
}

#[test]
fn without_certificates_only_the_group_that_needs_them_is_refused() {
    let upstream = FakeUpstream::start();
    let top = "admin_token = { env = \"IT_ADMIN\" }\n";
    let account = Account::for_upstream("only", &upstream);
    let empty = std::env::temp_dir().join(format!("imagate-no-roots-{}.pem", std::process::id()));
    std::fs::write(&empty, "").expect("a file");
    let none = empty.to_str().expect("a path");
    let secrets = [("IT_ADMIN", TOKEN), ("IT_MODERATION", KEY), ("SSL_CERT_FILE", none), ("SSL_CERT_DIR", none)];
    let mut gateway = Gateway::with_secrets(top, &[account], &secrets);
    let service = json!({"base_url": "https://judge.example/v1", "on_error": "closed"});
    let policy = json!({"filter": {"moderation": service}});
    let error = change(&gateway, "default", &policy).error_object(400);
    assert_eq!(error["param"], "policy.filter.moderation.base_url", "{error}");
    let path = gateway.home().join("policy.json");
    std::fs::write(&path, policy.to_string()).expect("a file");
    gateway.run_command(&["group", "create", "closed", "--policy", path.to_str().expect("a path")]).ok_stdout();
    // The problem of this group stops neither the start nor the policies of other groups.
    gateway.kill();
    gateway.start();
    let shown = ask(&gateway, Call::get(&format!("{GROUPS}/closed"))).ok_json();
    assert!(shown["problem"].as_str().is_some_and(|problem| problem.contains("needs TLS")), "{shown}");
    assert_eq!(shown["policy"], policy);
    change(&gateway, "default", &json!({"filter": {"words": ["zeppelin"]}})).ok_json();
    assert_eq!((draw(&gateway, "a zeppelin"), draw(&gateway, "a boat")), (502, 200));
    let key =
        ask(&gateway, Call::post("/admin/v1/keys").json(&json!({"name": "k", "group": "closed", "user": "admin"})))
            .ok_json();
    let call = Call::generation().key(key["secret"].as_str().expect("a secret"));
    let answer = call.json(&request(json!({"prompt": "a boat"}))).send(gateway.address());
    // No account serves the group: if its policy could be used, the request would get another code.
    assert_eq!(answer.error_object(503)["code"], "service_unavailable", "{answer:?}");
    std::fs::remove_file(empty).expect("it is there");
}

#[test]
fn a_command_does_not_ask_its_own_environment_for_the_key_of_a_service() {
    let (upstream, moderator) = (FakeUpstream::start(), FakeModerator::start());
    let gateway = open(&upstream);
    let path = gateway.home().join("policy.json");
    std::fs::write(&path, moderated(&moderator, &json!({"env": "NO_MODERATION"})).to_string()).expect("a file");
    let path = path.to_str().expect("a path");
    let done = gateway.run_command(&["group", "create", "studio", "--policy", path]);
    done.ok_stdout();
    assert!(
        done.stderr.contains("NO_MODERATION") && done.stderr.contains("it must be set for the gateway"),
        "{done:#?}"
    );
    let shown = gateway.run_command(&["group", "show", "studio", "--json"]).json();
    assert_eq!(shown["problem"], Value::Null, "{shown}");
    let listed = gateway.run_command(&["group", "list", "--json"]).json();
    assert!(listed.as_array().expect("groups").iter().all(|group| group["problem"].is_null()), "{listed}");
    // The server reads its own environment, and finds that the variable is missing.
    eventually("the server reports the problem", || {
        let shown = ask(&gateway, Call::get(&format!("{GROUPS}/studio"))).ok_json();
        shown["problem"].as_str().filter(|problem| problem.contains("not set")).map(|_| ())
    });
}

#[test]
fn a_policy_that_cannot_be_used_changes_nothing_and_its_field_is_named() {
    let upstream = FakeUpstream::start();
    let moderator = FakeModerator::start();
    let gateway = open(&upstream);
    change(&gateway, "default", &json!({"filter": {"words": ["zeppelin"]}})).ok_json();
    let service = |with: Value| {
        let mut service = json!({"base_url": moderator.base_url(), "on_error": "closed"});
        service.as_object_mut().expect("a table").extend(with.as_object().expect("a table").clone());
        json!({"filter": {"moderation": service}})
    };
    for (policy, param, word) in [
        (json!({"delivery": "sometimes"}), "policy.delivery", "must be"),
        (json!({"fallback": true}), "policy.fallback", "is true but must be \""),
        (json!({"image_deadline": "2h"}), "policy.image_deadline", "1h"),
        (json!({"image_deadline": 90}), "policy.image_deadline", "must be"),
        (json!({"inject_image_tool": "yes"}), "policy.inject_image_tool", "true or false"),
        (json!({"text_models": ["two words"]}), "policy.text_models[0]", "model"),
        (json!({"tools": ["Web Search"]}), "policy.tools[0]", "type of a tool"),
        (json!({"colour": "red"}), "policy.colour", "unknown setting"),
        (json!({"name": "other"}), "policy.name", "is not a setting of a policy"),
        (json!({"filter": {"words": ["fine", " "]}}), "policy.filter.words[1]", "blank"),
        (json!({"filter": {"words": ["\u{200b}"]}}), "policy.filter.words[0]", "visible"),
        (json!({"filter": {"words": ["two\nlines"]}}), "policy.filter.words[0]", "line break"),
        (json!({"filter": {"patterns": ["("]}}), "policy.filter.patterns[0]", "unclosed group"),
        (json!({"filter": {"moderation": {"on_error": "open"}}}), "policy.filter.moderation.base_url", "missing"),
        (service(json!({"on_error": "maybe"})), "policy.filter.moderation.on_error", "must be"),
        (service(json!({"base_url": "http://judge.example/v1"})), "policy.filter.moderation.base_url", "https"),
        (service(json!({"api_key": "sk-literal-canary"})), "policy.filter.moderation.api_key", "env"),
        (service(json!({"api_key": {"file": "/etc/hostname"}})), "policy.filter.moderation.api_key", "file"),
        (service(json!({"api_key": {"env": "IT_OTHER"}})), "policy.filter.moderation.api_key", "MODERATION"),
        (service(json!({"api_key": {"env": "NO_MODERATION"}})), "policy.filter.moderation.api_key", "not set"),
    ] {
        let error = change(&gateway, "default", &policy).error_object(400);
        assert_eq!(error["param"], param, "{policy}: {error}");
        let message = error["message"].as_str().expect("a message");
        assert!(message.contains(word) && !message.contains("canary"), "{policy}: {message}");
        let error = ask(&gateway, Call::post(GROUPS).json(&json!({"name": "new", "policy": policy}))).error_object(400);
        assert_eq!(error["param"], param, "{policy}: {error}");
    }
    for (body, param) in [
        (json!({}), json!("policy")),
        (json!({"policy": 7}), json!("policy")),
        (json!({"policy": null}), json!("policy")),
        (json!({"policy": {}, "more": 1}), json!("more")),
    ] {
        let error = ask(&gateway, Call::patch(&format!("{GROUPS}/default")).json(&body)).error_object(400);
        assert_eq!(error["param"], param, "{body}: {error}");
    }
    let error = change(&gateway, "written", &json!({})).error_object(409);
    assert_eq!(error["code"], "group_read_only");
    assert_eq!(change(&gateway, "nobody", &json!({})).error_object(404)["code"], "group_not_found");
    let listed = ask(&gateway, Call::get(GROUPS)).ok_json();
    let found: Vec<_> = listed["data"].as_array().expect("groups").iter().map(|group| &group["policy"]).collect();
    let written = json!({"delivery": "fail", "filter": {"words": ["airship"]}});
    assert_eq!(found, [&json!({"filter": {"words": ["zeppelin"]}}), &written]);
    assert_eq!(moderator.calls().len(), 0);
}

#[test]
fn the_key_of_a_moderation_service_is_named_but_never_stored_and_without_it_nothing_is_served() {
    let (upstream, moderator) = (FakeUpstream::start(), FakeModerator::start());
    let mut gateway = open(&upstream);
    let policy = moderated(&moderator, &json!({"env": "IT_MODERATION"}));
    let changed = change(&gateway, "default", &policy).ok_json();
    assert_eq!(changed["policy"], policy);
    eventually("the service is asked", || {
        assert_ne!(draw(&gateway, "a boat"), 503);
        moderator.calls().last().map(|asked| asked.authorization.clone())
    });
    assert_eq!(moderator.calls()[0].authorization.as_deref(), Some(&*format!("Bearer {KEY}")));
    assert_eq!(draw(&gateway, &format!("please {FLAGGED}")), 502);
    for file in std::fs::read_dir(gateway.home().join("data")).expect("a directory").flatten() {
        let bytes = std::fs::read(file.path()).unwrap_or_default();
        assert!(bytes.windows(KEY.len()).all(|part| part != KEY.as_bytes()), "{:?}", file.path());
    }
    // Without the variable the filter stays in force, and the problem is shown.
    let attempts = upstream.attempt_count();
    gateway.kill();
    gateway.unset_variable("IT_MODERATION");
    gateway.start();
    assert_eq!(draw(&gateway, "a boat"), 503);
    let shown = ask(&gateway, Call::get(&format!("{GROUPS}/default"))).ok_json();
    let problem = shown["problem"].as_str().expect("a problem");
    assert!(problem.contains("`IT_MODERATION`, which is not set"), "{shown}");
    assert_eq!((&shown["policy"], upstream.attempt_count()), (&policy, attempts));
    // Another policy ends the problem.
    change(&gateway, "default", &json!({})).ok_json();
    eventually("the group is served again", || (draw(&gateway, "a boat") == 200).then_some(()));
}

#[test]
fn groups_are_managed_by_command_beside_a_running_server() {
    let upstream = FakeUpstream::start();
    let gateway = open(&upstream);
    let file = |text: &str| {
        let path = gateway.home().join("policy.toml");
        std::fs::write(&path, text).expect("a file");
        path.to_str().expect("a path").to_owned()
    };
    let policy = file("delivery = \"fail\"\n[filter]\nwords = [\"zeppelin\"]\n");
    gateway.run_command(&["group", "change", "default", "--policy", &policy]).ok_stdout();
    eventually("the filter is in force", || (draw(&gateway, "a zeppelin") == 502).then_some(()));
    let shown = gateway.run_command(&["group", "show", "default"]).ok_stdout().to_owned();
    assert_eq!(
        toml::from_str::<Value>(&shown).expect("TOML"),
        json!({"delivery": "fail", "filter": {"words": ["zeppelin"]}})
    );
    let policy = file("{\"filter\": {\"patterns\": [\"zep+elin\"]}}");
    let made = gateway.run_command(&["group", "create", "studio", "--policy", &policy, "--json"]).json();
    assert_eq!((&made["source"], &made["policy"]["filter"]["patterns"]), (&json!("store"), &json!(["zep+elin"])));
    let listed = gateway.run_command(&["group", "list", "--json"]).json();
    let names: Vec<_> =
        listed.as_array().expect("groups").iter().map(|group| (&group["name"], &group["source"])).collect();
    let (store, of_file) = (json!("store"), json!("file"));
    let [default, studio, written] = [json!("default"), json!("studio"), json!("written")];
    assert_eq!(names, [(&default, &store), (&studio, &store), (&written, &of_file)]);
    for (words, code, said) in [
        (&["group", "change", "written", "--policy", &policy][..], 1, "the settings file"),
        (&["group", "change", "nobody", "--policy", &policy], 1, "the group nobody does not exist"),
        (&["group", "create", "studio"], 1, "the group studio already exists"),
        (&["group", "delete", "default"], 1, "cannot be deleted"),
        (&["group", "change", "studio", "--policy", "gone.toml"], 2, "gone.toml cannot be read"),
    ] {
        let done = gateway.run_command(words);
        assert_eq!(done.code, Some(code), "{done:#?}");
        assert!(done.stderr.contains(said), "{done:#?}");
    }
    let wrong = file("deliveri = \"fail\"\n[filter]\nwords = [\"\"]\n");
    let done = gateway.run_command(&["group", "change", "studio", "--policy", &wrong]);
    assert_eq!(done.code, Some(2), "{done:#?}");
    assert!(done.stderr.contains("deliveri") && done.stderr.contains("`words[0]` is blank"), "{done:#?}");
    gateway.run_command(&["group", "delete", "studio"]).ok_stdout();
    let call = Call::generation().key(gateway.secret()).json(&request(json!({"prompt": "a boat"})));
    assert_eq!(call.send(gateway.address()).status, 200);
}

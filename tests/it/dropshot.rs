//! The generated API on servers of dropshot as they come, with the routes that dropshot registers: every kind of call gets
//! the answer of the documents. The servers run in the process of the test, on the data of a gateway that was ended.

use std::net::SocketAddr;

use imagate::DropshotGateway;
use serde_json::json;
use tokio::runtime::Runtime;

use crate::kit::{Answer, Call, Events, Form, Gateway, alpha_png, request};

const TOKEN: &str = "admin-token-for-dropshot-0123456789abcdef";

/// The two servers, and the gateway whose data they have.
struct DropshotServers {
    gateway: Gateway,
    runtime: Runtime,
    served: DropshotGateway,
}

// === impl DropshotServers ===

impl DropshotServers {
    /// The simulator answers.
    fn start() -> Self {
        let secrets = [("IT_ADMIN", TOKEN)];
        let mut gateway = Gateway::with_secrets("admin_token = { env = \"IT_ADMIN\" }", &[], &secrets);
        gateway.kill();
        let runtime = Runtime::new().expect("a runtime");
        let served = runtime.block_on(DropshotGateway::start(gateway.config(), gateway.environment()));
        let served = served.expect("dropshot serves both documents");
        gateway.watch_address(served.public_address());
        Self { gateway, runtime, served }
    }

    fn public(&self) -> SocketAddr {
        self.served.public_address()
    }

    /// Sends a call with the key of the gateway.
    #[track_caller]
    fn call(&self, call: Call) -> Answer {
        call.key(self.gateway.secret()).send(self.public())
    }

    /// Sends a call with the admin token. No answer of the admin API may be stored.
    #[track_caller]
    fn manage(&self, call: Call) -> Answer {
        let answer = call.key(TOKEN).send(self.served.admin_address());
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{answer:?}");
        answer
    }

    fn stop(self) {
        self.gateway.unwatch_address(self.public());
        self.runtime.block_on(self.served.stop());
    }
}

/// The id under which the record of an answer is kept.
fn request_id(answer: &Answer) -> String {
    answer.header("x-request-id").expect("an id").to_owned()
}

#[test]
fn every_operation_of_callers_is_served() {
    let servers = DropshotServers::start();
    let generation = servers.call(Call::generation().json(&request(json!({"size": "1024x640", "quality": "low"}))));
    assert!(generation.ok_json()["data"][0]["b64_json"].is_string());
    let id = request_id(&generation);

    let stream = json!({"size": "1024x640", "stream": true, "partial_images": 1});
    let stream = Call::generation().key(servers.gateway.secret()).json(&request(stream)).open(servers.public());
    let events = Events::from_reply(stream.expect("a stream")).remaining();
    let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names, ["image_generation.partial_image", "image_generation.completed"]);

    let picture = alpha_png(64, 64);
    let edit = Form::with_required_fields().text("size", "1024x640").file("image", &picture).call();
    assert!(servers.call(edit).ok_json()["data"][0]["b64_json"].is_string());

    let estimate = Call::post("/v1/images/estimate").json(&request(json!({"size": "1024x640", "quality": "low"})));
    assert!(servers.call(estimate).ok_json().is_object());

    let response = json!({
        "model": "gpt-5.5", "input": "a red cube",
        "tools": [{"type": "image_generation", "size": "1024x640", "quality": "low"}],
    });
    let response = servers.call(Call::post("/v1/responses").json(&response)).ok_json();
    assert_eq!(response["output"][0]["type"], "image_generation_call");

    assert_eq!(servers.call(Call::get("/v1/models")).ok_json()["object"], "list");
    assert!(servers.call(Call::get("/v1/images/models")).ok_json()["data"].is_array());
    assert_eq!(servers.call(Call::get("/v1/models/gpt-image-2")).ok_json()["id"], "gpt-image-2");

    let record = servers.manage(Call::get(&format!("/admin/v1/records/{id}"))).ok_json();
    assert_eq!((&record["state"], &record["operation"]), (&json!("succeeded"), &json!("create_image")));
    servers.stop();
}

#[test]
fn refusals_are_those_of_the_gateway() {
    let servers = DropshotServers::start();
    let code = |answer: &Answer, status: u16| answer.error_object(status)["code"].as_str().map(str::to_owned);
    let unknown = Call::generation().key("sk-img-nobody").json(&request(json!({}))).send(servers.public());
    assert_eq!(code(&unknown, 401).as_deref(), Some("INVALID_API_KEY"));
    assert_eq!(unknown.header("www-authenticate"), Some("Bearer"));
    let size = servers.call(Call::generation().json(&request(json!({"size": "1x1"}))));
    assert_eq!(size.error_object(400)["param"], "size");
    assert_eq!((size.should_retry(), size.header("x-request-id").is_some()), (Some("false"), true));
    servers.call(Call::generation().bytes("{").header("content-type", "application/json")).error_object(400);
    servers.call(Call::generation().bytes("model").header("content-type", "text/plain")).error_object(415);
    let long = Call::generation().header("content-type", "application/json").announcing_only(2 << 20);
    servers.call(long).error_object(413);
    let model = servers.call(Call::get("/v1/models/no%2Fsuch"));
    assert_eq!(code(&model, 404).as_deref(), Some("model_not_found"));
    assert!(model.text().contains("no/such"), "{}", model.text());

    let query = servers.manage(Call::get("/admin/v1/keys?serch=a"));
    assert_eq!(query.error_object(400)["param"], "serch");
    Call::get("/admin/v1/keys").key(servers.gateway.secret()).send(servers.served.admin_address()).error_object(401);
    servers.manage(Call::get("/admin/v1/keys/nobody")).error_object(404);
    servers.stop();
}

#[test]
fn every_kind_of_admin_operation_is_served() {
    let servers = DropshotServers::start();
    let group = servers.manage(Call::post("/admin/v1/groups").json(&json!({"name": "painters"}))).ok_json();
    assert_eq!(group["name"], "painters");
    let user = json!({"name": "ada", "groups": ["painters"]});
    let user = servers.manage(Call::post("/admin/v1/users").json(&user)).ok_json();
    let key = json!({"name": "brush", "user": user["user"]["id"]});
    let key = servers.manage(Call::post("/admin/v1/keys").json(&key)).ok_json();
    let (secret, id) = (key["secret"].as_str().expect("a secret"), key["key"]["id"].as_str().expect("an id"));
    Call::generation().key(secret).json(&request(json!({"quality": "low"}))).send(servers.public()).ok_json();

    let list = servers.manage(Call::get("/admin/v1/keys?search=brush&limit=7")).ok_json();
    assert_eq!(list["data"][0]["id"], id);
    let path = format!("/admin/v1/keys/{id}");
    let renamed = servers.manage(Call::patch(&path).json(&json!({"name": "pencil"}))).ok_json();
    assert_eq!(renamed["name"], "pencil");
    assert_eq!(servers.manage(Call::get(&path)).ok_json()["name"], "pencil");
    assert!(servers.manage(Call::get("/admin/v1/usage")).ok_json().is_object());
    assert_eq!(servers.manage(Call::delete(&path)).ok_json()["deleted"], true);
    servers.manage(Call::get(&path)).error_object(404);
    servers.stop();
}

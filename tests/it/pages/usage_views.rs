//! The views of the usage: measures, periods, the comparison with the period before, and links to records.

use serde_json::json;

use super::users::{make_key, sign_in_ada};
use super::visitor::unescaped;
use crate::kit::{Call, Gateway, request};

/// The addresses in a page that begin so.
fn links(html: &str, prefix: &str) -> Vec<String> {
    let links = html.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
    links.map(unescaped).filter(|link| link.starts_with(prefix)).collect()
}

#[test]
fn each_measure_and_period_is_an_address_and_bars_lead_to_their_records() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    let (_, secret) = make_key(&mut ada, "laptop");
    for _ in 0..3 {
        let answer = Call::generation().json(&request(json!({}))).key(&secret).send(gateway.address());
        assert_eq!(answer.status, 200);
    }
    gateway.final_records(3);
    let page = ada.get("/usage").text();
    assert!(page.contains("100.0 %"), "the success rate: {page}");
    for measure in ["requests", "images", "tokens", "cost"] {
        let link = links(&page, "/usage?").into_iter().find(|link| link.contains(&format!("measure={measure}")));
        let view = ada.get(&link.unwrap_or_else(|| panic!("no link to {measure}"))).text();
        assert!(view.contains("aria-current=\"true\""), "{measure}");
        assert_eq!(view.contains("class=\"legend\""), measure == "requests");
    }
    // The measure stays when the period changes, and the other way round.
    let tokens = ada.get("/usage?measure=tokens&key=none").text();
    let presets: Vec<_> = links(&tokens, "/usage?").into_iter().filter(|link| link.contains("since=")).collect();
    assert!(
        presets.len() >= 4 && presets.iter().all(|link| link.contains("measure=tokens") && link.contains("key=none"))
    );
    let bar = page.split("<a href=\"").find(|link| link.contains("tabindex=\"-1\"><rect")).expect("a bar");
    let records = ada.get(&unescaped(bar.split('"').next().unwrap_or_default())).text();
    assert_eq!(records.matches("href=\"/records/").count(), 3, "{records}");
}

#[test]
fn members_see_the_views_of_their_own_usage_only() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    let mut ben = super::users::sign_in_ben(&mut ada);
    let (_, secret) = make_key(&mut ada, "laptop");
    assert_eq!(Call::generation().json(&request(json!({}))).key(&secret).send(gateway.address()).status, 200);
    gateway.final_records(1);
    for path in
        ["/usage?measure=cost", "/usage?measure=images&since=2020-01-01", "/usage?since=0001-01-01&until=0001-01-02"]
    {
        let page = ben.get(path);
        assert_eq!(page.status, 200, "{path}");
        assert!(!page.text().contains("<rect") && !page.text().contains("laptop"), "{path}");
    }
}

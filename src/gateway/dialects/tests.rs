use serde_json::json;

use super::*;

fn find_model(id: &str) -> Option<Arc<ImageModelSpec>> {
    ImageModelSpec::documented().find(|model| model.id == id).map(Arc::new)
}

#[track_caller]
fn check(declared: &[Dialect], before: Value, after: &Value, text: Option<&str>) {
    let Value::Object(mut fields) = before else { panic!("an object") };
    let adaptations = adapt(declared.iter().copied().collect(), None, find_model, &mut fields);
    assert_eq!((&Value::Object(fields), adaptations.text().as_deref()), (after, text));
}

/// A request that each dialect for fields changes.
fn request() -> Value {
    json!({"model": "dall-e-3", "prompt": "red", "size": "512x512", "quality": "hd", "style": "vivid",
        "input_fidelity": "high", "response_format": "url"})
}

#[test]
fn the_name_of_an_added_model_is_never_replaced() {
    let added = ImageModelSpec { id: "gpt-image-1".to_owned(), ..ImageModelSpec::default_model() };
    let find = |id: &str| (id == added.id).then(|| Arc::new(added.clone()));
    for (id, replaced) in [("gpt-image-1", None), ("gpt-image-1.5", Some("model gpt-image-1.5->gpt-image-2"))] {
        let Value::Object(mut fields) = json!({"model": id, "prompt": "red"}) else { panic!("an object") };
        let adaptations = adapt([Dialect::Models].into_iter().collect(), None, find, &mut fields);
        assert_eq!(adaptations.text().as_deref(), replaced);
    }
}

#[test]
fn each_dialect_changes_its_own_fields_and_no_others() {
    let with = |patch: Value, removed: &[&str]| {
        let mut fields = request();
        patch.as_object().unwrap().iter().for_each(|(name, value)| fields[name] = value.clone());
        removed.iter().for_each(|name| drop(fields.as_object_mut().unwrap().remove(*name)));
        fields
    };
    check(&[], request(), &request(), None);
    check(&[Dialect::Azure], request(), &request(), None);
    let sized = with(json!({"size": "1024x1024"}), &[]);
    check(&[Dialect::Sizes], request(), &sized, Some("size 512x512->1024x1024"));
    let named = with(json!({"model": "gpt-image-2"}), &[]);
    check(&[Dialect::Models], request(), &named, Some("model dall-e-3->gpt-image-2"));
    let linked = with(json!({}), &["response_format"]);
    check(&[Dialect::Url], request(), &linked, Some("response_format url"));
    let modern = with(json!({"quality": "high"}), &["style", "input_fidelity"]);
    let text = "quality hd->high, style dropped, input_fidelity dropped";
    check(&[Dialect::LegacyFields], request(), &modern, Some(text));
    let adapted = json!({"model": "gpt-image-2", "prompt": "red", "size": "1024x1024", "quality": "high"});
    let text = "model dall-e-3->gpt-image-2, size 512x512->1024x1024, quality hd->high, style dropped, \
                input_fidelity dropped, response_format url";
    check(&Dialect::ALL, request(), &adapted, Some(text));
}

#[test]
fn a_request_for_a_model_with_links_gets_links() {
    let (before, after) = (json!({"model": "dall-e-2"}), json!({"model": "gpt-image-2"}));
    let both = [Dialect::Models, Dialect::Url];
    check(&both, before.clone(), &after, Some("model dall-e-2->gpt-image-2, response_format url"));
    check(&[Dialect::Models], before, &after, Some("model dall-e-2->gpt-image-2"));
    let plain = json!({"model": "gpt-image-2", "response_format": "b64_json"});
    let before = json!({"model": "dall-e-2", "response_format": "b64_json"});
    check(&both, before, &plain, Some("model dall-e-2->gpt-image-2"));
    check(&both, json!({"model": "gpt-image-1"}), &after, Some("model gpt-image-1->gpt-image-2"));
}

#[test]
fn a_request_of_the_api_is_never_changed() {
    for fields in [
        json!({"model": "gpt-image-2", "prompt": "red"}),
        json!({"model": "gpt-image-2", "prompt": "red", "size": "auto", "quality": "medium"}),
        json!({"model": "gpt-image-2", "prompt": "red", "size": null, "quality": null, "input_fidelity": null}),
        json!({"model": "gpt-image-2", "prompt": "red", "input_fidelity": "", "response_format": "b64_json"}),
        json!({"model": "gpt-image-2-2026-04-21", "prompt": "red", "size": "1792x1024"}),
    ] {
        check(&Dialect::ALL, fields.clone(), &fields, None);
    }
}

#[test]
fn values_of_the_wrong_type_and_unknown_names_are_left_to_the_rules() {
    for fields in [
        json!({"model": 1, "size": 512, "quality": ["hd"], "response_format": {"url": 1}}),
        json!({"model": "gpt-image-10", "size": "large", "quality": "best"}),
        json!({"model": "dall-e-3\r\nx: y", "size": "0x0"}),
        json!({"model": "dall-e-é", "size": ""}),
        json!({"model": format!("dall-e-{}", "3".repeat(64))}),
    ] {
        check(&Dialect::ALL, fields.clone(), &fields, None);
    }
}

#[test]
fn an_absent_model_is_the_default_model() {
    let expected = json!({"model": "gpt-image-2", "prompt": "red"});
    for fields in [json!({"prompt": "red"}), json!({"prompt": "red", "model": null})] {
        check(&[Dialect::LegacyFields], fields.clone(), &expected, Some("model added gpt-image-2"));
        check(&[Dialect::Models, Dialect::Sizes], fields.clone(), &fields, None);
    }
}

#[test]
fn the_advice_names_the_dialects() {
    let of = |dialects: &[Dialect]| advice(dialects.iter().copied().collect(), "request");
    assert_eq!(of(&[]), "");
    let one = " The dialect 'sizes' accepts this request; an administrator can declare it for the key or its group.";
    assert_eq!(of(&[Dialect::Sizes]), one);
    let three = " The dialects 'sizes', 'legacy-fields' and 'models' accept this request; an administrator can declare \
                 them for the key or its group.";
    assert_eq!(of(&[Dialect::Models, Dialect::LegacyFields, Dialect::Sizes]), three);
}

#[test]
fn a_deployment_is_the_model_of_a_request_without_one() {
    let adapted = |declared: DialectSet, deployment: &str, mut fields: Value| {
        let adaptations = adapt(declared, Some(deployment), find_model, fields.as_object_mut().unwrap());
        (fields["model"].clone(), adaptations.text())
    };
    let azure = [Dialect::Azure].into_iter().collect();
    let (stated, changed) = (json!({"model": "gpt-image-2"}), |text: &str| Some(text.to_owned()));
    assert_eq!(adapted(azure, "mine", json!({})), (json!("mine"), changed("model added mine")));
    assert_eq!(adapted(azure, "mine", json!({"model": null})), (json!("mine"), changed("model added mine")));
    assert_eq!(adapted(azure, "mine", stated.clone()), (json!("gpt-image-2"), None));
    assert_eq!(adapted(azure, "a b", json!({})), (Value::Null, None));
    let both = changed("model added dall-e-3, model dall-e-3->gpt-image-2, response_format url");
    assert_eq!(adapted(DialectSet::all(), "dall-e-3", json!({})), (json!("gpt-image-2"), both));
    assert_eq!(adapted(DialectSet::default(), "mine", json!({})), (Value::Null, None));
}

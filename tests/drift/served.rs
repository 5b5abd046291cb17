//! The operations that dropshot's description of the generated traits marks as deprecated are those of the documents.
//!
//! The rest of the description is not compared: it is the document, through the generator. `addresses` compares the
//! registered routes, `values` the types, and `wire` the answers of the program.

use serde_json::{Map, Value, json};

use crate::{admin_document, document};

/// The operations that are marked as deprecated.
fn deprecated(document: &Value) -> Vec<String> {
    let items = document["paths"].as_object().into_iter().flat_map(Map::values);
    let operations = items.filter_map(Value::as_object).flat_map(Map::values);
    let marked = operations.filter(|operation| operation["deprecated"] == true);
    marked.map(|operation| operation["operationId"].to_string()).collect()
}

#[test]
fn the_same_operations_are_deprecated() {
    let served = imagate::served_description().expect("the trait describes itself");
    assert_eq!(deprecated(&document()), deprecated(&served));
    let served = imagate::served_admin_description().expect("the trait describes itself");
    assert_eq!(deprecated(&admin_document()), deprecated(&served));
    let mut changed = document();
    changed["paths"]["/v1/models"]["get"]["deprecated"] = json!(true);
    assert_eq!(deprecated(&changed), ["\"list_models\""]);
}

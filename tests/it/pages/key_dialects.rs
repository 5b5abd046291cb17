//! The dialects of keys, as admins set them with a form, and as members see them.

use super::users::{make_key, sign_in_ada, sign_in_ben};
use crate::kit::Gateway;

#[test]
fn an_admin_sets_the_dialects_of_a_key_and_a_member_only_sees_them() {
    let gateway = Gateway::simulated();
    let mut ada = sign_in_ada(&gateway);
    let mut ben = sign_in_ben(&mut ada);
    let (page, _) = make_key(&mut ben, "his");
    let action = format!("{page}/dialects");
    assert!(!ben.get(&page).text().contains("Dialects of the key"));
    assert_eq!(ada.form(&page, &action).value("dialects"), "");
    let saved = format!("{page}?done=saved");
    let answer = ada.submit(&page, &action, &[("dialects", "url\r\n\r\nsizes\r\n")]);
    assert_eq!((answer.status, answer.header("location")), (303, Some(saved.as_str())), "{}", answer.text());
    let stored = |visitor: &mut super::visitor::Visitor<'_>| {
        visitor.form(&page, &action).value("dialects").replace("\r\n", "\n")
    };
    assert_eq!(stored(&mut ada), "sizes\nurl");
    // The other forms of the page keep them, and a form that is sent unchanged changes nothing.
    for other in ["change", "limit", "dialects"] {
        assert_eq!(ada.submit(&page, &format!("{page}/{other}"), &[]).status, 303, "{other}");
        assert_eq!(stored(&mut ada), "sizes\nurl", "{other}");
    }
    // An unknown word is shown beside its field, and is not stored.
    let answer = ada.submit(&page, &action, &[("dialects", "sizes\r\ntiny")]);
    let html = answer.text();
    assert_eq!(answer.status, 422, "{html}");
    assert!(
        html.contains("id=\"dialects-error\"") && html.contains("tiny") && html.contains("legacy-fields"),
        "{html}"
    );
    assert_eq!(stored(&mut ada), "sizes\nurl");
    // The member sees them, and has no form.
    let html = ben.get(&page).text();
    assert!(html.contains("Dialects of the key") && html.contains("url") && !html.contains(&action), "{html}");
    let token = ben.form(&page, &format!("{page}/change")).value("csrf").to_owned();
    assert_eq!(ben.post(&action, &[("csrf".to_owned(), token)]).status, 403);
    assert_eq!(stored(&mut ada), "sizes\nurl");
    assert_eq!(ada.submit(&page, &action, &[("dialects", "")]).status, 303);
    assert_eq!(stored(&mut ada), "");
    assert!(!ben.get(&page).text().contains("Dialects of the key"));
}

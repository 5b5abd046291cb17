//! Tests of the budgets of users, keys and addresses.

use super::*;

/// Budgets of 100 bytes, 60 for a user and 40 for a key, of memory and of disk space.
fn budgets() -> Arc<RequestBudgets> {
    RequestBudgets::with_limits(|limits| {
        (limits.memory, limits.memory_per_user, limits.memory_per_key) = (100, 60, 40);
        (limits.disk, limits.disk_per_user, limits.disk_per_key) = (100, 60, 40);
    })
}

/// The scope of the budget that refused a share.
fn refused_by(result: io::Result<()>) -> Option<BudgetScope> {
    match result.err()?.get_ref()?.downcast_ref()? {
        BudgetExceeded::Bytes { scope, .. } => Some(*scope),
        BudgetExceeded::FreeSpace => None,
    }
}

#[test]
fn a_user_is_limited_with_all_of_its_keys_and_sessions_together() {
    for share_of in [Admission::memory, Admission::disk] {
        let budgets = budgets();
        let for_key = |user, key| share_of(&budgets.admit_for_test(user, key));
        let [mut first, mut second] = ["key_a", "key_b"].map(|key| for_key("usr_a", key));
        assert_eq!(refused_by(first.set_bytes(41)), Some(BudgetScope::Key));
        first.set_bytes(40).unwrap();
        assert_eq!(refused_by(second.set_bytes(21)), Some(BudgetScope::User));
        second.set_bytes(10).unwrap();
        let session = budgets.begin_for_test();
        session.set_principal(Principal::of_actor(Some(&"usr_a".into())));
        let mut third = share_of(&session);
        assert_eq!(refused_by(third.set_bytes(11)), Some(BudgetScope::User));
        third.set_bytes(10).unwrap();
        let mut other = for_key("usr_b", "key_c");
        other.set_bytes(40).unwrap();
        assert_eq!(refused_by(for_key("usr_c", "key_d").set_bytes(1)), Some(BudgetScope::All));
        drop((first, second));
        third.add_bytes(50).unwrap();
        drop((third, other));
        assert_eq!((budgets.usage().memory, budgets.usage().disk, budgets.usage().refused), (0, 0, 4));
    }
}

#[test]
fn a_key_without_a_person_counts_alone() {
    let budgets = budgets();
    let [mut first, mut second] = ["key_a", "key_b"].map(|key| budgets.admit_for_test(UserId::NOBODY, key).memory());
    first.set_bytes(40).unwrap();
    second.set_bytes(40).unwrap();
}

#[test]
fn a_sender_that_is_not_known_is_limited_by_its_address() {
    let budgets = budgets();
    let from = |last| Admission::begin(&budgets, IpAddr::from([192, 0, 2, last])).memory();
    let (mut first, mut second) = (from(1), from(1));
    first.set_bytes(UNAUTHENTICATED_MEMORY_PER_ADDRESS).unwrap();
    assert_eq!(refused_by(second.set_bytes(1)), Some(BudgetScope::Address));
    from(2).set_bytes(UNAUTHENTICATED_MEMORY_PER_ADDRESS).unwrap();
    budgets.admit_for_test("usr_a", "key_a").memory().set_bytes(40).unwrap();
}

#[test]
fn an_answer_is_counted_and_never_refused() {
    let budgets = budgets();
    let mut answer = budgets.answer_disk();
    answer.set_bytes(1_000).unwrap();
    assert_eq!(budgets.usage().disk, 1_000);
    assert_eq!(refused_by(budgets.admit_for_test("usr_a", "key_a").disk().set_bytes(1)), Some(BudgetScope::All));
}

fn push_all(builder: &mut JsonTextBuilder, text: &str) -> Result<(), JsonTextError> {
    text.as_bytes().chunks(1000).try_for_each(|piece| builder.push(piece))
}

#[test]
fn a_text_of_too_many_values_is_refused_before_it_has_arrived() {
    let budgets = RequestBudgets::default_for_test();
    let admission = budgets.admit_for_test("usr_a", "key_a");
    let most = usize::try_from(JSON_VALUES_MAX).unwrap();
    for value in ["0", "[]", "{}", "\"\"", "{\"\":0}"] {
        let (values, padding) = (most / value.len().div_ceil(2), " ".repeat(20_000));
        let array = |count: usize| format!("[{padding}{value}{}]", format!(",{value}").repeat(count - 1));
        let mut builder = JsonTextBuilder::new(&admission);
        assert!(matches!(push_all(&mut builder, &array(3 * values)), Err(JsonTextError::TooManyValues)), "{value}");
        assert!(CountedJson::new(&admission, &array(values / 3)).is_ok(), "{value}");
    }
    assert_eq!(budgets.usage().memory, 0);
}

#[test]
fn a_short_text_cannot_have_too_many_values() {
    let budgets = RequestBudgets::default_for_test();
    let admission = budgets.admit_for_test("usr_a", "key_a");
    let array = format!("[0{}]", ",0".repeat(8_000));
    assert!(CountedJson::new(&admission, &array).is_ok());
}

#[test]
fn a_text_counts_with_its_tree_until_it_is_dropped() {
    let budgets = RequestBudgets::default_for_test();
    let admission = budgets.admit_for_test("usr_a", "key_a");
    let array = format!("[{}0]", "0,  ".repeat(4_999));
    let json = CountedJson::new(&admission, &array).unwrap();
    assert_eq!(budgets.usage().memory, array.len() as u64 + 5_001 * JSON_VALUE_BYTES);
    let clone = json.clone();
    drop(json);
    assert!(budgets.usage().memory > 0);
    drop(clone);
    assert_eq!(budgets.usage().memory, 0);
}

#[tokio::test]
async fn only_a_large_text_is_parsed_on_another_thread() {
    let admission = RequestBudgets::default_for_test().admit_for_test("usr_a", "key_a");
    let this_thread = std::thread::current().id();
    for (length, is_here) in [(1_000, true), (100_000, false)] {
        let json = CountedJson::new(&admission, &format!("\"{}\"", "x".repeat(length))).unwrap();
        let parsed_on = json.parse_with(|_| std::thread::current().id()).await;
        assert_eq!(parsed_on == this_thread, is_here, "{length}");
        let first_and_last = json.run_parsing(async {
            let first = std::thread::current().id();
            tokio::task::yield_now().await;
            (first, std::thread::current().id())
        });
        let (first, last) = first_and_last.await;
        assert_eq!((first == this_thread, last == this_thread), (is_here, true), "{length}");
    }
}

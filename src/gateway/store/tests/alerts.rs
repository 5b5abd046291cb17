//! Tests of alerts and their deliveries, and of what is used of shared limits.

use std::time::Duration;

use super::*;

fn alert(id: &str, identity: &str, at: &str) -> NewAlert {
    NewAlert {
        id: id.to_owned(),
        identity: identity.to_owned(),
        event: "budget.exhausted".to_owned(),
        details: r#"{"spent_usd":1}"#.to_owned(),
        created_at: super::at(at),
    }
}

#[expect(clippy::excessive_nesting, reason = "every store, and every step of a history")]
#[tokio::test]
async fn an_alert_is_raised_once_however_many_nodes_see_it() {
    for Fixture { store, second_store, .. } in stores().await {
        let mut raises = JoinSet::new();
        for number in 0..8 {
            let store = Arc::clone(if number % 2 == 0 { &store } else { &second_store });
            let alert = alert(&format!("alr_{number}"), "same", "2026-11-26T10:00:00Z");
            raises.spawn(async move { store.raise_alert(&alert, &["webhook", "email"]).await.unwrap() });
        }
        let raised = raises.join_all().await.into_iter().filter(|is_new| *is_new).count();
        assert_eq!(raised, 1);
        let [row] = store.list_alerts(9).await.unwrap().try_into().unwrap();
        assert_eq!(row.deliveries.len(), 2, "the deliveries of one alert: {row:?}");
        assert!(store.raise_alert(&alert("alr_8", "other", "2026-11-26T11:00:00Z"), &[]).await.unwrap());
        let newest = store.list_alerts(1).await.unwrap();
        assert_eq!((newest[0].alert.id.as_str(), newest[0].deliveries.len()), ("alr_8", 0));
        assert_eq!(store.remove_old_alerts(at("2026-11-26T10:30:00Z")).await.unwrap(), 1);
        assert_eq!(store.list_alerts(9).await.unwrap().len(), 1);
        let due = store.claim_delivery("webhook", Timestamp::now(), Timestamp::now()).await.unwrap();
        assert!(due.is_none(), "the deliveries are removed with their alert");
    }
}

#[tokio::test]
async fn a_delivery_is_taken_by_one_node_and_due_again_if_that_node_dies() {
    for Fixture { store, second_store, .. } in stores().await {
        let begun = at("2026-11-26T10:00:00Z");
        store.raise_alert(&alert("alr_1", "one", "2026-11-26T10:00:00Z"), &["webhook"]).await.unwrap();
        let claim = async |store: &dyn Store, after: u64| {
            let now = begun + Duration::from_secs(after);
            store.claim_delivery("webhook", now, now + Duration::from_secs(120)).await.unwrap()
        };
        assert!(store.claim_delivery("email", begun, begun).await.unwrap().is_none(), "another channel");
        let first = claim(&*store, 0).await.unwrap();
        assert_eq!((first.attempt, first.alert.id.as_str()), (1, "alr_1"));
        assert!(claim(&*second_store, 60).await.is_none());
        // The first node has not noted an outcome for two minutes.
        let second = claim(&*second_store, 121).await.unwrap();
        assert_eq!(second.attempt, 2);
        let later = begun + Duration::from_secs(500);
        second_store.finish_delivery(&second, &DeliveryOutcome::Retry(later, "status 500".to_owned())).await.unwrap();
        store.finish_delivery(&first, &DeliveryOutcome::Failed(begun, "late".to_owned())).await.unwrap();
        let row = &store.list_alerts(1).await.unwrap()[0].deliveries[0];
        assert_eq!((row.state.as_str(), row.last_error.as_deref()), ("pending", Some("status 500")), "a late outcome");
        assert!(claim(&*store, 499).await.is_none());
        let third = claim(&*store, 500).await.unwrap();
        store.finish_delivery(&third, &DeliveryOutcome::Delivered(later)).await.unwrap();
        assert!(claim(&*store, 9_000).await.is_none());
        let row = &store.list_alerts(1).await.unwrap()[0].deliveries[0];
        let expected = DeliveryRow {
            channel: "webhook".to_owned(),
            state: "delivered".to_owned(),
            attempts: 3,
            due_at: later,
            last_error: None,
        };
        assert_eq!(*row, expected);
    }
}

#[tokio::test]
async fn the_keys_and_users_with_limits_are_found_with_their_names() {
    for Fixture { store, .. } in stores().await {
        let key = add_key(&*store, "limited").await;
        add_key(&*store, "other").await;
        let change = KeyChange::Limit(Some(r#"{"images_per_day":1}"#.to_owned()));
        store.change_key(&AuditContext::command(), key.id.as_str(), None, &[change]).await.unwrap();
        let found = store.limited_subjects().await.unwrap();
        let ids: Vec<_> = found.iter().map(|subject| subject.id.as_str()).collect();
        assert_eq!((ids, found[0].kind), (vec![key.id.as_str()], ReservationSubjectKind::Key));
        let name = async |kind, id: &str| store.subject_name(kind, id).await.unwrap();
        assert_eq!(name(ReservationSubjectKind::Key, key.id.as_str()).await.as_deref(), Some("limited"));
        assert_eq!(name(ReservationSubjectKind::User, key.user.as_str()).await.as_deref(), key.user_name.as_deref());
        assert_eq!(name(ReservationSubjectKind::Key, "key_gone").await, None);
    }
}

#[tokio::test]
async fn what_is_used_is_read_for_many_subjects_as_it_is_for_one_reservation() {
    for Fixture { store, .. } in stores().await {
        let Some(reservations) = store.shared_reservations() else { continue };
        let today = UtcDay::from(Timestamp::now());
        let subject = |kind, id: &str| ReservationSubject {
            kind,
            id: id.to_owned(),
            budget_since: today,
            needs_last_minute: true,
        };
        let subjects = vec![
            subject(ReservationSubjectKind::Group, "default"),
            subject(ReservationSubjectKind::Key, "key_a"),
            subject(ReservationSubjectKind::Key, "key_b"),
        ];
        for (request, subjects) in [("req_1", &subjects[..2]), ("req_2", &subjects[..1])] {
            let new = NewReservation {
                request_id: &RequestId::from(request),
                subjects: subjects.to_vec(),
                today,
                images: 2,
                is_waiting: false,
                is_open: true,
            };
            let held = HeldMoney { amount: Some(Usd::from_nanos(5)), is_ceiling: false };
            let decide = &mut |_| ReservationDecision::Reserve(vec![held; subjects.len()]);
            reservations.reserve(&new, decide).await.unwrap();
        }
        let usages = reservations.read_usage(&subjects, today).await.unwrap();
        let facts: Vec<_> =
            usages.iter().map(|usage| (usage.jobs, usage.open_images, usage.open.sum().nanos())).collect();
        assert_eq!(facts, [(2, 4, 10), (1, 2, 5), (0, 0, 0)]);
        let recent: Vec<_> =
            usages.iter().map(|usage| usage.last_minute.iter().map(|recent| recent.requests).sum::<u32>()).collect();
        assert_eq!(recent, [2, 1, 0]);
    }
}

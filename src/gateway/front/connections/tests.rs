use super::*;

const DEADLINES: ConnectionDeadlines = ConnectionDeadlines {
    head: Duration::from_secs(10),
    idle: Duration::from_secs(75),
    write: Duration::from_secs(60),
};

fn connections(max: usize, max_per_address: usize) -> Arc<ConnectionTable> {
    let metrics = ConnectionMetrics::default();
    Arc::new(ConnectionTable::with_limits(max, max_per_address, DEADLINES, TrustedProxies::default(), metrics))
}

fn from(last: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, last], 4711))
}

/// A connection whose request is being served.
fn busy(admission: &ConnectionSlot) {
    admission.connection().activity.record_request_start();
    admission.connection().activity.end_poll(admission.connections().now());
}

fn leaving(admissions: &[ConnectionSlot]) -> Vec<bool> {
    admissions.iter().map(|admission| admission.connection().is_leaving()).collect()
}

#[tokio::test]
async fn a_place_comes_back() {
    let connections = connections(1, 1);
    let first = connections.admit(from(1)).unwrap();
    busy(&first);
    assert!(connections.admit(from(2)).is_none());
    drop(first);
    assert!(connections.admit(from(2)).is_some());
}

#[tokio::test]
async fn the_address_that_holds_the_most_makes_room() {
    let connections = connections(3, 3);
    let open = [1, 2, 2].map(|last| connections.admit(from(last)).unwrap());
    let new = connections.admit(from(3)).unwrap();
    assert_eq!(leaving(&open), [false, true, false], "the older one of the address with two");
    drop(open);
    drop(new);
    assert!(connections.lock().connections.is_empty() && connections.lock().count_by_address.is_empty());
}

#[tokio::test]
async fn at_its_limit_an_address_makes_room_for_itself() {
    let connections = connections(9, 2);
    let open = [1, 2, 2].map(|last| connections.admit(from(last)).unwrap());
    let new = connections.admit(from(2)).unwrap();
    assert_eq!(leaving(&open), [false, true, false]);
    busy(&open[2]);
    busy(&new);
    assert!(connections.admit(from(2)).is_none(), "both of its places are in use");
    assert!(connections.admit(from(3)).is_some());
}

#[tokio::test]
async fn what_is_served_by_the_time_it_is_told_to_go_stays() {
    let connections = connections(1, 1);
    let first = connections.admit(from(1)).unwrap();
    let second = connections.admit(from(2)).unwrap();
    assert!(first.connection().is_leaving());
    busy(&first);
    first.cancel_eviction();
    busy(&second);
    assert!(connections.admit(from(3)).is_none());
    drop((first, second));
    assert_eq!(connections.lock().leaving_count, 0);
}

#[tokio::test]
async fn no_limit_of_an_address_holds_for_a_trusted_proxy() {
    let connections = ConnectionTable::new(
        ConnectionLimits { max: Some(8), max_per_address: Some(1) },
        1_000,
        &TrustedProxies::from_networks(&["192.0.2.0/31"]),
        ConnectionMetrics::default(),
    );
    let proxied = [1, 1, 1].map(|last| connections.admit(from(last)).unwrap());
    assert_eq!(leaving(&proxied), [false; 3]);
    let other = [2, 2].map(|last| connections.admit(from(last)).unwrap());
    assert_eq!(leaving(&other), [true, false]);
}

#[tokio::test]
async fn the_limits_follow_from_the_descriptors() {
    let limits = |max, max_per_address, descriptors| {
        let limits = ConnectionLimits { max, max_per_address };
        let made = ConnectionTable::new(limits, descriptors, &TrustedProxies::default(), ConnectionMetrics::default());
        (made.max, made.max_per_address)
    };
    assert_eq!(limits(None, None, 256), (85, 43));
    assert_eq!(limits(None, None, 65_536), (21_845, 10_923));
    assert_eq!(limits(Some(1_000), None, 256), (128, 64), "half of the descriptors stay free");
    assert_eq!(limits(Some(10), Some(3), 256), (10, 3));
}

#[test]
fn an_ipv6_network_is_one_address() {
    let network = |text: &str| network_prefix(text.parse().unwrap()).to_string();
    assert_eq!(network("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
    assert_eq!(network("::ffff:192.0.2.1"), "192.0.2.1");
    assert_eq!(network("192.0.2.1"), "192.0.2.1");
}

use super::*;

const DEADLINES: ConnectionDeadlines = ConnectionDeadlines {
    head: Duration::from_secs(10),
    idle: Duration::from_secs(75),
    write: Duration::from_secs(60),
    discard_idle: Duration::from_secs(10),
    discard: Duration::from_secs(30),
};

fn connections(max: usize, max_per_address: usize) -> Arc<ConnectionTable> {
    let metrics = ConnectionMetrics::default();
    Arc::new(ConnectionTable::with_limits(max, max_per_address, DEADLINES, TrustedProxies::default(), metrics))
}

fn remote(last_octet: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, last_octet], 4711))
}

/// Starts a request on a connection.
fn start_request(slot: &ConnectionSlot) {
    slot.connection().activity.record_request_start();
    slot.connection().activity.end_poll(slot.connections().now());
}

fn leaving_flags(slots: &[ConnectionSlot]) -> Vec<bool> {
    slots.iter().map(|slot| slot.connection().is_evicted()).collect()
}

#[tokio::test]
async fn a_closed_connection_makes_room_for_another() {
    let connections = connections(1, 1);
    let first = connections.admit(remote(1)).unwrap();
    start_request(&first);
    assert!(connections.admit(remote(2)).is_none());
    drop(first);
    assert!(connections.admit(remote(2)).is_some());
}

#[tokio::test]
async fn the_address_with_the_most_connections_loses_one() {
    let connections = connections(3, 3);
    let open = [1, 2, 2].map(|last_octet| connections.admit(remote(last_octet)).unwrap());
    let new = connections.admit(remote(3)).unwrap();
    assert_eq!(leaving_flags(&open), [false, true, false], "the older connection of the address with two");
    drop(open);
    drop(new);
    assert!(connections.lock().connections.is_empty() && connections.lock().count_by_address.is_empty());
}

#[tokio::test]
async fn an_address_at_its_limit_evicts_its_own_connection() {
    let connections = connections(9, 2);
    let open = [1, 2, 2].map(|last_octet| connections.admit(remote(last_octet)).unwrap());
    let new = connections.admit(remote(2)).unwrap();
    assert_eq!(leaving_flags(&open), [false, true, false]);
    start_request(&open[2]);
    start_request(&new);
    assert!(connections.admit(remote(2)).is_none(), "both of its connections serve a request");
    assert!(connections.admit(remote(3)).is_some());
}

#[tokio::test]
async fn a_connection_that_gets_a_request_before_its_eviction_stays() {
    let connections = connections(1, 1);
    let first = connections.admit(remote(1)).unwrap();
    let second = connections.admit(remote(2)).unwrap();
    assert!(first.connection().is_evicted());
    start_request(&first);
    first.cancel_eviction();
    start_request(&second);
    assert!(connections.admit(remote(3)).is_none());
    drop((first, second));
    assert_eq!(connections.lock().evicted_count, 0);
}

#[tokio::test]
async fn trusted_proxies_are_exempt_from_the_limit_per_address() {
    let connections = ConnectionTable::new(
        ConnectionLimits { max: Some(8), max_per_address: Some(1) },
        1_000,
        &TrustedProxies::from_networks(&["192.0.2.0/31"]),
        ConnectionMetrics::default(),
    );
    let proxied = [1, 1, 1].map(|last_octet| connections.admit(remote(last_octet)).unwrap());
    assert_eq!(leaving_flags(&proxied), [false; 3]);
    let direct = [2, 2].map(|last_octet| connections.admit(remote(last_octet)).unwrap());
    assert_eq!(leaving_flags(&direct), [true, false]);
}

#[tokio::test]
async fn replaced_proxies_are_exempt_with_their_next_connections() {
    let connections = connections(8, 1);
    let direct = [1, 1].map(|last_octet| connections.admit(remote(last_octet)).unwrap());
    assert_eq!(leaving_flags(&direct), [true, false]);
    connections.set_exempt_proxies(&TrustedProxies::from_networks(&["192.0.2.1"]));
    let proxied = [1, 1].map(|last_octet| connections.admit(remote(last_octet)).unwrap());
    assert_eq!((leaving_flags(&direct), leaving_flags(&proxied)), (vec![true, false], vec![false; 2]));
}

#[tokio::test]
async fn the_limits_depend_on_the_file_descriptors() {
    let limits = |max, max_per_address, descriptors| {
        let limits = ConnectionLimits { max, max_per_address };
        let table = ConnectionTable::new(limits, descriptors, &TrustedProxies::default(), ConnectionMetrics::default());
        (table.max, table.max_per_address)
    };
    assert_eq!(limits(None, None, 256), (85, 43));
    assert_eq!(limits(None, None, 65_536), (21_845, 10_923));
    assert_eq!(limits(Some(1_000), None, 256), (128, 64), "at most half of the descriptors are used");
    assert_eq!(limits(Some(10), Some(3), 256), (10, 3));
}

#[test]
fn an_ipv6_64_network_counts_as_one_address() {
    let network = |text: &str| network_of(text.parse().unwrap()).to_string();
    assert_eq!(network("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
    assert_eq!(network("::ffff:192.0.2.1"), "192.0.2.1");
    assert_eq!(network("192.0.2.1"), "192.0.2.1");
}

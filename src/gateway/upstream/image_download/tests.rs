//! Addresses that must not be reached, and answers of a host that are no image.

use std::net::TcpListener;
use std::time::Duration;

use super::*;
use crate::gateway::config::HostPattern;
use crate::gateway::spool::Spool;

fn config(hosts: &[&str]) -> RemoteImageConfig {
    let hosts = hosts.iter().map(|host| HostPattern::parse_for_test(host)).collect();
    RemoteImageConfig { hosts, networks: [].into(), timeout: Duration::from_secs(5) }
}

/// Asks for this address, and returns the error.
async fn refusal(hosts: &[&str], address: &str) -> DownloadError {
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::new(folder.path()).unwrap();
    let downloader = ImageDownloader::new(&config(hosts)).unwrap();
    let writer = spool.create_writer().await.unwrap();
    downloader.download(address, writer, downloader.deadline()).await.expect_err(address)
}

#[tokio::test]
async fn addresses_of_private_machines_are_refused_in_every_spelling_without_a_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    // Even an operator who names the hosts and the port does not open the network of the machine.
    let names = ["localhost", "127.0.0.1", "[::1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "169.254.169.254"];
    let hosts: Vec<String> = names.iter().map(|name| format!("{name}:{port}")).collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    for host in [
        "localhost",
        "LOCALHOST",
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "017700000001",
        "0177.0.0.1",
        "0x7f.0.0.1",
        "%31%32%37.0.0.1",
        "①②⑦.0.0.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "169.254.169.254",
    ] {
        let error = refusal(&hosts, &format!("https://{host}:{port}/a.png")).await;
        assert!(matches!(error, DownloadError::Unreachable(_)), "{host}: {error}");
    }
    assert!(listener.accept().is_err(), "a connection was made");
}

#[tokio::test]
async fn an_address_with_credentials_another_scheme_or_another_host_is_refused() {
    for address in [
        "http://images.example.com/a.png",
        "https://user@images.example.com/a.png",
        "https://user:password@images.example.com/a.png",
        "https://:password@images.example.com/a.png",
        "file:///etc/passwd",
        "ftp://images.example.com/a.png",
        "https://",
        "https:",
        "https://[::1",
    ] {
        let error = refusal(&["images.example.com", "*"], address).await;
        assert!(matches!(error, DownloadError::InvalidAddress), "{address}: {error}");
    }
    for address in [
        "https://images.example.com:8443/a.png",
        "https://images.example.com.evil.example/a.png",
        "https://evil.example/images.example.com",
        "https://images.example.com\\@evil.example/",
        "https://evil.example#images.example.com",
        "https://1.1.1.1/a.png",
        "https://16843009/a.png",
        "https://[2606:4700::1111]/a.png",
    ] {
        let error = refusal(&["images.example.com"], address).await;
        assert!(
            !matches!(error, DownloadError::Status { .. } | DownloadError::UnusableBody { .. }),
            "{address}: {error}"
        );
        assert!(matches!(error, DownloadError::HostNotAllowed(_)) || address.contains('\\'), "{address}: {error}");
    }
    // `*` has every name, but no bare address.
    let error = refusal(&["*"], "https://1.1.1.1/a.png").await;
    assert!(matches!(error, DownloadError::HostNotAllowed(_)), "{error}");
}

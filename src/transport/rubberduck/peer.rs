//! Which user the program at the other end of a loopback connection runs as. It reads the tables of the kernel on Linux,
//! and does not know elsewhere.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
};

/// The user of the socket at `peer` that is connected to `own`; None where it cannot be known. It reads files.
#[cfg(target_os = "linux")]
pub fn user_of(peer: SocketAddr, own: SocketAddr) -> Option<u32> {
    let table = if peer.is_ipv4() {
        "/proc/net/tcp"
    } else {
        "/proc/net/tcp6"
    };
    let found = user_in(&std::fs::read_to_string(table).ok()?, peer, own);
    // A socket of the IPv6 family that has connected to an IPv4 address.
    found.or_else(|| match (peer.ip(), own.ip()) {
        (IpAddr::V4(peer_ip), IpAddr::V4(own_ip)) => user_in(
            &std::fs::read_to_string("/proc/net/tcp6").ok()?,
            SocketAddr::from((peer_ip.to_ipv6_mapped(), peer.port())),
            SocketAddr::from((own_ip.to_ipv6_mapped(), own.port())),
        ),
        _ => None,
    })
}

/// Not known on this system.
#[cfg(not(target_os = "linux"))]
pub fn user_of(_: SocketAddr, _: SocketAddr) -> Option<u32> {
    None
}

/// The user of the connected socket from `local` to `remote` in a table of `/proc/net`. Pure.
///
/// ```text
///   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
///    1: 0100007F:223D 0100007F:D2A4 01 00000000:00000000 00:00000000 00000000  1000        0 16482 …
/// ```
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "the table of Linux"))]
fn user_in(table: &str, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
    const ESTABLISHED: &str = "01";
    table.lines().skip(1).find_map(|row| {
        let mut columns = row.split_ascii_whitespace().skip(1);
        let is_wanted =
            address(columns.next()?)? == local && address(columns.next()?)? == remote && columns.next()? == ESTABLISHED;
        is_wanted.then(|| columns.nth(3).and_then(|uid| u32::from_str(uid).ok()))?
    })
}

/// An address as the kernel prints it: words of 32 bits in the order of the machine, and the port.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "the table of Linux"))]
fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| {
        let digits = address.get(8 * at..8 * at + 8)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    let ip = match address.len() {
        8 => IpAddr::from(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for at in 0..4 {
                bytes[4 * at..4 * at + 4].copy_from_slice(&word(at)?);
            }
            IpAddr::from(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(all(test, target_endian = "little"))]
mod tests {
    use super::*;

    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:223D 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 16480 1 0 100 0 0 10 0
   1: 0100007F:D2A4 0100007F:223D 06 00000000:00000000 03:00000000 00000000     0        0 0 3 0
   2: 0100007F:D2A5 0100007F:223D 01 00000000:00000000 00:00000000 00000000  1001        0 16481 1 0 20 4 30 10 -1
   3: 0100007F:223D 0100007F:D2A5 01 00000000:00000000 00:00000000 00000000  1000        0 16482 1 0 20 4 30 10 -1
";
    const TABLE6: &str = "\
  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000001000000:D2A6 00000000000000000000000001000000:223D 01 00000000:00000000 00:00000000 00000000   500        0 1
   1: 0000000000000000FFFF00000100007F:D2A7 0000000000000000FFFF00000100007F:223D 01 00000000:00000000 00:00000000 00000000   501        0 1
";

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_user_is_that_of_the_socket_of_the_client_and_not_of_the_broker() {
        let own = at("127.0.0.1:8765");
        assert_eq!(user_in(TABLE, at("127.0.0.1:53925"), own), Some(1001));
        assert_eq!(user_in(TABLE, own, at("127.0.0.1:53925")), Some(1000));
    }

    #[test]
    fn a_socket_that_has_left_or_is_not_there_has_no_user() {
        let own = at("127.0.0.1:8765");
        // A row in TIME_WAIT says user 0 in place of the real one.
        assert_eq!(user_in(TABLE, at("127.0.0.1:53924"), own), None);
        assert_eq!(user_in(TABLE, at("127.0.0.1:1"), own), None);
        assert_eq!(user_in("", at("127.0.0.1:53925"), own), None);
        assert_eq!(user_in("head\n 1: nonsense", at("127.0.0.1:53925"), own), None);
    }

    #[test]
    fn addresses_of_the_sixth_version_are_read() {
        assert_eq!(user_in(TABLE6, at("[::1]:53926"), at("[::1]:8765")), Some(500));
        let mapped = at("[::ffff:127.0.0.1]:53927");
        assert_eq!(user_in(TABLE6, mapped, at("[::ffff:127.0.0.1]:8765")), Some(501));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_kernel_knows_the_user_of_a_connection_of_this_process() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, peer) = listener.accept().unwrap();
        let own_uid = rustix::process::geteuid().as_raw();
        assert_eq!(user_of(peer, server.local_addr().unwrap()), Some(own_uid));
        drop(client);
    }
}

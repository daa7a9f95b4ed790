//! Which user the program at the other end of a local TCP connection runs as. On Linux the kernel says it; elsewhere it is
//! not known.

#[cfg(target_os = "linux")]
use std::{
    io,
    sync::atomic::{AtomicBool, Ordering},
};
use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
};

use rustix::process::geteuid;

use api::auth::Stranger;

/// Who is at the other end of a connection within this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerUser {
    /// The user that this process runs as.
    Own,
    /// Root, who may do everything as any user.
    Root,
    Other(u32),
    /// The kernel does not say it.
    Unknown,
}

impl PeerUser {
    /// The user of the socket at `peer` that is connected to `own`, the address of this process.
    pub fn of(peer: SocketAddr, own: SocketAddr) -> Self {
        match user_of(peer, own) {
            Some(uid) if uid == geteuid().as_raw() => Self::Own,
            Some(0) => Self::Root,
            Some(uid) => Self::Other(uid),
            None => Self::Unknown,
        }
    }

    /// Why a broker without keys does not serve this peer. It serves its own user, and root; all where the system does not
    /// know the users of peers.
    pub fn stranger(self) -> Option<Stranger> {
        match self {
            Self::Own | Self::Root => None,
            Self::Other(_) => Some(Stranger::OtherUser),
            Self::Unknown => cfg!(target_os = "linux").then_some(Stranger::UnknownUser),
        }
    }
}

/// The user of the socket at `peer` that is connected to `own`; None where it cannot be known.
#[cfg(target_os = "linux")]
fn user_of(peer: SocketAddr, own: SocketAddr) -> Option<u32> {
    /// The kernel has answered this process with a user.
    static ANSWERS: AtomicBool = AtomicBool::new(false);
    let (peer, own) = (canonical(peer), canonical(own));
    // Not every kernel answers every process, and one without the module says that it has no such socket. The tables are
    // long where many sockets are open, so they are not read for a peer that has closed its socket already.
    match diagnosed(peer, own) {
        Ok(Some(user)) => {
            ANSWERS.store(true, Ordering::Relaxed);
            Some(user)
        }
        Ok(None) if ANSWERS.load(Ordering::Relaxed) => None,
        Ok(None) | Err(_) => user_in_tables(peer, own),
    }
}

/// Not known on this system.
#[cfg(not(target_os = "linux"))]
fn user_of(_: SocketAddr, _: SocketAddr) -> Option<u32> {
    None
}

/// An IPv4 address that a socket of the IPv6 family has is that IPv4 address.
#[cfg(target_os = "linux")]
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(target_os = "linux")]
fn user_in_tables(peer: SocketAddr, own: SocketAddr) -> Option<u32> {
    let read = |table: &str| std::fs::read_to_string(table).ok();
    let (IpAddr::V4(peer_ip), IpAddr::V4(own_ip)) = (peer.ip(), own.ip()) else {
        return user_in(&read("/proc/net/tcp6")?, peer, own);
    };
    // A socket of the IPv6 family that has connected to an IPv4 address is in the other table.
    user_in(&read("/proc/net/tcp")?, peer, own).or_else(|| {
        let mapped = |ip: Ipv4Addr, port| SocketAddr::from((ip.to_ipv6_mapped(), port));
        let table = read("/proc/net/tcp6")?;
        user_in(&table, mapped(peer_ip, peer.port()), mapped(own_ip, own.port()))
    })
}

/// Asks the kernel for the one socket (`sock_diag(7)`), which takes some microseconds however many sockets are open.
#[cfg(target_os = "linux")]
fn diagnosed(peer: SocketAddr, own: SocketAddr) -> io::Result<Option<u32>> {
    use rustix::net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, netlink::SocketAddrNetlink, recv,
        sendto, socket_with,
    };
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?;
    let kernel = SocketAddrNetlink::new(0, 0);
    sendto(&socket, &question(peer, own), SendFlags::empty(), &kernel)?;
    let mut answer = [0; 512];
    // The kernel has answered before it returns from the call that asks.
    let (len, _) = recv(&socket, &mut answer[..], RecvFlags::DONTWAIT)?;
    Ok(user_in_answer(&answer[..len]))
}

/// A request about the socket from `peer` to `own`: `nlmsghdr` and `inet_diag_req_v2` of `linux/inet_diag.h`.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "the request of Linux"))]
fn question(peer: SocketAddr, own: SocketAddr) -> Vec<u8> {
    const LEN: u32 = 72;
    const SOCK_DIAG_BY_FAMILY: u16 = 20;
    const REQUEST: u16 = 1;
    const TCP: u8 = 6;
    const AF_INET: u8 = 2;
    const AF_INET6: u8 = 10;
    let octets = |ip: IpAddr| {
        let mut octets = [0; 16];
        match ip {
            IpAddr::V4(ip) => octets[..4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => octets.copy_from_slice(&ip.octets()),
        }
        octets
    };
    let mut out = Vec::with_capacity(LEN as usize);
    out.extend_from_slice(&LEN.to_ne_bytes());
    out.extend_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    out.extend_from_slice(&REQUEST.to_ne_bytes());
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&[if peer.is_ipv4() { AF_INET } else { AF_INET6 }, TCP, 0, 0]);
    // Sockets in every state.
    out.extend_from_slice(&u32::MAX.to_ne_bytes());
    out.extend_from_slice(&peer.port().to_be_bytes());
    out.extend_from_slice(&own.port().to_be_bytes());
    out.extend_from_slice(&octets(peer.ip()));
    out.extend_from_slice(&octets(own.ip()));
    // Any interface; no cookie.
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&[0xff; 8]);
    out
}

/// The user in the answer to [`question`]: `nlmsghdr` and `inet_diag_msg`. A socket that its program has closed has no
/// inode, and the kernel may say user 0 of it; without the one that was asked for, the kernel answers with a listener.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "the answer of Linux"))]
fn user_in_answer(answer: &[u8]) -> Option<u32> {
    const SOCK_DIAG_BY_FAMILY: u16 = 20;
    const STATE: usize = 17;
    const USER: usize = 80;
    const INODE: usize = 84;
    const LISTENS: u8 = 10;
    let number = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let is_open = *answer.get(STATE)? != LISTENS && number(INODE)? != 0;
    number(USER).filter(|_| kind == SOCK_DIAG_BY_FAMILY && is_open)
}

/// The user of the connected socket from `local` to `remote` in a table of `/proc/net`. Pure.
///
/// ```text
///   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
///    1: 0100007F:223D 0100007F:D2A4 01 00000000:00000000 00:00000000 00000000  1000        0 16482 …
/// ```
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "the table of Linux"))]
fn user_in(table: &str, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
    table.lines().skip(1).find_map(|row| {
        let mut columns = row.split_ascii_whitespace().skip(1);
        let is_wanted = address(columns.next()?)? == local && address(columns.next()?)? == remote;
        let user = columns.nth(4).filter(|_| is_wanted)?;
        // A socket that its program has closed has no inode, and user 0 in place of the real one.
        let is_open = columns.nth(1)? != "0";
        u32::from_str(user).ok().filter(|_| is_open)
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
        // The row of a socket in TIME_WAIT.
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
        for (listens, dials) in [
            ("127.0.0.1:0", "127.0.0.1"),
            ("[::1]:0", "::1"),
            ("[::]:0", "127.0.0.1"),
            ("127.0.0.1:0", "::ffff:127.0.0.1"),
        ] {
            let listener = std::net::TcpListener::bind(listens).unwrap();
            let dialed = SocketAddr::new(dials.parse().unwrap(), listener.local_addr().unwrap().port());
            let client = std::net::TcpStream::connect(dialed).unwrap();
            let (server, peer) = listener.accept().unwrap();
            let own = server.local_addr().unwrap();
            assert_eq!(PeerUser::of(peer, own), PeerUser::Own, "{listens} {dials}");
            let own_uid = Some(geteuid().as_raw());
            let (peer, own) = (canonical(peer), canonical(own));
            assert_eq!(user_in_tables(peer, own), own_uid, "{listens} {dials}");
            drop(client);
        }
        // A port where nothing is connected, and one where something listens.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap();
        for peer in [at("127.0.0.1:1"), own] {
            assert_eq!(PeerUser::of(peer, own), PeerUser::Unknown);
        }
    }

    #[test]
    fn a_broker_without_keys_serves_its_user_and_root() {
        assert_eq!([PeerUser::Own, PeerUser::Root].map(PeerUser::stranger), [None, None]);
        assert_eq!(PeerUser::Other(7).stranger(), Some(Stranger::OtherUser));
        let unknown = cfg!(target_os = "linux").then_some(Stranger::UnknownUser);
        assert_eq!(PeerUser::Unknown.stranger(), unknown);
    }
}

//! Listens on a port, and says who has it.

use std::{
    io,
    net::{SocketAddr, TcpListener},
};

use crate::user_broker::{Instance, Living, living_brokers};

/// Connections that wait to be accepted.
const BACKLOG_LEN: i32 = 4096;

/// Binds a listener. `flag` sets its port.
///
/// # Errors
/// The address cannot be used; the text names it and says what to do.
pub fn bind(wanted: SocketAddr, flag: &str) -> io::Result<TcpListener> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(wanted), socket2::Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket
        .bind(&wanted.into())
        .and_then(|()| socket.listen(BACKLOG_LEN))
        .map_err(|error| {
            let reason = match (error.kind(), own_broker_at(wanted.port())) {
                (io::ErrorKind::AddrInUse, Some(instance)) => {
                    let stop = instance.command_line("stop");
                    format!("your own broker listens there; {stop} stops it, or")
                }
                (io::ErrorKind::AddrInUse, None) => "another program listens there;".to_owned(),
                _ => format!("{error};"),
            };
            let line = format!("cannot listen on {wanted}: {reason} choose another {flag}");
            io::Error::new(error.kind(), line)
        })?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// The broker of this user that has a port.
fn own_broker_at(port: u16) -> Option<Instance> {
    let ending = format!(":{port}");
    let mut living = living_brokers().into_iter();
    let found = living.find(|(_, living)| {
        matches!(living, Living::Yes(info) if info.http.as_ref().is_some_and(|http| http.ends_with(&ending)))
    });
    found.map(|(paths, _)| paths.instance)
}

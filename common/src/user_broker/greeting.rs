//! The first exchange of a client with a broker: connect, check which user listens, hello.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::{Duration, Instant},
};

use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
    process::geteuid,
};
use serde::Deserialize;
use serde_json::{json, value::RawValue};
use socket2::{Domain, SockAddr, Socket, Type};

use super::{
    hello::{Hello, HelloResult, METHOD, RETIRE, RefusedProtocol},
    peer::peer_of,
};
use crate::json::frame::{self, JsonText, NO_PARAMS};

/// The longest answer to a hello, in bytes.
const ANSWER_LEN_MAX: usize = 64 << 10;
/// The shortest time-out that is set: zero would mean none.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);

/// What a client found at a socket.
#[derive(Debug)]
pub enum Greeted {
    /// A broker that serves the client.
    Served(UnixStream, HelloResult),
    /// A broker that ends as soon as it has closed this connection.
    Retiring(UnixStream),
    /// A broker that speaks other versions of the local methods.
    OtherProtocol(UnixStream, RefusedProtocol),
    /// No socket, or one without a listener.
    Absent,
    /// A broker that does not serve the client now, and why.
    Refused { code: String, message: String },
    /// The broker closed the connection before it answered.
    Lost,
    /// The listener belongs to another user.
    Foreign(u32),
}

/// Connects to a socket and says hello.
///
/// # Errors
/// `TimedOut` at the deadline; what the system says otherwise; `InvalidData` when the listener is no broker.
pub fn greet(path: &Path, hello: &Hello, deadline: Instant) -> io::Result<Greeted> {
    let Some(mut stream) = connect(path, deadline)? else {
        return Ok(Greeted::Absent);
    };
    if let Some(peer) = peer_of(&stream)?
        && peer.uid != geteuid().as_raw()
    {
        return Ok(Greeted::Foreign(peer.uid));
    }
    let request = frame::request("\"hello\"", METHOD, json!(hello));
    match exchange(&mut stream, request, deadline) {
        Ok(answer) => read_answer(stream, &answer),
        Err(error) if is_closed(&error) => Ok(Greeted::Lost),
        Err(error) => Err(error),
    }
}

/// Asks the broker at the other end of the connection to end, and waits for its answer.
///
/// # Errors
/// Those of [`greet`].
pub fn retire(stream: &mut UnixStream, deadline: Instant) -> io::Result<()> {
    match exchange(stream, frame::request("\"retire\"", RETIRE, NO_PARAMS), deadline) {
        Err(error) if !is_closed(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Waits until the broker closes the connection. False at the deadline.
pub fn wait_for_close(stream: &mut UnixStream, deadline: Instant) -> bool {
    let mut rest = [0; 4096];
    loop {
        let Ok(left) = time_left(deadline) else { return false };
        if stream.set_read_timeout(Some(left)).is_err() {
            return true;
        }
        match stream.read(&mut rest) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if is_timeout(&error) || error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return true,
        }
    }
}

/// Connects to a socket; `None` when it has no listener.
///
/// # Errors
/// `TimedOut` when the listener accepts no connection until the deadline; what the system says otherwise.
pub fn connect(path: &Path, deadline: Instant) -> io::Result<Option<UnixStream>> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_write_timeout(Some(time_left(deadline)?))?;
    match socket.connect(&SockAddr::unix(path)?) {
        Ok(()) => {
            socket.set_write_timeout(None)?;
            Ok(Some(socket.into()))
        }
        Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused].contains(&error.kind()) => Ok(None),
        Err(error) if is_timeout(&error) => Err(io::ErrorKind::TimedOut.into()),
        Err(error) => Err(error),
    }
}

/// Sends a line and returns the line that answers. Reads nothing behind it.
fn exchange(stream: &mut UnixStream, request: impl JsonText, deadline: Instant) -> io::Result<String> {
    stream.set_write_timeout(Some(time_left(deadline)?))?;
    stream.write_all(&request.into_line())?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\n") {
        stream.set_read_timeout(Some(time_left(deadline)?))?;
        let mut seen = [0; 4096];
        let len = match recv(&*stream, &mut seen[..], RecvFlags::PEEK) {
            Ok((_, 0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((_, len)) => len,
            Err(Errno::INTR) => continue,
            Err(error) if is_timeout(&error.into()) => return Err(io::ErrorKind::TimedOut.into()),
            Err(error) => return Err(error.into()),
        };
        let line_len = seen[..len]
            .iter()
            .position(|&byte| byte == b'\n')
            .map_or(len, |at| at + 1);
        stream.read_exact(&mut seen[..line_len])?;
        answer.extend_from_slice(&seen[..line_len]);
        if answer.len() > ANSWER_LEN_MAX {
            return Err(not_a_broker("its answer is too long"));
        }
    }
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)?;
    String::from_utf8(answer).map_err(|_| not_a_broker("its answer is no text"))
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<AnswerError>,
}

#[derive(Deserialize)]
struct AnswerError {
    message: String,
    data: Option<RefusalData>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RefusalData {
    Protocol(RefusedProtocol),
    Client { code: String },
}

fn read_answer(stream: UnixStream, answer: &str) -> io::Result<Greeted> {
    let unreadable = |error: serde_json::Error| not_a_broker(&error.to_string());
    let answer: Answer<'_> = serde_json::from_str(answer).map_err(unreadable)?;
    match (answer.result, answer.error) {
        (Some(result), _) => {
            let result: HelloResult = serde_json::from_str(result.get()).map_err(unreadable)?;
            Ok(if result.retiring {
                Greeted::Retiring(stream)
            } else {
                Greeted::Served(stream, result)
            })
        }
        (None, Some(AnswerError { message, data })) => match data {
            Some(RefusalData::Protocol(refused)) => Ok(Greeted::OtherProtocol(stream, refused)),
            Some(RefusalData::Client { code }) => Ok(Greeted::Refused { code, message }),
            None => Err(not_a_broker(&message)),
        },
        (None, None) => Err(not_a_broker("its answer has no result")),
    }
}

fn not_a_broker(why: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the program that listens does not answer as a broker: {why}"),
    )
}

fn time_left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(io::ErrorKind::TimedOut.into())
    } else {
        Ok(left.max(TIMEOUT_MIN))
    }
}

fn is_timeout(error: &io::Error) -> bool {
    [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut].contains(&error.kind())
}

/// Whether the broker closed the connection.
fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    [BrokenPipe, ConnectionReset, UnexpectedEof].contains(&error.kind())
}

//! Moves the messages of a client session through the pipes of a process.

use std::{io, rc::Rc, sync::Arc, time::Duration};

use actors::gateway::{Direction, InstanceEvent, LaunchOrder};
use futures_util::{
    FutureExt, StreamExt,
    future::{Either, pending},
    stream::FuturesUnordered,
};
use rustix::io::ioctl_fionread;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::ChildStdout,
    task::yield_now,
    time::{Instant, sleep, sleep_until},
};

use super::{
    answer_room::AnswerRoom,
    client_session::ClientSession,
    openings::{Attempt, Ending, try_openings},
    process::{Input, Process, RunningProcess},
};
use api::mcp::lines::LineDecoder;

/// Bytes of one read.
const READ_LEN: usize = 64 * 1024;
/// How long the exit status of a process is awaited after the end of its output, before its calls are answered.
const STATUS_WAIT: Duration = Duration::from_millis(500);
/// How long the output of a process is read after its end: descendants may hold it open.
const OUTPUT_WAIT: Duration = Duration::from_millis(100);

/// Starts a program and speaks with it until it has ended.
pub async fn run(order: &LaunchOrder, room: &Rc<AnswerRoom>, ending: &Ending) -> InstanceEvent {
    try_openings(order, ending, async |opening| {
        let report = Arc::clone(&order.report);
        let tell = move |pid| report(InstanceEvent::Running { pid });
        let process =
            Process::start(&order.config, &order.log, &order.counters, tell).map_err(InstanceEvent::NotStarted)?;
        let client_session = ClientSession::new(order, room, opening, false, None);
        Ok(hold(client_session, order, process, ending).await)
    })
    .await
}

/// Moves messages until the process has ended. Returns how it ended. All calls have an end when this returns.
async fn hold(
    mut client_session: ClientSession<'_>,
    order: &LaunchOrder,
    process: Process,
    ending: &Ending,
) -> Attempt {
    let (mut process, input, output) = process.into_parts();
    let result_bytes_max = order.config.result_bytes_max;
    let has_read = exchange(
        &mut client_session,
        result_bytes_max,
        &mut process,
        input,
        output,
        ending,
    )
    .await;
    let was_agreed = client_session.was_agreed();
    let ended = client_session.close(process.ended_within(STATUS_WAIT).await);
    process.reap().await;
    Attempt {
        was_agreed,
        has_read,
        ended,
    }
}

/// Reads and writes until the output ends. The input is closed then, or when the end is asked for. Returns whether the program
/// may have read any of its input.
async fn exchange(
    client_session: &mut ClientSession<'_>,
    result_bytes_max: usize,
    process: &mut RunningProcess,
    input: Input,
    mut output: ChildStdout,
    ending: &Ending,
) -> bool {
    let mut input = Some(input);
    let (mut written_total, mut has_read) = (0, false);
    let mut decoder = LineDecoder::new(result_bytes_max);
    let mut read_buffer = vec![0; READ_LEN];
    let (mut frames, mut written) = (Vec::new(), 0);
    // Until when the output of a process that has ended is read.
    let mut read_until = None;
    let link = Arc::clone(client_session.link());
    let counters = Arc::clone(client_session.counters());
    let bytes = &counters.bytes;
    // Each is polled only when it has woken this task, and not for each message.
    let mut ends = FuturesUnordered::from_iter([
        Either::Left(ending.asked().map(|()| End::Asked)),
        Either::Right(process.wait().map(|_| End::Process)),
    ]);
    while !client_session.stop().is_set() {
        let has_frames = written < frames.len();
        tokio::select! {
            // Writes come first, so that a message is on its way before the next is read: those that wait are bounded.
            biased;
            Some(end) = ends.next() => {
                has_read |= is_read(input.take(), written_total);
                if let End::Process = end {
                    read_until = Some(Instant::now() + OUTPUT_WAIT);
                }
            }
            () = until(read_until) => break,
            done = write(&mut input, frames.get(written..).unwrap_or_default()), if has_frames => {
                if let Ok(len) = done {
                    written += len;
                    written_total += len as u64;
                    link.note_written(len);
                    bytes.add(Direction::Sent, len as u64);
                } else {
                    // The program has closed its input, so it takes no calls. Its last answers are read.
                    has_read |= is_read(input.take(), written_total);
                    frames.clear();
                }
            }
            () = link.has_outgoing(), if !has_frames && input.is_some() => {
                (frames, written) = (recycled(frames), 0);
                link.take_outgoing(&mut frames);
            }
            read = output.read(&mut read_buffer) => match read {
                Ok(len) if len > 0 => {
                    bytes.add(Direction::Received, len as u64);
                    decoder.decode(&read_buffer[..len], |line| client_session.line(line, result_bytes_max));
                    client_session.take_waiting().deliver().await;
                    match client_session.end_of_read() {
                        Some(pause) => sleep(pause).await,
                        // More may wait; other tasks of the worker have their turn first.
                        None if len == READ_LEN => yield_now().await,
                        None => {}
                    }
                }
                _ => break,
            },
        }
    }
    has_read || is_read(input, written_total)
}

/// Whether a program has read some of these bytes that were written to its input. False once it is known.
fn is_read(input: Option<Input>, written: u64) -> bool {
    let unread = |input: Input| ioctl_fionread(&input.stdin).unwrap_or_default();
    input.is_some_and(|input| unread(input) < written)
}

/// What ends an exchange.
enum End {
    /// It was asked for.
    Asked,
    /// The process has ended.
    Process,
}

async fn write(input: &mut Option<Input>, bytes: &[u8]) -> io::Result<usize> {
    match input {
        Some(input) => input.stdin.write(bytes).await,
        None => pending().await,
    }
}

/// Waits until this time, or for ever if there is none.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}

/// An empty buffer, which keeps its memory unless it has grown large.
fn recycled(mut buffer: Vec<u8>) -> Vec<u8> {
    if buffer.capacity() > READ_LEN {
        return Vec::new();
    }
    buffer.clear();
    buffer
}

//! One connection of a rubberduck program: reads lines and writes lines.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::poll_fn,
    rc::Rc,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use actors::session::CloseReason;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::Notify,
    time::timeout,
};

use super::{
    asker,
    client::{Client, Command, stamp},
    console,
    output::Line,
    programs::Programs,
    wire::{self, Body, ClientKey, ClientType, Incoming, LINE_LEN_MAX},
};
use api::{
    auth::Identity,
    mcp::{
        Outbox,
        lines::{LineDecoder, LineEvent},
    },
};

/// Bytes of one read.
const READ_LEN: usize = 16 * 1024;
/// Longest time until `register`.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(10);
/// Answers of one connection that may wait, before no further line of it is read.
const OWN_LINES_MAX: usize = 64;
/// Time for the last line of a connection.
const LAST_LINE_TIMEOUT: Duration = Duration::from_secs(1);

/// The connection with its state. It stays on one thread.
pub struct Link {
    number: u64,
    programs: Rc<Programs>,
    identity: Arc<Identity>,
    /// The program, once it has registered.
    client: RefCell<Option<Rc<Client>>>,
    registered: Notify,
    /// Answers of the broker to this connection alone.
    own: RefCell<VecDeque<Vec<u8>>>,
    own_changed: Notify,
    /// The line of the client that is being written.
    current: RefCell<Option<Line>>,
    is_registered: Cell<bool>,
}

/// Why a connection ends.
enum End {
    /// The program has closed it, or the socket has failed.
    Gone,
    /// The program takes no bytes.
    Stalled,
    /// The broker closes it, and says why.
    Closed(&'static str),
}

impl Link {
    /// A connection of a program that may use the broker as `identity`.
    pub fn new(number: u64, programs: Rc<Programs>, identity: Arc<Identity>) -> Self {
        Self {
            number,
            programs,
            identity,
            client: RefCell::default(),
            registered: Notify::new(),
            own: RefCell::default(),
            own_changed: Notify::new(),
            current: RefCell::default(),
            is_registered: Cell::default(),
        }
    }

    /// Serves the connection to its end. `outbox` tells when the broker closes it.
    pub async fn run(self, mut stream: TcpStream, outbox: &Outbox) {
        let (input, output) = stream.split();
        let end = tokio::select! {
            end = self.read(input) => end,
            end = self.write(output) => end,
            why = closed(outbox) => End::Closed(reason(why)),
            () = self.unregistered() => End::Closed("register first: the connection is closed"),
        };
        let client = self.client.take();
        if let Some(client) = client {
            client.output.leave(self.number, self.current.take());
            self.programs.leave(&client);
        }
        let why = match end {
            End::Gone => return,
            End::Stalled => {
                tracing::warn!("a rubberduck program takes no bytes: its connection is closed");
                return;
            }
            End::Closed(why) => why,
        };
        let line = wire::error(stamp(), why);
        let _ = timeout(LAST_LINE_TIMEOUT, stream.write_all(&line)).await;
    }

    async fn unregistered(&self) {
        tokio::time::sleep(REGISTER_TIMEOUT).await;
        if self.is_registered.get() {
            std::future::pending::<()>().await;
        }
    }

    async fn read(&self, mut input: ReadHalf<'_>) -> End {
        let mut decoder = LineDecoder::new(LINE_LEN_MAX);
        let mut buffer = vec![0; READ_LEN];
        loop {
            let len = match input.read(&mut buffer).await {
                Ok(0) | Err(_) => return End::Gone,
                Ok(len) => len,
            };
            let mut lines = Vec::new();
            decoder.decode(&buffer[..len], |event| {
                lines.push(match event {
                    LineEvent::Text(line) => wire::parse(line).map(|incoming| (incoming, line.len())),
                    LineEvent::TooLong(_) => Err("the line is longer than 1 MiB"),
                    LineEvent::NotUtf8(_) => Err("the line is not UTF-8"),
                });
            });
            for line in lines {
                match line {
                    Ok((incoming, len)) => self.serve(incoming, len).await,
                    Err(why) => self.answer(wire::error(stamp(), why)),
                }
                self.answers_have_room().await;
            }
            if decoder.buffered_len() == 0 {
                decoder.shrink();
            }
        }
    }

    /// Serves one line of `len` bytes.
    async fn serve(&self, incoming: Incoming, len: usize) {
        let client = self.client.borrow().clone();
        let client = match (client, &incoming.body) {
            (None, Body::Register) => return self.register(incoming.client),
            (None, _) => return self.answer(wire::error(stamp(), "register first")),
            (Some(client), _) if client.key != incoming.client => {
                return self.answer(wire::error(stamp(), "this connection is registered as another client"));
            }
            (Some(client), _) => client,
        };
        client.note_sign();
        let command = match incoming.body {
            Body::Register => {
                client.note_registration();
                return self.answer(wire::sync(stamp()));
            }
            Body::Heartbeat => return client.note_heartbeat(),
            Body::Clarification(question) => Command::Clarification(question),
            Body::Yap(yap) => Command::Yap(yap),
            Body::Response(response) => Command::Response(response),
        };
        let is_allowed = match &command {
            Command::Response(_) => client.key.client_type == ClientType::Cli,
            Command::Clarification(_) | Command::Yap(_) => client.key.client_type == ClientType::McpServer,
        };
        if !is_allowed {
            return self.answer(wire::error(stamp(), "this type of client does not send this message"));
        }
        if let Err(wait) = self.identity.take_request_of_len(len) {
            let why = format!("too many requests: try again in {} s", wait.as_secs() + 1);
            return self.answer(match command {
                Command::Clarification(question) => wire::no_response(stamp(), &question.id, &why),
                _ => wire::error(stamp(), &why),
            });
        }
        if client.commands.send(command).await.is_err() {
            self.answer(wire::error(
                stamp(),
                "the broker does not serve this client: connect again",
            ));
        }
    }

    fn register(&self, key: ClientKey) {
        // Before every other line.
        self.answer(wire::sync(stamp()));
        let (client, commands) = self.programs.enter(key, &self.identity, self.number);
        client.note_registration();
        if let Some(commands) = commands {
            let (client, programs) = (Rc::clone(&client), Rc::clone(&self.programs));
            actix_rt::spawn(async move {
                match client.key.client_type {
                    ClientType::Cli => console::run(&client, commands, programs.human.clone()).await,
                    ClientType::McpServer => asker::run(&client, commands, &programs).await,
                }
            });
        }
        client.note_sign();
        *self.client.borrow_mut() = Some(client);
        self.is_registered.set(true);
        self.registered.notify_one();
    }

    /// Answers this connection.
    fn answer(&self, line: Vec<u8>) {
        self.own.borrow_mut().push_back(line);
        self.own_changed.notify_waiters();
    }

    async fn answers_have_room(&self) {
        loop {
            let changed = self.own_changed.notified();
            if self.own.borrow().len() < OWN_LINES_MAX {
                return;
            }
            changed.await;
        }
    }

    async fn next_answer(&self) -> Vec<u8> {
        loop {
            let changed = self.own_changed.notified();
            if let Some(line) = self.own.borrow_mut().pop_front() {
                self.own_changed.notify_waiters();
                return line;
            }
            changed.await;
        }
    }

    /// Writes lines as they come; the answers to this connection first.
    async fn write(&self, mut output: WriteHalf<'_>) -> End {
        let stall_timeout = self.programs.stall_timeout;
        loop {
            let client = self.client.borrow().clone();
            let written = tokio::select! {
                biased;
                line = self.next_answer() => timeout(stall_timeout, output.write_all(&line)).await,
                line = next_line(client.as_deref(), self.number) => {
                    let bytes = line.bytes.clone();
                    *self.current.borrow_mut() = Some(line);
                    let written = timeout(stall_timeout, output.write_all(&bytes)).await;
                    if matches!(written, Ok(Ok(())))
                        && let (Some(line), Some(client)) = (self.current.take(), &client)
                    {
                        client.output.note_written(self.number, &line);
                    }
                    written
                }
                () = over(client.as_deref()) => return End::Gone,
                () = self.registered.notified() => continue,
            };
            match written {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return End::Gone,
                Err(_) => return End::Stalled,
            }
        }
    }
}

async fn next_line(client: Option<&Client>, link: u64) -> Line {
    match client {
        Some(client) => client.output.next_line(link).await,
        None => std::future::pending().await,
    }
}

async fn over(client: Option<&Client>) {
    match client {
        Some(client) => client.output.over().await,
        None => std::future::pending().await,
    }
}

/// Waits until the broker closes the connection.
async fn closed(outbox: &Outbox) -> CloseReason {
    poll_fn(|cx| {
        loop {
            if let Some(why) = outbox.closing() {
                return Poll::Ready(why);
            }
            if outbox.register_waker(cx.waker()) {
                return Poll::Pending;
            }
        }
    })
    .await
}

fn reason(why: CloseReason) -> &'static str {
    match why {
        CloseReason::ShuttingDown => "the broker stops",
        _ => "the broker has closed the connection",
    }
}

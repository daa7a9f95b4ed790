//! `relay`: a process between a client and a server that passes bytes on and looks at none of them. No gateway can add less
//! to a call: it reads and writes once on each side, and waits twice.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::AsFd,
    process::{Command, Stdio},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};

use crate::error::{LoadError, Result};

/// Bytes of one read.
const READ_LEN: usize = 64 * 1024;

#[derive(clap::Args)]
pub struct Options {
    /// The server, with its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// Passes bytes on until one side ends.
pub fn run(options: &Options) -> Result<()> {
    let [program, args @ ..] = &options.command[..] else {
        return Err(LoadError::Arguments("relay needs a command".to_owned()));
    };
    let mut server = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    if let (Some(input), Some(output)) = (server.stdin.take(), server.stdout.take()) {
        pass_on(input, output)?;
    }
    server.wait()?;
    Ok(())
}

/// Passes bytes on between the standard streams and a server.
fn pass_on(mut to_server: impl Write, mut from_server: impl Read + AsFd) -> io::Result<()> {
    // The buffers of the standard library would hold bytes back.
    let mut from_client = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut to_client = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let mut buffer = vec![0; READ_LEN];
    loop {
        let mut ready =
            [from_client.as_fd(), from_server.as_fd()].map(|input| PollFd::from_borrowed_fd(input, PollFlags::IN));
        match poll(&mut ready, None) {
            Err(Errno::INTR) => continue,
            polled => polled?,
        };
        let [client, server] = ready.map(|input| !input.revents().is_empty());
        let is_open = (!client || copy(&mut from_client, &mut to_server, &mut buffer)?)
            && (!server || copy(&mut from_server, &mut to_client, &mut buffer)?);
        if !is_open {
            return Ok(());
        }
    }
}

/// Copies what one read brings. Returns false at the end.
fn copy(from: &mut impl Read, to: &mut impl Write, buffer: &mut [u8]) -> io::Result<bool> {
    let len = from.read(buffer)?;
    to.write_all(&buffer[..len])?;
    Ok(len > 0)
}

//! The WebSocket as a kind of lasting connection: joins its decoder (`frame.rs`) with the task that all kinds share.

use actix_rt::net::TcpStream;

use super::frame::{self, Decoder, FrameEvent, Violation};
use crate::transport::{
    closing::Closing,
    wire::{Decode, Wire, WireEvent},
};
use common::hang_up::has_ended;

/// The WebSocket of one client.
pub struct WebSocketWire;

impl Wire for WebSocketWire {
    type Stream = TcpStream;
    type Decoder = Decoder;

    const HAS_CONTROL_FRAMES: bool = true;

    fn is_gone(stream: &TcpStream) -> bool {
        has_ended(stream)
    }

    fn ping() -> Vec<u8> {
        frame::ping()
    }

    fn pong(payload: &[u8]) -> Vec<u8> {
        frame::pong(payload)
    }

    fn last(closing: &Closing) -> Vec<u8> {
        frame::close(closing.code, &closing.reason)
    }
}

impl Decode for Decoder {
    fn decode(&mut self, bytes: &mut [u8], mut on: impl FnMut(WireEvent<'_>)) -> Result<(), Closing> {
        let decoded = Self::decode(self, bytes, |event| {
            on(match event {
                FrameEvent::Text(text) => WireEvent::Text(text),
                FrameEvent::Ping(payload) => WireEvent::Ping(payload),
                FrameEvent::Pong => WireEvent::Pong,
                FrameEvent::Close(code) => WireEvent::Close(code),
            });
        });
        decoded.map_err(|violation| Closing::new(violation as u16, text_of(violation)))
    }

    fn buffered_len(&self) -> usize {
        Self::buffered_len(self)
    }

    fn needed_len(&self) -> usize {
        Self::needed_len(self)
    }

    fn reserve(&mut self) {
        self.reserve_frame();
    }

    fn shrink(&mut self) {
        Self::shrink(self);
    }
}

fn text_of(violation: Violation) -> &'static str {
    match violation {
        Violation::Protocol => "not a frame of RFC 6455",
        Violation::Binary => "one JSON-RPC message per text frame",
        Violation::Utf8 => "a text frame must be UTF-8",
        Violation::TooLarge => "the message is too large",
    }
}

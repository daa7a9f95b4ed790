//! The session that a legacy server gives to the broker.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};

use super::{HttpClientSession, SESSION_ID, Session};
use crate::instances::{
    probe::{INITIALIZED, Opening, Probe},
    remote::{
        outgoing::{Outgoing, PROTOCOL_VERSION},
        refusal::{REFUSAL_BYTES_MAX, Refusal, read_body},
        transport::Transport,
    },
};
use common::json::frame::{self, JsonText, NO_PARAMS};

impl HttpClientSession<'_> {
    /// Adds the headers that name the session and the agreed version.
    pub(super) fn add_legacy_headers(&self, session: &Session, headers: &mut HeaderMap) {
        if let Some(id) = session {
            headers.insert(SESSION_ID, id.clone());
        }
        let client_session = self.client_session.borrow();
        if let Some(Ok(version)) = client_session.protocol_version().map(HeaderValue::try_from) {
            headers.insert(PROTOCOL_VERSION, version);
        }
    }

    /// Gets a new session from a server that has forgotten this one. Other requests may have done it already.
    ///
    /// # Errors
    /// The server gives none.
    pub(super) async fn renew(&self, lost: &Session) -> Result<(), String> {
        let _renewing = self.renewing.lock().await;
        if *self.session.borrow() != *lost {
            return Ok(());
        }
        let failed = |reason: String| format!("its session is lost, and it gives no other: {reason}");
        let (_, lines) = Probe::begin(Opening::Legacy, self.profile);
        let initialized = frame::notification(INITIALIZED, NO_PARAMS).into_text();
        let mut session = None;
        for line in lines.iter().map(String::as_str).chain([&*initialized]) {
            let Some(outgoing) = Outgoing::parse(line.as_bytes()) else {
                continue;
            };
            let response = self.post(&outgoing, &session).await;
            let response = response.map_err(|failure| failed(failure.to_string()))?;
            if !response.status().is_success() {
                return Err(failed(Refusal::read(response).await.to_string()));
            }
            if outgoing.is_opening() {
                session = response.headers().get(SESSION_ID).cloned();
                // The connection is free once its response was read; what it says is known.
                let _ = read_body(response, REFUSAL_BYTES_MAX).await;
            }
        }
        *self.session.borrow_mut() = session;
        self.renewed.notify_waiters();
        // The server may have been started again, in another version.
        self.client_session.borrow().has_other_session();
        Ok(())
    }

    /// Waits until there is another session than this one.
    pub(super) async fn other_session(&self, session: &Session) {
        loop {
            let renewed = self.renewed.notified();
            if *self.session.borrow() != *session {
                return;
            }
            renewed.await;
        }
    }

    /// Tells a legacy server that its session has ended.
    pub(super) async fn leave(&self) {
        let session = self.session.borrow().clone();
        if session.is_none() || self.transport == Transport::Sse {
            return;
        }
        let mut headers = HeaderMap::new();
        self.add_legacy_headers(&session, &mut headers);
        let url = self.endpoint.url();
        let _ = self.endpoint.request(Method::DELETE, url, &headers, Bytes::new()).await;
    }
}

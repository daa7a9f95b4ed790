//! What hooks ask and report about the mail of an agent: which session belongs to a conversation, its waiting messages, and the
//! wait for a wake.

use std::{sync::Arc, time::Duration};

use actors::{
    model::{Activity, is_conversation},
    session::{AwaitMail, HookLeft, MailAnswer, Member, PeekMail},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep_until, timeout_at},
};

use super::service::LocalService;
use api::{
    auth::Identity,
    mcp::rpc::{Params, RpcError},
};
use common::user_broker::mail::{ActivityReport, MAIL_WAIT_MAX, Mail, MailQuery, ReportedActivity};

/// Reads the params of a method about mail.
///
/// # Errors
/// They cannot be read, or name a conversation that is too long.
fn parse<T: DeserializeOwned>(params: &Params<'_>, conversation: impl Fn(&T) -> &str) -> Result<T, RpcError> {
    let parsed: T = serde_json::from_str(params.text.unwrap_or("{}"))
        .map_err(|error| RpcError::invalid_params(format!("Invalid params: {error}")))?;
    let text = conversation(&parsed);
    if !is_conversation(text) {
        let message = "Invalid params: conversation is a text of 1 to 128 bytes on one line";
        return Err(RpcError::invalid_params(message));
    }
    Ok(parsed)
}

/// Reads a question for mail.
///
/// # Errors
/// It cannot be read, or waits for too long.
pub fn parse_query(params: &Params<'_>) -> Result<MailQuery, RpcError> {
    let query: MailQuery = parse(params, |query: &MailQuery| &query.conversation)?;
    if query.wait_seconds > MAIL_WAIT_MAX {
        let message = format!("Invalid params: wait_seconds is at most {MAIL_WAIT_MAX}");
        return Err(RpcError::invalid_params(message));
    }
    Ok(query)
}

/// Takes note of what an agent does.
///
/// # Errors
/// The report cannot be read.
pub fn report(identity: &Identity, params: &Params<'_>) -> Result<Value, RpcError> {
    let report: ActivityReport = parse(params, |report: &ActivityReport| &report.conversation)?;
    let member = session_of(identity, &report.conversation);
    if let Some(member) = &member {
        member.shared.wakes().set_activity(match report.activity {
            ReportedActivity::Busy => Activity::Busy,
            ReportedActivity::Idle => Activity::Idle,
        });
    }
    Ok(json!({"session_id": member.map(|member| member.record.id)}))
}

/// The newest session of a conversation that belongs to the caller.
fn session_of(identity: &Identity, conversation: &str) -> Option<Arc<Member>> {
    let is_own = |member: &Member| member.record.owner == *identity.owner();
    identity.project.directory().newest_of(conversation, is_own)
}

/// Answers a question for mail. It ends with the connection that asked: the caller drops the future.
pub async fn answer(service: Arc<LocalService>, identity: Arc<Identity>, query: MailQuery) -> Mail {
    if query.wait_seconds == 0 {
        let member = session_of(&identity, &query.conversation);
        return present(member.as_deref()).await;
    }
    let until = Instant::now() + Duration::from_secs(query.wait_seconds);
    loop {
        // Made before the look: it learns of every session from now on.
        let bound = service.session_bound();
        let Some(member) = session_of(&identity, &query.conversation) else {
            if timeout_at(until, bound).await.is_err() {
                return present(None).await;
            }
            continue;
        };
        match wait_at(&member, until).await {
            Waited::Answered(MailAnswer::Wake(wake)) => {
                return Mail {
                    session_id: Some(member.record.id.to_string()),
                    summary: wake.mail,
                    wake_id: Some(wake.number.to_string()),
                    is_replaced: false,
                };
            }
            Waited::Answered(MailAnswer::Replaced) => {
                return Mail {
                    is_replaced: true,
                    ..present(Some(&*member)).await
                };
            }
            Waited::TimedOut => return present(Some(&*member)).await,
            // The actor has restarted or the session has ended. A moment later there is another, or none.
            Waited::Ended => sleep_until((Instant::now() + RETRY_PAUSE).min(until)).await,
        }
        if Instant::now() >= until {
            return present(None).await;
        }
    }
}

/// The pause before a session is looked for that did not answer.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

enum Waited {
    Answered(MailAnswer),
    TimedOut,
    Ended,
}

async fn wait_at(member: &Arc<Member>, until: Instant) -> Waited {
    let (reply, answer) = oneshot::channel();
    if member.address.tell(AwaitMail { reply }).is_err() {
        return Waited::Ended;
    }
    let waiting = Waiting {
        member: Arc::clone(member),
        answer: Some(answer),
    };
    waiting.wait(until).await
}

/// A hook that waits at a session. The session is notified when it is dropped.
struct Waiting {
    member: Arc<Member>,
    answer: Option<oneshot::Receiver<MailAnswer>>,
}

impl Waiting {
    async fn wait(mut self, until: Instant) -> Waited {
        let Some(answer) = self.answer.as_mut() else {
            return Waited::Ended;
        };
        let waited = match timeout_at(until, answer).await {
            Ok(Ok(answer)) => Waited::Answered(answer),
            Ok(Err(_)) => Waited::Ended,
            Err(_) => return Waited::TimedOut,
        };
        self.answer = None;
        waited
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.answer.take().is_some() {
            // Only a full mailbox refuses it: then the session learns of it at the next wake.
            let _ = self.member.address.tell(HookLeft);
        }
    }
}

/// The waiting messages of a session now.
async fn present(member: Option<&Member>) -> Mail {
    let mut mail = Mail {
        session_id: member.map(|member| member.record.id.to_string()),
        ..Mail::default()
    };
    if let Some(member) = member {
        let (reply, answer) = oneshot::channel();
        if member.address.tell(PeekMail { reply }).is_ok()
            && let Ok(Ok(summary)) = answer.await
        {
            mail.summary = summary;
        }
    }
    mail
}

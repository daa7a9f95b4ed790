//! One follower of the desk: the open questions and the last yaps, and then what changes. With a console its response is
//! that console: questions are offered to it until the response ends.

use std::{collections::HashMap, sync::Arc, time::Duration};

use actix_web::web::Bytes;
use actors::{
    desk::{ConsoleGuard, DeskEvent, DeskFeed, DeskSummary, InboxWatch, QuestionCursor, QuestionFilter},
    model::{BrokerError, ConsoleId, Question, QuestionId, ShownYap},
    project::ProjectHandle,
};
use futures_util::FutureExt;
use rest::desk::Inbox;
use tokio::time::sleep;

use super::{Place, frame};
use crate::{http::people::QuestionReader, transport::OpenResponse};
use api::verbs::{
    desk::{desk_view, yap_view},
    questions::question_view,
};

/// Bytes after which no further event is added to what is written at once.
const CHUNK_BYTES_MAX: usize = 64 * 1024;
/// Questions of one read of the list.
const QUESTIONS_LEN: usize = 100;
/// Yaps of one read of the list, and what a follower without an id gets of the past.
const YAPS_LEN: usize = 50;
/// How the id of a yap begins in the stream.
const YAP_ID: char = 'y';

/// The topics of the desk that a follower wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeskTopics {
    pub questions: bool,
    pub yaps: bool,
    pub desk: bool,
}

impl DeskTopics {
    /// Reads a list of topics separated by commas. None for topics of the log.
    ///
    /// # Errors
    /// `InvalidArgument` for a list of both, which are different streams.
    pub fn parse(text: Option<&str>) -> Result<Option<Self>, BrokerError> {
        let mut topics = Self::default();
        let (mut of_desk, mut others) = (0, 0);
        for word in text.into_iter().flat_map(|text| text.split(',')) {
            of_desk += 1;
            match word {
                "questions" => topics.questions = true,
                "yaps" => topics.yaps = true,
                "desk" => topics.desk = true,
                _ => {
                    of_desk -= 1;
                    others += 1;
                }
            }
        }
        match (of_desk, others) {
            (0, _) => Ok(None),
            (_, 0) => Ok(Some(topics)),
            _ => {
                let reason = "questions, yaps and desk are one stream, the other topics another: follow each with its own request";
                Err(BrokerError::invalid("topics", reason))
            }
        }
    }
}

/// What a follower of the desk may see and wants to see.
pub struct DeskView {
    pub topics: DeskTopics,
    /// None for an observer, who sees no questions.
    pub reader: Option<QuestionReader>,
    /// The stream begins after this number; None: with the last ones.
    pub after_yap: Option<u64>,
}

/// Where the changes of the desk come from.
pub enum DeskSource {
    Console(ConsoleGuard),
    Watch(DeskFeed),
}

impl DeskSource {
    const fn console(&self) -> Option<ConsoleId> {
        match self {
            Self::Console(console) => Some(console.id()),
            Self::Watch(_) => None,
        }
    }

    /// The inbox of the person at the console.
    const fn inbox(&self) -> Option<&InboxWatch> {
        match self {
            Self::Console(console) => console.inbox.as_ref(),
            Self::Watch(_) => None,
        }
    }

    async fn next(&mut self) -> Option<News> {
        let console = match self {
            Self::Console(console) => console,
            Self::Watch(feed) => return feed.next().await.map(News::Desk),
        };
        let Some(watch) = &mut console.inbox else {
            return console.events.next().await.map(News::Desk);
        };
        tokio::select! {
            event = console.events.next() => event.map(News::Desk),
            is_watched = watch.changed() => Some(if is_watched { News::Inbox } else { News::InboxEnds }),
        }
    }
}

/// What a follower receives.
enum News {
    Desk(DeskEvent),
    /// Messages to the person have come.
    Inbox,
    /// The session of the person has ended, or another console has taken the place of this one.
    InboxEnds,
}

/// A follower of the desk of a project.
pub struct DeskFollower {
    project: ProjectHandle,
    view: DeskView,
    source: DeskSource,
    step: Step,
    /// The number of the last yap that was written.
    last_yap: u64,
    /// The open questions that were written, with their revisions.
    shown: HashMap<QuestionId, u64>,
    heartbeat_interval: Duration,
    response: OpenResponse,
    _place: Place,
}

/// What is written next.
#[derive(Clone, Copy, Debug)]
enum Step {
    Desk,
    Questions(Option<QuestionCursor>),
    Yaps(Option<u64>),
    Changes,
}

/// The number of a yap in an id of the stream; None for an id of another stream.
pub fn parse_yap_id(text: &str) -> Option<u64> {
    text.strip_prefix(YAP_ID)?.parse().ok()
}

impl DeskFollower {
    /// Follows the desk. `source` has begun before, so that no change is lost.
    pub fn new(
        project: ProjectHandle,
        view: DeskView,
        source: DeskSource,
        response: OpenResponse,
        heartbeat_interval: Duration,
        place: Place,
    ) -> Self {
        Self {
            project,
            last_yap: view.after_yap.unwrap_or_default(),
            view,
            source,
            step: Step::Desk,
            shown: HashMap::new(),
            heartbeat_interval,
            response,
            _place: place,
        }
    }

    /// The next bytes of the stream; None at its end. Where a list cannot be read, the stream ends and the client connects
    /// again.
    pub async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.response.closed().now_or_never().is_some() {
                return None;
            }
            let chunk = match self.step {
                Step::Desk => self.begin().await.ok()?,
                Step::Questions(after) => self.questions(after).await.ok()?,
                Step::Yaps(after) => self.yaps(after).await.ok()?,
                Step::Changes => return self.changes().await,
            };
            if !chunk.is_empty() {
                return Some(chunk.into());
            }
        }
    }

    async fn begin(&mut self) -> Result<Vec<u8>, BrokerError> {
        let desk = self.project.desk().await?;
        self.count_inbox().await;
        let mut chunk = frame::first(None).to_vec();
        self.write_desk(&mut chunk, &desk);
        self.step = Step::Questions(None);
        Ok(chunk)
    }

    async fn questions(&mut self, after: Option<QuestionCursor>) -> Result<Vec<u8>, BrokerError> {
        self.step = Step::Yaps(self.view.after_yap);
        let mut chunk = Vec::new();
        let Some(reader) = self.view.reader.as_ref().filter(|_| self.view.topics.questions) else {
            return Ok(chunk);
        };
        let filter = QuestionFilter::default();
        let page = self
            .project
            .list_questions(&reader.reader(), &filter, QUESTIONS_LEN, after)
            .await?;
        for question in &page.questions {
            self.write_question(&mut chunk, question);
        }
        if page.next.is_some() {
            self.step = Step::Questions(page.next);
        }
        Ok(chunk)
    }

    async fn yaps(&mut self, after: Option<u64>) -> Result<Vec<u8>, BrokerError> {
        self.step = Step::Changes;
        let mut chunk = Vec::new();
        if !self.view.topics.yaps {
            return Ok(chunk);
        }
        let after = match after {
            Some(seen) if self.is_beyond_last(seen).await? => {
                // Yaps are numbered from 1 again: the storage is the memory, or was replaced.
                chunk.extend_from_slice(&frame::gap(None));
                self.last_yap = 0;
                None
            }
            after => after,
        };
        let yaps = self.project.yaps(after, YAPS_LEN).await?;
        if let (Some(after), Some(first)) = (after, yaps.first())
            && first.seq > after + 1
        {
            chunk.extend_from_slice(&frame::gap(Some(first.seq - after - 1)));
        }
        for yap in &yaps {
            self.write_yap(&mut chunk, yap);
        }
        if after.is_some() && yaps.len() == YAPS_LEN {
            self.step = Step::Yaps(yaps.last().map(|last| last.seq));
        }
        Ok(chunk)
    }

    async fn is_beyond_last(&self, yap: u64) -> Result<bool, BrokerError> {
        let last = self.project.yaps(None, 1).await?;
        Ok(last.last().map_or(0, |last| last.seq) < yap)
    }

    async fn changes(&mut self) -> Option<Bytes> {
        let mut chunk = Vec::new();
        loop {
            let news = tokio::select! {
                news = self.source.next() => news?,
                _ = self.response.closed() => return None,
                () = sleep(self.heartbeat_interval) => return Some(frame::HEARTBEAT),
            };
            self.write_news(&mut chunk, news).await?;
            // What else has happened is written with it.
            while chunk.len() < CHUNK_BYTES_MAX
                && let Some(news) = self.source.next().now_or_never()
            {
                match news {
                    Some(news) => self.write_news(&mut chunk, news).await?,
                    None => break,
                }
            }
            if !chunk.is_empty() {
                return Some(chunk.into());
            }
        }
    }

    /// Writes what has happened. None: the client is to connect again.
    async fn write_news(&mut self, chunk: &mut Vec<u8>, news: News) -> Option<()> {
        match news {
            News::Desk(event) => self.write(chunk, event),
            News::Inbox => {
                self.count_inbox().await;
                let desk = self.project.desk().await.ok()?;
                self.write(chunk, DeskEvent::Desk(desk));
            }
            News::InboxEnds => {
                let DeskSource::Console(console) = &mut self.source else {
                    return Some(());
                };
                let ended = console.inbox.take()?;
                // With the next connection the person gets a session again. One with too many consoles continues without.
                self.project.session(ended.member.record.id)?;
            }
        }
        Some(())
    }

    /// Asks a shared store how many messages wait for the person.
    async fn count_inbox(&self) {
        if let Some(inbox) = self.source.inbox() {
            self.project.refresh_waiting(&[Arc::clone(&inbox.member)]).await;
        }
    }

    fn write(&mut self, chunk: &mut Vec<u8>, event: DeskEvent) {
        match event {
            DeskEvent::Question(question) if self.view.topics.questions => self.write_change(chunk, &question),
            DeskEvent::Yap(yap) if self.view.topics.yaps => self.write_yap(chunk, &yap),
            DeskEvent::Desk(desk) if self.view.topics.desk => self.write_desk(chunk, &desk),
            DeskEvent::Missed(missed) => chunk.extend_from_slice(&frame::gap(Some(missed))),
            DeskEvent::Question(_) | DeskEvent::Yap(_) | DeskEvent::Desk(_) => {}
        }
    }

    fn write_change(&mut self, chunk: &mut Vec<u8>, question: &Question) {
        let reader = self.view.reader.as_ref();
        if reader.is_some_and(|reader| reader.reader().may_read(question)) {
            self.write_question(chunk, question);
        } else if self.shown.remove(&question.id).is_some() {
            // It was handed over to another person: the lists do not have it any longer.
            chunk.extend_from_slice(&frame::gap(None));
        }
    }

    /// Writes a question, unless it has been written: a change that came before the list was read is among the changes, too.
    fn write_question(&mut self, chunk: &mut Vec<u8>, question: &Question) {
        if self
            .shown
            .get(&question.id)
            .is_some_and(|shown| *shown >= question.revision)
        {
            return;
        }
        if question.is_open() {
            self.shown.insert(question.id, question.revision);
        } else {
            self.shown.remove(&question.id);
        }
        let mut data = question_view(&self.project, question, None);
        if self.source.console().is_some_and(|own| question.console() == Some(own)) {
            data.mine = true;
        }
        frame::write(chunk, "question", None, &data);
    }

    /// Writes a yap, unless it has been written: what is held meanwhile can be in the list and among the changes.
    fn write_yap(&mut self, chunk: &mut Vec<u8>, yap: &ShownYap) {
        if yap.seq <= self.last_yap {
            return;
        }
        self.last_yap = yap.seq;
        if let Some(QuestionReader::Asker(owner)) = &self.view.reader {
            let sender = self.project.session(yap.yap.sender);
            if sender.is_none_or(|sender| sender.record.owner != *owner) {
                return;
            }
        }
        let id = format!("{YAP_ID}{}", yap.seq);
        frame::write(chunk, "yap", Some(&id), &yap_view(yap));
    }

    fn write_desk(&self, chunk: &mut Vec<u8>, desk: &DeskSummary) {
        let mut data = desk_view(desk);
        if let Some(console) = self.source.console() {
            data.console = Some(console.to_string());
        }
        if let Some(inbox) = self.source.inbox() {
            data.inbox = Some(Inbox {
                waiting: inbox.member.shared.waiting() as u64,
                changes: inbox.changes(),
            });
        }
        frame::write(chunk, "desk", None, &data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_of_the_desk_are_a_stream_of_their_own() {
        let all = DeskTopics {
            questions: true,
            yaps: true,
            desk: true,
        };
        assert_eq!(DeskTopics::parse(Some("questions,yaps,desk")).unwrap(), Some(all));
        let yaps = DeskTopics {
            yaps: true,
            ..DeskTopics::default()
        };
        assert_eq!(DeskTopics::parse(Some("yaps,yaps")).unwrap(), Some(yaps));
        for of_log in [None, Some("session"), Some(""), Some("session,nonsense")] {
            assert_eq!(DeskTopics::parse(of_log).unwrap(), None, "{of_log:?}");
        }
        for mixed in ["questions,session", "desk,", "nonsense,yaps"] {
            assert_eq!(
                DeskTopics::parse(Some(mixed)).unwrap_err().code(),
                "invalid_argument",
                "{mixed}"
            );
        }
    }

    #[test]
    fn the_id_of_a_yap_is_read_back() {
        assert_eq!(parse_yap_id("y17"), Some(17));
        for other in ["", "y", "17", "a-0-1", "y-1"] {
            assert_eq!(parse_yap_id(other), None, "{other}");
        }
    }
}

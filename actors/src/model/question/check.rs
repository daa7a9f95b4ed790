//! The bounds of a question, and whether an answer fits it.

use std::collections::BTreeSet;

use super::{
    Answer, AnswerPart, CONTEXT_BYTES_MAX, IMAGES_BYTES_MAX, IMAGES_LEN_MAX, Image, LINKS_LEN_MAX, OPTIONS_LEN_MAX,
    QUESTION_CHARACTERS_MAX, QUESTIONS_LEN_MAX, QuestionContent, QuestionItem, Refusal,
};

/// Characters of the value and of the label of an option.
const LABEL_CHARACTERS_MAX: usize = 120;
/// Characters of the description of an option.
const DESCRIPTION_CHARACTERS_MAX: usize = 500;
/// Characters of the id of a question in a form, and of the title of a link.
const TITLE_CHARACTERS_MAX: usize = 200;
/// Bytes of the address of a link.
const URI_BYTES_MAX: usize = 2_048;
/// Bytes of the text of an answer.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Characters of the summary of a question.
const SUMMARY_CHARACTERS_MAX: usize = 200;
/// Kinds of images.
const MIMES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// What the address of a link begins with: a page that shows it must not run it.
const SCHEMES: [&str; 3] = ["https://", "http://", "file://"];

fn characters(field: &str, text: &str, min: usize, max: usize) -> Result<(), Refusal> {
    if (min..=max).contains(&text.chars().count()) {
        Ok(())
    } else {
        Err(Refusal::invalid(field, format!("{min} to {max} characters")))
    }
}

fn at_most(field: &str, len: usize, max: usize, unit: &str) -> Result<(), Refusal> {
    if len <= max {
        Ok(())
    } else {
        Err(Refusal::invalid(field, format!("at most {max} {unit}")))
    }
}

fn check_images(images: &[Image]) -> Result<(), Refusal> {
    at_most("images", images.len(), IMAGES_LEN_MAX, "images")?;
    let bytes = images.iter().map(|image| image.data.len()).sum();
    at_most("images", bytes, IMAGES_BYTES_MAX, "bytes together, as base64")?;
    for image in images {
        if !MIMES.contains(&image.mime.as_str()) {
            return Err(Refusal::invalid("images.mime", format!("one of {}", MIMES.join(", "))));
        }
        let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
        if image.data.is_empty() || !image.data.bytes().all(is_base64) {
            return Err(Refusal::invalid("images.data", "base64 without line breaks"));
        }
    }
    Ok(())
}

impl QuestionContent {
    /// The content of one question without options.
    pub fn text(question: impl Into<String>) -> Self {
        Self {
            items: vec![QuestionItem::text(question)],
            ..Self::default()
        }
    }

    /// The first characters of the first question on one line.
    pub fn summary(&self) -> String {
        let first = self
            .items
            .first()
            .map(|item| item.question.as_str())
            .unwrap_or_default();
        let mut words = String::new();
        for word in first.split(|character: char| character.is_whitespace() || character.is_control()) {
            if word.is_empty() {
                continue;
            }
            if !words.is_empty() {
                words.push(' ');
            }
            words.push_str(word);
            if words.len() > 4 * SUMMARY_CHARACTERS_MAX {
                break;
            }
        }
        if words.chars().count() > SUMMARY_CHARACTERS_MAX {
            words = words.chars().take(SUMMARY_CHARACTERS_MAX - 1).chain(['…']).collect();
        }
        words
    }

    /// Checks the bounds of a new question.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] with the argument.
    pub fn check(&self) -> Result<(), Refusal> {
        let count = self.items.len();
        if count == 0 || (count > 1 && !self.is_form) {
            return Err(Refusal::invalid("question", "one question, or `questions` for a form"));
        }
        at_most("questions", count, QUESTIONS_LEN_MAX, "questions")?;
        let mut ids = BTreeSet::new();
        for item in &self.items {
            if self.is_form {
                characters("questions.id", &item.id, 1, TITLE_CHARACTERS_MAX)?;
                if !ids.insert(item.id.as_str()) {
                    let reason = format!("\"{}\" is the id of two questions", item.id);
                    return Err(Refusal::invalid("questions.id", reason));
                }
            }
            item.check(if self.is_form { "questions." } else { "" })?;
        }
        let context = self.context.as_ref().map_or(0, String::len);
        at_most("context", context, CONTEXT_BYTES_MAX, "bytes")?;
        at_most("links", self.links.len(), LINKS_LEN_MAX, "links")?;
        for (at, link) in self.links.iter().enumerate() {
            characters("links.title", &link.title, 1, TITLE_CHARACTERS_MAX)?;
            at_most("links.uri", link.uri.len(), URI_BYTES_MAX, "bytes")?;
            if !SCHEMES.iter().any(|scheme| link.uri.starts_with(scheme)) {
                let reason = format!("at [{at}]: begins with one of {}", SCHEMES.join(", "));
                return Err(Refusal::invalid("links.uri", reason));
            }
        }
        check_images(&self.images)
    }
}

impl QuestionItem {
    /// A question without options.
    pub fn text(question: impl Into<String>) -> Self {
        Self {
            id: String::new(),
            question: question.into(),
            options: Vec::new(),
            multi_select: false,
            allow_other: true,
            required: false,
        }
    }

    fn check(&self, prefix: &str) -> Result<(), Refusal> {
        let field = |name: &str| format!("{prefix}{name}");
        characters(&field("question"), &self.question, 1, QUESTION_CHARACTERS_MAX)?;
        if self.question.trim().is_empty() {
            return Err(Refusal::invalid(field("question"), "not only white space"));
        }
        at_most(&field("options"), self.options.len(), OPTIONS_LEN_MAX, "options")?;
        let mut values = BTreeSet::new();
        for option in &self.options {
            characters(&field("options.value"), &option.value, 1, LABEL_CHARACTERS_MAX)?;
            characters(&field("options.label"), &option.label, 1, LABEL_CHARACTERS_MAX)?;
            let description = option.description.as_deref().unwrap_or_default();
            characters(
                &field("options.description"),
                description,
                0,
                DESCRIPTION_CHARACTERS_MAX,
            )?;
            if !values.insert(option.value.as_str()) {
                let reason = format!("\"{}\" is the value of two options", option.value);
                return Err(Refusal::invalid(field("options.value"), reason));
            }
        }
        Ok(())
    }

    /// Whether this is an answer to the question.
    fn check_answer(&self, prefix: &str, part: &AnswerPart) -> Result<(), Refusal> {
        let field = |name: &str| format!("{prefix}{name}");
        let mut chosen = BTreeSet::new();
        for value in &part.selected {
            if !self.options.iter().any(|option| option.value == *value) {
                let known: Vec<_> = self.options.iter().map(|option| option.value.as_str()).collect();
                let reason = match known.as_slice() {
                    [] => "the question has no options: answer with text".to_owned(),
                    known => format!("no option has this value; the values are {}", known.join(", ")),
                };
                return Err(Refusal::invalid(field("selected"), reason));
            }
            if !chosen.insert(value) {
                return Err(Refusal::invalid(field("selected"), "each value once"));
            }
        }
        if chosen.len() > 1 && !self.multi_select {
            return Err(Refusal::invalid(
                field("selected"),
                "one value: the question takes one option",
            ));
        }
        for (name, text) in [("other", &part.other), ("text", &part.text)] {
            at_most(
                &field(name),
                text.as_ref().map_or(0, String::len),
                ANSWER_BYTES_MAX,
                "bytes",
            )?;
        }
        if part.other.is_some() {
            if self.options.is_empty() {
                return Err(Refusal::invalid(
                    field("other"),
                    "the question has no options: use text",
                ));
            }
            if !self.allow_other {
                return Err(Refusal::invalid(
                    field("other"),
                    "not allowed: choose one of the options",
                ));
            }
            if !chosen.is_empty() && !self.multi_select {
                return Err(Refusal::invalid(field("other"), "an option or other, not both"));
            }
        }
        if !self.options.is_empty() && !self.allow_other && chosen.is_empty() {
            return Err(Refusal::invalid(field("selected"), "choose one of the options"));
        }
        Ok(())
    }
}

impl AnswerPart {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        let is_blank = |text: &Option<String>| text.as_deref().is_none_or(|text| text.trim().is_empty());
        self.selected.is_empty() && is_blank(&self.other) && is_blank(&self.text)
    }
}

impl Answer {
    /// The answer of these words.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            part: AnswerPart {
                text: Some(text.into()),
                ..AnswerPart::default()
            },
            ..Self::default()
        }
    }

    /// Whether this is an answer to a question with this content.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] with the argument and what fits.
    pub fn check(&self, content: &QuestionContent) -> Result<(), Refusal> {
        check_images(&self.images)?;
        if !content.is_form {
            if self.answers.is_some() {
                return Err(Refusal::invalid(
                    "answers",
                    "the question is no form: use selected, other or text",
                ));
            }
            if self.part.is_empty() && self.images.is_empty() {
                return Err(Refusal::invalid("text", "an answer, or decline the question"));
            }
            return content
                .items
                .first()
                .map_or(Ok(()), |item| item.check_answer("", &self.part));
        }
        if !self.part.selected.is_empty() || self.part.other.is_some() {
            return Err(Refusal::invalid(
                "answers",
                "the question is a form: use answers, an object by question id",
            ));
        }
        at_most(
            "text",
            self.part.text.as_ref().map_or(0, String::len),
            ANSWER_BYTES_MAX,
            "bytes",
        )?;
        let answers = self.answers.iter().flatten();
        for (id, part) in answers.filter(|(_, part)| !part.is_empty()) {
            let Some(item) = content.items.iter().find(|item| item.id == *id) else {
                let ids: Vec<_> = content.items.iter().map(|item| item.id.as_str()).collect();
                let reason = format!("no question \"{id}\" in the form; its questions are {}", ids.join(", "));
                return Err(Refusal::invalid("answers", reason));
            };
            item.check_answer(&format!("answers.{id}."), part)?;
        }
        let is_answered = |item: &&QuestionItem| {
            let part = self.answers.as_ref().and_then(|answers| answers.get(&item.id));
            part.is_some_and(|part| !part.is_empty())
        };
        if let Some(missing) = content.items.iter().find(|item| item.required && !is_answered(item)) {
            return Err(Refusal::invalid(
                format!("answers.{}", missing.id),
                "this question needs an answer",
            ));
        }
        if !content.items.iter().any(|item| is_answered(&item)) && self.part.is_empty() && self.images.is_empty() {
            return Err(Refusal::invalid(
                "answers",
                "an answer to one question at least, or decline",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

//! Questions of agents to people, as every surface reads and shows them: the arguments of `clarify`, the answer of a
//! person, the view of a question, and what the asker gets.
//!
//! The project checks the bounds of questions and answers. Here are the shapes, and how long the JSON of an argument may be.

mod view;

use std::{collections::BTreeMap, fmt, time::Duration};

use actors::{
    desk::NewQuestion,
    model::{
        AddressedTo, Answer, AnswerPart, BrokerError, CONTEXT_BYTES_MAX, IMAGES_BYTES_MAX, Image, Link,
        OPTIONS_LEN_MAX, QUESTION_CHARACTERS_MAX, QUESTIONS_LEN_MAX, QuestionChoice, QuestionContent, QuestionId,
        QuestionItem,
    },
};
use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::Value;

use super::arguments::Arguments;
use common::json::JsonObject;

pub use view::{Humans, Outcome, progress_text, question_view, record_view};

/// Bytes of the JSON of a text of so many bytes at most: each is the escape of a control character, between quotes.
const fn json_of_bytes(bytes: usize) -> usize {
    bytes * 6 + 2
}

/// Bytes of the JSON of a text of so many characters at most: each is the escape of a surrogate pair.
const fn json_of_characters(characters: usize) -> usize {
    characters * 12 + 2
}

/// The argument `question_id`; None without one.
///
/// # Errors
/// `InvalidArgument` for a text that is no id.
pub fn read_id(arguments: &mut Arguments<'_>) -> Result<Option<QuestionId>, BrokerError> {
    let text = arguments.text("question_id")?;
    text.map(|text| parse_id(&text)).transpose()
}

/// The id of a question.
///
/// # Errors
/// `InvalidArgument` for a text that is no id.
pub fn parse_id(text: &str) -> Result<QuestionId, BrokerError> {
    QuestionId::parse(text).ok_or_else(|| BrokerError::invalid("question_id", "not the id of a question"))
}

/// An empty text is none.
fn given(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

/// Default of `wait_seconds`.
pub const WAIT_DEFAULT_SECONDS: f64 = 100.0;

/// Bytes of the JSON of a question.
const QUESTION_JSON_MAX: usize = json_of_characters(QUESTION_CHARACTERS_MAX);
/// Bytes of the JSON of a list of options, and of all questions of a form.
const OPTIONS_JSON_MAX: usize = json_of_characters(OPTIONS_LEN_MAX * 750);
const QUESTIONS_JSON_MAX: usize = QUESTIONS_LEN_MAX * (QUESTION_JSON_MAX + OPTIONS_JSON_MAX);
/// Bytes of the JSON of a list of images or links besides the images.
const LIST_JSON_MAX: usize = 64 * 1024;

/// What a question of a form is.
const ITEM_SHAPE: &str = "{id, question, options?, multi_select?, allow_other?, required?}";

/// Takes the arguments that describe a question: all of `clarify` but `wait_seconds`.
///
/// # Errors
/// `InvalidArgument` that names the argument.
pub fn read_question(arguments: &mut Arguments<'_>) -> Result<NewQuestion, BrokerError> {
    let (items, is_form) = read_items(arguments)?;
    let content = QuestionContent {
        items,
        is_form,
        context: given(arguments.optional_within("context", json_of_bytes(CONTEXT_BYTES_MAX))?),
        links: read_links(arguments)?,
        images: read_images(arguments)?,
    };
    content.check()?;
    let to = read_to(arguments)?;
    let expires_in = read_expires_in(arguments, &to)?;
    Ok(NewQuestion {
        content,
        urgency: arguments.optional("urgency")?.unwrap_or_default(),
        to,
        expires_in,
        on_expiry: read_on_expiry(arguments)?,
        idempotency_key: read_key(arguments)?,
        is_sensitive: arguments.optional("sensitive")?.unwrap_or_default(),
    })
}

/// What the keys of `permission_prompt` begin with. Other calls cannot use them, so that none prepares an answer to it.
pub const PERMISSION_KEYS: &str = "permission:";

fn read_key(arguments: &mut Arguments<'_>) -> Result<Option<String>, BrokerError> {
    let key: Option<String> = given(arguments.optional("idempotency_key")?);
    if key.as_ref().is_some_and(|key| key.starts_with(PERMISSION_KEYS)) {
        let reason =
            format!("keys that begin with `{PERMISSION_KEYS}` are those of permission_prompt: choose another one");
        return Err(BrokerError::invalid("idempotency_key", reason));
    }
    Ok(key)
}

/// The questions, and whether they are a form.
fn read_items(arguments: &mut Arguments<'_>) -> Result<(Vec<QuestionItem>, bool), BrokerError> {
    let single = arguments.optional_within::<String>("question", QUESTION_JSON_MAX)?;
    let form = arguments.list_within::<JsonObject<Item>>("questions", QUESTIONS_JSON_MAX, ITEM_SHAPE)?;
    let options =
        arguments.list_within::<Choice>("options", OPTIONS_JSON_MAX, "a text, or {value, label, description?}")?;
    let multi_select = arguments.optional::<bool>("multi_select")?;
    let allow_other = arguments.optional::<bool>("allow_other")?;
    let Some(form) = form else {
        let question =
            single.ok_or_else(|| BrokerError::invalid("question", "required, unless there are questions"))?;
        let item = QuestionItem {
            id: String::new(),
            question,
            options: choices(options.unwrap_or_default()),
            multi_select: multi_select.unwrap_or(false),
            allow_other: allow_other.unwrap_or(true),
            required: false,
        };
        return Ok((vec![item], false));
    };
    for (name, is_given) in [
        ("question", single.is_some()),
        ("options", options.is_some()),
        ("multi_select", multi_select.is_some()),
        ("allow_other", allow_other.is_some()),
    ] {
        if is_given {
            return Err(BrokerError::invalid(
                name,
                "not together with questions: each of them has its own",
            ));
        }
    }
    let item = |JsonObject(item): JsonObject<Item>| QuestionItem {
        id: item.id,
        question: item.question,
        options: choices(item.options.unwrap_or_default()),
        multi_select: item.multi_select.unwrap_or(false),
        allow_other: item.allow_other.unwrap_or(true),
        required: item.required.unwrap_or(false),
    };
    Ok((form.into_iter().map(item).collect(), true))
}

/// A question of a form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    id: String,
    question: String,
    options: Option<Vec<Choice>>,
    multi_select: Option<bool>,
    allow_other: Option<bool>,
    required: Option<bool>,
}

/// An option: an object, or a text that is value and label in one.
struct Choice(QuestionChoice);

fn choices(options: Vec<Choice>) -> Vec<QuestionChoice> {
    options.into_iter().map(|Choice(choice)| choice).collect()
}

impl<'de> Deserialize<'de> for Choice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Whole {
            value: String,
            label: Option<String>,
            description: Option<String>,
        }
        struct ChoiceVisitor;
        impl<'de> Visitor<'de> for ChoiceVisitor {
            type Value = Choice;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, or an object with value and label")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Choice, E> {
                Ok(Choice(QuestionChoice {
                    value: text.to_owned(),
                    label: text.to_owned(),
                    description: None,
                }))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Choice, A::Error> {
                let Whole {
                    value,
                    label,
                    description,
                } = Whole::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Choice(QuestionChoice {
                    label: label.unwrap_or_else(|| value.clone()),
                    value,
                    description: given(description),
                }))
            }
        }
        deserializer.deserialize_any(ChoiceVisitor)
    }
}

fn read_links(arguments: &mut Arguments<'_>) -> Result<Vec<Link>, BrokerError> {
    let links = arguments.list_within::<JsonObject<Link>>("links", LIST_JSON_MAX, "{title, uri}")?;
    let links: Vec<Link> = unwrapped(links);
    if links.iter().any(|link| link.uri.contains(char::is_whitespace)) {
        return Err(BrokerError::invalid("links.uri", "no white space"));
    }
    Ok(links)
}

/// The argument `images`.
fn read_images(arguments: &mut Arguments<'_>) -> Result<Vec<Image>, BrokerError> {
    let images =
        arguments.list_within::<JsonObject<Image>>("images", IMAGES_BYTES_MAX + LIST_JSON_MAX, "{mime, data}")?;
    Ok(unwrapped(images))
}

fn unwrapped<T>(list: Option<Vec<JsonObject<T>>>) -> Vec<T> {
    list.into_iter().flatten().map(|JsonObject(value)| value).collect()
}

/// The name of a person or of a role.
fn read_to(arguments: &mut Arguments<'_>) -> Result<AddressedTo, BrokerError> {
    let to = arguments.text("to")?;
    Ok(to.map_or(AddressedTo::Anyone, |to| to.into_owned().into()))
}

/// None for a question that lives until it is cancelled.
fn read_expires_in(arguments: &mut Arguments<'_>, to: &AddressedTo) -> Result<Option<Duration>, BrokerError> {
    const NAME: &str = "expires_in_seconds";
    let allowed = NewQuestion::EXPIRES_IN_MIN..=NewQuestion::EXPIRES_IN_MAX;
    match arguments.optional::<u64>(NAME)?.map(Duration::from_secs) {
        None => Ok(Some(NewQuestion::EXPIRES_IN_DEFAULT)),
        Some(Duration::ZERO) if *to == AddressedTo::Anyone => Err(BrokerError::invalid(
            NAME,
            "0, which means until it is cancelled, needs the name of a person or a role in to",
        )),
        Some(Duration::ZERO) => Ok(None),
        Some(time) if allowed.contains(&time) => Ok(Some(time)),
        Some(_) => {
            let (least, most) = (allowed.start().as_secs(), allowed.end().as_secs());
            Err(BrokerError::invalid(
                NAME,
                format!("a whole number from {least} to {most}, or 0"),
            ))
        }
    }
}

/// `none`, or the value that the asker gets back when the question expires.
fn read_on_expiry(arguments: &mut Arguments<'_>) -> Result<Option<Value>, BrokerError> {
    const NAME: &str = "on_expiry";
    let refuse = || BrokerError::invalid(NAME, "none, or an object with a value and nothing else");
    match arguments.optional_within::<Value>(NAME, NewQuestion::ON_EXPIRY_BYTES_MAX + 64)? {
        None => Ok(None),
        Some(Value::String(word)) if word == "none" => Ok(None),
        Some(Value::Object(mut object)) => {
            let value = object.remove("value").filter(|_| object.is_empty());
            value
                .map(|value| Some(value).filter(|value| !value.is_null()))
                .ok_or_else(refuse)
        }
        Some(_) => Err(refuse()),
    }
}

/// Bytes of the JSON of the text of an answer.
const TEXT_JSON_MAX: usize = json_of_bytes(64 * 1024);
/// Bytes of the JSON of the chosen options.
const SELECTED_JSON_MAX: usize = json_of_characters(OPTIONS_LEN_MAX * 128);
/// Bytes of the JSON of the answers to a form.
const ANSWERS_JSON_MAX: usize = 1024 * 1024;
/// Characters of a reason.
const REASON_CHARACTERS_MAX: usize = 2_000;

/// Takes the arguments of an answer.
///
/// # Errors
/// `InvalidArgument` that names the argument.
pub fn read_answer(arguments: &mut Arguments<'_>) -> Result<Answer, BrokerError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Part {
        #[serde(default)]
        selected: Vec<String>,
        other: Option<String>,
        text: Option<String>,
    }
    let part = AnswerPart {
        selected: arguments
            .optional_within("selected", SELECTED_JSON_MAX)?
            .unwrap_or_default(),
        other: given(arguments.optional_within("other", json_of_characters(QUESTION_CHARACTERS_MAX))?),
        text: given(arguments.optional_within("text", TEXT_JSON_MAX)?),
    };
    let answers = arguments.optional_within::<BTreeMap<String, Part>>("answers", ANSWERS_JSON_MAX)?;
    let read = |(id, part): (String, Part)| {
        let part = AnswerPart {
            selected: part.selected,
            other: given(part.other),
            text: given(part.text),
        };
        (id, part)
    };
    Ok(Answer {
        part,
        answers: answers.map(|answers| answers.into_iter().map(read).collect()),
        images: read_images(arguments)?,
    })
}

/// The reason of a person who declines, or of an agent that cancels.
///
/// # Errors
/// `InvalidArgument` for one that is too long.
pub fn read_reason(arguments: &mut Arguments<'_>) -> Result<Option<String>, BrokerError> {
    let reason = given(arguments.optional_within("reason", json_of_characters(REASON_CHARACTERS_MAX))?);
    if reason
        .as_ref()
        .is_some_and(|reason| reason.chars().count() > REASON_CHARACTERS_MAX)
    {
        let text = format!("at most {REASON_CHARACTERS_MAX} characters");
        return Err(BrokerError::invalid("reason", text));
    }
    Ok(reason)
}

#[cfg(test)]
mod tests;

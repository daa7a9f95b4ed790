//! The arguments of `clarify`.

use std::{collections::BTreeSet, time::Duration};

use actors::{
    desk::NewQuestion,
    model::{
        AddressedTo, BrokerError, CONTEXT_BYTES_MAX, IMAGES_BYTES_MAX, IMAGES_LEN_MAX, Image, LINKS_LEN_MAX, Link,
        OPTIONS_LEN_MAX, QUESTION_CHARACTERS_MAX, QUESTIONS_LEN_MAX, QuestionChoice, QuestionContent, QuestionItem,
    },
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    ITEM_ID, JSON_PER_CHARACTER, LINK_TITLE, OPTION_DESCRIPTION, OPTION_LABEL, OPTION_VALUE, QUESTION, TO,
    bounds::URI_BYTES_MAX, check_images, check_len, check_text,
};
use crate::{
    json::JsonObject,
    refusal::json_error_reason,
    verbs::{arguments::Arguments, sending::HEADER_LEN_MAX},
};

/// Bytes of the JSON of a list of options, and of all questions of a form.
const OPTIONS_JSON_MAX: usize = OPTIONS_LEN_MAX * 750 * JSON_PER_CHARACTER;
const QUESTIONS_JSON_MAX: usize = QUESTIONS_LEN_MAX * (QUESTION_CHARACTERS_MAX * JSON_PER_CHARACTER + OPTIONS_JSON_MAX);
/// How links begin: the page and consoles open them.
const LINK_BEGINNINGS: [&str; 3] = ["https://", "http://", "file:///"];

/// Takes the arguments that describe a question: all of `clarify` but `wait_seconds`.
///
/// # Errors
/// `InvalidArgument` that names the argument.
pub fn read_question(arguments: &mut Arguments<'_>) -> Result<NewQuestion, BrokerError> {
    let (items, is_form) = read_items(arguments)?;
    let content = QuestionContent {
        items,
        is_form,
        context: read_context(arguments)?,
        links: read_links(arguments)?,
        images: read_images(arguments)?,
    };
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

/// The questions, and whether they are a form.
fn read_items(arguments: &mut Arguments<'_>) -> Result<(Vec<QuestionItem>, bool), BrokerError> {
    let question_len_max = QUESTION_CHARACTERS_MAX * JSON_PER_CHARACTER;
    let single = arguments.optional_within::<String>("question", question_len_max)?;
    let form = arguments.optional_within::<Vec<Value>>("questions", QUESTIONS_JSON_MAX)?;
    let options = arguments.optional_within::<Vec<Value>>("options", OPTIONS_JSON_MAX)?;
    let multi_select = arguments.optional::<bool>("multi_select")?;
    let allow_other = arguments.optional::<bool>("allow_other")?;
    let Some(form) = form else {
        let question =
            single.ok_or_else(|| BrokerError::invalid("question", "required, unless there are questions"))?;
        check_text("question", &question, &QUESTION)?;
        let item = QuestionItem {
            id: String::new(),
            question,
            options: read_options("options", options.unwrap_or_default())?,
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
                "not beside questions: each of them has its own",
            ));
        }
    }
    if !(1..=QUESTIONS_LEN_MAX).contains(&form.len()) {
        return Err(BrokerError::invalid("questions", format!("1 to {QUESTIONS_LEN_MAX}")));
    }
    let mut ids = BTreeSet::new();
    let mut items = Vec::with_capacity(form.len());
    for (at, item) in form.into_iter().enumerate() {
        let item = read_item(&format!("questions[{at}]"), item)?;
        if !ids.insert(item.id.clone()) {
            return Err(BrokerError::invalid(format!("questions[{at}].id"), "used twice"));
        }
        items.push(item);
    }
    Ok((items, true))
}

fn read_item(field: &str, item: Value) -> Result<QuestionItem, BrokerError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Item {
        id: String,
        question: String,
        options: Option<Vec<Value>>,
        multi_select: Option<bool>,
        allow_other: Option<bool>,
        required: Option<bool>,
    }
    let item: Item = read_object(field, item)?;
    check_text(&format!("{field}.id"), &item.id, &ITEM_ID)?;
    check_text(&format!("{field}.question"), &item.question, &QUESTION)?;
    Ok(QuestionItem {
        id: item.id,
        question: item.question,
        options: read_options(&format!("{field}.options"), item.options.unwrap_or_default())?,
        multi_select: item.multi_select.unwrap_or(false),
        allow_other: item.allow_other.unwrap_or(true),
        required: item.required.unwrap_or(false),
    })
}

/// Options are objects, or texts that are value and label in one.
fn read_options(field: &str, options: Vec<Value>) -> Result<Vec<QuestionChoice>, BrokerError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Choice {
        value: String,
        label: Option<String>,
        description: Option<String>,
    }
    check_len(field, options.len(), OPTIONS_LEN_MAX)?;
    let mut values = BTreeSet::new();
    let mut choices = Vec::with_capacity(options.len());
    for (at, option) in options.into_iter().enumerate() {
        let field = format!("{field}[{at}]");
        let choice = match option {
            Value::String(text) => QuestionChoice {
                value: text.clone(),
                label: text,
                description: None,
            },
            option => {
                let Choice {
                    value,
                    label,
                    description,
                } = read_object(&field, option)?;
                QuestionChoice {
                    label: label.unwrap_or_else(|| value.clone()),
                    value,
                    description: description.filter(|text| !text.is_empty()),
                }
            }
        };
        check_text(&format!("{field}.value"), &choice.value, &OPTION_VALUE)?;
        check_text(&format!("{field}.label"), &choice.label, &OPTION_LABEL)?;
        let description = choice.description.as_deref().unwrap_or_default();
        check_text(&format!("{field}.description"), description, &OPTION_DESCRIPTION)?;
        if !values.insert(choice.value.clone()) {
            return Err(BrokerError::invalid(format!("{field}.value"), "used twice"));
        }
        choices.push(choice);
    }
    Ok(choices)
}

/// An element of a list, which must be an object.
fn read_object<T: DeserializeOwned>(field: &str, value: Value) -> Result<T, BrokerError> {
    let read = serde_json::from_value::<JsonObject<T>>(value);
    let JsonObject(object) = read.map_err(|error| BrokerError::invalid(field, json_error_reason(&error)))?;
    Ok(object)
}

fn read_context(arguments: &mut Arguments<'_>) -> Result<Option<String>, BrokerError> {
    let context = arguments.optional_within::<String>("context", CONTEXT_BYTES_MAX * 6)?;
    if context
        .as_ref()
        .is_some_and(|context| context.len() > CONTEXT_BYTES_MAX)
    {
        return Err(BrokerError::invalid(
            "context",
            format!("at most {CONTEXT_BYTES_MAX} bytes"),
        ));
    }
    Ok(context.filter(|context| !context.is_empty()))
}

fn read_links(arguments: &mut Arguments<'_>) -> Result<Vec<Link>, BrokerError> {
    let links = arguments.optional::<Vec<Link>>("links")?.unwrap_or_default();
    check_len("links", links.len(), LINKS_LEN_MAX)?;
    for (at, link) in links.iter().enumerate() {
        check_text(&format!("links[{at}].title"), &link.title, &LINK_TITLE)?;
        let opens = LINK_BEGINNINGS.iter().any(|start| link.uri.starts_with(start));
        let is_plain = !link.uri.contains(|c: char| c.is_control() || c.is_whitespace());
        if link.uri.len() > URI_BYTES_MAX || !is_plain || !opens {
            let reason = format!(
                "{} …, at most {URI_BYTES_MAX} bytes without white space",
                LINK_BEGINNINGS.join(", ")
            );
            return Err(BrokerError::invalid(format!("links[{at}].uri"), reason));
        }
    }
    Ok(links)
}

/// The argument `images`.
pub(super) fn read_images(arguments: &mut Arguments<'_>) -> Result<Vec<Image>, BrokerError> {
    let len_max = IMAGES_BYTES_MAX + IMAGES_LEN_MAX * 256;
    let images = arguments.optional_within::<Vec<Image>>("images", len_max)?;
    let images = images.unwrap_or_default();
    check_images(&images)?;
    Ok(images)
}

/// The name of a person or of a role.
pub(super) fn read_to(arguments: &mut Arguments<'_>) -> Result<AddressedTo, BrokerError> {
    let Some(to) = arguments.text("to")? else {
        return Ok(AddressedTo::Anyone);
    };
    check_text("to", &to, &TO)?;
    if to.contains(char::is_control) || to.trim() != to {
        let reason = "the name of a person or a role: no control characters, no white space at either end";
        return Err(BrokerError::invalid("to", reason));
    }
    Ok(to.into_owned().into())
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
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct OnExpiry {
        value: Value,
    }
    match arguments.optional_within::<Value>("on_expiry", NewQuestion::ON_EXPIRY_BYTES_MAX)? {
        None => Ok(None),
        Some(Value::String(word)) if word == "none" => Ok(None),
        Some(object @ Value::Object(_)) => {
            let OnExpiry { value } = read_object("on_expiry", object)?;
            Ok(Some(value).filter(|value| !value.is_null()))
        }
        Some(_) => Err(BrokerError::invalid("on_expiry", "none, or an object with a value")),
    }
}

/// The argument `idempotency_key`.
fn read_key(arguments: &mut Arguments<'_>) -> Result<Option<String>, BrokerError> {
    let key = arguments.text("idempotency_key")?.filter(|key| !key.is_empty());
    if key.as_ref().is_some_and(|key| key.len() > HEADER_LEN_MAX) {
        let reason = format!("at most {HEADER_LEN_MAX} bytes");
        return Err(BrokerError::invalid("idempotency_key", reason));
    }
    Ok(key.map(Into::into))
}

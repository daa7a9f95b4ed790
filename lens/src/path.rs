//! Places in a payload: JSON Pointers (RFC 6901) in which the token `*` means every item of an array.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize, Serializer, ser::SerializeSeq};

/// The longest path of an operation, in tokens.
const TOKENS_MAX: usize = 16;
/// The places that a list shows.
const PLACES_MAX: usize = 32;

/// One step into a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Token {
    /// The member of this name.
    Name(String),
    /// Every item, written `*`.
    Items,
}

/// A place in a payload. A member with the name `*` is written `~2`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Path(pub(crate) Vec<Token>);

impl Path {
    /// Reads a path of an operation.
    ///
    /// # Errors
    /// The reason, for a text that is no such pointer and for more than 16 tokens.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some(tokens) = text.strip_prefix('/') else {
            return if text.is_empty() {
                Ok(Self::default())
            } else {
                Err(format!("a path begins with /, unlike `{text}`"))
            };
        };
        let tokens: Vec<_> = tokens.split('/').map(token).collect::<Result<_, _>>()?;
        if tokens.len() > TOKENS_MAX {
            return Err(format!("a path has at most {TOKENS_MAX} tokens"));
        }
        Ok(Self(tokens))
    }

    /// The place that contains this one, and the name that this one has there. None for the payload and for items.
    pub(crate) fn split_name(&self) -> Option<(&[Token], &str)> {
        match self.0.split_last()? {
            (Token::Name(name), parent) => Some((parent, name)),
            (Token::Items, _) => None,
        }
    }

    /// The tokens up to the last `*`, and the names after it.
    pub(crate) fn below_items(&self) -> (&[Token], &[Token]) {
        let at = self
            .0
            .iter()
            .rposition(|token| *token == Token::Items)
            .map_or(0, |at| at + 1);
        self.0.split_at(at)
    }

    pub(crate) fn join(parent: &[Token], name: &str) -> Self {
        Self::of(parent).child(name)
    }

    pub(crate) fn of(tokens: &[Token]) -> Self {
        Self(tokens.to_vec())
    }

    pub(crate) fn child(mut self, name: &str) -> Self {
        self.0.push(Token::Name(name.to_owned()));
        self
    }

    pub(crate) fn items(mut self) -> Self {
        self.0.push(Token::Items);
        self
    }
}

fn token(text: &str) -> Result<Token, String> {
    if text == "*" {
        return Ok(Token::Items);
    }
    let mut name = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        name.push(match c {
            '~' => match chars.next() {
                Some('0') => '~',
                Some('1') => '/',
                Some('2') => '*',
                _ => return Err("after ~ comes 0, 1 or 2".to_owned()),
            },
            c => c,
        });
    }
    Ok(Token::Name(name))
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for token in &self.0 {
            match token {
                Token::Items => f.write_str("/*")?,
                Token::Name(name) if name == "*" => f.write_str("/~2")?,
                Token::Name(name) => write!(f, "/{}", escaped(name))?,
            }
        }
        Ok(())
    }
}

impl TryFrom<String> for Path {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

impl From<Path> for String {
    fn from(path: Path) -> Self {
        path.to_string()
    }
}

/// The way to a place in a value that is walked. It is written down only where the place is noted.
#[derive(Clone, Copy)]
pub(crate) enum Trail<'t> {
    Start,
    Member(&'t Self, &'t str),
    Item(&'t Self, usize),
}

impl<'t> Trail<'t> {
    pub fn member(&'t self, name: &'t str) -> Self {
        Self::Member(self, name)
    }

    pub fn item(&'t self, index: usize) -> Self {
        Self::Item(self, index)
    }

    /// The place, which is the same for every item of an array.
    pub fn path(&self) -> Path {
        match self {
            Self::Start => Path::default(),
            Self::Member(before, name) => before.path().child(name),
            Self::Item(before, _) => before.path().items(),
        }
    }

    /// The JSON Pointer, with the indexes of items.
    pub fn pointer(&self) -> String {
        match self {
            Self::Start => String::new(),
            Self::Member(before, name) => before.pointer() + "/" + &escaped(name),
            Self::Item(before, index) => before.pointer() + "/" + &index.to_string(),
        }
    }
}

/// A name as a token of a JSON Pointer.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Places of a payload, in order. Serialized as a list of at most 32 pointers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places(BTreeSet<Path>);

impl Places {
    /// Whether there are more places than a list shows.
    pub fn more(&self) -> bool {
        self.0.len() > PLACES_MAX
    }

    /// Whether there is no place.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The places that a list shows.
    pub fn iter(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().take(PLACES_MAX)
    }

    /// The first 32 places and whether there are more decide what is shown, so that further ones are not kept.
    pub(crate) fn insert(&mut self, path: Path) {
        self.0.insert(path);
        if self.0.len() > PLACES_MAX + 1 {
            self.0.pop_last();
        }
    }
}

impl FromIterator<Path> for Places {
    fn from_iter<I: IntoIterator<Item = Path>>(paths: I) -> Self {
        let mut places = Self::default();
        paths.into_iter().for_each(|path| places.insert(path));
        places
    }
}

impl Serialize for Places {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        for path in self.iter() {
            list.serialize_element(path)?;
        }
        list.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_written_as_it_is_read() {
        for text in ["", "/", "/a", "/a/*/b", "/~0~1~2x", "/~2", "//x"] {
            let path = Path::parse(text).unwrap();
            assert_eq!(Path::parse(&path.to_string()).unwrap(), path, "{text}");
        }
        assert_eq!(Path::parse("/~2").unwrap().0, [Token::Name("*".to_owned())]);
        assert_eq!(Path::parse("/*").unwrap().0, [Token::Items]);
        assert_eq!(Path::parse("/a~1b~0c").unwrap().0, [Token::Name("a/b~c".to_owned())]);
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for text in ["a", "/~", "/~3", "*"] {
            assert!(Path::parse(text).is_err(), "{text}");
        }
        assert!(Path::parse(&"/a".repeat(16)).is_ok());
        assert!(Path::parse(&"/a".repeat(17)).is_err());
    }

    #[test]
    fn a_list_of_places_is_bounded() {
        let places: Places = (0..100).map(|at| Path::default().child(&format!("{at:03}"))).collect();
        assert_eq!((places.iter().count(), places.more()), (32, true));
        assert_eq!(places.iter().next().unwrap().to_string(), "/000");
    }
}

//! What a payload has that is not there after the way there and back: the loss, and the complement that restores it.

use std::cmp::Ordering;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::{
    TransformError,
    act::scalar_equal,
    path::{Places, Trail},
    payload::{DEPTH_MAX, Kind, Node, Work, position, quoted, remove},
};

/// The largest complement, in bytes.
const COMPLEMENT_LEN_MAX: usize = 16 * 1024;
/// Work of comparing two values, in nanoseconds of the slowest case measured.
const COMPARE: usize = 60;

/// The comparison of a payload with what the way back gives.
#[derive(Debug, Default)]
pub(crate) struct Difference {
    /// The highest places that the payload has and that differ.
    pub loss: Places,
    /// The entries of a complement, while they fit into one.
    entries: Option<String>,
}

impl Difference {
    /// Compares.
    pub fn of(
        was: &mut Node<'_>,
        back: &mut Node<'_>,
        wants_complement: bool,
        work: &mut Work<'_>,
    ) -> Result<Self, TransformError> {
        let mut difference = Self {
            entries: wants_complement.then(String::new),
            ..Self::default()
        };
        difference.compare(&Trail::Start, was, back, wants_complement, DEPTH_MAX, work)?;
        Ok(difference)
    }

    /// The complement of a path through these versions; None if nothing has to be restored, or too much.
    pub fn complement(&self, versions: &[String]) -> Option<String> {
        let entries = self.entries.as_ref().filter(|entries| !entries.is_empty())?;
        let path = serde_json::to_string(versions).ok()?;
        let complement = format!("{{\"path\":{path},\"entries\":[{entries}]}}");
        (complement.len() <= COMPLEMENT_LEN_MAX).then_some(complement)
    }

    /// Whether both are the same value.
    fn compare(
        &mut self,
        at: &Trail<'_>,
        was: &mut Node<'_>,
        is: &mut Node<'_>,
        records: bool,
        depth: usize,
        work: &mut Work<'_>,
    ) -> Result<bool, TransformError> {
        work.spend(COMPARE)?;
        if let (Kind::Text(was), Kind::Text(is)) = (&was.kind, &is.kind) {
            work.spend_bytes(was.len())?;
            if was == is {
                return Ok(true);
            }
        }
        let kinds = (was.text().as_bytes().first(), is.text().as_bytes().first());
        match kinds {
            (Some(b'{'), Some(b'{')) if depth > 0 => self.compare_objects(at, was, is, records, depth - 1, work),
            (Some(b'['), Some(b'[')) if depth > 0 => self.compare_arrays(at, was, is, records, depth - 1, work),
            (Some(b'{' | b'['), _) | (_, Some(b'{' | b'[')) => self.differ(at, Some(was), Some(is), records, work),
            _ if scalar_equal(was.text(), is.text()) => Ok(true),
            _ => self.differ(at, Some(was), Some(is), records, work),
        }
    }

    fn compare_objects(
        &mut self,
        at: &Trail<'_>,
        was: &mut Node<'_>,
        is: &mut Node<'_>,
        records: bool,
        depth: usize,
        work: &mut Work<'_>,
    ) -> Result<bool, TransformError> {
        let (Some(was), Some(is)) = (was.members(work)?, is.members(work)?) else {
            return Ok(false);
        };
        let mut is_equal = true;
        // Members mostly have the same order, so the search begins after the one found before.
        let (mut next, mut seen) = (0, vec![false; is.len()]);
        for (name, value) in was.iter_mut() {
            let after = is[next..]
                .iter()
                .position(|(other, _)| other == name)
                .map(|place| next + place);
            let found = after.or_else(|| is[..next].iter().position(|(other, _)| other == name));
            work.spend(found.map_or(is.len(), |place| (place + is.len() - next) % is.len().max(1)))?;
            let here = at.member(name);
            is_equal &= match found {
                Some(place) => {
                    (next, seen[place]) = (place + 1, true);
                    self.compare(&here, value, &mut is[place].1, records, depth, work)?
                }
                None => self.differ(&here, Some(value), None, records, work)?,
            };
        }
        for ((name, value), _) in is.iter_mut().zip(seen).filter(|(_, seen)| !seen) {
            is_equal &= self.differ(&at.member(name), None, Some(value), records, work)?;
        }
        Ok(is_equal)
    }

    /// Items are compared and restored as wholes, and an array of another length as one.
    fn compare_arrays(
        &mut self,
        at: &Trail<'_>,
        was_array: &mut Node<'_>,
        is_array: &mut Node<'_>,
        records: bool,
        depth: usize,
        work: &mut Work<'_>,
    ) -> Result<bool, TransformError> {
        let (Some(was), Some(is)) = (was_array.items(work)?, is_array.items(work)?) else {
            return Ok(false);
        };
        let same_len = was.len() == is.len();
        let mut is_equal = same_len;
        for (index, (was, is)) in was.iter_mut().zip(is.iter_mut()).enumerate() {
            let here = at.item(index);
            let same = self.compare(&here, was, is, false, depth, work)?;
            if !same && records && same_len {
                self.record(&here, Some(was), Some(is), work)?;
            }
            is_equal &= same;
        }
        match was.len().cmp(&is.len()) {
            Ordering::Greater => self.loss.insert(at.path().items()),
            Ordering::Less => self.loss.insert(at.path()),
            Ordering::Equal => {}
        }
        if !same_len && records {
            self.record(at, Some(was_array), Some(is_array), work)?;
        }
        Ok(is_equal)
    }

    fn differ(
        &mut self,
        at: &Trail<'_>,
        was: Option<&Node<'_>>,
        is: Option<&Node<'_>>,
        records: bool,
        work: &mut Work<'_>,
    ) -> Result<bool, TransformError> {
        if was.is_some() {
            self.loss.insert(at.path());
        }
        if records {
            self.record(at, was, is, work)?;
        }
        Ok(false)
    }

    /// Adds an entry: what the place had, and what the way back gives there.
    fn record(
        &mut self,
        at: &Trail<'_>,
        was: Option<&Node<'_>>,
        is: Option<&Node<'_>>,
        work: &mut Work<'_>,
    ) -> Result<(), TransformError> {
        let Some(mut entries) = self.entries.take() else {
            return Ok(());
        };
        if !entries.is_empty() {
            entries.push(',');
        }
        entries += "{\"at\":";
        entries += &quoted(&at.pointer());
        for (name, value) in [(",\"was\":", was), (",\"is\":", is)] {
            let Some(value) = value else { continue };
            entries += name;
            match value.write(&mut entries, COMPLEMENT_LEN_MAX, work) {
                Ok(()) => {}
                Err(TransformError::TooLarge) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        entries.push('}');
        self.entries = Some(entries);
        Ok(())
    }
}

#[derive(Deserialize)]
pub(crate) struct Complement<'a> {
    /// The versions on the way there.
    path: Vec<String>,
    #[serde(borrow)]
    entries: Vec<Entry<'a>>,
}

#[derive(Deserialize)]
struct Entry<'a> {
    at: String,
    #[serde(borrow, default, deserialize_with = "present")]
    was: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    is: Option<&'a RawValue>,
}

/// Keeps null apart from an absent member.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl<'a> Complement<'a> {
    /// Reads a complement of the reverse of a path; None if it is of another path, or is none.
    pub fn read(text: &'a str, versions: &[String]) -> Option<Self> {
        if text.len() > COMPLEMENT_LEN_MAX {
            return None;
        }
        let complement: Self = serde_json::from_str(text).ok()?;
        complement.path.iter().rev().eq(versions).then_some(complement)
    }

    /// Restores what the way there lost, where the payload has what the way back gave then.
    pub fn restore(&self, payload: &mut Node<'a>, work: &mut Work<'_>) -> Result<(), TransformError> {
        for entry in &self.entries {
            let mut names = entry
                .at
                .split('/')
                .skip(1)
                .map(|name| name.replace("~1", "/").replace("~0", "~"));
            let names: Vec<_> = names.by_ref().collect();
            if let Some((last, parents)) = names.split_last().filter(|_| names.len() <= DEPTH_MAX) {
                entry.restore(payload, parents, last, work)?;
            }
        }
        Ok(())
    }
}

impl<'a> Entry<'a> {
    fn restore(
        &self,
        node: &mut Node<'a>,
        parents: &[String],
        last: &str,
        work: &mut Work<'_>,
    ) -> Result<(), TransformError> {
        if let Some((first, rest)) = parents.split_first() {
            return match find(node, first, work)? {
                Some(inside) => self.restore(inside, rest, last, work),
                None => Ok(()),
            };
        }
        let holds = match (find(node, last, work)?, self.is) {
            (Some(now), Some(then)) => {
                let mut then = Node::of(then.get());
                Difference::default().compare(&Trail::Start, &mut then, now, false, DEPTH_MAX, work)?
            }
            (None, None) => true,
            _ => false,
        };
        if !holds {
            return Ok(());
        }
        match (self.was, find(node, last, work)?) {
            (Some(was), Some(now)) => *now = Node::of(was.get()),
            (Some(was), None) => {
                if let Some(members) = node.members(work)? {
                    members.push((last.to_owned().into(), Node::of(was.get())));
                }
            }
            (None, _) => {
                if let Some(members) = node.members(work)?
                    && let Some(at) = position(members, last, work)?
                {
                    remove(members, at, work)?;
                }
            }
        }
        Ok(())
    }
}

/// The member or the item of a name or an index.
fn find<'n, 'a>(
    node: &'n mut Node<'a>,
    name: &str,
    work: &mut Work<'_>,
) -> Result<Option<&'n mut Node<'a>>, TransformError> {
    if node.text().starts_with('[') {
        let items = node.items(work)?;
        return Ok(items.and_then(|items| items.get_mut(name.parse::<usize>().ok()?)));
    }
    let Some(members) = node.members(work)? else {
        return Ok(None);
    };
    Ok(position(members, name, work)?.map(|at| &mut members[at].1))
}
